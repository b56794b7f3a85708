"""A drawing of the whole map in slices: the picture is made once, and is that of the map as it is at the end."""

import copy
import functools

import numpy as np
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.drawing.lattice import points_needed
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime import whole_map


@functools.cache
def _driven(seed: int) -> dict:
    """State of a session after 20 m among waves."""
    g = torch.Generator().manual_seed(seed)
    along = torch.linspace(0, 20, 1000, dtype=torch.float64)
    x = torch.stack([along % 5, (along / 5).floor() * 0.5], 1)
    y = (x[:, :1].sin() + x[:, 1:].cos()) * 5 + 0.1 * torch.randn(
        1000, 1, dtype=torch.float64, generator=g
    )
    session = MapSession(
        MapSettings(
            field_scale=1.0,
            learn_hyperparameters=False,
            lengthscale=0.8,
            signal_stddev=5.0,
            noise_stddev=0.1,
            constant_stddev=5.0,
            cell_length=0.2,
        )
    )
    session.ingest(Samples(x, y, stamp=0.02 * torch.arange(1000, dtype=torch.float64)))
    return session.state_dict()


def driven(seed=0):
    """Such a session, of each caller's own: to map takes a second, a copy does not."""
    return MapSession.from_state_dict(copy.deepcopy(_driven(seed)))


def test_the_grid_is_made_once_and_is_the_maps(monkeypatch):
    session, calls = driven(), {"render": 0, "draw_ahead": 0}
    want = driven().render()

    def counted(name):
        work = getattr(session, name)

        def both(*given, **named):
            calls[name] += 1
            return work(*given, **named)

        return both

    for name in calls:
        monkeypatch.setattr(session, name, counted(name))
    monkeypatch.setattr(whole_map, "FIRST", 40)
    monkeypatch.setattr(whole_map, "SLICE", 0.0)

    drawing = whole_map.WholeMap()
    drawing.finish(session)
    grid, limits = drawing.future.result(0)
    assert calls["draw_ahead"] > 5, "it was cut into slices"
    assert calls["render"] == 1, "what is drawn is put together at the end only"
    np.testing.assert_allclose(grid.mean, want.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(grid.stddev, want.stddev, rtol=0, atol=1e-9)
    assert limits.mean_low <= float(np.nanmedian(want.mean)) <= limits.mean_high


def test_a_large_map_that_goes_on_is_drawn_once(monkeypatch):
    """Beside a stream every point is evaluated about once: choosing which costs no more than evaluating, and what is
    measured meanwhile begins nothing anew."""
    settings = MapSettings(
        field_scale=1.0,
        learn_hyperparameters=False,
        lengthscale=0.8,
        signal_stddev=5.0,
        noise_stddev=0.1,
        constant_stddev=5.0,
        resolution=0.02,
        margin=8.0,
        max_inducing=60,
    )
    session, clock, points = MapSession(settings), [0.0], []

    def go_on(count):
        t = clock[0] + 0.02 * torch.arange(count, dtype=torch.float64)
        x = torch.stack([2.0 + 2.0 * torch.sin(0.3 * t), 1.0 + torch.cos(0.2 * t)], 1)
        session.ingest(Samples(x, 5.0 * x[:, :1].sin() + 0.1 * x[:, 1:], stamp=t))
        clock[0] += 0.02 * count

    go_on(1000)
    drawing = whole_map.WholeMap()
    evaluate = session.draw_ahead

    def counted(budget):
        evaluate(budget)
        points.append(session.renderer.points_drawn)

    monkeypatch.setattr(session, "draw_ahead", counted)
    while not drawing.draw_slice(session):
        go_on(20)
    grid, _ = drawing.future.result(0)
    per_length = points_needed(5.0, 0.1, settings.kernel)
    lattice = np.prod([side * 0.02 * per_length / 0.8 for side in grid.shape])
    assert lattice > 50_000 and sum(points) < 1.3 * lattice
    assert len(points) < 120 and max(points) > 4 * whole_map.FIRST, (len(points), max(points))
    want = session.render()
    assert (grid.stddev - want.stddev).abs().max() < 0.5 * want.stddev.max() and bool(
        grid.known.any()
    )


def test_an_empty_map_and_a_fault_are_answers():
    empty, broken = whole_map.WholeMap(), whole_map.WholeMap()
    empty.finish(MapSession(MapSettings()))
    assert empty.future.result(0) is None

    session = driven()

    def refuse(points):
        raise RuntimeError("no memory")

    session.draw_ahead = refuse
    assert broken.draw_slice(session) and "no memory" in str(broken.future.exception(0))


def test_a_drawing_that_nobody_wants_any_more_ends(monkeypatch):
    session = driven()
    before, meanwhile = whole_map.WholeMap(), whole_map.WholeMap()
    before.future.cancel()
    assert before.draw_slice(session) and not session.renderer.points_drawn
    draw = session.draw_ahead

    def cancelled_meanwhile(points):
        meanwhile.future.cancel()
        return draw(points)

    monkeypatch.setattr(session, "draw_ahead", cancelled_meanwhile)
    meanwhile.finish(session)
    assert meanwhile.future.cancelled()


def test_requests_share_a_drawing_until_it_begins_and_the_oldest_is_drawn_first(monkeypatch):
    monkeypatch.setattr(whole_map, "FIRST", 40)
    monkeypatch.setattr(whole_map, "SLICE", 0.0)
    session, wholes = driven(), whole_map.WholeMaps()
    wholes.draw_slice(session)  # nothing is requested
    first = wholes.request()
    assert wholes.request() is first and len(wholes) == 1

    wholes.draw_slice(session)
    second = wholes.request()
    assert second is not first and wholes.request() is second and len(wholes) == 2
    wholes.finish(session)
    assert first.done() and second.done() and not wholes

    third = wholes.request()
    assert third is not second
    assert [whole.future for whole in wholes.take_all()] == [third] and not wholes
