"""The matrix-free WISKI map: its sums, its solver, its variance, and what the exact GP says of all that."""

import math

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, correlation, drive, feed, in_ut, samples

from gp_mapping import Samples, create_map
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.stationary import make_kernel
from gp_mapping.core.models.wiski.lattice import toeplitz, windows
from gp_mapping.core.models.wiski.lattice.box import TILE
from gp_mapping.core.models.wiski.lattice.interpolation import interpolation_matrix
from gp_mapping.core.models.wiski.lattice.sites import OFFSETS, GridSites
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid

RNG = np.random.default_rng(1)
TURNING = SETTINGS | {"heading_stddev": 2 * UT, "time_offset": 0.1}


def moving(n=300, seed=0, **columns):
    """A drive with velocities, and a field that the robot adds to."""
    x, y = drive(n, seed)
    velocity = np.gradient(x, axis=0) * 60.0
    heading = velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
    return samples(x, y + 1.5 * heading[:, :1], velocity=velocity, **columns)


def pair(model_settings=None, n=300, **columns):
    """The map and the exact GP on the same samples, at the same θ."""
    batch, settings = moving(n, **columns), TURNING | (model_settings or {})
    wiski = create_map("wiski", **settings)
    exact = create_map(
        "exact",
        **{k: v for k, v in settings.items() if not k.startswith(("grid", "max_grid", "ref"))},
    )
    for field in (wiski, exact):
        feed(field, batch, 50)
    return wiski, exact


def agree(wiski, exact, places, **how):
    """Error of the mean in posterior sd, and of the sd."""
    a, b = wiski.predict(places, **how), exact.predict(places, **how)
    return (
        float(((a.mean - b.mean).abs() / b.stddev).max()),
        float((a.stddev / b.stddev - 1).abs().max()),
        float((a.stddev / b.stddev - 1).square().mean().sqrt()),
    )


def dense_stencil(grid: GridSites) -> torch.Tensor:
    out = torch.zeros((grid.nodes, grid.nodes), dtype=torch.float64)
    for k, (i, j) in enumerate(OFFSETS):
        here = (grid.stencil[:, k] != 0).nonzero()[:, 0]
        there = here + i * grid.shape[1] + j
        out[here, there] = grid.stencil[here, k]
        out[there, here] = grid.stencil[here, k]
    return out


def filled(n=80, seed=0):
    grid = GridSites(0.125, torch.tensor([0.3, -7.0]).double(), 2, "cpu")
    rng = np.random.default_rng(seed)
    parts = (
        rng.uniform(0, 1, (n, 2)),
        rng.normal(size=(n, 2)),
        rng.uniform(0.5, 2, n),
        rng.normal(size=(n, 2)),
    )
    parts = [torch.from_numpy(p) for p in parts]
    grid.grow(*grid.box_for(parts[0]))
    grid.add(*parts)
    return grid, parts


def test_the_sums_are_those_of_dense_matrices_and_subtract():
    grid, (x, heading, beta, lam) = filled()
    w = interpolation_matrix(grid.units(x) - torch.tensor(grid.low), grid.shape)
    phi = torch.cat([torch.ones(len(x), 1).double(), heading], 1)
    assert torch.allclose(dense_stencil(grid), w.mT @ (beta[:, None] * w), atol=1e-12)
    assert torch.allclose(grid.rhs, w.mT @ lam, atol=1e-12)
    assert torch.allclose(grid.border, w.mT @ (beta[:, None] * phi), atol=1e-12)
    assert torch.allclose(grid.features, phi.mT @ (beta[:, None] * phi)) and torch.allclose(
        grid.linear, phi.mT @ lam
    )
    places, headings, mass, linear = grid.samples()
    assert float(mass.sum()) == pytest.approx(float(beta.sum()))
    assert torch.allclose((mass[:, None] * places).sum(0), (beta[:, None] * x).sum(0))
    assert torch.allclose((mass[:, None] * headings).sum(0), (beta[:, None] * heading).sum(0))
    assert torch.allclose(linear.sum(0), lam.sum(0))
    grid.add(x, heading, -beta, -lam)
    assert float(grid.stencil.abs().max()) < 1e-12 and float(grid.aggregates.abs().max()) < 1e-12


