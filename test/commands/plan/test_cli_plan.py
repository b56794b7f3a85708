"""gp-mapping plan on a saved map: files that say the same, and errors of one line."""

import csv
import json
import re
import time

import numpy as np
import pytest
import torch
from pictures import full_pictures

from gp_mapping import Samples
from gp_mapping.cli import main
from gp_mapping.commands.saved import open_session
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning import plan as planned
from gp_mapping.planning.problem import default_mix
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.checkpoint import save_checkpoint


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    session = MapSession(MapSettings(learn_hyperparameters=False, lengthscale=0.8, resolution=0.2))
    x = torch.stack([torch.linspace(0.0, 4.0, 300), torch.linspace(0.0, 3.0, 300)], 1).double()
    session.ingest(
        Samples(x, 45e-6 + 5e-6 * torch.sin(2 * x[:, :1]), stamp=0.05 * torch.arange(300).double())
    )
    session.flush()
    path = tmp_path_factory.mktemp("plan") / "map.gpm"
    save_checkpoint(path, session.state_dict())
    return path


def test_route_as_csv_geojson_and_picture(saved, tmp_path, capsys):
    region = "0 0, 4 0, 4 3, 0 3"
    options = [str(saved), "--region", region, "--budget", "9", "--start", "1 1", "--home", "1 1"]
    options += ["--set", "plan_effort=30"]
    for name, kind in (
        ("route.csv", []),
        ("route.geojson", []),
        ("route.png", ["--kind", "lanes"]),
    ):
        with full_pictures():
            assert main(["plan", *options, *kind, "--output", str(tmp_path / name)]) == 0
    said = capsys.readouterr().out
    assert "stops; stddev over the area" in said and "the whole region is taken to be free" in said
    rows = list(csv.DictReader(open(tmp_path / "route.csv", encoding="utf-8")))
    x = np.array([(float(r["x_m"]), float(r["y_m"])) for r in rows])
    np.testing.assert_allclose(x[[0, -1]], [[1, 1], [1, 1]], atol=0.1)
    assert x.min() > 0 and x[:, 0].max() < 4 and x[:, 1].max() < 3
    assert 4.0 < float(rows[-1]["driven_m"]) <= 9.0
    taken = [float(r["variance_taken_uT^2"]) for r in rows]
    assert taken[0] == 0.0 and (np.diff(taken) >= 0).all()
    now, then = map(float, re.findall(r"([\d.]+) µT", said.splitlines()[0]))
    assert taken[-1] == pytest.approx(now**2 - then**2, rel=0.02)
    line = np.array(
        json.loads((tmp_path / "route.geojson").read_text())["features"][0]["geometry"][
            "coordinates"
        ]
    )
    assert np.hypot(*np.diff(line, axis=0).T).sum() == pytest.approx(float(rows[-1]["driven_m"]))
    assert (tmp_path / "route.png").read_bytes()[:4] == b"\x89PNG"


def test_what_a_route_takes_of_counts_has_no_unit(tmp_path, capsys):
    """Planned is with the latent field, the logarithm of a rate; it was said to be 1/s."""
    settings = MapSettings(likelihood="poisson", learn_hyperparameters=False, lengthscale=0.8)
    session = MapSession(settings)
    x = torch.stack([torch.linspace(0.0, 4.0, 60), torch.linspace(0.0, 3.0, 60)], 1).double()
    counts = torch.poisson(20.0 + 10.0 * torch.sin(2 * x[:, :1]), torch.Generator().manual_seed(0))
    session.ingest(Samples(x, counts.double(), stamp=0.5 * torch.arange(60).double()))
    session.flush()
    save_checkpoint(tmp_path / "map.gpm", session.state_dict())

    route = tmp_path / "route.csv"
    assert main(["plan", str(tmp_path), "--budget", "4", "--output", str(route)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    said = re.search(
        r"stops; stddev of the latent field over the area (\S+) now, (\S+) after it", first
    )
    rows = list(csv.DictReader(open(route, encoding="utf-8")))
    now, then = map(float, said.groups())
    assert float(rows[-1]["variance_taken_latent"]) == pytest.approx(now**2 - then**2, rel=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--region", "0 0, 2 2, 2 0, 0 2"], "crosses or touches"),
        (["--region", "0 0, 1"], "'1' is not 'x y'"),
        (["--start", "90 90"], "not on the ground that the map is of, the hull of its path"),
        (["--region", ""], "--region is empty"),
        (["--start", " "], "--start is empty"),
        (["--region", "6 6, 8 6, 8 8"], "write --start 'X Y' with a place inside it"),
        (["--kind", "spiral"], "expected one of"),
        (["--output", "route.txt"], "ends in .csv"),
        (["--budget", "-1"], "--budget: -1.0 m is outside [0.0, 1000000.0]"),
        (["--budget", "inf"], "--budget: inf is not finite"),
        (["--margin", "inf"], "--margin: inf is not finite"),
        (["--start", "1e308 1e308"], "farther than 1e+08 m"),
        (["--home", "0 0, 1 1"], "2 places, expected one"),
        (["--budget", "1", "--start", "0 0", "--home", "4 3"], "the way home takes"),
    ],
)
def test_what_cannot_be_planned_is_one_line(saved, options, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", str(saved), *options]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_region_far_beyond_what_a_route_reaches_is_surveyed_as_far_as_it_leads(
    saved, tmp_path, capsys
):
    options = ["--region", "-1 -1, 1e7 -1, 1e7 1e7, -1 1e7", "--budget", "9", "--kind", "lanes"]
    assert main(["plan", str(saved), *options, "--output", str(tmp_path / "r.csv")]) == 0
    assert "only what lies within 9 m of the beginning counts" in capsys.readouterr().out
    assert 5.0 < float((tmp_path / "r.csv").read_text().splitlines()[-1].split(",")[3]) <= 9.0


def test_the_picture_shows_all_of_the_route(saved, tmp_path, monkeypatch):
    """A route goes as far as --margin beyond the path, and the map is drawn as far as its own margin."""
    shown = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *args, **_: shown.append(figure)
    )
    options = ["--margin", "3", "--budget", "12", "--kind", "lanes"]
    options += ["--output", str(tmp_path / "route.png")]
    assert main(["plan", str(saved), *options]) == 0
    drawn = shown[0].axes[:2]
    line = next(a for a in drawn[0].get_lines() if a.get_label() == "planned route").get_xydata()
    assert np.ptp(line, axis=0).max() > 4.0
    for axis in drawn:
        for values, (low, high) in zip(line.T, (axis.get_xlim(), axis.get_ylim())):
            assert low < values.min() and values.max() < high
    (legend,) = shown[0].legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said[:3] == ["planned route", "its beginning", "path"] and "unknown" in said
    assert drawn[0].get_legend() is None, "it hides a part of the route"


