"""A session that goes on and on over the same ground holds no more than at first."""

import gc
import weakref

import numpy as np
import pytest
import torch

from gp_mapping import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters

LIKELIHOODS = {
    "gaussian": {},
    "student_t": {"likelihood": "student_t"},
    "bernoulli": {"likelihood": "bernoulli", "threshold": 0.0},
    "poisson": {"likelihood": "poisson"},
    "softmax": {"likelihood": "softmax", "classes": 3},
}
# so small that the bounds are reached at once; ten raw samples of each cell of a metre may be picked
SMALL = {
    "sensor": "scalar",
    "cell_length": 1.0,
    "cell_duration": 60.0,
    "max_inducing": 10,
    "memory_size": 10,
    "score_window": 100,
    "learn_hyperparameters": False,
    "lengthscale": 2.0,
    "signal_stddev": 1.0,
    "noise_stddev": 0.3,
    "constant_stddev": 3.0,
}
# what has a bound that is reached later: the map with its posteriors, the path, the first hundred
# cells, those from which a lag is found
OTHERS = {"map", "snapshots", "path", "early", "kept"}


def circles(name: str, seed: int) -> Samples:
    """Once around a circle of 20 m, ten samples a second at 1 m/s."""
    rng, t = np.random.default_rng(seed), 0.1 * np.arange(200)
    angle = 2 * np.pi * t / 20.0
    x = 20.0 / (2 * np.pi) * np.stack([np.cos(angle), np.sin(angle)], 1)
    f = np.sin(angle) + 0.1 * rng.normal(size=len(t))
    y = {
        "bernoulli": (f > 0.0).astype(float),
        "poisson": rng.poisson(5.0 * np.exp(f)).astype(float),
        "softmax": np.digitize(f, [-0.3, 0.3]).astype(float),
    }.get(name, f)
    return Samples(torch.from_numpy(x), torch.from_numpy(y), stamp=t + 20.0 * seed)


def held(state) -> int:
    """How many numbers and texts a state holds."""
    if isinstance(state, dict):
        return sum(held(part) for name, part in state.items() if name not in OTHERS)
    if isinstance(state, list | tuple):
        return sum(map(held, state))
    return state.numel() if isinstance(state, torch.Tensor) else 1


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_it_does_not_grow_with_time(name):
    session = MapSession(Parameters.build(SMALL | LIKELIHOODS[name]).map)
    sizes = []
    for turn in range(4):
        session.ingest(circles(name, turn))
        session.flush()
        sizes.append(held(session.state_dict()))
    assert session.raw_count == 800 and session.refused == 0
    # 200 samples more each time, of which every one may be picked
    assert sizes[3] <= sizes[1] + 20, sizes


def test_what_an_older_version_has_picked_is_dropped():
    session = MapSession(Parameters.build(SMALL | LIKELIHOODS["poisson"]).map)
    session.ingest(circles("poisson", 0))
    state = session.state_dict()
    row = {"x": [0.0, 0.0], "y": [1.0], "length": 1.0, "heading": None, "rate": 0.0}
    state["scores"] |= {"picked": [row] * 10}
    assert MapSession.from_state_dict(state).state_dict()["scores"]["picked"] == []


def test_a_map_in_whose_place_another_comes_leaves_memory_at_once():
    """In a circle of references it would stay until Python looks for these, which takes dozens of maps."""
    session = MapSession(Parameters.from_values(SMALL).map)
    session.ingest(circles("gaussian", 0))
    session.render(200)
    parts = [weakref.ref(part) for part in (session, session.map, session.renderer)]
    gc.collect()
    gc.disable()
    try:
        del session
        assert [part() for part in parts] == [None, None, None]
    finally:
        gc.enable()
