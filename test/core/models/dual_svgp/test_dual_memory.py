"""What the sites hold: the memory's share can be taken out exactly, θ can change, and long streams stay flat."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import (
    SETTINGS,
    THETA,
    UT,
    close,
    drive,
    feed,
    in_ut,
    lattice,
    samples,
    titsias_by_qr,
)
from map_contract import same_state

import gp_mapping.core.models.dual_svgp.memory_sites as memory_sites
import gp_mapping.core.models.dual_svgp.rebuild as dual_svgp
from gp_mapping import create_map
from gp_mapping.errors import NumericalError

X, Y = drive(400)
XS = np.random.default_rng(1).uniform(-0.5, 3.5, (60, 2))
Z = lattice(0.4, margin=0.2)


def built(n=400, size=20, **settings):
    field = create_map(
        "dual_svgp",
        centre=[48 * UT],
        **(SETTINGS | {"inducing_tolerance": 0.01, "inducing_information": 0.0} | settings),
    )
    feed(field, samples(X[:n], Y[:n]), size)
    return field


def grown_moved_and_adopted():
    """A map of which only part is remembered, in every state that it may be in."""
    yield "grown", built(memory_size=100)
    yield "moved", built(memory_size=100, max_inducing=30)
    adopted = built(300, memory_size=100)
    assert adopted.adopt(replace(adopted.theta, lengthscale=0.55, signal_stddev=12.0))
    yield "adopted", adopted
    feed(adopted, samples(X[300:], Y[300:]), 20)
    adopted.forget(0.7)
    yield "adopted, grown, forgotten", adopted


def smallest_eigenvalue(sites):
    return float(torch.linalg.eigvalsh(sites.precision)[0])


def test_without_the_memory_the_rest_is_still_a_posterior():
    """Subtract exactly what was added: D ≥ I and the memory's features as they stand in D."""
    for name, field in grown_moved_and_adopted():
        assert len(field.memory) == 100 and not field.unremembered_empty
        rest = field.unremembered_sites()
        assert smallest_eigenvalue(rest) > 1 - 1e-9, name
        rest.add(field.memory.whitened(field.basis.size), field.memory.beta, field.memory.lam)
        close(rest.precision, field.sites.precision, 1e-12, name)
        close(rest.linear, field.sites.linear, 1e-9, name)
        assert smallest_eigenvalue(field.sites) > 1 - 1e-9, name


@pytest.mark.parametrize(
    "model", ["dual_svgp", "fitc", "pic"]
)  # PIC's samples stand in the sums with their neighbours
def test_where_a_place_was_forgotten_the_memory_stands_in_the_sites_as_it_says(model):
    field = create_map(model, tile_samples=8, **(SETTINGS | {"memory_size": 300}))
    feed(field, samples(X[:120], Y[:120]), 20)
    assert field.forget_near(torch.from_numpy(X[60:61]), 0.3, 0) > 5
    rest = field.unremembered_sites()
    rest.add(field.memory.whitened(field.basis.size), field.memory.beta, field.memory.lam)
    close(rest.precision, field.sites.precision, 1e-9)
    close(rest.linear, field.sites.linear, 1e-9)


def test_an_excerpt_is_the_map_of_its_samples_at_the_theta_that_is_asked_for():
    field = built(100, inducing_inputs=Z)
    there = replace(field.theta, lengthscale=0.6, noise_stddev=2.0)
    alone = built(0, inducing_inputs=Z, lengthscale=0.6, noise_stddev=2 * UT)
    alone.merge(field.excerpt(torch.arange(30, 90), there))
    expected = titsias_by_qr(
        X[30:90], Y[30:90] - 48, np.full(60, 4.0), Z, XS, **(THETA | {"length": 0.6})
    )
    mean, variance = in_ut(alone.predict(torch.from_numpy(XS)))
    close(mean - 48, expected[0], 1e-8)
    close(variance[:, 0], expected[1], 1e-8)


def test_the_memory_has_the_features_of_the_basis():
    """With a(x) = L⁻¹k(z, x): known in full at every z while z only grows and after a change of the basis."""
    for name, field in grown_moved_and_adopted():
        fresh = field.basis.whitened(field.memory_places(field.theta))
        close(field.memory.whitened(field.basis.size), fresh, 1e-8, name)
        close(
            field.basis.L @ field.basis.L.mT,
            field.basis.kernel(field.basis.z, field.basis.z),
            1e-10,
            name,
        )