def test_the_box_grows_by_tiles_of_a_global_lattice():
    grid, (x, heading, beta, lam) = filled()
    other = GridSites(0.125, torch.tensor([3.7, -4.0]).double(), 2, "cpu")
    moved = x + torch.tensor([0.3, -7.0]).double() - torch.tensor([3.7, -4.0]).double()
    other.grow(*other.box_for(moved))
    other.add(moved, heading, beta, lam)
    for g in (grid, other):
        assert all((g.low[d] + g.first[d]) % TILE == 0 and g.shape[d] % TILE == 0 for d in range(2))
    assert torch.allclose(grid.stencil, other.stencil, atol=1e-10)
    assert torch.allclose(grid.aggregates, other.aggregates, atol=1e-9)
    before = dense_stencil(grid).sum()
    grid.grow(*grid.box_for(torch.tensor([[9.0, 0.5], [-6.0, -9.0]]).double()))
    assert float(grid.stencil.sum(0)[0] + 2 * grid.stencil[:, 1:].sum()) == pytest.approx(
        float(before), rel=1e-9
    )
    grid.merge(other)
    assert float(grid.features[0, 0]) == pytest.approx(2 * float(beta.sum()))


@pytest.mark.parametrize("name", ["matern12", "matern52", "rbf"])
def test_the_kernel_by_fft_is_the_kernel_and_positive(name):
    kernel = make_kernel(name, 4.0, 0.5)
    by_fft = KernelGrid(kernel, 0.1, (12, 20), "cpu")
    nodes = torch.cartesian_prod(torch.arange(12.0), torch.arange(20.0)).double() * 0.1
    p = torch.from_numpy(RNG.normal(size=(2, 12, 20)))
    expected = (p.reshape(2, -1) @ kernel(nodes, nodes)).reshape(2, 12, 20)
    assert torch.allclose(by_fft.apply(p), expected, atol=1e-6)
    assert float(by_fft.spectrum.min()) >= 0.0


def test_the_mean_solves_the_dense_system_with_its_features(monkeypatch):
    """At a tight tolerance: the GP with kernel w K_uu wᵀ + s_c² + s_h² ĥ·ĥ', densely, to 1e-8."""
    monkeypatch.setattr(toeplitz, "_NEGLIGIBLE", 1e-14)  # by default K_uu is cut to 1e-8 of s²
    field = create_map("wiski", **TURNING)
    field.tolerance = 1e-9
    batch = moving(150)
    feed(field, batch, 50)
    theta, memory, grid = field.theta, field.memory, field.grid
    x = theta.sensor_place(memory.x, memory.velocity, memory.heading)
    w = interpolation_matrix(grid.units(x) - torch.tensor(grid.low), grid.shape).numpy()
    used = np.abs(w).sum(0) > 0
    nodes = np.stack(np.meshgrid(*(np.arange(n) for n in grid.shape), indexing="ij"), -1).reshape(
        -1, 2
    )[used]
    nodes = nodes * grid.spacing
    gram = 100 * correlation(
        "matern52", np.linalg.norm(nodes[:, None] - nodes[None], axis=-1) / 0.5
    )
    phi = np.hstack([np.ones((150, 1)), memory.heading.numpy()])
    features = phi * np.array([400.0, 4.0, 4.0])
    full = w[:, used] @ gram @ w[:, used].T + features @ phi.T + np.eye(150)
    alpha = np.linalg.solve(full, memory.y.numpy())
    expected = w[:, used] @ gram @ w[:, used].T @ alpha + features @ phi.T @ alpha
    got = field.posterior.mean(x, memory.heading).numpy()
    assert np.abs(got - expected).max() < 1e-8 * np.abs(expected).max()


def test_close_to_the_exact_gp_with_offset_and_heading():
    """Mean within 0.05 posterior sd, sd within 2 % everywhere and 1 % in the mean, near the path and far from it."""
    wiski, exact = pair()
    places = torch.from_numpy(RNG.uniform(-1.0, 4.0, (300, 2)))
    mean, worst, usual = agree(wiski, exact, places)
    assert mean < 0.05 and worst < 0.02 and usual < 0.01
    velocity = torch.from_numpy(RNG.normal(size=(300, 2)))
    mean, worst, usual = agree(wiski, exact, places, velocity=velocity)
    assert mean < 0.05 and worst < 0.02 and usual < 0.01
    far = torch.tensor([[8.0, 1.0], [1.0, -6.0], [40.0, 40.0]])
    assert agree(wiski, exact, far)[0] < 0.05 and agree(wiski, exact, far)[1] < 0.01
    a, b = (f.posterior.gradient(f.scaling.inner_x(places)) for f in (wiski, exact))
    assert float((a - b).abs().max()) < 0.05 * float(
        b.abs().max()
    )  # the slope of a cubic convolution


