import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from matplotlib.image import imread

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.atlas import overview
from gp_mapping.mapping.drawing.levels import field_limits, levels, nice_limits
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning.suggest import Suggestion
from gp_mapping.store.exports.export import export_all
from gp_mapping.store.exports.map_server import UNKNOWN, export_map_server, read_map_server
from gp_mapping.store.exports.picture import draw_map
from gp_mapping.store.wording import unit_text


def truth(x):
    """45 µT and a slope of 2 µT/m; (N, 2) -> (N,)."""
    return 45e-6 + 2e-6 * np.asarray(x)[:, 0]


# a slope, which a lengthscale of half a metre knows as far as half a metre
# to find starts takes the first cells in again and again
GIVEN = {
    "learn_hyperparameters": False,
    "lengthscale": 0.5,
    "signal_stddev": 3e-6,
    "noise_stddev": 2e-7,
    "constant_stddev": 9e-6,
}


@pytest.fixture(scope="module")
def session():
    """A map of an L-shaped drive, so that a corner of the grid stays unknown."""
    out = MapSession(MapSettings(**GIVEN))
    leg = np.linspace(0.0, 3.0, 300)
    x = np.concatenate([np.stack([leg, 0 * leg], 1), np.stack([3 + 0 * leg, leg], 1)])
    y = truth(x) + 1e-7 * np.random.default_rng(0).standard_normal(600)
    out.ingest(Samples(x, y, stamp=0.05 * np.arange(600)))
    out.flush()
    return out


@pytest.fixture(scope="module")
def exported(session, tmp_path_factory, full_pictures):
    return export_all(
        session,
        tmp_path_factory.mktemp("out") / "deep" / "er",
        [Suggestion(1.0, 1.0, 2e-12)],
        truth,
    )


def test_every_export_is_there(exported):
    assert {name: path.name for name, path in exported.items()} == {
        "npz": "map.npz",
        "mean_yaml": "mean.yaml",
        "mean_pgm": "mean.pgm",
        "stddev_yaml": "stddev.yaml",
        "stddev_pgm": "stddev.pgm",
        "png": "map.png",
    }
    assert sorted(p.name for p in exported["npz"].parent.iterdir()) == sorted(
        p.name for p in exported.values()
    )


def test_npz_holds_the_grid_in_si(session, exported):
    grid = session.render()
    with np.load(exported["npz"], allow_pickle=False) as data:
        np.testing.assert_array_equal(data["mean"], grid.mean)
        np.testing.assert_array_equal(data["stddev"], grid.stddev)
        np.testing.assert_array_equal(data["known"], grid.known)
        xs, ys = np.meshgrid(data["x"], data["y"])
        np.testing.assert_allclose(
            np.stack([xs.ravel(), ys.ravel()], 1), grid.centres(), atol=1e-12
        )
        assert json.loads(str(data["report"]))["samples"] == 600
        assert data["suggestions"].tolist() == [[1.0, 1.0, 2e-12]]
        near = np.abs(ys) < 0.05
        inside = near & (xs > 0) & (xs < 3)
        np.testing.assert_allclose(
            data["mean"][inside], truth(np.stack([xs[inside], ys[inside]], 1)), atol=0.3e-6
        )


def read_pgm(path):
    data = path.read_bytes()
    magic, size, depth, pixels = data.split(b"\n", 3)
    assert magic == b"P5" and depth == b"255"
    width, height = map(int, size.split())
    return np.frombuffer(pixels, np.uint8).reshape(height, width)


