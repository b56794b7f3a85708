"""Where each part of a picture is, and on which scale."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from gp_mapping import MapSettings
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.store.exports.picture import draw_map, lay_out, picture_text

pytestmark = pytest.mark.usefixtures("full_pictures")


def grid_of(height, width, axes=None):
    """Values of 40 µT and up; the last column is unknown, and far above the others."""
    mean = 40e-6 + 1e-6 * torch.arange(height * width).double().reshape(height, width)
    known = torch.ones(height, width, dtype=torch.bool)
    known[:, -1] = False
    mean[:, -1] = 1.0
    grid = FieldGrid((1.0, -2.0), 0.5, mean, 0.1 * (mean - 39e-6), known, 2e-7, revision=1)
    return replace(grid, axes_mean=None if axes is None else torch.stack([mean, 2 * mean, -mean]))


def session(**report):
    return SimpleNamespace(
        settings=MapSettings(),
        path=torch.tensor([[1.0, -2.0], [1.5, -2.0], [2.0, -1.0], [2.5, -1.0]]),
        path_starts=torch.tensor([False, False, True, False]),
        inducing=torch.tensor([[1.0, -1.0], [2.0, -1.0]]),
        report=lambda: {"samples": 7, **report},
    )


def test_panels_are_on_the_ground_in_the_unit_and_on_the_scale_of_what_is_known():
    grid = grid_of(3, 4)
    figure = draw_map(session(), grid, [SimpleNamespace(x=1.2, y=-1.5)])
    mean, deviation = (axis for axis in figure.axes if axis.get_title())
    (image,), (other,) = mean.get_images(), deviation.get_images()
    assert tuple(image.get_extent()) == tuple(other.get_extent()) == (1.0, 3.0, -2.0, -0.5)
    labels = {axis.get_ylabel() for axis in figure.axes}
    assert labels >= {"field (µT)", "standard deviation (µT)"}, labels
    assert image.origin == "lower" and mean.get_xlim() == (1.0, 3.0)
    shown = image.get_array()
    np.testing.assert_allclose(shown[:, :3], 1e6 * grid.mean[:, :3], rtol=1e-12)
    assert np.ma.getmaskarray(shown)[:, 3].all() and not np.ma.getmaskarray(shown)[:, :3].any()
    assert image.get_clim() == pytest.approx((40.0, 50.0))
    assert other.get_clim() == (0.0, pytest.approx(1e5, rel=1e-3))
    # half the height of the colours is a quarter of the largest standard deviation
    assert other.norm(0.25 * other.get_clim()[1]) == pytest.approx(0.5)
    assert image.norm(45.0) == pytest.approx(0.5)

    (line,) = mean.get_lines()
    points = line.get_xydata()
    np.testing.assert_array_equal(points[[0, 1, 3, 4]], session().path)
    assert np.isnan(points[2]).all() and line.get_color() == "black"
    assert deviation.get_lines()[0].get_color() != "black"
    # inducing inputs are drawn once, where their colour shows; places to measure in both
    assert [len(axis.collections) for axis in (mean, deviation)] == [2, 2]
    assert [text.get_text() for text in mean.texts] == ["1"]
    assert mean.texts[0].get_position() == (1.2, -1.5)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert set(legend) == {"path", "suggested next", "inducing inputs (2)", "unknown"}
    # what is unknown has the colour that the legend says
    unknown = figure.legends[0].legend_handles[legend.index("unknown")]
    assert tuple(unknown.get_facecolor()[:3]) == mean.get_facecolor()[:3] != (1.0, 1.0, 1.0)
    assert figure.get_suptitle() == "7 measurements, noise of one measurement 0.2 µT"


def test_the_error_has_a_scale_of_its_own_around_zero():
    grid = grid_of(3, 4)
    truth = grid.mean - 2e-6
    truth[0, 0] = grid.mean[0, 0] + 3e-6
    truth[1, 1] = torch.nan  # nobody knows
    figure = draw_map(session(), grid, truth=truth)
    images = {a.get_title(): a.get_images()[0] for a in figure.axes if a.get_title()}
    assert images["Mean − truth"].get_clim() == pytest.approx((-3.0, 3.0))
    error = np.ma.filled(images["Mean − truth"].get_array(), np.nan)
    assert error[0, 0] == pytest.approx(-3.0) and error[2, 2] == pytest.approx(2.0)
    assert np.isnan(error[:, 3]).all() and np.isnan(error[1, 1])
    # one scale, of all that is known of both
    assert images["Mean"].get_clim() == images["Truth"].get_clim() == pytest.approx((39.0, 50.0))
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    lines = {a.get_title(): len(a.get_lines()) for a in figure.axes if a.get_title()}
    assert titles == ["Mean", "Truth", "Standard deviation", "Mean − truth"]
    assert lines == {"Mean": 1, "Truth": 0, "Standard deviation": 1, "Mean − truth": 1}
    assert draw_map(session(), grid, truth=grid.mean).axes[3].get_images()[0].get_clim() == (-1, 1)


@pytest.mark.parametrize(
    "shape, axes, rows, columns",
    [((4, 4), None, 1, 2), ((4, 9), None, 2, 1), ((4, 8), None, 1, 2), ((4, 4), 3, 2, 3)],
)
def test_panels_are_side_by_side_but_of_a_long_map(shape, axes, rows, columns):
    figure = draw_map(session(), grid_of(*shape, axes))
    shown = [axis for axis in figure.axes if axis.get_title()]
    spots = [axis.get_subplotspec() for axis in shown]
    assert spots[0].get_gridspec().get_geometry() == (rows, columns)
    assert [spot.num1 for spot in spots] == list(range(2 if axes is None else 5))
    # more than three columns are never there, and each panel has its width and height
    width, height = figure.get_size_inches()
    aspect = shape[1] / shape[0]
    wide, high = (5.2, 5.2 / aspect) if aspect >= 1 else (5.2 * aspect, 5.2)
    assert width > columns * wide and height > rows * high
    if axes:
        x, y, z = (axis.get_images()[0] for axis in shown[2:])
        assert x.get_clim() == pytest.approx((40.0, 54.0))
        assert y.get_clim() == pytest.approx((80.0, 108.0))
        assert z.get_clim() == pytest.approx((-54.0, -40.0))
        assert not [axis for axis in figure.axes[:6] if axis.get_visible()][5:]


def test_what_is_known_of_a_map_is_in_its_headline():
    report = {"hyperparameters": {"lengthscale": 0.456}, "path_length": 12.6}
    figure = draw_map(session(**report), grid_of(3, 3))
    assert figure.get_suptitle() == (
        "7 measurements, 13 m of path, noise of one measurement 0.2 µT, lengthscale 0.46 m"
    )
    counted = session(hyperparameters={"lengthscale": [0.1, 0.2]}, path_length=None)
    counted.settings = MapSettings(likelihood="poisson")
    assert draw_map(counted, grid_of(3, 3)).get_suptitle() == "7 measurements"


def test_a_finished_figure_is_not_laid_out_again():
    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.set_ylabel("y\ny\ny\ny")
    before = axis.get_position().bounds
    assert lay_out(figure) is figure and figure.get_layout_engine() is None
    assert axis.get_position().bounds != before
    assert lay_out(figure) is figure


def test_a_name_from_outside_is_text():
    assert picture_text("a\n$b$") == r"a \$b\$"
    assert len(picture_text("a" * 500)) < 210 and picture_text("a" * 200) == "a" * 200
    assert picture_text("a" * 60, 50) != "a" * 60


def test_an_axis_has_a_few_numbers_and_each_class_its_own():
    """To measure them is most of what a picture costs: six where there were ten."""
    grid = grid_of(30, 40)
    classes = (torch.arange(30 * 40) % 12).reshape(30, 40)
    plain = draw_map(session(), grid)
    classed = draw_map(session(), replace(grid, axes_mean=torch.rand(12, 30, 40), classes=classes))
    for axes in plain.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            shown = [at for at in axis.get_majorticklocs() if low <= at <= high]
            assert len(shown) in (0, *range(3, 7)), shown  # a colour bar's other axis has none
    bar = next(axis for axis in classed.axes if axis.get_ylabel() == "class")
    assert bar.get_yticks().tolist() == list(range(12))


def test_numbers_of_a_field_that_hardly_varies_are_the_fields():
    """Not differences to a number that stands elsewhere."""
    grid = grid_of(3, 4)
    figure = draw_map(session(), replace(grid, mean=40e-6 + 1e-6 * (grid.mean - 40e-6)))
    figure.draw_without_rendering()
    (bar,) = (axis for axis in figure.axes if axis.get_ylabel() == "field (µT)")
    low, high = bar.get_ylim()
    numbers = [label.get_text() for label in bar.get_yticklabels() if label.get_text()]
    assert len(numbers) >= 3 and all(low <= float(number) <= high for number in numbers[1:-1])
