"use strict";
// Asks for what is new once a second while the page is visible, and shows it. Text goes in as text, never as HTML.

const PERIOD = 1000;  // ms between two questions
const PATIENCE = 5000;  // ms for an answer
const AREAS = ["input", "map", "survey", "timing"];
const $ = (id) => document.getElementById(id);
const shown = { name: "mean", map: null, image: null, part: null, partImage: null,
  number: 0, overlays: 0, path: [], inducing: [], status: null };
const view = { x: 0, y: 0, scale: 50, fitted: true };
let pointer = null;

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer;
}

async function poll() {
  if (!document.hidden) {
    try {
      shown.status = await (await ask("api/status")).json();
      const { map, overlay } = shown.status;
      if (map && map.number !== shown.number) {
        const answer = await ask("api/map");
        if (answer.status === 200) {
          shown.map = decodeMap(await answer.arrayBuffer());
          shown.number = map.number;
          repaint();
        }
      }
      if (overlay !== shown.overlays) {
        const points = await (await ask("api/overlay")).json();
        Object.assign(shown, { overlays: points.number, path: points.path, inducing: points.inducing });
      }
      await load();
      report();
    } catch (error) {
      console.warn(error);
      state("error", "no answer: is gp-mapping view still running?");
    }
    redraw();
  }
  setTimeout(poll, PERIOD);
}

// Ground that was driven over, is on the screen and not on the map that is drawn now: it is asked for.
async function load() {
  const { map, path } = shown, canvas = $("map");
  if (!map || !map.width || !canvas.clientWidth) return;
  const half = [canvas.clientWidth, canvas.clientHeight].map((pixels) => pixels / 2 / view.scale);
  // on a lattice of quarter screens, a power of two wide: a small move asks for the same again, which is at hand
  const step = 2 ** Math.ceil(Math.log2(Math.max(...half) / 2));
  const low = [view.x, view.y].map((at, k) => Math.floor((at - half[k]) / step) * step);
  const high = [view.x, view.y].map((at, k) => Math.ceil((at + half[k]) / step) * step);
  const beyond = ([x, y]) => x > low[0] && x < high[0] && y > low[1] && y < high[1] && cellAt(map, x, y) < 0;
  if (!path.some(beyond)) {
    shown.part = shown.partImage = null;
    return;
  }
  const answer = await ask(`api/window?low=${low}&high=${high}`);
  if (answer.status !== 200) return;  // the mapper has not answered yet: with the next round
  shown.part = decodeMap(await answer.arrayBuffer());
  shown.partImage = shown.part.width ? paint(shown.part, shown.name) : null;
}

// ---- numbers -----------------------------------------------------------------------------------------------------

function unit() {
  const { unit: name, scale } = shown.status;
  return { scale: scale || 1, text: name ? name.replace(/^u(?=.)/, "µ") : "SI" };
}

function number(value, digits = 4) {
  return Number.isFinite(value) ? String(Number(value.toPrecision(digits))) : "–";
}

function field(value, digits = 4) {
  const { scale, text } = unit();
  return `${number(value / scale, digits)} ${text}`;
}

function values(area) {
  const found = shown.status.diagnostics.find((status) => status.area === area);
  return found ? found.values : {};
}

// ---- text --------------------------------------------------------------------------------------------------------

function state(level, text) {
  $("state").className = level;
  $("state").textContent = text;
}

function fill(list, lines) {
  list.replaceChildren(...lines.map(({ text, level }) => {
    const item = document.createElement("li");
    item.textContent = text;
    if (level) item.className = level;
    return item;
  }));
}

