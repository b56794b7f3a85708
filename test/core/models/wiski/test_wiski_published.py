"""The published form of WISKI as a map: the map contract, and the dense GP with kernel W K_uu Wᵀ and its features."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, correlation, drive, feed, samples
from map_contract import MapContract
from test_wiski import TURNING, moving

from gp_mapping import create_map
from gp_mapping.core.models.wiski.lattice import toeplitz
from gp_mapping.core.models.wiski.lattice.interpolation import interpolation_matrix


@pytest.mark.parametrize("model", ["wiski"])
class TestPublishedContract(MapContract):
    def build(self, model, device, **settings):
        return create_map(model, device=device, wiski_form="dense", **(SETTINGS | settings))


def dense_gp(field, places, heading):
    """Mean, variance at inner places (K, 2) of the GP with kernel w K_uu w' + s_c² + s_h² ĥ·ĥ'."""
    theta, memory, grid = field.theta, field.memory, field.grid
    x = theta.place(memory.x, memory.velocity, memory.heading)
    low = torch.tensor(grid.low)
    w, v = (interpolation_matrix(grid.units(p) - low, grid.shape).numpy() for p in (x, places))
    used = (np.abs(w).sum(0) + np.abs(v).sum(0)) > 0
    nodes = np.stack(np.meshgrid(*(np.arange(n) for n in grid.shape), indexing="ij"), -1).reshape(-1, 2)[used]
    distance = np.linalg.norm((nodes[:, None] - nodes[None]) * grid.spacing, axis=-1)
    gram = theta.signal_stddev**2 * correlation("matern52", distance / theta.lengthscale)
    prior = np.array([theta.constant_stddev**2, theta.heading_stddev**2, theta.heading_stddev**2])
    phi, psi = (np.hstack([np.ones((len(h), 1)), h.numpy()]) for h in (memory.heading, heading))
    w, v = w[:, used], v[:, used]
    full = w @ gram @ w.T + (phi * prior) @ phi.T + np.diag(1.0 / memory.beta.numpy())
    cross = v @ gram @ w.T + (psi * prior) @ phi.T
    own = np.einsum("ij,jk,ik->i", v, gram, v)
    mean = cross @ np.linalg.solve(full, memory.y.numpy())
    variance = own + (psi**2 * prior).sum(1) - np.einsum("ij,ji->i", cross, np.linalg.solve(full, cross.T))
    return mean, variance


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
    inner = field.scaling.inner_x(torch.from_numpy(drive(200)[0][::5] + rng.uniform(-0.2, 0.2, (40, 2))))
    mean, variance = dense_gp(field, inner, heading)
    got_mean, got_variance = field.posterior.inner(inner, heading)
    assert np.abs(got_mean.numpy() - mean).max() < 1e-7 * np.abs(mean).max()
    assert np.abs(got_variance.numpy() - variance).max() < 1e-7 * field.theta.signal_stddev**2


def test_the_root_keeps_its_rank_and_says_what_it_dropped():
    field = create_map("wiski", wiski_form="dense", **(SETTINGS | {"max_inducing": 40}))
    x, y = drive(150)
    feed(field, samples(x, y), 50)
    assert field.root.L.shape[1] == 40 and field.root.dropped > 0.0
    assert bool(torch.isfinite(field.predict(torch.from_numpy(x)).mean).all())


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="matrix_free"):
        create_map("wiski", wiski_form="published")
