"""Which lattice a WISKI map has: in another frame, in another map's, and within its bound of nodes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, feed, samples

from gp_mapping import create_map
from gp_mapping.core.models.wiski.lattice import windows

X, Y = drive(100, size=1.5)
PLACES = torch.from_numpy(X[::5])
STILL = torch.eye(2, dtype=torch.float64)
# whole nodes of the lattice, parts of one, and coordinates as of a country's grid
SHIFTS = [[12.0, -7.0], [0.03, 0.011], [643210.98, -5.4321e6]]
FORMS = ["matrix_free", "dense"]
CASES = [*((shift, FORMS[0]) for shift in SHIFTS), (SHIFTS[1], FORMS[1])]


def mapped(part=slice(None), shift=None, **settings):
    """A map of some samples, in a frame from which a shift leads back to that of the samples."""
    field = create_map("wiski", **(SETTINGS | settings))
    x = X[part] if shift is None else X[part] - shift.numpy()
    feed(field, samples(x, Y[part]), 50)
    if shift is not None:
        field.move(STILL, shift)
    return field


def off(field, judge, places=PLACES):
    """Error of the mean in posterior sd, and of the sd."""
    a, b = field.predict(places), judge
    return float(((a.mean - b.mean).abs() / b.stddev).max()), float(
        (a.stddev / b.stddev - 1).abs().max()
    )


@pytest.fixture(scope="module")
def exact():
    field = create_map("exact", **SETTINGS)
    feed(field, samples(X, Y), 100)
    return field.predict(PLACES)


@pytest.mark.parametrize(("shift", "form"), CASES, ids=str)
def test_saved_after_a_move_it_is_the_map_that_it_was(shift, form, exact):
    shift = torch.tensor(shift, dtype=torch.float64)
    field, again = (
        mapped(shift=shift, wiski_form=form),
        create_map("wiski", wiski_form=form, **SETTINGS),
    )
    again.load_state_dict(copy.deepcopy(field.state_dict()))
    mean, stddev = off(again, exact)
    assert mean < 0.05 and stddev < 0.02
    more = samples(X[:20] + 0.05, Y[:20])
    for each in (field, again):
        each.update(more)
    assert torch.allclose(field.predict(PLACES).mean / UT, again.predict(PLACES).mean / UT)


@pytest.mark.parametrize("shift", SHIFTS, ids=str)
def test_maps_merge_whatever_frame_they_came_from(shift, exact):
    """Either way, and into an empty map; also what is not remembered, then within half a spacing."""
    shift = torch.tensor(shift, dtype=torch.float64)
    for memory, worst in ((2000, 0.05), (20, 0.2)):
        settings = {"memory_size": memory}
        still, come = mapped(slice(0, 50), **settings), mapped(slice(50, 100), shift, **settings)
        empty, other = create_map("wiski", **(SETTINGS | settings)), copy.deepcopy(come)
        for one, another in ((still, come), (other, mapped(slice(0, 50), **settings))):
            one.merge(another)
            mean, stddev = off(one, exact)
            assert mean < worst and stddev < 0.03
        empty.merge(come)
        assert torch.allclose(
            empty.predict(PLACES).mean, come.predict(PLACES).mean, rtol=1e-9, atol=0.0
        )


def test_after_a_move_drawings_and_plans_are_of_the_new_frame():
    field, shift = mapped(), torch.tensor([1.03, 2.0], dtype=torch.float64)
    field.refresh()
    before = field.predict(PLACES).mean
    field.drawable(0.0)
    field.move(STILL, shift)
    for posterior in (field.drawable(0.0)[0], field.for_planning()):
        assert torch.allclose(posterior.predict(PLACES + shift).mean, before, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("form", FORMS)
def test_the_bound_of_nodes_is_kept_at_another_lengthscale(form):
    """What was too large at ℓ/density stays so: no lattice is made that the next sample has to coarsen."""
    field = mapped(max_grid_nodes=4096, memory_size=30, wiski_form=form)
    assert field.coarsened == 1 and field.grid.nodes <= 4096
    grid = field.grid
    for stretch in (0.9, 1.1, 0.95):
        field.adopt(replace(field.theta, lengthscale=stretch * 0.5))
        assert field.grid.nodes <= 4096 and field.grid.spacing == grid.spacing
        field.update(samples(X[:2], Y[:2]))
    assert field.coarsened == 1
    field.adopt(replace(field.theta, lengthscale=2.0))
    assert field.grid.spacing == 0.25 and field.grid.nodes <= 4096, "a coarser one fits"

    empty = create_map(
        "wiski", **(SETTINGS | {"max_grid_nodes": 4096, "wiski_form": form, "memory_size": 30})
    )
    empty.merge(mapped(max_grid_nodes=4096, wiski_form=form))
    assert empty.grid.nodes <= 4096 and empty.samples == 100


def test_a_finer_lattice_comes_back_when_it_fits():
    field = mapped(max_grid_nodes=4096)
    assert field.coarsened == 1
    gone = torch.from_numpy(X[np.linalg.norm(X - X[0], axis=1) > 0.4])
    field.forget_near(gone, 0.2, 0)
    field.adopt(replace(field.theta, lengthscale=0.51))
    assert field.grid.spacing == 0.0625 and field.grid.nodes <= 4096


def test_a_plan_at_another_theta_has_the_mean_of_the_last_refresh_everywhere():
    field = mapped()
    field.refresh()
    about = torch.linspace(-2.5, 4.0, 14, dtype=torch.float64)
    far = torch.cat([PLACES, torch.cartesian_prod(about, about)])  # also beyond the lattice's box
    before = field.predict(far)
    field.adopt(replace(field.theta, lengthscale=0.6, signal_stddev=14.0))
    planned = field.for_planning()
    assert torch.allclose(planned.predict(far).mean, before.mean, rtol=1e-9, atol=0.0)
    assert float(planned.predict(far[-1:]).stddev) > 1.1 * float(before.stddev[-1])
    again = type(planned).from_state_dict(planned.state_dict(), "cpu")
    assert torch.equal(again.predict(far).mean, planned.predict(far).mean)


def test_a_covariance_with_no_place_factors_nothing(monkeypatch):
    field, none = mapped(), PLACES[:0]
    posterior = field.posterior
    monkeypatch.setattr(windows, "_WHOLE", 50)
    monkeypatch.setattr(windows.Window, "__init__", None)  # whoever factors now fails
    for a, b in ((none, PLACES), (PLACES, none), (none, none)):
        assert posterior.covariance(a, b).shape == (len(a), len(b))


@pytest.mark.parametrize("form", FORMS)
def test_a_delay_that_moves_all_places_out_of_the_box_moves_the_box_along(form):
    """Eight metres at 40 m/s: the map is the one that had known the delay from the start."""
    x, y = drive(60)
    velocity = np.tile([[40.0, 0.0]], (60, 1))
    late, right = (
        create_map("wiski", wiski_form=form, **SETTINGS | {"time_offset": delay})
        for delay in (0.0, 0.2)
    )
    for field in (late, right):
        feed(field, samples(x, y, velocity=velocity), 30)
    assert late.adopt(right.theta)
    places = torch.from_numpy(x[::7] - np.array([8.0, 0.0]))
    a, b = late.predict(places), right.predict(places)
    assert float(((a.mean - b.mean).abs() / b.stddev).max()) < 0.05
    assert torch.allclose(a.stddev, b.stddev, rtol=0.02, atol=0.0)
    assert float(b.stddev.max()) < 5 * UT