@pytest.mark.parametrize("name", ["mean", "stddev"])
def test_map_server_files_say_what_the_map_says(session, exported, name, tmp_path):
    grid = session.render()
    text = exported[f"{name}_yaml"].read_text()
    info, image = yaml.safe_load(text), read_pgm(exported[f"{name}_pgm"])
    assert info["image"] == f"{name}.pgm" and info["mode"] == "raw" and info["negate"] == 0
    assert info["resolution"] == grid.resolution and info["origin"] == pytest.approx(
        [*grid.origin, 0.0]
    )
    assert image.shape == grid.shape
    image, values = (
        image[::-1],
        getattr(grid, name).numpy(),
    )  # the first row of a picture is the top of the map
    assert (
        ((image == UNKNOWN) == ~grid.known.numpy()).all()
        and (~grid.known).any()
        and grid.known.any()
    )
    assert "# map:" not in text, "it belongs to no checkpoint"
    of_one, _ = export_map_server(tmp_path / name, values, grid, (0.0, 1.0), name, map_id="5f2c9a")
    assert (
        "\n# map: 5f2c9a\n" in of_one.read_text()
        and yaml.safe_load(of_one.read_text())["mode"] == "raw"
    )
    again = read_map_server(of_one)
    assert np.array_equal(again.cells, levels(values, grid.known.numpy(), 0.0, 1.0))
    assert again.origin == pytest.approx((*grid.origin, 0.0))
    limits = [line for line in text.splitlines() if line.startswith(("# pixel 1 ", "# pixel 98 "))]
    low, high = (float(line.split("=")[1]) for line in limits)
    back = low + (image[grid.known].astype(float) - 1) / 97 * (high - low)
    np.testing.assert_allclose(back, values[grid.known], atol=0.51 * (high - low) / 97)


@pytest.mark.parametrize("name", ["mean", "stddev"])
def test_map_server_shows_the_colours_of_the_live_topics(session, exported, name):
    """One scale: a value has the same level in RViz, live, and in the file that map_server loads."""
    grid = session.render()
    low, high = field_limits(grid)[:2] if name == "mean" else field_limits(grid)[2:]
    live = levels(getattr(grid, name).numpy(), grid.known.numpy(), low, high)
    np.testing.assert_array_equal(read_pgm(exported[f"{name}_pgm"])[::-1].view(np.int8), live)


def test_levels_of_a_flat_and_of_an_unknown_map():
    known = np.ones((2, 2), bool)
    assert (levels(np.full((2, 2), 5.0), known, *nice_limits(5.0, 5.0)) == 1).all()
    assert (levels(np.full((2, 2), 5.0), ~known, 0.0, 1.0).view(np.uint8) == UNKNOWN).all()


def test_the_picture_has_its_panels_with_units(session, exported):
    assert imread(exported["png"]).shape[0] > 500
    figure = draw_map(session, session.render(), [Suggestion(1.0, 1.0, 0.0)], truth)
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == ["Mean", "Truth", "Standard deviation", "Mean − truth"]
    labels = {axis.get_ylabel() for axis in figure.axes}
    assert {"field (µT)", "standard deviation (µT)", "error (µT)", "y (m)"} <= labels
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "path",
        "suggested next",
        f"inducing inputs ({len(session.inducing)})",
        "unknown",
    ]
    assert "600 measurements" in figure.get_suptitle()


def test_the_truth_may_be_a_tensor_and_must_fit(session):
    grid = session.render()
    tensor = torch.as_tensor(truth(grid.centres())).reshape(grid.shape)
    assert len(draw_map(session, grid, truth=tensor).axes) == 8
    with pytest.raises(ValueError, match="one value for each cell"):
        draw_map(session, grid, truth=tensor[:-1])


def test_no_line_is_drawn_between_two_passes(session):
    session, there = (
        copy.deepcopy(session),
        np.stack([3 + 0 * np.arange(30), 6 + 0.1 * np.arange(30)], 1),
    )
    session.break_pass()
    session.ingest(Samples(there, truth(there), stamp=100.0 + 0.05 * np.arange(30)))
    figure = draw_map(session, session.render())
    line = figure.axes[0].get_lines()[0].get_xydata()
    steps = np.linalg.norm(np.diff(line, axis=0), axis=1)
    assert np.nanmax(steps) < 0.5 and float(np.nanmax(line[:, 1])) >= 6.0


