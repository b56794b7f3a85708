"""Drawing: equal to asking directly, and drawing what changed equal to drawing all, within stated limits."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from mapping_data import UT, drive

from gp_mapping import MapSettings, Samples
from gp_mapping.core.registry import build_map
from gp_mapping.mapping.drawing import following, renderer
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.session import MapSession

FIXED = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "lengthscale": 0.5,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.7 * UT,
    "constant_stddev": 20 * UT,
    "heading_stddev": 0.0,
    "cell_length": 0.2,
}


def errors(grid, field) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each cell, grid against field.predict: mean in predictive sd, stddev relative to it."""
    told = field.predict(grid.centres())
    mean, variance = told.mean[:, 0].reshape(grid.shape), told.variance[:, 0].reshape(grid.shape)
    return (
        (grid.mean - mean).abs() / (variance + told.noise_variance[0]).sqrt(),
        (grid.stddev / variance.sqrt() - 1).abs(),
    )


def off(grid, field) -> tuple[float, float]:
    """The largest of both `errors`."""
    mean, stddev = errors(grid, field)
    return float(mean.max()), float(stddev.max())


def surveyed(quiet: float, lanes: float, **settings):
    """A map (ℓ .5 m, signal 1) of lanes so far apart, whose noise is so many times smaller."""
    settings = MapSettings(
        **(
            FIXED
            | {"signal_stddev": 1.0, "noise_stddev": 1.0 / quiet, "constant_stddev": 2.0}
            | {"resolution": 0.0125, "margin": 0.0}
            | settings
        )
    )
    field = build_map(settings)
    along, across = torch.arange(0.0, 1.0, 0.01), torch.arange(0.0, 1.01, lanes)
    way = torch.cartesian_prod(across, along).flip(1).double()
    way[:, 1] += 0.02 * torch.sin(6.0 * way[:, 0])
    field.update(Samples(way, torch.sin(5.0 * way).sum(1, keepdim=True)))
    return field, settings


def assert_good(grid, field, where=""):
    mean, stddev = off(grid, field)
    assert mean <= 0.02 and stddev <= 0.02, (
        f"{where}: mean {mean:.4f} predictive sd, stddev {stddev:.4f}"
    )


@pytest.mark.parametrize("length", [0.15, 0.5, 1.5])
@pytest.mark.parametrize("model", ["dual_svgp", "exact"])
def test_a_full_drawing_is_what_predict_says(model, length):
    session = MapSession(MapSettings(model=model, **(FIXED | {"lengthscale": length})))
    session.ingest(drive(rate=20.0))
    session.flush()
    assert_good(session.render(), session, f"ℓ = {length}")


@pytest.mark.parametrize(
    "quiet, lanes, kernel",
    [
        (20.0, 0.15, "matern52"),
        (20.0, 0.5, "matern52"),
        (100.0, 0.5, "matern52"),
        (10.0, 0.15, "matern32"),
    ],
)
def test_the_narrow_valley_of_the_variance_along_a_path_is_drawn(quiet, lanes, kernel):
    """Also by a renderer that knew of another noise before."""
    field, settings = surveyed(quiet, lanes, kernel=kernel)
    drawn, box = Renderer(settings), ([0.0, 0.0], [1.0, 1.0])
    drawn.render(field, box, 1.0, 0)
    loud = drawn.points_drawn
    grid = drawn.render(field, box, 1.0 / quiet, 1)
    mean, stddev = errors(grid, field)
    assert mean.max() <= 0.02 and stddev.quantile(0.999) <= 0.02 and stddev.max() <= 0.06
    assert drawn.points_drawn in (0, loud) or loud < drawn.points_drawn < 2.6 * loud


