"""gp-mapping plan among obstacles: never through a wall, home in time, and as a node plans it."""

import csv
import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image

from gp_mapping import Samples
from gp_mapping.cli import main
from gp_mapping.commands.saved import open_session
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.surveying.survey import Survey
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings
from gp_mapping.store.checkpoint import save_checkpoint
from gp_mapping.store.exports.map_server import read_map_server

RADIUS = 0.2
CELL = 0.1  # m
CORNER, YAW = np.array([1.0, -2.0]), 0.5  # of the hall in the map's frame


def in_map(x) -> np.ndarray:
    """Places (N, 2) m of the hall, in the map's frame."""
    cos, sin = np.cos(YAW), np.sin(YAW)
    return CORNER + np.asarray(x, float) @ np.array([[cos, sin], [-sin, cos]])


def in_hall(x) -> np.ndarray:
    """Places (N, 2) m of the map's frame, in the hall's."""
    cos, sin = np.cos(YAW), np.sin(YAW)
    return (np.asarray(x, float) - CORNER) @ np.array([[cos, -sin], [sin, cos]])


def words(x) -> str:
    """Places of the hall as an option takes them."""
    return ", ".join(f"{a!r} {b!r}" for a, b in in_map(x).tolist())


def write_hall(folder, cells=None, **changes):
    """Write the hall of 5 × 4 m as map_server has it; a wall with a door divides it."""
    if cells is None:
        cells = np.full((40, 50), 254, np.uint8)
        cells[[0, -1]] = cells[:, [0, -1]] = 0
        cells[:26, 25] = 0
        cells[20:24, 8:12] = 120  # unknown
    Image.fromarray(cells[::-1]).save(folder / "hall.pgm")
    content = {
        "image": "hall.pgm",
        "resolution": CELL,
        "origin": [*CORNER.tolist(), YAW],
        "negate": 0,
        "occupied_thresh": 0.65,
        "free_thresh": 0.25,
    } | changes
    path = folder / "hall.yaml"
    path.write_text("".join(f"{k}: {v}\n" for k, v in content.items() if v is not None))
    return path, cells


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A map of a drive through one half of the hall, and the hall."""
    folder = tmp_path_factory.mktemp("hall")
    session = MapSession(MapSettings(learn_hyperparameters=False, lengthscale=0.8, resolution=0.2))
    along = np.linspace(0.0, 1.0, 100)[:, None]
    x = torch.from_numpy(in_map((1 - along) * [0.6, 0.6] + along * [1.6, 0.9]))
    values = 45e-6 + 5e-6 * torch.sin(2 * x[:, :1])
    session.ingest(Samples(x, values, stamp=0.05 * torch.arange(100).double()))
    session.flush()
    save_checkpoint(folder / "map.gpm", session.state_dict())
    return folder / "map.gpm", *write_hall(folder)


def planned(scene, folder, *options) -> np.ndarray:
    """Plan; return the line (N, 2) m of the GeoJSON."""
    route = folder / "route.geojson"
    given = ["plan", str(scene[0]), *options, "--output", str(route)]
    assert main(given) == 0
    return np.array(json.loads(route.read_text())["features"][0]["geometry"]["coordinates"])


def every_2_cm(line: np.ndarray) -> np.ndarray:
    parts = [
        a + (b - a) * np.linspace(0.0, 1.0, max(2, int(np.hypot(*(b - a)) / 0.02) + 2))[:, None]
        for a, b in pairwise(line)
    ]
    return np.vstack(parts)


def room_left(x: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Distance of places of the hall (N, 2) m to the nearest cell that is not free, by brute force."""
    rows, columns = np.nonzero(cells != 254)
    centres = CELL * (np.stack([columns, rows], 1) + 0.5)
    away = np.maximum(np.abs(x[:, None] - centres) - CELL / 2, 0.0)
    return np.hypot(*np.moveaxis(away, 2, 0)).min(1)


START = [[1.0, 1.0]]
QUICK = ["--set", "plan_effort=30"]


def test_a_route_keeps_its_distance_from_walls_and_is_home_in_time(scene, tmp_path, capsys):
    options = ["--free-space", str(scene[1]), "--start", words(START), "--home", "start"]
    options += QUICK
    line = planned(scene, tmp_path, *options, "--budget", "18")
    x = in_hall(every_2_cm(line))
    assert room_left(x, scene[2]).min() >= RADIUS - 1e-6
    assert x[:, 0].max() > 3.0  # through the door, into the other half
    np.testing.assert_allclose(in_hall(line[[0, -1]]), START * 2, atol=0.1)
    assert 10.0 < np.hypot(*np.diff(line, axis=0).T).sum() <= 18.0
    assert "taken to be free" not in capsys.readouterr().out

    # without the file the same plan leads through the wall
    hull = ["--region", words([[0.1, 0.1], [4.9, 0.1], [4.9, 3.9], [0.1, 3.9]])]
    blind = planned(scene, tmp_path, *hull, *options[2:], "--budget", "18")
    assert room_left(in_hall(every_2_cm(blind)), scene[2]).min() == 0.0
    assert "--free-space names a map of them" in capsys.readouterr().out


