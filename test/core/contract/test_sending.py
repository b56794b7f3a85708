"""What a team asks of every map: a state in few bytes, and another θ.

Of maps with inducing inputs that is gp_mapping.core.models.dual_svgp.sending, with tiles
gp_mapping.core.models.tiled.sending, of vectors gp_mapping.core.models.curl_free.model.
"""

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, feed, samples
from map_contract import flat

from gp_mapping import create_map
from gp_mapping.core.hyper.agreed import Learned, agreed
from gp_mapping.core.registry import model_names

MODELS = model_names()
PLACES = torch.from_numpy(np.random.default_rng(5).uniform(-0.5, 3.5, (40, 2)))


def built(model: str, n: int = 160, seed: int = 0, **settings):
    channels = 3 if model == "curl_free" else 1
    field = create_map(model, **(SETTINGS | {"max_inducing": 120} | settings))
    feed(field, samples(*drive(n, seed, channels=channels)), 20)
    return field


def size(state: dict) -> int:
    return sum(
        leaf.numel() * leaf.element_size() for _, leaf in flat(state) if torch.is_tensor(leaf)
    )


def alike(one, other, tolerance: float) -> None:
    """In standard deviations of the second."""
    a, b = one.predict(PLACES), other.predict(PLACES)
    sd = b.variance.sqrt()
    assert float(((a.mean - b.mean).abs() / sd).max()) < tolerance
    assert float((a.variance.sqrt() / sd - 1.0).abs().max()) < tolerance


@pytest.mark.parametrize("memory_size", [2000, 40])
@pytest.mark.parametrize("model", MODELS)
def test_a_slim_state_is_the_same_map(model, memory_size):
    field = built(model, memory_size=memory_size)
    state = field.state_dict()
    slim = field.slimmed(state)
    other = create_map(model, **(SETTINGS | {"max_inducing": 120, "memory_size": memory_size}))
    other.load_state_dict(slim)
    alike(other, field, 1e-5)
    assert size(slim) <= size(state)
    if model in ("dual_svgp", "solve_gp", "sor", "fitc"):
        assert size(slim) < size(state) / (3 if memory_size == 40 else 5)
    # and it is a map that goes on, and merges
    field.update(samples(*drive(40, seed=4, channels=3 if model == "curl_free" else 1)))
    other.update(samples(*drive(40, seed=4, channels=3 if model == "curl_free" else 1)))
    if memory_size == 2000:
        alike(other, field, 1e-3)


def test_a_slim_state_fits_another_budget():
    field = built("dual_svgp")
    other = create_map("dual_svgp", **(SETTINGS | {"max_inducing": 300, "memory_size": 5000}))
    other.load_state_dict(field.slimmed(field.state_dict()))
    alike(other, field, 1e-6)
    other.merge(built("dual_svgp", seed=3))
    assert other.samples == 320


def test_a_slim_state_that_does_not_fit_leaves_the_map_as_it_was():
    field = built("dual_svgp")
    slim, other = field.slimmed(field.state_dict()), built("dual_svgp", seed=2)
    before = other.predict(PLACES)
    for change in (
        {"basis": {"z": slim["basis"]["z"][:, :1]}},
        {"theta": {"lengthscale": 1.0}},
        {"memory": {}},
    ):
        with pytest.raises(ValueError):
            other.load_state_dict(slim | change)
    assert torch.equal(other.predict(PLACES).mean, before.mean)


@pytest.mark.parametrize("model", MODELS)
def test_a_map_goes_over_to_the_teams_theta(model):
    field, there = built(model), built(model, lengthscale=0.6, signal_stddev=12 * UT)
    assert field.agree_on(there.learned().theta)
    assert field.hyperparameters()["lengthscale"] == pytest.approx(0.6)
    if model != "sor":  # whose variance is of its inducing inputs, which differ
        alike(field, there, 0.3)


def test_a_robots_delay_and_noise_stay_its_own():
    """Two robots of different delay and noise, at their own θ: the map of both is that of samples put right before."""
    delay, rng = 0.4, np.random.default_rng(0)
    x, y = drive(160)
    velocity = rng.normal(0.0, 0.3, x.shape)
    late = create_map("dual_svgp", **(SETTINGS | {"time_offset": delay, "noise_stddev": 3 * UT}))
    batch = samples(x + delay * velocity, y)
    late.update(type(batch)(batch.x, batch.y, velocity=torch.from_numpy(velocity)))
    right = create_map("dual_svgp", **(SETTINGS | {"noise_stddev": 3 * UT}))
    right.update(samples(x, y))
    assert late.agree_on(built("dual_svgp", lengthscale=0.55).learned().theta)
    assert right.agree_on(built("dual_svgp", lengthscale=0.55).learned().theta)
    alike(late, right, 0.02)
    assert late.hyperparameters()["time_offset"] == 0.0


def test_the_teams_theta_is_the_product():
    theta = built("dual_svgp").learned().theta
    longer = theta.with_vector(theta.vector() + torch.tensor([0.5, 0.2, 0.0, 0.0, 0.1, 0.0, 0.0]))
    none, little, much = torch.zeros(7, 7), torch.eye(7), 9.0 * torch.eye(7)
    assert agreed([Learned(theta, much.double())]) == theta
    assert agreed([Learned(theta, none.double())] * 3) == theta
    told = agreed([Learned(theta, little.double()), Learned(longer, much.double())])
    assert told.vector()[0] - theta.vector()[0] == pytest.approx(0.45, abs=1e-3)
    again = agreed([Learned(longer, much.double()), Learned(theta, little.double())])
    assert told.vector().numpy() == pytest.approx(again.vector().numpy(), abs=1e-12)
    unlearned = agreed([Learned(theta, none.double()), Learned(longer, much.double())])
    assert unlearned.vector()[0] == pytest.approx(float(longer.vector()[0]), abs=1e-3)
    with pytest.raises(ValueError, match="differ in kernel"):
        agreed(
            [
                Learned(theta, much),
                Learned(built("dual_svgp", kernel="matern32").learned().theta, much),
            ]
        )


def test_samples_keep_the_noise_with_which_they_were_measured():
    """A louder robot's map at a quiet team's θ: that of samples that say their own noise."""
    x, y = drive(160)
    team = {"lengthscale": 0.55, "noise_stddev": 1 * UT, "inducing_inputs": x[::3]}
    own = create_map("dual_svgp", **SETTINGS | team | {"lengthscale": 0.5, "noise_stddev": 3 * UT})
    feed(own, samples(x, y), 40)
    told, quiet = (create_map("dual_svgp", **SETTINGS | team) for _ in range(2))
    assert own.agree_on(told.theta)
    feed(told, samples(x, y, noise_variance=np.full(160, 9.0)), 40)
    feed(quiet, samples(x, y), 40)
    alike(own, told, 1e-4)
    assert own.hyperparameters()["noise_stddev"] == pytest.approx(1 * UT)
    there = torch.from_numpy(x[::3])
    assert float((quiet.predict(there).stddev / own.predict(there).stddev).max()) < 0.9