@pytest.mark.parametrize(
    "quiet, kernel", [(3000.0, "matern52"), (60.0, "matern32"), (200.0, "matern32")]
)
def test_the_valley_of_a_very_quiet_sensor_is_drawn_on_cells_as_fine(quiet, kernel):
    """As an export shows it: no bound but the cells themselves stands before the points it takes."""
    field, settings = surveyed(quiet, 0.5, kernel=kernel, resolution=0.005)
    grid = Renderer(settings).render(field, ([0.0, 0.3], [0.5, 0.7]), 1.0 / quiet, 0)
    mean, stddev = errors(grid, field)
    assert mean.max() <= 0.02 and stddev.quantile(0.999) <= 0.02 and stddev.max() <= 0.03


@pytest.mark.parametrize("model", ["dual_svgp", "fitc"])
def test_with_a_budget_new_samples_are_drawn_whether_or_not_a_map_tells_its_changes(model):
    """fitc tells none: its moments were all alike, as of a map that had not changed."""
    session = MapSession(MapSettings(model=model, **FIXED))
    for part in (some := drive(rate=20.0))[:600], some[600:760]:
        session.ingest(part)
        session.render(budget=3000)
    worst, _ = off(session.render(budget=3000), session)
    assert worst < 0.05, "predictive standard deviations"


def test_cells_that_are_evaluated_themselves_are_not_evaluated_again_for_another_noise():
    """No lattice is finer than the cells, whatever the noise asks for."""
    field, settings = surveyed(20.0, 0.5, resolution=0.05)
    drawn, box = Renderer(settings), ([0.0, 0.0], [1.0, 1.0])
    drawn.render(field, box, 0.05, 0)
    every = drawn.points_drawn
    drawn.render(field, box, 0.0005, 1)
    assert every == 400 and not drawn.points_drawn


