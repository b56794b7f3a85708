"""A posterior is a moment: what the map does later does not change it."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, close, drive, feed, samples
from map_contract import flat, same_state

from gp_mapping import create_map
from gp_mapping.core.inner_snapshot import gradient_of
from gp_mapping.core.sparse import posterior as solving
from gp_mapping.core.sparse.posterior import Posterior

X, Y = drive(300)
PLACES = torch.from_numpy(np.random.default_rng(0).uniform(-1, 4, (1300, 2)))  # more than a chunk


def test_frozen_while_the_map_goes_on():
    for settings in ({}, {"max_inducing": 20}, {"dtype": "float32"}):
        field = create_map(
            "dual_svgp",
            **(
                SETTINGS
                | {"memory_size": 50, "inducing_tolerance": 0.01, "inducing_information": 0.0}
                | settings
            ),
        )
        moments = []
        for i in range(0, 300, 20):
            field.update(samples(X[i : i + 20], Y[i : i + 20]))
            moments.append((field.posterior, field.predict(PLACES)))
            if i == 160:
                field.forget(0.5)
                assert field.adopt(replace(field.theta, lengthscale=0.55))
        for posterior, prediction in moments:
            again = posterior.predict(PLACES)
            assert torch.equal(again.mean, prediction.mean) and torch.equal(
                again.variance, prediction.variance
            )


def test_asked_twice_it_is_factored_once():
    field = create_map("dual_svgp", **SETTINGS)
    feed(field, samples(X, Y), 50)
    assert field.posterior is field.posterior
    before = field.posterior
    field.update(samples(X[:1], Y[:1]))
    assert field.posterior is not before


def test_a_copy_is_not_told_by_what_the_map_has_told_before():
    field = create_map("dual_svgp", **SETTINGS)
    feed(field, samples(X, Y), 50)
    before = field.predict(PLACES[:20])
    after = field.fantasize(PLACES[:20]).predict(PLACES[:20])
    assert bool((after.variance < before.variance).all()) and torch.equal(
        field.predict(PLACES[:20]).mean, before.mean
    )


def test_state_round_trip():
    field = create_map("dual_svgp", **(SETTINGS | {"heading_stddev": 0.5 * UT, "time_offset": 0.1}))
    feed(field, samples(X, Y, velocity=np.full((300, 2), 0.2)), 50)
    state = field.posterior.state_dict()
    kept = copy.deepcopy(state)
    other = Posterior.from_state_dict(state, "cpu")
    feed(field, samples(X, Y), 50)
    assert same_state(state, kept) and all(leaf is not None for _, leaf in flat(state))
    for velocity in (None, torch.full((1300, 2), 0.3, dtype=torch.float64)):
        again = Posterior.from_state_dict(kept, "cpu")
        assert torch.equal(
            other.predict(PLACES, velocity).mean, again.predict(PLACES, velocity).mean
        )
        assert torch.equal(
            other.predict(PLACES, velocity).variance, again.predict(PLACES, velocity).variance
        )
    with_robot = other.predict(PLACES, torch.full((1300, 2), 0.3, dtype=torch.float64))
    assert not torch.equal(with_robot.mean, other.predict(PLACES).mean)


def test_chunks_are_out_of_sight():
    field = create_map("dual_svgp", **SETTINGS)
    feed(field, samples(X, Y), 50)
    whole = field.predict(PLACES)
    parts = [field.predict(part) for part in PLACES.split(100)]
    assert torch.allclose(whole.mean, torch.cat([p.mean for p in parts]), rtol=1e-12, atol=0.0)
    assert torch.allclose(
        whole.variance, torch.cat([p.variance for p in parts]), rtol=1e-9, atol=0.0
    )


def test_sensor_noise_counts_in_a_new_measurement():
    for model in ("dual_svgp", "exact"):
        field = create_map(model, **SETTINGS)
        field.update(samples(X, Y, count=np.full(300, 4.0), sensor_variance=np.full(300, 2.0)))
        noise = float(field.predict(PLACES[:1]).noise_variance) / UT**2
        assert 1.0 < noise <= 3.0, noise


def test_no_passes_no_constants():
    field = create_map("dual_svgp", **SETTINGS)
    field.update(samples(X, Y))
    assert field.posterior.biases() == [] and field.posterior.bias_evidence() is None
    numbers, mean, covariance = field.posterior.bias_posterior()
    assert numbers == () and mean.shape == (0, 1) and covariance.shape == (0, 0)


def test_of_a_pass_that_nobody_has_seen_the_prior_is_known():
    """Independent of the field, also where no pass has been seen."""
    seen = samples(X, Y, pass_number=np.zeros(len(X)))
    for batch in (samples(X, Y), seen):
        field = create_map("dual_svgp", **SETTINGS, bias_stddev=3.0 * UT, learn_bias=False)
        field.update(batch)
        mean, variance, column = field.posterior.bias(7.0)
        assert mean.tolist() == [0.0] and not bool(column.any())
        assert float(variance) == pytest.approx(9.0)


@pytest.mark.parametrize(
    "model, settings", [("dual_svgp", {}), ("solve_gp", {"max_orthogonal": 40})]
)
def test_what_is_explained_is_what_the_prior_has_more(model, settings):
    """cov(a, b) = k(a, b) + s_c² − b(a)ᵀb(b), also where there is a second set of inducing inputs."""
    field = create_map(
        model, **SETTINGS | {"max_inducing": 20, "inducing_tolerance": 0.01} | settings
    )
    feed(field, samples(X, Y), 50)
    a, b = PLACES[:30], PLACES[30:50]
    posterior = field.posterior
    told = posterior.prior_covariance(a, b) - posterior.explained(a).mT @ posterior.explained(b)
    close(told, posterior.covariance(a, b), 1e-9)
    assert (posterior.orthogonal is not None) == (model == "solve_gp")


@pytest.mark.parametrize(
    "settings",
    [{"kernel": name} for name in ("matern12", "matern32", "matern52", "rbf")]
    + [{"heading_stddev": 0.5 * UT, "anisotropy": 1.5}, {"long_share": 0.3}, {"dtype": "float32"}],
)
def test_its_gradient_is_that_of_its_mean(settings):
    """Of two channels, also at an inducing input itself."""
    values = torch.from_numpy(np.stack([Y, Y[::-1]], 1) if np.ndim(Y) == 1 else np.hstack([Y, -Y]))
    field = create_map("dual_svgp", **SETTINGS | {"inducing_information": 0.0} | settings)
    field.update(samples(X, values.numpy()))
    posterior = field.posterior
    places = torch.cat([posterior.scaling.inner_x(PLACES[:200]), posterior.z[:3]])
    told, expected = posterior.gradient(places), gradient_of(posterior.mean, places)
    assert told.shape == expected.shape == (203, 2, 2) and told.dtype == torch.float64
    tolerance = 1e-3 if settings.get("dtype") == "float32" else 1e-9
    assert float((told - expected).abs().max()) < tolerance * float(expected.abs().max())


def test_inverses_by_which_a_card_solves_are_made_once_for_each_factor(monkeypatch):
    """And give what triangular solves give; few places are solved for as on a processor."""
    field = create_map("dual_svgp", **SETTINGS)
    field.update(samples(X, Y))
    moment, made = field.posterior, []
    few, many = PLACES[: len(moment.R)], PLACES[: 5 * len(moment.R)]
    expected = moment.predict(many)

    monkeypatch.setattr(solving, "is_synchronous", lambda device: False)
    inverse = solving.InverseFactor
    monkeypatch.setattr(
        solving, "InverseFactor", lambda *given: made.append(given) or inverse(*given)
    )
    moment.predict(few)
    assert not made
    for _ in range(3):
        told = moment.predict(many)
    assert len(made) == 2  # of L and R
    torch.testing.assert_close(told.mean, expected.mean, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(told.variance, expected.variance, rtol=1e-6, atol=0.0)