def test_seconds_end_a_route_as_metres_do(scene, tmp_path, capsys):
    options = ["--free-space", str(scene[1]), "--start", words(START), "--home", words(START)]
    options += ["--budget-time", "60", "--speed", "0.2", "--set", "plan_turn_rate=0.5"]
    line = planned(scene, tmp_path, *options)
    metres = np.hypot(*np.diff(line, axis=0).T)
    turned = np.diff(np.unwrap(np.arctan2(*np.diff(line, axis=0).T[::-1])))
    seconds = metres.sum() / 0.2 + np.abs(turned).sum() / 0.5
    assert 30.0 < seconds <= 60.0 + 1e-6
    said = json.loads((tmp_path / "route.geojson").read_text())["features"][0]["properties"]
    assert said["seconds"] == pytest.approx(seconds, rel=0.02)
    assert f"{said['seconds']:.0f} s" in capsys.readouterr().out


def test_the_robot_stays_out_of_all_keep_out_areas(scene, tmp_path):
    areas = [[[0.3, 2.4], [1.6, 2.4], [1.6, 3.6], [0.3, 3.6]], [[3.2, 0.4], [4.6, 0.4], [4.6, 2.0]]]
    options = ["--free-space", str(scene[1]), "--start", words(START), "--budget", "25"]
    options += QUICK

    def nearest(line: np.ndarray) -> list[float]:
        x = in_hall(every_2_cm(line))
        borders = [every_2_cm(np.array([*area, area[0]])) for area in areas]
        return [np.hypot(*np.moveaxis(x[:, None] - b, 2, 0)).min() for b in borders]

    assert max(nearest(planned(scene, tmp_path, *options))) < RADIUS
    kept = [word for area in areas for word in ("--keep-out", words(area))]
    assert min(nearest(planned(scene, tmp_path, *options, *kept))) >= RADIUS - 0.01


@pytest.mark.parametrize(
    "given",
    [
        {"plan_budget": 12.0},
        {"plan_budget_time": 40.0, "plan_speed": 0.2, "plan_kind": "lanes"},
        {"plan_budget": 9.0, "plan_objective": "hotspot", "plan_level": 46e-6, "robot_radius": 0.3},
        {"plan_mix": 0.5, "plan_horizon": 6.0},
    ],
    ids=lambda given: "-".join(given),
)
def test_the_same_way_as_a_node_plans_from_the_same_map_place_and_free_space(
    scene, tmp_path, given
):
    """Against ~/make_plan of the survey in a node; it compares fewer routes."""
    settings = NodeSettings(**given)
    survey = Survey(settings)
    start = tuple(in_map(START)[0].tolist())
    future = survey.ask(start=start)
    session, message = open_session(scene[0]), read_map_server(scene[1])
    while survey.step(session, start, message, "", 0.0):
        pass
    expected = future.result(timeout=0)
    assert expected and expected.metres > 3.0, expected.reason

    file = tmp_path / "params.yaml"
    lines = "".join(f"    {name}: {value!r}\n" for name, value in given.items())
    file.write_text(f"/**:\n  ros__parameters:\n{lines}    lengthscale: 0.5\n")
    options = ["--free-space", str(scene[1]), "--start", words(START), "--params", str(file)]
    line = planned(scene, tmp_path, *options, "--set", f"plan_effort={settings.plan_effort}")
    np.testing.assert_array_equal(line, expected.line)


def test_options_are_short_for_the_nodes_parameters(scene, tmp_path):
    options = ["--free-space", str(scene[1]), "--start", words(START), *QUICK]
    short = ["--robot-radius", "0.3", "--budget", "8", "--objective", "level_set"]
    short += ["--level", "45e-6", "--home", "none", "--speed", "0.5"]
    long = ["robot_radius=0.3", "plan_budget=8", "plan_objective=level_set", "plan_level=45e-6"]
    long += ["plan_home=none", "plan_speed=0.5"]
    a = planned(scene, tmp_path, *options, *short)
    b = planned(scene, tmp_path, *options, *[w for value in long for w in ("--set", value)])
    np.testing.assert_array_equal(a, b)


def test_the_picture_shows_walls_where_they_are(scene, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *args, **_: shown.append(figure)
    )
    kept = words([[3.2, 0.4], [4.6, 0.4], [4.6, 2.0]])
    options = ["--free-space", str(scene[1]), "--start", words(START), "--budget", "12"]
    options += ["--keep-out", kept, "--output", str(tmp_path / "route.png"), *QUICK]
    assert main(["plan", str(scene[0]), *options]) == 0
    axis = shown[0].axes[0]
    said = [text.get_text() for text in shown[0].legends[0].get_texts()]
    assert said[2:5] == ["not free", "no room for the robot", "kept out of"]
    image = axis.get_images()[-1]
    to_metres = image.get_transform() - axis.transData
    at = image.get_array()
    for place, value in (
        ([2.55, 1.0], 0),
        ([2.7, 1.0], 1),
        ([2.55, 3.2], None),
    ):  # wall, room, door
        column, row = np.floor(to_metres.inverted().transform(in_map([place])[0])).astype(int)
        assert at[row, column] == value if value is not None else at.mask[row, column]