def test_rest_and_memory_are_the_whole_stream_at_fixed_inputs():
    whole = built(inducing_inputs=Z, memory_size=2000)
    part = built(inducing_inputs=Z, memory_size=50)
    remembered = set(part.memory.order.int().tolist())
    gone = [i for i in range(400) if i not in remembered]
    assert len(remembered) == 50
    rest, alone = part.unremembered_sites(), built(0, inducing_inputs=Z)
    alone.update(samples(X[gone], Y[gone]))
    close(rest.precision, alone.sites.precision, 1e-10)
    close(rest.linear, alone.sites.linear, 1e-10)
    close(part.sites.precision, whole.sites.precision, 1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"lengthscale": 0.6},
        {"signal_stddev": 17.0},
        {"noise_stddev": 2.0},
        {"time_offset": 0.0},
        {"lengthscale": 0.4, "signal_stddev": 7.0, "noise_stddev": 0.5},
    ],
)
def test_adopted_while_all_is_remembered_equals_a_map_built_there(change):
    field = built(inducing_inputs=Z)
    assert field.adopt(replace(field.theta, **change))
    theta = THETA | {"length": field.theta.lengthscale, "signal": field.theta.signal_stddev}
    expected = titsias_by_qr(X, Y - 48, np.full(400, field.theta.noise_stddev**2), Z, XS, **theta)
    mean, variance = in_ut(field.predict(torch.from_numpy(XS)))
    close(mean - 48, expected[0], 1e-8)
    close(variance[:, 0], expected[1], 1e-8)
    # and grown: batch SGPR at the inputs that were chosen again
    grown = built()
    assert grown.adopt(replace(grown.theta, **change))
    z = (grown.basis.z + grown.scaling.origin).numpy()
    expected = titsias_by_qr(X, Y - 48, np.full(400, field.theta.noise_stddev**2), z, XS, **theta)
    close(in_ut(grown.predict(torch.from_numpy(XS)))[0] - 48, expected[0], 1e-8)


def test_a_shorter_lengthscale_gets_the_inputs_that_its_samples_want():
    """At each of them the inputs leave no more of the prior open than the tolerance."""
    field = built(100)
    assert field.adopt(replace(field.theta, lengthscale=0.3))
    assert field.counters()["prior_left"] <= 0.01


@pytest.mark.parametrize(
    "change, mean_error, stddev_error",
    [
        ({"lengthscale": 0.525}, 0.35, 0.05),
        ({"signal_stddev": 10 * 3**0.5}, 0.15, 0.05),
        ({"noise_stddev": 2.0}, 1e-8, 1e-8),
    ],
)  # β = 1/s_p² of all that is gone: exact
def test_without_a_memory_the_pseudo_data_are_carried(change, mean_error, stddev_error):
    """Near the path, against the map built at θ: K⁻¹GK⁻¹ and K⁻¹h are held, not G and h."""
    field = built(inducing_inputs=Z, memory_size=0)
    theta = replace(field.theta, **change)
    assert field.adopt(theta)
    settings = {
        "lengthscale": theta.lengthscale,
        "signal_stddev": theta.signal_stddev * UT,
        "noise_stddev": theta.noise_stddev * UT,
    }
    fresh = built(inducing_inputs=Z, memory_size=0, **settings)
    places = torch.from_numpy(X[::3])
    got, expected = in_ut(field.predict(places)), in_ut(fresh.predict(places))
    error = np.sqrt(((got[0] - expected[0]) ** 2).mean())
    assert error < mean_error, error
    spread = np.abs(np.sqrt(got[1] / expected[1]) - 1).max()
    assert spread < stddev_error, spread


def test_what_is_gone_follows_the_whole_noise_of_its_samples():
    """The map's s_p² is the least part of it: β = 1/(s_p² + the sensor's) hardly grows."""
    maps = []
    for noise in (1.0, 0.1):
        field = built(0, inducing_inputs=Z, memory_size=40, noise_stddev=noise * UT)
        feed(field, samples(X[:200], Y[:200], sensor_variance=np.full(200, 9.0)), 20)
        maps.append(field)
    field, fresh = maps
    assert field.adopt(replace(field.theta, noise_stddev=0.1))
    close(field.sites.precision, fresh.sites.precision, 1e-8)
    close(field.sites.linear, fresh.sites.linear, 1e-8)


