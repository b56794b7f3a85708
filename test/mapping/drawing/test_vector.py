"""Three components as one map: their norm, and a drawing of each."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from mapping_data import UT, lawnmower

from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.drawing.vector import axis_names, excess, norm
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning import suggest

PLACES = torch.tensor([[0.3, 0.4], [1.1, 0.9], [2.5, 2.0]], dtype=torch.float64)
FIXED = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "lengthscale": 0.5,
    "signal_stddev": 1e-5,
    "noise_stddev": 7e-7,
    "constant_stddev": 2e-5,
    "heading_stddev": 0.0,
}


def components(x: np.ndarray) -> np.ndarray:
    """(N, 3) tesla."""
    u, v = x[:, 0], x[:, 1]
    return (
        np.stack([20 + 5 * np.sin(1.6 * u), 6 * np.cos(1.2 * v), -42 + 4 * np.cos(u + v)], 1) * UT
    )


def drive(channels=slice(None), **options) -> Samples:
    stamp, x = lawnmower(lanes=3, length=2.0, rate=20.0, **options)
    noise = 0.2 * UT * np.random.default_rng(0).standard_normal((len(x), 3))
    return Samples(x, (components(x) + noise)[:, channels], stamp=stamp)


def session_of(samples: Samples, **settings) -> MapSession:
    out = MapSession(MapSettings(**FIXED, **settings))
    out.ingest(samples)
    out.flush()
    return out


def test_the_norm_by_the_delta_method_is_what_sampling_says():
    rng = np.random.default_rng(1)
    mean, spread = np.array([30.0, -20.0, 5.0]), np.array([1.0, 2.0, 0.5])
    drawn = np.linalg.norm(mean + spread * rng.standard_normal((400_000, 3)), axis=1)
    value, stddev = (
        part.numpy() for part in norm(*map(torch.from_numpy, (mean[:, None], spread[:, None] ** 2)))
    )
    assert abs(value[0] - drawn.mean()) < 0.05 * drawn.std() and stddev[0] == pytest.approx(
        drawn.std(), rel=0.01
    )


def test_the_norm_of_one_channel_is_the_channel_and_of_nothing_has_a_stddev():
    value, stddev = norm(torch.tensor([[-3.0, 2.0]]), torch.tensor([[4.0, 9.0]]))
    assert value.tolist() == [-3.0, 2.0] and stddev.tolist() == [2.0, 3.0]
    value, stddev = norm(torch.zeros(3, 1), torch.tensor([[1.0], [2.0], [3.0]]))
    assert float(value[0]) == 0.0 and float(stddev[0]) == pytest.approx(np.sqrt(2.0))
    assert (axis_names(1), axis_names(3), axis_names(4)) == (
        (),
        ("x", "y", "z"),
        ("0", "1", "2", "3"),
    )


@pytest.mark.parametrize("model", ["dual_svgp", "exact"])
def test_every_component_is_drawn_as_predicted(model):
    session = session_of(drive(), model=model)
    grid, told = session.render(), session.predict(session.render().centres())
    mean, stddev = (values.mT.reshape(3, *grid.shape) for values in (told.mean, told.stddev))
    predictive = (told.measurement_variance.mT.reshape(3, *grid.shape)).sqrt()
    assert float(((grid.axes_mean - mean).abs() / predictive).max()) <= 0.02
    assert float((grid.axes_stddev / stddev - 1).abs().max()) <= 0.02
    torch.testing.assert_close(
        grid.mean, grid.axes_mean.square().sum(0).sqrt(), rtol=1e-9, atol=0.0
    )
    true = np.linalg.norm(components(grid.centres().numpy()), axis=1).reshape(grid.shape)
    error = ((grid.mean.numpy() - true) / grid.stddev.numpy())[grid.known.numpy()]
    assert grid.known.float().mean() > 0.3 and np.abs(error).mean() < 2.0


def test_drawing_what_changed_equals_drawing_all_of_every_component():
    run, session = drive(), MapSession(MapSettings(**FIXED))
    for i in range(0, len(run), 60):
        session.ingest(run[i : i + 60])
        grid = session.render(budget=500)
    session.flush()
    while session.renderer.points_stale or grid.revision != session.revision:
        grid = session.render(budget=500)
    told = session.predict(grid.centres())
    off = (grid.axes_mean - told.mean.mT.reshape(3, *grid.shape)).abs()
    assert float((off / told.measurement_variance.mT.reshape(3, *grid.shape).sqrt()).max()) <= 0.05


def test_one_component_alone_is_the_scalar_map_and_no_axes_are_kept():
    grid = session_of(drive(slice(2, 3))).render()
    assert (
        grid.axes_mean is None
        and grid.axes_stddev is None
        and float(grid.mean[grid.known].max()) < 0.0
    )


def test_suggestions_and_resume_take_three_components():
    session = session_of(drive())
    again = MapSession.from_state_dict(session.state_dict())
    a, b = session.render(), again.render()
    assert torch.equal(a.axes_mean, b.axes_mean) and torch.equal(a.stddev, b.stddev)
    assert len(suggest(session.map, a, k=2)) == 2


def test_the_norm_of_a_curl_free_map_is_drawn_with_the_covariances_of_its_components():
    """As sampled from its posterior; and as `CurlFree.norm` says of every cell."""
    session = MapSession(
        MapSettings(**FIXED, model="curl_free", local_scale=False, max_inducing=60, resolution=0.1)
    )
    session.map.rows.theta = replace(
        session.map.theta, coherence=0.99
    )  # sources on one side: components are one field
    session.ingest(drive())
    session.flush()
    grid = session.render()
    told = session.map.norm(grid.centres())
    spread = told.stddev[:, 0].reshape(grid.shape)
    assert float((grid.stddev / spread - 1).abs().max()) < 0.02
    blind = norm(grid.axes_mean, grid.axes_stddev**2)[1]
    assert float((blind / spread - 1).abs().max()) > 0.1, "the covariances matter here"
    rng, known = np.random.default_rng(0), grid.known.reshape(-1).nonzero()[:, 0][::150]
    mean, covariance = session.map.posterior.local(grid.centres()[known])
    for m, c, cell in zip(mean.numpy(), covariance.numpy(), known.tolist()):
        drawn = np.linalg.norm(rng.multivariate_normal(m / UT, c / UT**2, 20000), axis=1)
        assert drawn.std() * UT == pytest.approx(float(grid.stddev.reshape(-1)[cell]), rel=0.04)
    scaled = session_of(drive(), model="curl_free", max_inducing=60, resolution=0.1)
    p = scaled.predict(PLACES)
    torch.testing.assert_close(
        p.covariance.diagonal(dim1=1, dim2=2), p.variance, rtol=1e-9, atol=0.0
    )


def test_the_norm_is_drawn_in_parts_as_at_once():
    """With covariances: a budget, a window that grows."""
    run = drive()
    session = MapSession(
        MapSettings(**FIXED, model="curl_free", max_inducing=60, resolution=0.1, margin=0.2)
    )
    for i in range(0, len(run), 150):
        session.ingest(run[i : i + 150])
        session.render(budget=300)
    session.flush()
    grid = session.render()
    while session.renderer.points_stale or grid.revision != session.revision:
        grid = session.render()
    spread = session.predict(grid.centres())
    whole = norm(spread.mean.mT, spread.variance.mT, torch.from_numpy(excess(spread)))[1]
    assert float((grid.stddev / whole.reshape(grid.shape) - 1).abs().max()) < 0.05


def test_what_scales_variances_scales_those_between_components_as_well():
    """The norm's standard deviation of a curl-free map doubles where each variance is four times as large."""
    given = {
        "lengthscale": 0.8,
        "signal_stddev": 8e-6,
        "noise_stddev": 1e-6,
        "learn_hyperparameters": False,
        "learn_time_offset": False,
    }
    field = create_map("curl_free", **given)
    t = torch.linspace(0.0, 1.0, 25, dtype=torch.float64)
    x = torch.stack([2.0 * t, 1.0 + 0.5 * torch.sin(6.0 * t)], 1)
    y = torch.stack([20.0 + 5.0 * torch.cos(2 * x[:, 0]), 3.0 * torch.sin(x[:, 1]), -40.0 + t], 1)
    field.update(Samples(x, 1e-6 * y))
    scale = LocalScale(0.3)
    scale.everywhere = 4.0
    plain, scaled = (
        Renderer(MapSettings(**given, resolution=0.2)).render(
            field, ([0.0, 0.0], [2.0, 2.0]), 1e-6, 1, None, local
        )
        for local in (None, scale)
    )
    torch.testing.assert_close(scaled.stddev, 2.0 * plain.stddev, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(scaled.mean, plain.mean, rtol=1e-9, atol=0.0)
    alone = (plain.axes_mean / plain.mean * plain.axes_stddev).square().sum(0).sqrt()
    assert float((alone / plain.stddev - 1.0).abs().max()) > 0.02, "they are correlated"
