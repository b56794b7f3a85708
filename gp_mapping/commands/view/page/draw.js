"use strict";
// Drawing and arithmetic of the page; knows nothing of the network.

const RAMPS = {
  // viridis and magma in nine steps: even in brightness, readable without red and green
  mean: ["440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725"],
  stddev: ["000004", "1d1147", "51127c", "832681", "b73779", "e75263", "fc8961", "fec488", "fcfdbf"],
};

// 256 colours of a ramp, as rgb triples.
function colours(name) {
  const stops = RAMPS[name].map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2), f = at - k;
    return stops[k].map((v, c) => Math.round(v + f * (stops[k + 1][c] - v)));
  });
}

// What view_map.encode_map writes.
function decodeMap(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const map = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const cells = map.width * map.height;
  map.mean = new Uint16Array(buffer, 4 + length, cells);
  map.stddev = new Uint16Array(buffer, 4 + length + 2 * cells, cells);
  return map;
}

const UNKNOWN = 65535;

// The SI value of a cell; null where unknown.
function valueAt(map, name, index) {
  const level = map[name][index], [low, high] = name === "mean" ? map.ranges.slice(0, 2) : map.ranges.slice(2);
  return level === UNKNOWN ? null : low + (level * (high - low)) / 65534;
}

// Index of the cell at a place in metres; -1 outside.
function cellAt(map, x, y) {
  const column = Math.floor((x - map.origin[0]) / map.resolution);
  const row = Math.floor((y - map.origin[1]) / map.resolution);
  return column < 0 || row < 0 || column >= map.width || row >= map.height ? -1 : row * map.width + column;
}

// Ends of the colours in SI; the uncertainty goes by its square root, as in the pictures that are saved.
function limitsOf(map, name) {
  return name === "mean" ? map.limits.slice(0, 2) : map.limits.slice(2);
}

// An image of the map, first row at the largest y.
function paint(map, name) {
  const canvas = document.createElement("canvas");
  canvas.width = map.width;
  canvas.height = map.height;
  const context = canvas.getContext("2d"), image = context.createImageData(map.width, map.height);
  const ramp = colours(name), [low, high] = limitsOf(map, name);
  for (let row = 0; row < map.height; row++) {
    for (let column = 0; column < map.width; column++) {
      const value = valueAt(map, name, row * map.width + column);
      if (value === null) continue;
      let share = Math.min(1, Math.max(0, (value - low) / (high - low)));
      if (name === "stddev") share = Math.sqrt(share);
      const at = 4 * ((map.height - 1 - row) * map.width + column);
      image.data.set(ramp[Math.round(255 * share)], at);
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// 1, 2 or 5 times a power of ten, at most `most`.
function niceLength(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [5, 2, 1].map((k) => k * power).find((length) => length <= most);
}

// Lines that are broken where the robot did not drive: steps much longer than usual.
function pieces(points) {
  const steps = points.slice(1).map((p, i) => Math.hypot(p[0] - points[i][0], p[1] - points[i][1]));
  const usual = [...steps].sort((a, b) => a - b)[Math.floor(steps.length / 2)] || 0;
  const out = [[]];
  points.forEach((p, i) => {
    if (i && steps[i - 1] > 4 * usual) out.push([]);
    out[out.length - 1].push(p);
  });
  return out;
}

// Everything on the canvas. view: {x, y, scale}: metres at the centre, pixels per metre.
function draw(canvas, view, scene) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  const px = (x) => width / 2 + (x - view.x) * view.scale, py = (y) => height / 2 - (y - view.y) * view.scale;
  for (const [map, image] of scene.pictures.filter((each) => each[1])) {
    const top = map.origin[1] + map.height * map.resolution;
    g.imageSmoothingEnabled = false;
    g.drawImage(image, px(map.origin[0]), py(top), map.width * map.resolution * view.scale,
      map.height * map.resolution * view.scale);
  }
  g.lineWidth = 1.2;
  g.lineJoin = "round";
  g.strokeStyle = scene.dark ? "rgba(140, 215, 255, .9)" : "rgba(0, 0, 0, .75)";
  for (const piece of pieces(scene.path)) {
    g.beginPath();
    piece.forEach(([x, y], i) => (i ? g.lineTo(px(x), py(y)) : g.moveTo(px(x), py(y))));
    g.stroke();
  }
  if (scene.plan.length > 1) {  // white under it: seen on every colour of the map
    for (const [line, colour] of [[5, "rgba(255, 255, 255, .9)"], [2.5, "#1f77d0"]]) {
      g.lineWidth = line;
      g.strokeStyle = colour;
      g.beginPath();
      scene.plan.forEach(([x, y], i) => (i ? g.lineTo(px(x), py(y)) : g.moveTo(px(x), py(y))));
      g.stroke();
    }
    dot(g, px(scene.plan.at(-1)[0]), py(scene.plan.at(-1)[1]), 5, "#1f77d0", "#fff", 2);
  }
  for (const [x, y] of scene.inducing) dot(g, px(x), py(y), 2.5, "#8cff66", "#000");
  scene.suggestions.forEach(([x, y], i) => {
    dot(g, px(x), py(y), 10, "#fff", "#d22", 2);
    g.fillStyle = "#d22";
    g.font = "bold 12px sans-serif";
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.fillText(String(i + 1), px(x), py(y));
  });
  if (scene.robot) arrow(g, px(scene.robot.x), py(scene.robot.y), scene.robot.heading);
  scaleBar(g, height, view.scale);
}

function dot(g, x, y, radius, fill, line, width = 1) {
  g.beginPath();
  g.arc(x, y, radius, 0, 2 * Math.PI);
  g.fillStyle = fill;
  g.fill();
  g.lineWidth = width;
  g.strokeStyle = line;
  g.stroke();
}

// The robot: a triangle along its heading, or a dot where that is not known.
function arrow(g, x, y, heading) {
  if (heading === null || heading === undefined) {
    dot(g, x, y, 7, "#28c463", "#fff", 2);
    return;
  }
  g.save();
  g.translate(x, y);
  g.rotate(-heading);
  g.beginPath();
  g.moveTo(14, 0);
  g.lineTo(-9, 8);
  g.lineTo(-5, 0);
  g.lineTo(-9, -8);
  g.closePath();
  g.fillStyle = "#28c463";
  g.strokeStyle = "#fff";
  g.lineWidth = 2;
  g.fill();
  g.stroke();
  g.restore();
}

function scaleBar(g, height, scale) {
  const metres = niceLength(160 / scale), pixels = metres * scale;
  const text = metres >= 1000 ? `${metres / 1000} km` : metres >= 1 ? `${metres} m` : `${Math.round(metres * 1000) / 10} cm`;
  g.fillStyle = "rgba(255, 255, 255, .85)";
  g.fillRect(12, height - 42, Math.max(pixels, 50) + 16, 32);
  g.fillStyle = "#1d2733";
  g.fillRect(20, height - 20, pixels, 4);
  g.font = "13px sans-serif";
  g.textAlign = "left";
  g.textBaseline = "alphabetic";
  g.fillText(text, 20, height - 26);
}
