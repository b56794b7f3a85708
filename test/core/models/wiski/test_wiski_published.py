"""The published form of WISKI as a map: the map contract, and the dense GP with kernel W K_uu Wᵀ and its features."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, correlation, drive, feed, samples
from map_contract import MapContract, same_state
from test_wiski import TURNING, dense_stencil, filled, moving

from gp_mapping import Samples, create_map
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.wiski.lattice import toeplitz
from gp_mapping.core.models.wiski.lattice.interpolation import (
    interpolation_error,
    interpolation_matrix,
)
from gp_mapping.core.models.wiski.lattice.sites import OFFSETS
from gp_mapping.core.models.wiski.published import root_from_sums


@pytest.mark.parametrize("model", ["wiski"])
class TestPublishedContract(MapContract):
    def build(self, model, device, **settings):
        return create_map(model, device=device, wiski_form="dense", **(SETTINGS | settings))


def dense_gp(field, places, heading):
    """Mean, variance at inner places (K, 2) of the GP with kernel w K_uu w' + s_c² + s_h² ĥ·ĥ'."""
    theta, memory, grid = field.theta, field.memory, field.grid
    x = theta.sensor_place(memory.x, memory.velocity, memory.heading)
    low = torch.tensor(grid.low)
    w, v = (interpolation_matrix(grid.units(p) - low, grid.shape).numpy() for p in (x, places))
    used = (np.abs(w).sum(0) + np.abs(v).sum(0)) > 0
    nodes = np.stack(np.meshgrid(*(np.arange(n) for n in grid.shape), indexing="ij"), -1).reshape(
        -1, 2
    )[used]
    distance = np.linalg.norm((nodes[:, None] - nodes[None]) * grid.spacing, axis=-1)
    gram = theta.signal_stddev**2 * correlation("matern52", distance / theta.lengthscale)
    prior = np.array([theta.constant_stddev**2, theta.heading_stddev**2, theta.heading_stddev**2])
    phi, psi = (np.hstack([np.ones((len(h), 1)), h.numpy()]) for h in (memory.heading, heading))
    w, v = w[:, used], v[:, used]
    full = w @ gram @ w.T + (phi * prior) @ phi.T + np.diag(1.0 / memory.beta.numpy())
    cross = v @ gram @ w.T + (psi * prior) @ phi.T
    own = np.einsum("ij,jk,ik->i", v, gram, v)
    mean = cross @ np.linalg.solve(full, memory.y.numpy())
    variance = (
        own + (psi**2 * prior).sum(1) - np.einsum("ij,ji->i", cross, np.linalg.solve(full, cross.T))
    )
    return mean, variance


@pytest.mark.parametrize("rank", [5, 10, 10_000])
def test_a_root_from_the_sums_is_their_best_columns_and_says_what_it_lacks(rank):
    """Of nodes that hold something it is the root; of fewer columns, the rest is their residual."""
    grid, _ = filled(12)
    dense = torch.cat(
        [
            torch.cat([grid.features, grid.border.mT], 1),
            torch.cat([grid.border, dense_stencil(grid)], 1),
        ]
    )
    root, held = root_from_sums(grid, rank)
    assert torch.equal(dense.diagonal()[grid.width :].nonzero()[:, 0], held)
    kept = torch.cat([torch.arange(grid.width), grid.width + held])
    dense = dense[kept][:, kept]
    error = dense - root.L @ root.L.mT
    assert root.L.shape == (len(kept), min(rank, root.L.shape[1])) and root.L.shape[1] <= 15
    # what is lacking has a diagonal of squares, whose sum is told
    assert float(error.trace()) == pytest.approx(root.dropped, abs=1e-9 * float(dense.trace()))
    assert float(torch.linalg.eigvalsh(error)[0]) > -1e-9 * float(dense.trace())
    if rank == 10_000:
        assert root.dropped == 0.0 and float(error.abs().max()) < 1e-9 * float(dense.max())
    else:
        assert root.dropped > 0.0
        # as pivoted Cholesky does in NumPy
        rest = dense.numpy().copy()
        for _ in range(rank):
            j = int(rest.diagonal().argmax())
            rest -= np.outer(rest[j], rest[j]) / rest[j, j]
        assert np.trace(rest) == pytest.approx(root.dropped, rel=1e-6)


def test_the_error_of_interpolation_is_the_largest_that_is_found_anywhere():
    theta, spacing = Theta(0.5, 10.0, 1.0, 20.0), 0.3
    at = np.random.default_rng(0).uniform(3, 4, (3000, 2))
    steps = np.stack(np.meshgrid(np.arange(9), np.arange(9), indexing="ij"), -1).reshape(-1, 2)
    w = interpolation_matrix(torch.from_numpy(at), (9, 9)).numpy()

    def prior(a, b):
        r = np.linalg.norm((a[:, None] - b[None]) * spacing, axis=-1)
        return correlation("matern52", r / theta.lengthscale)

    square = 1.0 - 2.0 * (w * prior(at, steps)).sum(1) + ((w @ prior(steps, steps)) * w).sum(1)
    stated = interpolation_error(theta, spacing)
    assert np.sqrt(square.max()) == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize("change", [None, "theta", "memory"])
def test_it_is_the_dense_gp_also_when_its_root_is_made_anew(change, monkeypatch):
    """To 1e-7: sample by sample, after another noise and time offset, and after forgetting near a place."""
    monkeypatch.setattr(toeplitz, "_NEGLIGIBLE", 1e-14)  # by default K_uu is cut to 1e-8 of s²
    field = create_map("wiski", wiski_form="dense", **TURNING)
    feed(field, moving(200), 50)
    field.predict(torch.zeros(1, 2))
    if change == "theta":
        field.adopt(replace(field.theta, noise_stddev=1.5, time_offset=0.05, lengthscale=0.55))
    if change == "memory":
        assert field.forget_near(torch.from_numpy(drive(200)[0][50:51]), 0.3, newest=10) > 0
    rng = np.random.default_rng(3)
    heading = torch.from_numpy(rng.normal(size=(40, 2)))
    inner = field.scaling.inner_x(
        torch.from_numpy(drive(200)[0][::5] + rng.uniform(-0.2, 0.2, (40, 2)))
    )
    mean, variance = dense_gp(field, inner, heading)
    got_mean, got_variance = field.posterior.predict_inner(inner, heading)
    assert np.abs(got_mean.numpy() - mean).max() < 1e-7 * np.abs(mean).max()
    assert np.abs(got_variance.numpy() - variance).max() < 1e-7 * field.theta.signal_stddev**2


@pytest.mark.parametrize(("rank", "told"), [(300, 0), (80, 1), (30, 2)])
def test_beyond_its_rank_it_is_the_dense_gp_still(rank, told):
    """Cell by cell far beyond the rank: the mean within .1 of a standard deviation everywhere, on the path and off it,
    and the standard deviation within a twentieth; what happened is counted, and said."""
    field = create_map("wiski", wiski_form="dense", **(SETTINGS | {"max_inducing": rank}))
    x, y = drive(130)
    feed(field, samples(x[:90], y[:90]), 10)
    feed(field, samples(x[90:], y[90:]), 1)
    assert field.counters()["root_outgrown"] == told
    assert any("max_inducing" in note for note in field.notes()) == (told == 2)
    if told < 2:
        assert field.counters()["root_rank"] > (rank if told else 0) and field.root.dropped == 0.0

    asked = field.scaling.inner_x(
        torch.from_numpy(x[::3] + np.random.default_rng(1).uniform(-0.3, 0.3, (44, 2)))
    )
    mean, variance = dense_gp(field, asked, torch.zeros(44, 2))
    got_mean, got_variance = (part.numpy() for part in field.posterior.predict_inner(asked))
    assert np.abs(got_mean - mean).max() < 0.1 * np.sqrt(variance).min()
    assert np.abs(np.sqrt(got_variance / variance) - 1.0).max() < 0.05


def test_what_has_outgrown_its_root_goes_on_and_comes_back():
    """θ moves, a fantasy keeps the mean, a checkpoint says the same; forgotten near a place, the root may do again."""
    field = create_map("wiski", wiski_form="dense", **(SETTINGS | {"max_inducing": 40}))
    x, y = drive(150)
    feed(field, samples(x, y), 50)
    ask = torch.from_numpy(x[::10])
    assert field.counters()["root_outgrown"] == 2
    new = create_map("wiski", wiski_form="dense", **(SETTINGS | {"max_inducing": 40}))
    new.load_state_dict(field.state_dict())
    assert new.counters() == field.counters() and torch.equal(
        new.predict(ask).mean, field.predict(ask).mean
    )

    expected = field.predict(ask)
    dreamt = field.fantasize(ask).predict(ask)
    assert float(((dreamt.mean - expected.mean) / expected.variance.sqrt()).abs().max()) < 0.1
    assert bool((dreamt.variance < expected.variance).all())
    field.forget(0.9)
    assert field.counters()["root_outgrown"] == 2, (
        "two roots are made for nothing at every cell that forgets"
    )
    assert field.forget_near(torch.from_numpy(x[:100]), 0.4, newest=10) > 100
    assert field.counters()["root_outgrown"] == 0
    feed(field, samples(x[-2:], y[-2:]), 1)
    assert 0 < field.counters()["root_rank"] <= 80


def test_a_kernel_that_is_too_rough_for_a_lattice_is_said():
    """matern12 with its error; the others, on eight nodes in a lengthscale, are well."""
    x, y = drive(20)
    for form in ("dense", "matrix_free"):
        for kernel, said in (
            ("matern12", True),
            ("matern32", False),
            ("matern52", False),
            ("rbf", False),
        ):
            field = create_map("wiski", wiski_form=form, **(SETTINGS | {"kernel": kernel}))
            feed(field, samples(x, y), 20)
            assert (
                any(
                    "interpolates kernel matern12 with an error of up to" in n
                    for n in field.notes()
                )
                == said
            )
    # beside the noise, where the field is much larger
    loud = SETTINGS | {"signal_stddev": 1e3 * SETTINGS["noise_stddev"]}
    for density, said in ((8.0, 1), (32.0, 0)):
        field = create_map("wiski", grid_density=density, **loud)
        feed(field, samples(x, y), 20)
        assert ["times noise_stddev" in note for note in field.notes()] == [True] * said
    # by simulation: draws of the prior on the nodes and between them
    theta, spacing = Theta(1.0, 2.0, 1.0, 1.0, kernel_name="matern12"), 0.125
    nodes = torch.cartesian_prod(*[torch.arange(4).double()] * 2) * spacing
    middle = torch.full((1, 2), 1.5 * spacing, dtype=torch.float64)
    places = torch.cat([nodes, middle])
    draws = torch.linalg.cholesky(theta.kernel()(places, places)) @ torch.randn(
        17, 20000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    w = interpolation_matrix(middle / spacing, (4, 4))
    rms = float((draws[16] - w @ draws[:16]).square().mean().sqrt()) / 2.0
    assert interpolation_error(theta, spacing) == pytest.approx(rms, rel=0.03)


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="matrix_free"):
        create_map("wiski", wiski_form="published")


def test_a_snapshot_is_the_posterior_or_the_neighbourhood_of_a_place():
    field = create_map("wiski", wiski_form="dense", **SETTINGS)
    x, y = drive(150)
    feed(field, samples(x, y), 50)
    near = torch.from_numpy(x[70:74])
    whole, local = field.snapshot(), field.snapshot(near, 0.2)
    told = field.predict(near)
    for snapshot, kind, tolerance in (
        (whole, "PublishedPosterior", 1e-9),
        (local, "WiskiLocal", 0.05),
    ):
        assert type(snapshot).__name__ == kind
        got = snapshot.predict(near)
        assert float(((got.mean - told.mean).abs() / told.stddev).max()) < tolerance
        assert torch.allclose(got.stddev, told.stddev, rtol=tolerance, atol=0.0)
    again = field.load_snapshot(local.state_dict()).predict(near)
    assert torch.equal(again.mean, local.predict(near).mean)


def root_of_sums(field):
    """L Lᵀ and JᵀL of a map's root, what the sums have at its rows, and their diagonal elsewhere."""
    grid, root, held = field.grid, field.root, field.held
    nodes = torch.zeros((len(held), len(held)), dtype=torch.float64)
    slot = torch.full((grid.nodes,), -1).index_copy_(0, held, torch.arange(len(held)))
    for k, (i, j) in enumerate(OFFSETS):
        here = (grid.stencil[held, k] != 0).nonzero()[:, 0]
        there = slot[held[here] + i * grid.shape[1] + j]
        nodes[here, there] = nodes[there, here] = grid.stencil[held[here], k]
    border = grid.border[held]
    dense = torch.cat([torch.cat([grid.features, border.mT], 1), torch.cat([border, nodes], 1)])
    return root.L @ root.L.mT, root.J.mT @ root.L, dense, grid.stencil[slot < 0]