@pytest.mark.parametrize("name", ["route.GEOJSON", "route.PNG"])
def test_an_ending_may_be_in_capitals(saved, tmp_path, name, capsys):
    options = ["--region", "0 0, 1 0, 1 1, 0 1", "--start", "0.5 0.5", "--kind", "lanes"]
    options += ["--budget", "0", "--output", str(tmp_path / name)]
    assert main(["plan", str(saved), *options]) == 0
    assert "--budget 0 is no budget: the route is 16 m at most\n" in capsys.readouterr().out
    kind, content = name.rpartition(".")[2].lower(), (tmp_path / name).read_bytes()
    begins = {"geojson": b"{", "png": b"\x89PNG"}
    assert content.startswith(begins[kind])


def test_a_map_that_fails_at_use_is_named(saved, tmp_path, capsys):
    """One whose path has no place, which the trial on opening does not need."""
    state = open_session(saved).state_dict()
    state["path"] |= {name: state["path"][name][:0] for name in ("points", "starts")}
    save_checkpoint(tmp_path / "bad.gpm", state)
    options = ["--budget", "4", "--output", str(tmp_path / "route.csv")]
    assert main(["plan", str(tmp_path / "bad.gpm"), *options]) == 2
    error = capsys.readouterr().err
    assert "bad.gpm: the map in it cannot be used" in error and error.count("\n") == 1


@pytest.mark.parametrize("kind", ["ucb", "expected_improvement"])
def test_a_source_is_sought_on_a_saved_map(saved, tmp_path, capsys, kind):
    """These need the field's mean at the places: 45 + 5 sin 2x µT is highest at x = π / 4."""
    region = ["--region", "0 0, 1.6 0, 1.6 1.2, 0 1.2", "--start", "0.1 0.1", "--kind", kind]
    assert main(["plan", str(saved), *region, "--output", str(tmp_path / "route.csv")]) == 0
    assert " 1 stops;" in capsys.readouterr().out
    with open(tmp_path / "route.csv", encoding="utf-8") as table:
        end = list(csv.DictReader(table))[-1]
    assert float(end["x_m"]) == pytest.approx(np.pi / 4, abs=0.4)


def test_a_planner_that_fails_is_not_blamed_on_the_map(saved, tmp_path, capsys, monkeypatch):
    def faulty(problem, kind):
        raise ValueError("no such place")

    monkeypatch.setattr("gp_mapping.commands.plan.command.plan", faulty)
    options = ["--output", str(tmp_path / "route.csv")]
    assert main(["plan", str(saved), *options]) == 70
    error = capsys.readouterr().err
    assert "a fault of this program, ValueError: no such place" in error
    assert str(saved) not in error and "older" not in error


def test_a_route_is_rated_as_the_nodes(saved, tmp_path, capsys, monkeypatch):
    """With a budget by its end and a little by how soon that comes, without one by the latter."""
    mixes = []

    def spied(problem, kind):
        mixes.append((problem.mix, default_mix(problem.budget)))
        return planned(problem, kind)

    monkeypatch.setattr("gp_mapping.commands.plan.command.plan", spied)
    options = ["--region", "0 0, 2 0, 2 2, 0 2", "--start", "1 1", "--kind", "lanes"]
    for budget in ("4", "0"):
        words = ["--budget", budget, "--output", str(tmp_path / "route.csv")]
        assert main(["plan", str(saved), *options, *words]) == 0
    assert mixes == [(0.1, 0.1), (1.0, 1.0)]


def test_a_budget_far_beyond_what_the_area_holds_costs_no_more_than_one_that_pays_for_it(
    saved, tmp_path, capsys
):
    """As many lanes as the budget pays for would be a hundred thousand."""
    region = [
        "--region",
        "0 0, 2 0, 2 2, 0 2",
        "--start",
        "1 1",
        "--kind",
        "lanes",
        "--output",
        str(tmp_path / "r.csv"),
    ]
    spent = []
    for budget in ("60", "1e6"):
        began = time.thread_time()
        assert main(["plan", str(saved), *region, "--budget", budget]) == 0
        spent.append(time.thread_time() - began)
    assert spent[1] < 5.0 * spent[0], spent
