"""A session at θ that was found offline: the cells it gives, and that it is the same map when it learns on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gp_mapping import Samples
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.mapping.refit import resume_learning, settings_fixed_at
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings


def passes():
    """Two drives to and fro."""
    rng = np.random.default_rng(0)
    for k in range(2):
        along = np.linspace(0.0, 6.0, 200)
        x = np.stack([np.abs(along % 4.0 - 2.0) * 1.5, 0.3 * (along // 2.0) + 0.1 * k], 1)
        y = 48.0 + 6.0 * np.sin(1.5 * x[:, :1]) * np.cos(x[:, 1:]) + 0.2 * rng.normal(size=(200, 1))
        stamp = torch.arange(200.0).double() * 0.1 + 99 * k
        yield Samples(torch.from_numpy(x), torch.from_numpy(y) * 1e-6, stamp=stamp)


def driven(settings):
    session = MapSession(settings)
    session.taken = []
    for samples in passes():
        session.break_pass()
        session.ingest(samples)
    session.break_pass()
    return session


@pytest.fixture(scope="module")
def streamed():
    return driven(MapSettings(max_inducing=50))


def test_cells_are_those_that_the_map_took(streamed):
    """With starts from the first cells, when the map is made again from the same cells, none is twice or missing."""
    session = streamed
    assert sum(map(len, session.taken)) == session.cell_count > 100
    places = torch.cat([cell.x for cell in session.taken])
    assert len(places.unique(dim=0)) == len(places)
    assert MapSession(MapSettings()).taken is None, "nobody asked, and they are kept"


def test_it_is_the_same_map_and_learns_on(streamed):
    told = streamed.map.hyperparameters() | {
        "lengthscale": 1.7,
        "signal_stddev": 7e-6,
        "time_offset": 0.01,
    }
    settled = driven(settings_fixed_at(streamed.started_settings, told))
    assert settled.map.hyperparameters()["lengthscale"] == 1.7 and not settled.map.learning_steps
    learner = make_theta_and_learner(streamed.started_settings)[1]
    # the offset is known, and so well that nothing is added for what is not known of it
    learner.continue_from(
        replace(learner.theta, time_offset=0.01), 1e12 * torch.eye(7, dtype=torch.float64)
    )

    session = resume_learning(settled, streamed, learner)
    one, other = session.predict(settled.path), settled.predict(settled.path)
    assert torch.equal(one.mean, other.mean) and torch.equal(one.variance, other.variance)
    assert torch.equal(one.noise_variance, other.noise_variance)
    assert session.settings == streamed.settings
    steps = session.map.learning_steps
    session.ingest(next(passes()))
    assert session.map.learning_steps > steps


def test_nothing_is_learned_of_what_was_found_and_the_rest_stays():
    given = MapSettings(max_inducing=50, noise_stddev=9e-6, learn_bias=True)
    fixed = settings_fixed_at(given, {"lengthscale": 0.7, "noise_stddev": 2e-6, "other": 3.0})
    learned = ("hyperparameters", "noise", "time_offset", "lever_arm", "bias")
    never = {f"learn_{name}": False for name in learned}
    assert fixed == replace(given, lengthscale=0.7, noise_stddev=2e-6, **never)