def test_windows_agree_with_the_whole(monkeypatch):
    """Small dense GPs within two lengthscales, and thinned rims, against all data at once."""
    wiski, exact = pair(n=400)
    places = torch.from_numpy(RNG.uniform(0.0, 3.0, (200, 2)))
    monkeypatch.setattr(windows, "_WHOLE", 50)
    monkeypatch.setattr(windows, "_FULL", 60)
    monkeypatch.setattr(windows, "_MOST", 150)
    mean, worst, usual = agree(wiski, exact, places)
    assert mean < 0.05 and worst < 0.04 and usual < 0.01
    joint = wiski.covariance(places[:40], places[:40]) / UT**2
    assert torch.allclose(
        joint.diagonal(), wiski.predict(places[:40]).variance[:, 0] / UT**2, rtol=1e-9
    )
    assert float(torch.linalg.eigvalsh(joint)[0]) > -1e-9
    expected = exact.covariance(places[:40], places[:40]) / UT**2
    assert float((joint - expected).abs().max()) < 0.03 * float(expected.max())


def test_the_features_weights_are_those_of_the_joint_gaussian():
    """Σ = (S⁻¹ + scatter + ΦᵀA⁻¹Φ)⁻¹ and Σ (linear + ΦᵀA⁻¹ȳ), A = k + M⁻¹; nothing of one that has no variance."""
    rng, prior = np.random.default_rng(7), np.array([4.0, 0.25, 0.0])
    x, heading, mass, value = (
        torch.from_numpy(v)
        for v in (
            rng.uniform(0, 1, (30, 2)),
            rng.normal(size=(30, 2)),
            rng.uniform(0.5, 2, 30),
            rng.normal(size=(30, 1)),
        )
    )
    scatter, linear = (
        torch.diag(torch.tensor([0.0, 0.3, 0.2]).double()),
        torch.from_numpy(rng.normal(size=(3, 1))),
    )
    kernel, aggregates = (
        make_kernel("matern52", 4.0, 0.5),
        windows.Aggregates.from_samples(x, heading, mass, 0.5, value),
    )
    covariance, mean = windows.feature_posterior(
        kernel, aggregates, scatter, linear, torch.from_numpy(prior), 0.5
    )
    phi = torch.cat([torch.ones(30, 1).double(), heading], 1)[:, :2]
    solved = torch.linalg.solve(kernel(x, x) + torch.diag(1.0 / mass), torch.cat([phi, value], 1))
    inverse = torch.diag(torch.tensor([0.25, 4.0]).double())
    expected = torch.linalg.inv(inverse + scatter[:2, :2] + phi.mT @ solved[:, :2])
    assert (
        torch.allclose(covariance[:2, :2], expected)
        and not covariance[2].any()
        and not covariance[:, 2].any()
    )
    assert (
        torch.allclose(mean[:2], expected @ (linear[:2] + phi.mT @ solved[:, 2:]))
        and not mean[2].any()
    )


def test_the_residual_bounds_the_error():
    """Stopping at ε on the whitened residual leaves an error of at most ε posterior sd."""
    field = create_map("wiski", **SETTINGS)
    x, y = drive(400)
    feed(field, samples(x, y), 50)
    places = field.scaling.inner_x(torch.from_numpy(RNG.uniform(-0.5, 3.5, (400, 2))))
    field.tolerance = 1e-8
    true, sd = field.posterior.mean(places), field.posterior.variance(places).sqrt()
    for tolerance in (10.0, 1.0, 0.05):
        field.tolerance, field._posterior = tolerance, None
        error = (field.posterior.mean(places) - true).abs()[:, 0] / sd
        assert field.residual <= 1.1 * tolerance and float(error.max()) <= tolerance


def test_an_update_solves_nothing_and_the_posterior_is_that_of_the_last_refresh():
    field = create_map("wiski", **SETTINGS, refresh_samples=10)
    x, y = drive(700)
    batch = samples(x, y, position_variance=np.full(700, 1e6 * 1e-4))
    solve, field.solve_refresh = field.solve_refresh, None  # whoever solves now fails
    feed(field, batch[:600], 100)
    field.solve_refresh = solve
    assert field.is_refresh_due
    field.refresh()
    base, places = field.posterior, torch.from_numpy(x[600:640])
    field.solve_refresh = None
    for i in range(600, 610, 2):
        field.update(batch[i : i + 2])
        assert field.posterior is base and field.refine(math.inf) is False
    field.solve_refresh = solve
    field.update(batch[610:640])
    assert field.is_refresh_due
    before = field.state_dict()
    fresh = field.predict(places)
    assert field.state_dict()["lag"] == before["lag"] and field.base is base, (
        "asking changed the map"
    )
    assert float(fresh.variance.sum()) < float(base.predict(places).variance.sum())
    field.refresh()
    assert torch.equal(field.predict(places).mean, fresh.mean)