def assert_root_is_of_the_sums(field):
    got, one, expected, rest = root_of_sums(field)
    tolerance = 1e-10 * float(expected.diagonal().max())
    assert torch.allclose(got, expected, rtol=0.0, atol=tolerance)
    assert torch.allclose(one, torch.eye(len(one), dtype=torch.float64), atol=1e-9)
    # of every node that a sample touches, once, and of no other
    assert not bool(rest.any()) and bool((field.grid.stencil[field.held, 0] > 0).all())
    assert len(field.held) == len(set(field.held.tolist()))


def test_the_root_follows_every_sample_where_the_lattice_grows(monkeypatch):
    """The box grows to all sides, passes come, weights differ; the root is of the sums, and never made anew."""
    field = create_map("wiski", wiski_form="dense", **(TURNING | {"bias_stddev": 3e-6}))
    rng, boxes = np.random.default_rng(2), set()

    def batch(number, corner):
        x = np.array(corner) + rng.uniform(0, 0.5, (4, 2))
        columns = {"velocity": rng.normal(size=(4, 2)), "noise_variance": rng.uniform(0.5, 3, 4)}
        return samples(x, 48 + rng.normal(size=(4, 1)), **columns).of_pass(float(number))

    with monkeypatch.context() as patch:
        patch.setattr(type(field), "_whole", lambda self: pytest.fail("made from the sums"))
        for number, corner in enumerate([(0, 0), (0.9, 0.1), (-1.1, -0.2), (0.1, -0.9), (0, 1)]):
            field.update(batch(number, corner))
            boxes.add((field.grid.low, field.grid.shape))
            assert_root_is_of_the_sums(field)
            assert float(field.predict(torch.zeros(1, 2)).variance) > 0.0, "of this root"
    assert field.grid.width == 3 + 5 and field.root.dropped == 0.0 and len(boxes) > 3

    # another θ, another root of all that is known, and then of what comes
    field.adopt(replace(field.theta, noise_stddev=2.0, lengthscale=0.55))
    for number in (5, 5, 6):
        field.update(batch(number, (0.5, 0.5)))
        assert_root_is_of_the_sums(field)