@pytest.mark.parametrize("memory", [0, 40])
def test_samples_that_say_their_own_noise_keep_it_whatever_others_have(memory):
    """Also below the map's own, and when none of them is remembered."""
    field = built(0, inducing_inputs=Z, memory_size=memory)
    feed(
        field,
        samples(X[:100], Y[:100], noise_variance=np.random.default_rng(2).uniform(0.2, 0.8, 100)),
        20,
    )
    before = in_ut(field.predict(torch.from_numpy(XS)))
    assert field.adopt(replace(field.theta, noise_stddev=2.0))
    after = in_ut(field.predict(torch.from_numpy(XS)))
    close(after[0], before[0], 1e-9)
    close(after[1], before[1], 1e-9)


def test_a_refused_adoption_leaves_the_map_bit_for_bit(monkeypatch):
    for learning in (True, False):
        field = built(memory_size=100, learn_hyperparameters=learning)
        before, prediction = copy.deepcopy(field.state_dict()), field.predict(torch.from_numpy(XS))

        def fails(matrix, rungs=6):
            raise NumericalError("does not factor")

        with monkeypatch.context() as patch:
            patch.setattr(dual_svgp, "cholesky", fails)
            assert field.adopt(replace(field.theta, lengthscale=0.6)) is False
        if learning:
            assert field.learner.rejected == before["learner"]["rejected"] + 1
            field.learner.rejected -= 1
        assert same_state(field.state_dict(), before)
        assert torch.equal(field.predict(torch.from_numpy(XS)).mean, prediction.mean)


def test_a_place_that_cannot_be_forgotten_leaves_the_map_bit_for_bit(monkeypatch):
    """Who asks is told, and not the one who next asks for a prediction."""
    field = built(100, memory_size=40)
    before, prediction = copy.deepcopy(field.state_dict()), field.predict(torch.from_numpy(XS))

    def fails(matrix, rungs=6):
        raise NumericalError("does not factor")

    with monkeypatch.context() as patch:
        patch.setattr(memory_sites, "cholesky", fails)
        with pytest.raises(NumericalError):
            field.forget_near(torch.from_numpy(X[50:51]), 0.3, 0)
    assert same_state(field.state_dict(), before)
    assert torch.equal(field.predict(torch.from_numpy(XS)).mean, prediction.mean)


def test_going_there_and_back_keeps_the_map():
    field = built(inducing_inputs=Z, memory_size=50)
    before = in_ut(field.predict(torch.from_numpy(X[::5])))
    theta = field.theta
    for step in (1.1, 1.2, 1.1, 1.0):
        assert field.adopt(replace(theta, lengthscale=theta.lengthscale * step))
    after = in_ut(field.predict(torch.from_numpy(X[::5])))
    assert np.sqrt(((after[0] - before[0]) ** 2).mean()) < 0.1


def test_a_long_stream_keeps_its_size():
    """2e4 samples, memory and inputs long at their bounds: no number of the state grows, D ≥ I, nothing is invented."""
    field = create_map(
        "dual_svgp", **(SETTINGS | {"max_inducing": 40, "memory_size": 300, "lengthscale": 0.8})
    )
    rng, sizes, path = np.random.default_rng(0), [], None
    for i in range(10):
        path = (rng.uniform(0, 3, (1, 2)) if path is None else path[-1:]) + rng.normal(
            0, 0.03, (2000, 2)
        ).cumsum(0)
        path = np.abs((path + 3) % 6 - 3)  # folded into the square
        # in batches as a robot has them: of larger ones each candidate is held against each sample
        feed(
            field,
            samples(path, 48 + 10 * np.sin(2 * path[:, :1]) + rng.normal(0, 1, (2000, 1))),
            250,
        )
        if i % 2 == 1:
            numbers = sum(
                v.numel()
                for part in ("basis", "sites", "memory")
                for v in field.state_dict()[part].values()
                if torch.is_tensor(v)
            )
            sizes.append((numbers // 2000, len(field.memory)))
            assert (
                smallest_eigenvalue(field.unremembered_sites()) > 1 - 1e-6 and field.jitter == 0.0
            )
    assert field.samples == 20_000 and len(set(sizes)) <= 2 and sizes[-1][1] == 300, sizes
    assert len(field.basis) <= 40
    inside = torch.from_numpy(rng.uniform(0.3, 2.7, (200, 2)))
    mean, variance = in_ut(field.predict(inside))
    truth = 48 + 10 * np.sin(2 * inside[:, 0].numpy())
    assert np.sqrt(((mean[:, 0] - truth) ** 2).mean()) < 1.0
    assert float(field.memory.order.min()) < 10_000 < 19_600 <= float(field.memory.order.max()), (
        "a window, or a relic"
    )