def test_three_components_are_exported_and_shown(tmp_path):
    session = MapSession(MapSettings(**GIVEN))
    x = np.stack([np.linspace(0.0, 2.0, 100), np.zeros(100)], 1)
    session.ingest(
        Samples(x, np.stack([truth(x), 0 * x[:, 0], -truth(x)], 1), stamp=0.05 * np.arange(100))
    )
    session.flush()
    paths, grid = export_all(session, tmp_path), session.render()
    with np.load(paths["npz"], allow_pickle=False) as data:
        for i, axis in enumerate("xyz"):
            np.testing.assert_array_equal(data[f"mean_{axis}"], grid.axes_mean[i])
            np.testing.assert_array_equal(data[f"stddev_{axis}"], grid.axes_stddev[i])
        parts = [data[f"mean_{axis}"] for axis in "xyz"]
        np.testing.assert_allclose(
            data["mean"], np.sqrt(sum(part**2 for part in parts)), rtol=1e-12
        )
    figure = draw_map(session, grid)
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == ["Mean", "Standard deviation", "Mean of x", "Mean of y", "Mean of z"]


@pytest.mark.parametrize("count", [1, 12])
def test_each_class_has_its_own_colour_and_its_number_at_the_bar(session, count):
    grid = session.render()
    cells = torch.arange(grid.mean.numel()).reshape(grid.shape) % count
    figure = draw_map(
        session, replace(grid, axes_mean=torch.rand(count, *grid.shape), classes=cells)
    )
    panel = next(axis for axis in figure.axes if axis.get_title() == "Most likely class")
    image = panel.get_images()[0]
    bar = next(axis for axis in figure.axes if axis.get_ylabel() == "class")
    levels_ = image.cmap(image.norm(np.arange(count)))
    np.testing.assert_allclose(levels_, image.cmap(np.arange(count)))
    assert len(np.unique(levels_, axis=0)) == count
    assert bar.get_yticks().tolist() == list(range(count)) and bar.get_ylim() == (-0.5, count - 0.5)


def test_an_empty_map_is_not_exported(tmp_path):
    with pytest.raises(ValueError, match="empty"):
        export_all(MapSession(MapSettings()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_of_units():
    for given in ("ppm", "u", "units", "usd", "unit", "T", "counts"):
        assert unit_text(given) == given
    for given, shown in (
        ("uT", "µT"),
        ("ug/m3", "µg/m3"),
        ("uSv/h", "µSv/h"),
        ("mol/um2", "mol/µm2"),
    ):
        assert unit_text(given) == shown


def test_of_a_large_area_an_overview_is_written_and_goes_when_it_is_none_any_more(tmp_path):
    x = torch.stack([torch.arange(0.0, 12.0, 0.1), torch.zeros(120)], 1).double()
    sessions = [
        MapSession(
            MapSettings(
                lengthscale=0.6,
                signal_stddev=4e-6,
                noise_stddev=1e-7,
                constant_stddev=2e-5,
                learn_hyperparameters=False,
                max_inducing=60,
                window=window,
            )
        )
        for window in (4.0, 0.0)
    ]
    for session in sessions:
        session.ingest(
            Samples(x, 45e-6 + 4e-6 * torch.sin(x[:, :1]), stamp=torch.arange(120).double() * 0.1)
        )
    paths = export_all(sessions[0], tmp_path)
    text, grid = paths["overview_mean_yaml"].read_text(), overview(sessions[0])
    assert f"resolution: {grid.resolution!r}" in text and "an overview of all ground" in text
    head = paths["overview_mean_pgm"].read_bytes().split(b"\n")[1]
    assert (
        head == f"{grid.shape[1]} {grid.shape[0]}".encode()
        and grid.shape[1] * grid.resolution > 12.0
    )
    assert sessions[0].render().resolution == 0.05
    assert "overview_mean_yaml" not in export_all(sessions[1], tmp_path)
    assert not list(tmp_path.glob("overview_*"))


@pytest.mark.filterwarnings("error")
def test_a_truth_is_drawn_where_nothing_of_the_map_is_known_and_where_it_has_holes(session):
    grid = session.render()
    values = truth(grid.centres()).reshape(grid.shape)
    unknown = replace(grid, known=torch.zeros_like(grid.known))
    holes = np.where(np.arange(grid.shape[1]) < 5, np.nan, values)
    for shown, given in ((unknown, values), (grid, holes), (grid, np.full_like(values, np.nan))):
        figure = draw_map(session, shown, truth=given)
        for axis in figure.axes[:4]:
            assert np.isfinite(axis.images[0].get_clim()).all(), axis.get_title()