@pytest.mark.parametrize(
    "change",
    [
        {"noise_stddev": 2.0},
        {"time_offset": 0.25},
        {"lever_arm_along": 0.1, "lever_arm_across": -0.05},
        {"lengthscale": 0.55, "signal_stddev": 14.0, "heading_stddev": 1.0},
        {"lengthscale": 1.7},
    ],
)
def test_other_hyperparameters_are_as_if_they_had_been_so_from_the_start(change):
    field = create_map("wiski", **TURNING)
    feed(field, moving(250), 50)
    theta = Theta(**{**field.theta.__dict__, **change})
    field.predict(torch.zeros(1, 2))
    field.adopt(theta)
    new = create_map("wiski", **TURNING)
    new.theta = theta
    feed(new, moving(250), 50)
    if field.grid.spacing == new.grid.spacing and field.grid.shape == new.grid.shape:
        assert torch.allclose(field.grid.stencil, new.grid.stencil, atol=1e-10)
        assert torch.allclose(field.grid.aggregates, new.grid.aggregates, atol=1e-9)
    places = torch.from_numpy(RNG.uniform(0, 3, (50, 2)))
    a, b = field.predict(places), new.predict(places)
    assert float(((a.mean - b.mean).abs() / b.stddev).max()) < 0.1
    assert float((a.stddev / b.stddev - 1).abs().max()) < 0.01


def test_what_is_not_remembered_is_carried():
    """A memory of 60 of 400: another noise, another lattice; the field is still there."""
    field = create_map("wiski", **(SETTINGS | {"memory_size": 60}))
    x, y = drive(400)
    feed(field, samples(x, y), 50)
    exact = create_map("exact", **(SETTINGS | {"noise_stddev": 2 * UT, "lengthscale": 1.3}))
    feed(exact, samples(x, y), 50)
    spacing = field.grid.spacing
    field.adopt(Theta(1.3, 10.0, 2.0, 20.0))
    assert field.grid.spacing == 2 * spacing and field.samples == 400
    mean, worst, _ = agree(field, exact, torch.from_numpy(x[::5]))
    assert mean < 0.3 and worst < 0.05


def test_what_is_not_remembered_follows_the_whole_noise_of_its_samples():
    """s_p² is the least part of it: β = 1/(s_p² + the sensor's) hardly grows."""
    x, y = drive(200)
    maps = []
    for noise in (1.0, 0.1):
        field = create_map("wiski", **(SETTINGS | {"memory_size": 60, "noise_stddev": noise * UT}))
        feed(field, samples(x, y, sensor_variance=np.full(200, 9.0)), 50)
        maps.append(field)
    field, fresh = maps
    field.adopt(fresh.theta)
    assert torch.allclose(field.grid.stencil, fresh.grid.stencil, rtol=1e-8)


def test_the_lattice_is_bounded():
    field = create_map("wiski", **SETTINGS, max_grid_nodes=16384)
    x, y = drive(200)
    feed(field, samples(x, y), 50)
    assert field.coarsened == 0 and field.refused == 0 and field.grid.spacing == 0.0625
    with pytest.raises(
        ValueError, match="a fantasy so far away needs .* nodes, more than max_grid_nodes 16384"
    ):
        field.fantasize(torch.tensor([[30.0, 0.0]]).double())
    far = create_map("wiski", **SETTINGS)
    far.update(Samples([[30.0, 0.0]], [48 * UT]))
    with pytest.raises(
        ValueError, match="the two maps together need .* nodes, more than max_grid_nodes 16384"
    ):
        field.merge(far)
    report = field.update(Samples([[9.0, 0.0]], [48 * UT]))
    assert (
        field.coarsened > 0
        and report.everywhere
        and field.grid.spacing > 0.0625
        and report.used == 1
    )
    report = field.update(Samples([[900.0, 0.0], [1.0, 1.0]], [[48 * UT], [48 * UT]]))
    assert report.used == 1 and field.refused == 1 and field.grid.nodes <= 16384
    assert np.abs(in_ut(field.predict(torch.from_numpy(x[::9])))[0] - y[::9]).mean() < 2.5