BAD = [
    ({}, ["--start", words([[9.0, 9.0]])], "lies outside of it: it covers x"),
    ({"origin": [60.0, 60.0, 0.0]}, [], "no measurement of the map lies on it"),
    ({}, ["--start", words([[2.53, 0.5]]), "--robot-radius", "0.7"], "leaves it no room"),
    ({}, ["--robot-radius", "3"], "no place has 3 m of room"),
    ({"free_thresh": 0.001}, [], "no cell of it is free"),
    ({"image": "no.pgm"}, [], "no.pgm: the picture cannot be read (No such file"),
    ({"resolution": None}, [], "it has no 'resolution'"),
    ({}, ["--home", words([[9.0, 9.0]])], "no way leads from the robot"),
    ({}, ["--budget", "1", "--home", words([[4.5, 0.5]])], "the way home takes"),
    ({}, ["--keep-out", "0 0, 2 2, 2 0, 0 2"], "--keep-out: the side from corner"),
    ({}, ["--keep-out", " "], "--keep-out is empty"),
    ({}, ["--region", "0 0, 0 0, 0 0"], "--region: its 3 corners are one place"),
    ({}, ["--region", "0 0, 0 0, 1 1"], "3 corners, 2 without repeated ones"),
    ({}, ["--objective", "hot"], "--objective: 'hot'"),
    ({}, ["--set", "lengthscale=0.5"], "a plan on a saved map does not depend on it"),
    ({}, ["--set", "plan_budgt=5"], "did you mean plan_budget"),
    ({}, ["--budget", "5", "--set", "plan_budget=5"], "write one of them"),
    ({}, ["--speed", "0"], "--speed: 0.0 m/s is outside"),
]


@pytest.mark.parametrize(("changes", "options", "text"), BAD, ids=[b[2] for b in BAD])
def test_what_cannot_be_planned_is_one_line(scene, tmp_path, capsys, changes, options, text):
    hall, _ = write_hall(tmp_path, **changes)
    given = ["plan", str(scene[0]), "--free-space", str(hall), *options]
    assert main([*given, "--output", str(tmp_path / "route.csv")]) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1
    assert not (tmp_path / "route.csv").exists()


def test_what_is_missing_is_one_line(scene, tmp_path, capsys):
    for options, text in (
        (["--free-space", str(tmp_path / "no.yaml")], "no.yaml: cannot be read (No such file"),
        (["--robot-radius", "0.3"], "give --free-space, too"),
    ):
        assert main(["plan", str(scene[0]), *options, "--output", str(tmp_path / "r.csv")]) == 2
        error = capsys.readouterr().err
        assert text in error and error.count("\n") == 1


def test_csv_is_as_without_obstacles(scene, tmp_path):
    route = tmp_path / "route.csv"
    options = ["--free-space", str(scene[1]), "--budget", "6", "--output", str(route), *QUICK]
    assert main(["plan", str(scene[0]), *options]) == 0
    with route.open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert list(rows[0]) == ["x_m", "y_m", "heading_rad", "driven_m", "variance_taken_uT^2"]
    assert 3.0 < float(rows[-1]["driven_m"]) <= 6.0


def test_ground_that_does_not_count_is_said(scene, tmp_path, capsys):
    options = ["--free-space", str(scene[1]), "--start", words(START), "--budget", "6", *QUICK]
    line = planned(scene, tmp_path, *options, "--set", "plan_reach=1.5")
    assert np.hypot(*(in_hall(line) - START).T).max() <= 1.5
    assert "only what lies within 1.5 m of the beginning counts" in capsys.readouterr().out
    planned(scene, tmp_path, *options)
    assert "counts" not in capsys.readouterr().out


def test_an_objective_without_its_level_is_said(scene, tmp_path, capsys):
    options = ["--free-space", str(scene[1]), "--budget", "4", *QUICK, "--objective", "hotspot"]
    planned(scene, tmp_path, *options)
    said = capsys.readouterr().out
    assert "no --level: hotspot is about the level 0" in said
    assert "hotspot about the level 0 makes no place count more than another" in said
    assert "over the area, by its weight as hotspot, " in said
    planned(scene, tmp_path, *options, "--level", "46e-6")
    said = capsys.readouterr().out
    assert "no --level" not in said and "makes no place count more" not in said


def test_places_too_far_apart_for_the_field_are_said(scene, tmp_path, capsys):
    options = ["--free-space", str(scene[1]), "--start", words(START), "--budget", "6", *QUICK]
    planned(scene, tmp_path, *options, "--set", "plan_places=10")
    assert "m apart and the lengthscale is 0.8 m" in capsys.readouterr().out
    planned(scene, tmp_path, *options)
    assert "m apart" not in capsys.readouterr().out