def test_a_fantasy_is_a_measurement_of_its_own_mean():
    """With the noise of one more of the samples: as an update with the mean."""
    field = create_map("wiski", wiski_form="dense", **(SETTINGS | {"noise_stddev": 2e-6}))
    x, y = drive(60)
    feed(field, samples(x, y), 20)
    at, asked = torch.from_numpy(x[5:55:10] + 0.1), torch.from_numpy(x[::4])
    dreamt = field.fantasize(at).predict(asked)
    field.update(Samples(at, field.predict(at).mean))
    told = field.predict(asked)
    assert torch.allclose(dreamt.mean, told.mean, rtol=1e-9, atol=0.0)
    assert torch.allclose(dreamt.variance, told.variance, rtol=1e-7, atol=0.0)


def spoilt(root: dict) -> dict[str, dict]:
    """States of a root that are not of the map's sums, by what is wrong."""
    wrong = {f"without {name}": {k: v for k, v in root.items() if k != name} for name in root}
    for name in "LJ":
        wrong[f"{name} lacks a row"] = root | {name: root[name][:-1]}
        wrong[f"{name} lacks a column"] = root | {name: root[name][:, :-1]}
    wrong["a row too many"] = root | {"held": root["held"][:-1]}
    for node in (-1, 10**6):
        wrong[f"node {node}"] = root | {"held": root["held"].index_fill(0, torch.tensor(0), node)}
    return wrong


def test_a_root_that_is_not_of_the_sums_is_refused():
    field = create_map("wiski", wiski_form="dense", **SETTINGS)
    feed(field, samples(*drive(20)), 20)
    good = field.state_dict()
    for what, root in spoilt(good["root"]).items():
        with pytest.raises(ValueError, match="not a state of a wiski map"):
            field.load_state_dict(good | {"root": root})
            pytest.fail(what)
    assert same_state(field.state_dict(), good)