def test_forgetting_near_leaves_the_prior_there_and_the_rest_alone():
    for memory in (2000, 80):
        field = create_map("wiski", **(SETTINGS | {"memory_size": memory}))
        x, y = drive(400)
        feed(field, samples(x, y), 50)
        centre = torch.from_numpy(x[100:101])
        away = torch.from_numpy(x[np.linalg.norm(x - x[100], axis=1) > 1.4][::7])
        before, far = field.predict(centre), field.predict(away)
        gone = field.forget_near(centre, 0.4, newest=10)
        after, still = field.predict(centre), field.predict(away)
        assert 0 < gone <= len(x) and float(after.variance[0, 0]) > 5 * float(before.variance[0, 0])
        assert torch.allclose(still.stddev, far.stddev, rtol=0.05, atol=0.0)
        assert float((still.mean - far.mean).abs().max()) < 0.3 * UT


def test_maps_of_other_places_spacings_and_thetas_merge():
    x, y = drive(300)
    union = create_map("wiski", **SETTINGS)
    feed(union, samples(x, y), 50)
    left = create_map("wiski", **SETTINGS)
    feed(left, samples(x[:150], y[:150]), 50)
    right = create_map("wiski", **(SETTINGS | {"lengthscale": 1.4, "noise_stddev": 2 * UT}))
    feed(right, samples(x[150:], y[150:]), 50)
    assert right.grid.spacing != left.grid.spacing
    left.merge(right)
    places = torch.from_numpy(x[::6])
    a, b = left.predict(places), union.predict(places)
    assert float(((a.mean - b.mean).abs() / b.stddev).max()) < 0.1
    assert float((a.stddev / b.stddev - 1).abs().max()) < 0.01


def test_a_map_of_other_than_the_plane_is_refused():
    field = create_map("wiski", **SETTINGS)
    with pytest.raises(ValueError, match="plane"):
        field.update(Samples([[1.0, 2.0, 3.0]], [[1e-6]]))
    assert field.scaling is None
    with pytest.raises(ValueError, match="inducing"):
        create_map("wiski", inducing_inputs=[[0.0, 0.0]])
    assert field.state_dict()["grid"] is None


def test_a_forgotten_place_leaves_sums_of_squares():
    """G, B and F of what is left are those of some samples: a system that has a solution, which says what they say."""
    x, y = drive(400)
    heading = np.stack([np.cos(0.05 * np.arange(400)), np.sin(0.05 * np.arange(400))], 1)
    settings = SETTINGS | {"heading_stddev": 1e-6}
    batch, near = samples(x, y, heading=heading), torch.from_numpy(x[200:201])
    few, exact = create_map("wiski", memory_size=50, **settings), create_map("exact", **settings)
    feed(few, batch, 20)
    feed(exact, batch, 400)
    for field in (few, exact):
        field.forget_near(near, 0.8, 0)
    grid = few.grid
    held = (grid.stencil[:, 0] > 0).nonzero()[:, 0]
    whole = torch.zeros((grid.nodes, grid.nodes), dtype=torch.float64)
    for k, (i, j) in enumerate(OFFSETS):
        step = i * grid.shape[1] + j
        rows = held[held + step < grid.nodes]
        whole[rows, rows + step] = whole[rows + step, rows] = grid.stencil[rows, k]
    joint = torch.cat(
        [
            torch.cat([whole[held][:, held], grid.border[held]], 1),
            torch.cat([grid.border[held].mT, grid.features], 1),
        ]
    )
    values = torch.linalg.eigvalsh(joint)
    assert float(values[0]) > -1e-9 * float(values[-1]), (
        "what was taken out was more than there was"
    )
    far = torch.from_numpy(x)[(torch.cdist(torch.from_numpy(x), near) > 2.0)[:, 0]]
    got, true = few.predict(far), exact.predict(far)
    assert float(((got.mean - true.mean).abs() / true.stddev).max()) < 1.0
    assert len(few.memory) <= 50 and math.isfinite(few.residual) and few.iterations < 1000


def test_a_fantasy_of_a_map_that_is_merged_is_where_it_was_and_is_forgotten_there():
    place, predicted = torch.tensor([[4.5, 4.5]], dtype=torch.float64), {}
    for dreams in (False, True):
        one, other = (create_map("wiski", **SETTINGS) for _ in range(2))
        for field, shift in ((one, 0.0), (other, 1.5)):
            x, y = drive(60)
            feed(field, samples(x + shift, y), 30)
        one.merge(other.fantasize(place) if dreams else other)
        predicted[dreams] = [float(one.predict(place).stddev)]
        one.forget_near(place, 0.5, newest=0)
        predicted[dreams].append(float(one.predict(place).stddev))
    assert predicted[True][0] < 0.5 * predicted[False][0]
    assert predicted[True][1] == pytest.approx(predicted[False][1], rel=1e-3)