function rows(table, pairs) {
  table.replaceChildren(...pairs.map(([name, value]) => {
    const row = document.createElement("tr");
    for (const [kind, text] of [["th", name], ["td", value]]) {
      const cell = document.createElement(kind);
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
}

function report() {
  const { status } = shown, level = Math.max(0, ...status.diagnostics.map((each) => each.level));
  $("node").textContent = status.node;
  document.title = `${status.node}: live map`;
  if (status.heard === null) {
    state("error", `no ${status.node} is heard`);
  } else if (status.silent) {
    state("error", `${status.node} is silent for ${Math.round(status.heard)} s; this is its last map`);
  } else if (status.map && status.map.old) {
    state("warn", `${status.node} was started again; this is the map of the run before`);
  } else {
    state(level > 1 ? "error" : level ? "warn" : "ok", level > 1 ? "error" : level ? "warning" : "mapping");
  }
  fill($("problems"), problems(status));
  rows($("facts"), facts(status));
  const surveyed = survey();
  $("survey-section").hidden = !surveyed.length;
  rows($("survey"), surveyed);
  fill($("next"), status.suggestions.map(([x, y]) => ({ text: `(${x.toFixed(2)}, ${y.toFixed(2)}) m` })));
  rows($("all"), status.diagnostics.flatMap((each) => Object.entries(each.values)));
  $("empty").hidden = Boolean(shown.map && shown.map.width);
  const old = status.silent || Boolean(status.map && status.map.old);
  $("map").classList.toggle("old", old);
  $("aged").hidden = !old || !status.map;
  if (status.map) $("aged").textContent = `not live: drawn ${Math.round(status.map.age)} s ago`;
}

function problems(status) {
  const out = [];
  if (status.heard === null || status.silent) {
    out.push({ level: "error", text: `Nothing is heard from ${status.node}. Is the node running, and with the same ROS_DOMAIN_ID?` });
    for (const name of status.elsewhere) {
      const parts = name.split("/"), node = parts.pop(), namespace = parts.join("/");
      out.push({ level: "warn", text: `There is a map of ${name}: gp-mapping view`
        + (namespace ? ` --namespace ${namespace.slice(1)}` : "") + (node === "mapping" ? "" : ` --node ${node}`) });
    }
  }
  for (const area of AREAS) {
    const found = status.diagnostics.find((each) => each.area === area);
    if (found && found.level) {
      for (const text of found.problems) out.push({ level: found.level > 1 ? "error" : "warn", text });
    }
  }
  return out.length ? out : [{ text: "all is well" }];
}

function facts(status) {
  const map = values("map"), input = values("input"), out = [];
  const add = (name, text) => text !== undefined && text !== "None" && out.push([name, text]);
  const length = (key) => map[key] && `${number(Number(map[key]), 3)} m`;
  const level = (key) => map[key] && map[key] !== "None" ? field(Number(map[key]), 3) : undefined;
  add("measurements", map.samples);
  add("path", length("path_length"));
  add("noise of one", level("noise_stddev"));
  add("lengthscale", length("hyperparameters.lengthscale"));
  add("turns with the robot", level("hyperparameters.heading_stddev"));
  const offset = map["hyperparameters.time_offset"];
  add("sensor later than pose", offset && `${number(Number(offset), 3)} s`);
  const dropped = Object.entries(input).filter(([key]) => key.startsWith("dropped: "));
  if (dropped.length) add("dropped", String(dropped.reduce((sum, [, n]) => sum + Number(n), 0)));
  for (const [key, value] of Object.entries(input)) {
    if (key.endsWith(" rate (Hz)")) add(key.replace(" rate (Hz)", ""), `${number(Number(value), 3)} Hz`);
  }
  const undrawn = Number(map["undrawn share of the path"]);
  if (undrawn > 0) add("driven, not drawn yet", `${number(100 * undrawn, 2)} % of the path`);
  add("obstacles", map.obstacles);
  add("frame", status.map ? status.map.frame : undefined);
  if (shown.map && shown.map.width) {
    add("drawn cell", `${number(shown.map.resolution, 3)} m` + (shown.map.every > 1 ? `, ${shown.map.every} of the map's` : ""));
  }
  if (shown.part && shown.part.width) add("cell beyond it", `${number(shown.part.resolution, 3)} m`);
  if (status.map) add("map drawn", `${number(status.map.age, 2)} s ago`);
  return out;
}

// What the mapper says of its survey; nothing while there was none.
function survey() {
  const reported = values("survey"), out = [];
  if (!reported.phase || (reported.phase === "idle" && !Number(reported.plans))) return out;
  const add = (name, text) => text !== undefined && out.push([name, text]);
  const length = (key) => (reported[key] === undefined ? undefined : `${number(Number(reported[key]), 3)} m`);
  const level = (key) => (Number.isFinite(Number(reported[key])) ? field(Number(reported[key]), 3) : undefined);
  add("state", reported.phase);
  add("why", reported.reason);
  add("driven", length("driven (m)"));
  add("budget left", length("budget left (m)"));
  const seconds = reported["budget left (s)"];
  if (seconds !== undefined) add("time left", `${number(Number(seconds), 3)} s`);
  const better = reported["a better plan is looked for"] === undefined ? "" : ", a better one is looked for";
  add("plan", Number(reported["plan (m)"]) ? `${length("plan (m)")}${better}` : undefined);
  if (Number(reported["area (m2)"])) add("area", `${number(Number(reported["area (m2)"]), 3)} m²`);
  const done = Number(reported["share at target_stddev"]);
  if (reported["share at target_stddev"] !== undefined) add("area done", `${number(100 * done, 2)} %`);
  add("stddev now", level("stddev now"));
  add("stddev at the plan's end", level("stddev at the plan's end"));
  return out;
}

// ---- picture -----------------------------------------------------------------------------------------------------

function repaint() {
  shown.image = shown.map && shown.map.width ? paint(shown.map, shown.name) : null;
  shown.partImage = shown.part && shown.part.width ? paint(shown.part, shown.name) : null;
  for (const name of ["mean", "stddev"]) $(`show-${name}`).setAttribute("aria-pressed", String(name === shown.name));
}

function legend() {
  const ramp = colours(shown.name), g = $("legend").getContext("2d");
  ramp.forEach((rgb, i) => {
    g.fillStyle = `rgb(${rgb})`;
    g.fillRect(i, 0, 1, 1);
  });
  $("legend-title").textContent = shown.name === "mean" ? "field" : "standard deviation";
  if (!shown.map || !shown.map.width || !shown.status) return;
  const [low, high] = limitsOf(shown.map, shown.name), middle = shown.name === "mean" ? 0.5 : 0.25;
  $("legend-low").textContent = field(low);
  $("legend-middle").textContent = field(low + middle * (high - low), 3);
  $("legend-high").textContent = field(high);
}

function fit() {
  const { map } = shown, canvas = $("map");
  if (!map || !map.width || !canvas.clientWidth) return;
  const width = map.width * map.resolution, height = map.height * map.resolution;
  view.x = map.origin[0] + width / 2;
  view.y = map.origin[1] + height / 2;
  view.scale = 0.94 * Math.min(canvas.clientWidth / width, canvas.clientHeight / height);
}

function redraw() {
  if (view.fitted) fit();
  const { status } = shown, last = shown.path[shown.path.length - 1];
  const robot = status && (status.robot || (last ? { x: last[0], y: last[1] } : null));
  draw($("map"), view, { pictures: [[shown.part, shown.partImage], [shown.map, shown.image]], dark: shown.name === "stddev", robot,
    path: $("show-path").checked ? shown.path : [], inducing: $("show-inducing").checked ? shown.inducing : [],
    suggestions: status && $("show-suggestions").checked ? status.suggestions : [],
    plan: status && $("show-plan").checked ? status.plan : [] });
  legend();
  readout();
}

function place(event) {
  const box = $("map").getBoundingClientRect();
  return [view.x + (event.clientX - box.left - box.width / 2) / view.scale,
    view.y - (event.clientY - box.top - box.height / 2) / view.scale];
}

function readout() {
  if (!pointer || !shown.map || !shown.map.width || !shown.status) {
    $("readout").textContent = "";
    return;
  }
  const [x, y] = place(pointer), { scale, text } = unit();
  const known = (map) => map && map.width && cellAt(map, x, y) >= 0 && valueAt(map, "mean", cellAt(map, x, y)) !== null;
  const from = [shown.map, shown.part].find(known), at = from ? cellAt(from, x, y) : -1;
  const mean = from ? valueAt(from, "mean", at) : null;
  $("readout").textContent = `(${x.toFixed(2)}, ${y.toFixed(2)}) m: ` + (mean === null ? "unknown"
    : `${number(mean / scale)} ± ${number(valueAt(from, "stddev", at) / scale, 2)} ${text}`);
}

// ---- hands -------------------------------------------------------------------------------------------------------

const touches = new Map();  // pointers that are down, by id: where they were last

// Magnify about a place in metres, which stays where it is on the screen.
function zoom(factor, x, y) {
  const scale = Math.min(1e5, Math.max(1e-3, view.scale * factor)), real = scale / view.scale;
  view.fitted = false;
  view.scale = scale;
  view.x = x + (view.x - x) / real;
  view.y = y + (view.y - y) / real;
  redraw();
}

// Move by pixels.
function pan(dx, dy) {
  view.fitted = false;
  view.x -= dx / view.scale;
  view.y += dy / view.scale;
  redraw();
}

function refit() {
  view.fitted = true;
  redraw();
}

const between = ([a, b]) => ({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 });
const apart = ([a, b]) => Math.max(1, Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY));

// One finger or the mouse moves; two fingers move and zoom about the point between them.
function onMove(event) {
  if (!touches.has(event.pointerId)) {
    pointer = event;
    readout();
    return;
  }
  const before = [...touches.values()].slice(0, 2);
  touches.set(event.pointerId, event);
  const now = [...touches.values()].slice(0, 2);
  if (now.length === 1) {
    pan(now[0].clientX - before[0].clientX, now[0].clientY - before[0].clientY);
  } else {
    const [from, to] = [between(before), between(now)];
    pan(to.clientX - from.clientX, to.clientY - from.clientY);
    zoom(apart(now) / apart(before), ...place(to));
  }
  pointer = event;
  readout();
}

const STEP = 60;  // pixels of an arrow key
const KEYS = {
  ArrowLeft: () => pan(STEP, 0), ArrowRight: () => pan(-STEP, 0), ArrowUp: () => pan(0, STEP), ArrowDown: () => pan(0, -STEP),
  "+": () => zoom(1.25, view.x, view.y), "=": () => zoom(1.25, view.x, view.y), "-": () => zoom(0.8, view.x, view.y),
  "0": refit, Home: refit,
};

function listen() {
  for (const name of ["mean", "stddev"]) {
    $(`show-${name}`).addEventListener("click", () => { shown.name = name; repaint(); redraw(); });
  }
  for (const id of ["show-path", "show-suggestions", "show-plan", "show-inducing"]) $(id).addEventListener("change", redraw);
  $("fit").addEventListener("click", refit);
  $("nearer").addEventListener("click", KEYS["+"]);
  $("farther").addEventListener("click", KEYS["-"]);
  const canvas = $("map");
  canvas.addEventListener("dblclick", refit);
  // of the map and its buttons: elsewhere the arrows scroll the page
  document.querySelector("section.map").addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();  // the page must not scroll under it
    KEYS[event.key]();
  });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;  // of a mouse, the left one only
    canvas.setPointerCapture(event.pointerId);
    touches.set(event.pointerId, event);
    pointer = event;
  });
  canvas.addEventListener("pointermove", onMove);
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => touches.delete(event.pointerId));
  canvas.addEventListener("pointerleave", (event) => { touches.delete(event.pointerId); pointer = null; readout(); });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(2 ** (-Math.sign(event.deltaY) / 3), ...place(event));
  }, { passive: false });
  window.addEventListener("resize", redraw);
}

listen();
legend();
poll();