@pytest.mark.parametrize("origin", [(0.0, 0.0), (4e5 + 0.37, -1e6 + 0.123)])
def test_drawing_what_changed_equals_drawing_all(origin):
    """A lawnmower, drawn every few seconds, through windows that grow; then a second pass across.

    Of a map whose inducing inputs stay: where some are let go of, all is drawn again.
    """
    session = MapSession(
        MapSettings(**(FIXED | {"inducing_information": 0.0, "inducing_tolerance": 1e-3}))
    )
    parts, drawn_cells = [], []
    for seed, across in ((0, False), (1, True)):
        run = drive(seed, start=1000.0 * seed, origin=origin, across=across, lanes=3, rate=10.0)
        parts += [run[i : i + 80] for i in range(0, len(run), 80)]
    for i, part in enumerate(parts):
        session.ingest(part)
        if i % 3 == 2:
            assert_good(session.render(), session, f"part {i}")
            drawn_cells.append(session.renderer.points_drawn)
    assert min(drawn_cells[len(drawn_cells) // 2 :]) < 0.6 * max(drawn_cells), (
        "everything was drawn every time"
    )
    again = session.render()
    assert again.revision == session.revision and torch.equal(again.mean, session.render().mean)


def test_a_corner_that_was_never_visited_follows_the_constant():
    """Far from the path the map is the field's mean, which every sample moves a little."""
    session = MapSession(MapSettings(**(FIXED | {"lengthscale": 0.2})))
    stamps = np.arange(0, 30, 0.02)
    way = np.stack(
        [np.clip(0.2 * stamps, 0, 3), np.clip(0.2 * stamps - 3, 0, 3)], 1
    )  # an L: 3 m, or 15 lengthscales, along and as far up
    y = (48 + np.where(way[:, 1:] > 0, 25.0, -5.0) + np.sin(3 * way.sum(1, keepdims=True))) * UT
    samples = Samples(way, y, stamp=stamps)
    for i in range(0, len(samples), 150):
        session.ingest(samples[i : i + 150])
        assert_good(session.render(), session, f"after {0.2 * stamps[i]:.1f} m")


def test_many_samples_between_two_drawings():
    """Nobody looks for ten minutes: what was touched first is redrawn too."""
    settings = MapSettings(**FIXED)
    field, renderer = build_map(settings), Renderer(settings)
    bounds, corners = (
        ([0.0, 0.0], [20.0, 4.0]),
        torch.tensor([[0.0, 0.0], [20.0, 4.0]], dtype=torch.float64),
    )
    field.update(Samples(corners, torch.full((2, 1), 48 * UT)))
    renderer.render(field, bounds, UT, 0)
    x = torch.linspace(0, 3, 30, dtype=torch.float64)
    first = torch.stack([x, torch.ones_like(x)], 1)
    field.update(Samples(first, torch.full((30, 1), 60 * UT)))
    for place in first:
        renderer.touch(place[None])
    there = torch.tensor([[18.0, 3.0]], dtype=torch.float64)
    for _ in range(6000):
        renderer.touch(there)
    field.update(Samples(there, torch.full((1, 1), 48 * UT)))
    assert_good(renderer.render(field, bounds, UT, 1), field)


@pytest.mark.parametrize("ground", [(2.0, 1.0), (200.0, 200.0)])
def test_what_a_solution_does_not_have_yet_is_drawn_when_one_has_it(ground, monkeypatch):
    """However many batches came before it did; also where they are too many places to be kept."""
    monkeypatch.setattr(renderer, "_PLACES", 2000)
    monkeypatch.setattr(renderer, "_SOLVING", 0.0)
    settings = MapSettings(model="wiski", resolution=0.1, **FIXED)
    field, drawn, bounds = build_map(settings), Renderer(settings), ([0.0, 0.0], [20.0, 20.0])
    around = torch.cartesian_prod(*2 * [torch.arange(0.0, 21.0, 2.0, dtype=torch.float64)])
    field.update(Samples(around, torch.full((len(around), 1), 48 * UT)))
    drawn.render(field, bounds, UT, 0, 10**6)

    way = torch.linspace(5.2, 5.7, 30, dtype=torch.float64)
    first = torch.stack([way, torch.full_like(way, 5.0)], 1)
    field.update(Samples(first, torch.full((30, 1), 60 * UT)))
    samples, rng = len(around) + 30, np.random.default_rng(0)
    for place in first:
        drawn.touch(place[None], samples)
    for _ in range(3000):
        there = np.array([[15.0, 3.0]]) + rng.uniform(0, 1, (1, 2)) * ground
        drawn.touch(torch.from_numpy(there), samples)
    drawn.render(field, bounds, UT, 1, 10**6)

    # a drawing made anew is of the newest solution: so is this one, once there is one
    monkeypatch.setattr(renderer, "_SOLVING", 60.0)
    grid = drawn.render(field, bounds, UT, 2, 10**6)
    monkeypatch.setattr(renderer, "_SOLVING", 0.0)
    expected = Renderer(settings).render(field, bounds, UT, 2, 10**6)
    assert (
        float((grid.mean - expected.mean).abs().max()) < UT < float(expected.mean.max()) - 55 * UT
    )
    assert drawn.points_stale == 0


def test_the_grid_grows_with_the_path_and_keeps_its_lattice():
    session = MapSession(MapSettings(**FIXED))
    run = drive(length=6.0, lanes=2)
    session.ingest(run[:500])
    small = session.render()
    session.ingest(run[500:])
    large = session.render()
    low, high = run.x.min(0).values, run.x.max(0).values
    for grid, part in ((small, run[:500]), (large, run)):
        low, high = part.x.min(0).values - 0.5, part.x.max(0).values + 0.5
        assert grid.origin[0] <= low[0] + 1e-9 and grid.origin[1] <= low[1] + 1e-9
        assert grid.origin[0] + grid.shape[1] * grid.resolution >= high[0] - 1e-9
        assert grid.origin[1] + grid.shape[0] * grid.resolution >= high[1] - 1e-9
        assert (
            grid.resolution == 0.05
            and grid.stddev.shape == grid.mean.shape == grid.known.shape == grid.shape
        )
    shift = (small.origin[0] - large.origin[0]) / 0.05
    assert abs(shift - round(shift)) < 1e-6 and large.mean.numel() > small.mean.numel()


def test_bounded_by_max_grid_cells():
    session = MapSession(MapSettings(max_grid_cells=900, **FIXED))
    session.ingest(drive())
    grid = session.render()
    assert (
        grid.mean.numel() <= 900 and grid.resolution == 0.05
    )  # what was asked for; the extent is cut
    assert "max_grid_cells" in session.warnings[0]
    assert_good(grid, session)


def windows_of(low, corners, most: int, margin: float = 0.5, end=None):
    """The window after each drawing, of ground from `low` to the corners (or to `end`), about each corner."""
    settings = MapSettings(max_grid_cells=most, resolution=0.25, margin=margin, **FIXED)
    field, drawn = build_map(settings), Renderer(settings)
    field.update(Samples([[0.1, 0.1]], [[48 * UT]]))
    out = []
    for i, corner in enumerate(corners):
        drawn.advance(field, (low, end or corner), UT, i, 0, about=corner)
        out.append(drawn.window)
    return out


def test_a_window_stays_while_it_holds_the_ground_and_leaps_a_metre_ahead():
    """Drawn with its margin; one that must move has a metre more on every side, while that fits."""
    corners = [[2.0, 1.0], [2.0, 1.0], [2.25, 1.0], [3.25, 1.0], [3.3, 1.0]]
    first, same, grown, still, again = windows_of([0.0, 0.0], corners, 10_000)
    assert (first.left, first.bottom, first.width, first.height) == (-2, -2, 12, 8)
    assert same is first, "all of it is inside"
    assert (grown.left, grown.bottom, grown.width, grown.height) == (-6, -6, 21, 16)
    assert still is grown, "the metre was for that"
    assert (again.left, again.width) == (-6, 26)

    # a grid of just as many cells as there may be is none that is too large
    first, same = windows_of([0.0, 0.0], [[2.0, 1.0]] * 2, 96)
    assert same is first and first.width * first.height == 96


def test_a_window_that_is_cut_follows_the_robot_in_large_steps():
    """100 cells of a long lane: it moves once the robot is within a quarter of its shorter side of its end."""
    corners = [[10.0 + 0.25 * k, 0.0] for k in range(60)]
    windows = windows_of([0.0, 0.0], corners, 100, margin=0.25)
    moved = [k for k in range(1, 60) if windows[k] is not windows[k - 1]]
    assert all(w.width * w.height <= 100 for w in windows)
    for (x, y), window in zip(corners, windows):
        # what lies about the robot is drawn, as far as there is ground
        reach = 0.25 * 0.25 * min(window.width, window.height)
        ends = [0.25 * window.left, 0.25 * (window.left + window.width)]
        assert ends[0] <= x - reach and min(x + reach, x + 0.25) <= ends[1] + 1e-9
        assert 0.25 * window.bottom <= y <= 0.25 * (window.bottom + window.height)
    assert 2 <= len(moved) <= 30


def test_a_window_of_known_ground_moves_when_the_robot_is_a_quarter_of_its_side_from_its_end():
    """To and fro on ground that stays as it is: no sooner, and to where the robot is in the middle."""
    way = [0.25 * k for k in range(40, 80)] + [0.25 * k for k in range(80, 40, -1)]
    windows = windows_of([0.0, 0.0], [[x, 15.0] for x in way], 400, end=[30.0, 30.0])
    assert {(w.width, w.height) for w in windows} == {(20, 20)}
    reach = 0.25 * 5.0
    for before, after, x in zip(windows, windows[1:], way[1:]):
        low, high = 0.25 * before.left, 0.25 * (before.left + before.width)
        assert (after is before) == (low <= x - reach and x + reach <= high), x
        if after is not before:
            assert abs(0.25 * (after.left + 0.5 * after.width) - x) <= 0.25


def test_a_sample_makes_stale_what_lies_near_it():
    """Three lengthscales about it, and not all that is drawn."""
    settings = MapSettings(resolution=0.25, margin=0.5, model="exact", **FIXED)
    field, drawn = build_map(settings), Renderer(settings)
    x = torch.stack([torch.linspace(0, 20, 60), torch.zeros(60)], 1).double()
    field.update(Samples(x, 48 * UT + UT * torch.sin(x[:, :1])))
    bounds = ([0.0, 0.0], [20.0, 0.0])
    drawn.render(field, bounds, UT, 0)
    everything = drawn.points_drawn
    assert drawn.points_stale == 0 and everything > 300
    new = torch.tensor([[5.0, 0.1]]).double()
    field.update(Samples(new, [[60 * UT]]))
    drawn.touch(new, field.samples)
    assert drawn.newest == field.samples and drawn.stale_since(5, field.samples) == 1
    drawn.advance(field, bounds, UT, 1, 0)
    share = drawn.points_stale / everything
    # 1.65 m on either side of it, and spots about there, of the 21 m that are drawn
    assert 0.08 < share < 0.5
    assert drawn.stale_share(torch.tensor([[5.0, 0.0], [15.0, 0.0]]).double()) == 0.5


def test_known_is_where_something_was_learned():
    session = MapSession(MapSettings(**(FIXED | {"margin": 4.0})))
    session.ingest(drive(lanes=2, length=3.0))
    grid = session.render()
    centres = grid.centres().reshape(*grid.shape, 2)
    away = torch.cdist(centres.reshape(-1, 2), session.path).min(1).values.reshape(grid.shape)
    assert bool(grid.known[away < 0.15].all()) and not bool(grid.known[away > 2.0].any())
    assert torch.equal(
        grid.known, grid.stddev <= 0.8 * session.map.hyperparameters()["signal_stddev"]
    )
    assert grid.known.dtype == torch.bool and grid.mean.dtype == grid.stddev.dtype == torch.float64
    assert grid.noise_stddev == pytest.approx(math.sqrt(session.noise_variance))


def test_a_drawing_is_the_readers_own():
    session = MapSession(MapSettings(**FIXED))
    run = drive(lanes=2)
    session.ingest(run[:1000])
    grid = session.render()
    kept = grid.mean.clone()
    session.ingest(run[1000:])
    session.render()
    assert torch.equal(grid.mean, kept)
    grid.mean.zero_()
    assert float(session.render().mean.min()) > 0


def test_a_change_of_everything_is_drawn():
    """Learning, forgetting and moved inputs change the map where no new sample is."""
    session = MapSession(MapSettings(max_inducing=60, forgetting_time=200.0))
    run = drive(rate=20.0)
    for i in range(0, len(run), 200):
        session.ingest(run[i : i + 200])
        grid = session.render()
        mean, apart = errors(grid, session)
        # what the renderer promises at a θ that nobody chose: 2 % at 999 cells of 1000, of which the sharpest valley
        # beside the path may be the thousandth
        assert float(apart.quantile(0.999)) <= 0.02 and float(apart.max()) <= 0.025, i
        assert float(mean.max()) <= 0.02, i
    assert session.report()["learning_steps"] > 0


@pytest.mark.parametrize(
    "model, budget", [("dual_svgp", None), ("dual_svgp", 10**6), ("exact", None), ("wiski", 10**6)]
)
def test_a_map_that_changes_where_no_sample_is_is_drawn_anew(model, budget):
    """Nothing but its epoch tells; what has not changed is not evaluated again."""
    field, settings = surveyed(20.0, 0.5, model=model, resolution=0.05, tiles=False)
    drawn, box = Renderer(settings), ([0.0, 0.0], [1.0, 1.0])
    grid = drawn.render(field, box, 0.05, 0, budget)
    assert drawn.points_drawn > 100
    drawn.render(field, box, 0.05, 1, budget)
    assert drawn.points_drawn == 0

    for revision, change in enumerate(
        (
            lambda: field.forget(0.1),
            lambda: field.adopt(replace(field.theta, noise_stddev=2.0 * field.theta.noise_stddev)),
        ),
        2,
    ):
        before = grid
        change()
        while field.drawable(1.0)[2] < field.epoch:  # a solution that is made ahead has it
            pass
        grid = drawn.render(field, box, 0.05, revision, budget)
        fresh = Renderer(settings).render(field, box, 0.05, revision, budget)
        torch.testing.assert_close(grid.mean, fresh.mean)
        torch.testing.assert_close(grid.stddev, fresh.stddev)
        assert float((before.stddev / fresh.stddev - 1).abs().max()) > 0.1


def followed(budget=None, **settings):
    """Two passes over a room, drawn after each few cells; yields grid, session and how many points were asked for."""
    session = MapSession(
        MapSettings(
            **FIXED
            | {"inducing_information": 0.0, "inducing_tolerance": 1e-3, "cell_length": 0.1}
            | settings
        )
    )
    for seed, across in ((0, False), (1, True)):
        run = drive(seed, start=1000.0 * seed, across=across, lanes=3, rate=10.0)
        for i in range(0, len(run), 40):
            session.ingest(run[i : i + 40])
            yield session.render(budget), session, session.renderer.points_drawn


def test_what_has_changed_is_drawn_everywhere_exactly():
    """A sample moves a little of everything. Drawing after drawing, a point that is followed is what one asked anew is,
    for a fraction of the points."""
    asked, every, worst = [], 0, 0.0
    for k, (grid, session, points) in enumerate(followed()):
        asked.append(points)
        if k % 8 == 7:
            fresh = Renderer(session.settings)
            fresh.window = session.renderer.window
            bounds = (
                [float(v) for v in session.path.amin(0)],
                [float(v) for v in session.path.amax(0)],
            )
            again = fresh.render(
                session.map,
                bounds,
                math.sqrt(session.noise_variance),
                session.revision,
                None,
                session.local_scale,
            )
            every = fresh.points_drawn
            predictive = (again.stddev.square() + session.noise_variance).sqrt()
            worst = max(
                worst,
                float(((grid.mean - again.mean).abs() / predictive).max()),
                float((grid.stddev / again.stddev - 1.0).abs().max()),
            )
    assert len(session.inducing) > 100 and worst < 1e-6
    late = asked[len(asked) // 2 :]
    assert sorted(late)[len(late) // 2] < 0.05 * every


def test_points_are_not_followed_for_ever(monkeypatch):
    """What increments round off would add up in a map that nothing else makes anew."""
    monkeypatch.setattr(following, "_RENEWED", 6)
    asked = [points for _, _, points in followed()]
    late, every = asked[len(asked) // 2 :], max(asked)
    renewed = [i for i, points in enumerate(late) if points > 0.9 * every]
    assert len(renewed) >= 2 and set(np.diff(renewed)) <= {6, 7}, asked
    assert sorted(late)[len(late) // 2] < 0.05 * every


def test_with_a_budget_points_are_followed_too():
    steps = list(followed(3000))
    assert all(points <= 3000 for _, _, points in steps)
    session = steps[-1][1]
    drawn, again = session.render(), Renderer(session.settings)
    again.window = session.renderer.window
    again = again.render(
        session.map,
        ([0.0, 0.0], [1.0, 1.0]),
        math.sqrt(session.noise_variance),
        session.revision,
        None,
        session.local_scale,
    )
    assert float(((drawn.mean - again.mean).abs() / again.stddev).max()) < 1e-6
    assert float((drawn.stddev / again.stddev - 1.0).abs().max()) < 1e-6


def test_inducing_inputs_that_go_are_a_change_that_is_followed():
    """They go in every tile every few metres: that must not have all of the ground evaluated again."""
    session = MapSession(MapSettings(**FIXED | {"lengthscale": 0.25, "cell_length": 0.1}))
    session.ingest(drive(rate=10.0))
    session.render()
    every, one, epoch = session.renderer.points_drawn, session.map.current_map, session.map.epoch

    before, one.information = len(one.basis), 1.6 * one.information
    assert one.adopt_in_slices(one.theta) and 100 < len(one.basis) < before
    assert session.map.epoch > epoch
    grid = session.render(3000)
    assert session.renderer.points_drawn < 0.05 * every
    assert_good(grid, session)

    # of another lengthscale nothing can be followed
    assert one.adopt(replace(one.theta, lengthscale=1.05 * one.theta.lengthscale))
    grid = session.render()
    assert session.renderer.points_drawn == every
    assert_good(grid, session)
