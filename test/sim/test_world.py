"""The world obeys Maxwell's equations away from its dipoles, and looks like the rooms that were recorded."""

import numpy as np
import pytest

from gp_mapping.sim.world import DipoleWorld, WorldSettings, dipole_field


@pytest.fixture(scope="module", params=[0, 1, 2])
def world(request):
    return DipoleWorld.random(WorldSettings(seed=request.param))


def _jacobian(world, points, h=1e-4):
    """dB_i/dx_j by central differences, (N, 3, 3)."""
    columns = []
    for j in range(3):
        e = np.zeros(3)
        e[j] = h
        columns.append((world.field(points + e) - world.field(points - e)) / (2 * h))
    return np.stack(columns, axis=2)


def test_divergence_and_curl_vanish(world):
    points = np.random.default_rng(0).uniform([0.3, 0.3, 0.2], [5.7, 4.7, 0.6], (200, 3))
    j = _jacobian(world, points)
    size = np.linalg.norm(j, axis=(1, 2))
    divergence = np.trace(j, axis1=1, axis2=2)
    curl = np.stack(
        [j[:, 2, 1] - j[:, 1, 2], j[:, 0, 2] - j[:, 2, 0], j[:, 1, 0] - j[:, 0, 1]], axis=1
    )
    assert size.min() > 1e-7  # there is a gradient, so the ratios below say something
    assert np.abs(divergence / size).max() < 1e-4
    assert (np.linalg.norm(curl, axis=1) / size).max() < 1e-4


def test_one_dipole_has_its_textbook_values():
    m = np.array([[0.0, 0.0, 2.0]])
    at = np.array([[0.0, 0.0, 0.5], [0.5, 0.0, 0.0], [0.0, 0.0, -0.5]])
    b = dipole_field(at, np.zeros((1, 3)), m)
    axis = (
        1e-7 * 2 * 2.0 / 0.5**3
    )  # mu0/4pi * 2m / r^3 on the axis, half of it, reversed, at the equator
    np.testing.assert_allclose(b, [[0, 0, axis], [0, 0, -axis / 2], [0, 0, axis]], atol=1e-20)


def test_field_decays_with_the_cube_of_distance():
    rng = np.random.default_rng(1)
    direction = rng.normal(size=(20, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    m = rng.normal(size=(1, 3))
    near, far = (
        np.linalg.norm(dipole_field(r * direction, np.zeros((1, 3)), m), axis=1) for r in (0.7, 7.0)
    )
    np.testing.assert_allclose(near / far, 1000.0, rtol=1e-10)


def test_fields_of_dipoles_add_and_chunks_do_not_show(monkeypatch):
    rng = np.random.default_rng(2)
    points, places, moments = (
        rng.normal(size=(50, 3)),
        rng.normal(size=(4, 3)) - [0, 0, 5],
        rng.normal(size=(4, 3)),
    )
    whole = dipole_field(points, places, moments)
    parts = sum(dipole_field(points, places[k : k + 1], moments[k : k + 1]) for k in range(4))
    np.testing.assert_allclose(whole, parts, rtol=1e-12)
    monkeypatch.setattr("gp_mapping.sim.world.CHUNK", 7)
    np.testing.assert_allclose(dipole_field(points, places, moments), whole, rtol=1e-13)


def test_statistics_are_those_of_a_real_room(world):
    x, y, b = world.truth_grid(0.05)
    assert (
        b.shape == (100, 120)
        and x[0, 0] == pytest.approx(0.025)
        and y[-1, 0] == pytest.approx(4.975)
    )
    assert b.std() == pytest.approx(10e-6, rel=0.05)
    assert 44e-6 < b.mean() < 54e-6
    assert world.norm([[x[30, 40], y[30, 40]]])[0] == b[30, 40]
    # distance at which the autocorrelation falls to 1/2: about 0.8 length scales of a Matern-5/2
    c = b - b.mean()
    lag = np.array([np.mean(c[:, :-k] * c[:, k:]) for k in range(1, 25)]) / c.var()
    assert 0.25 < 0.05 * (1 + np.argmax(lag < 0.5)) < 0.7


def test_the_seed_makes_the_world():
    a, b, c = (DipoleWorld.random(WorldSettings(seed=s)) for s in (3, 3, 4))
    np.testing.assert_array_equal(a.moments, b.moments)
    assert not np.array_equal(a.moments, c.moments)


def test_spread_is_reached_wherever_it_is_asked_for():
    for spread, height in ((8e-6, 0.5), (15e-6, 0.2), (0.0, 0.3)):
        world = DipoleWorld.random(WorldSettings(field_stddev=spread, sensor_height=height))
        assert world.truth_grid(0.1)[2].std() == pytest.approx(spread, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: dipole_field(np.zeros((2, 2)), np.ones((1, 3)), np.ones((1, 3))),
            "points has shape",
        ),
        (
            lambda: dipole_field(np.zeros((2, 3)), np.ones((2, 3)), np.ones((1, 3))),
            "one moment per dipole",
        ),
        (
            lambda: dipole_field(np.ones((2, 3)), np.ones((1, 3)), np.ones((1, 3))),
            "no finite value",
        ),
        (lambda: WorldSettings(width=-1.0), "width"),
        (lambda: DipoleWorld.random(WorldSettings()).truth_grid(0.0), "resolution"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
