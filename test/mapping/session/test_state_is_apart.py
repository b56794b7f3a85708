"""A state that was taken stays as it was while the map goes on: a checkpoint is written from it in another thread."""

import copy

import pytest
import torch
from mapping_data import drive

from gp_mapping import Samples
from gp_mapping.core.registry import model_names
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


@pytest.mark.parametrize("model", model_names())
def test_what_goes_on_does_not_reach_a_state_that_was_taken(model):
    session = MapSession(
        MapSettings(
            model=model,
            max_inducing=20,
            memory_size=25,
            forgetting_time=1000.0,
            resolution=0.2,
            # near what the field is: starts that are found take the first cells in again and again
            lengthscale=1.0,
            signal_stddev=8e-6,
            noise_stddev=0.7e-6,
            constant_stddev=24e-6,
            cell_length=0.2,
        )
    )
    channels = 3 if model == "curl_free" else 1
    samples = drive(seed=1, lanes=2, length=3.0, rate=10.0)
    samples = Samples(samples.x, samples.y.expand(-1, channels).contiguous(), stamp=samples.stamp)
    half = len(samples) // 2 + 7  # in the middle of a cell
    session.ingest(samples[:half])
    state = session.state_dict()
    before = copy.deepcopy(state)
    session.ingest(samples[half:])
    session.break_pass()
    session.render()
    session.clear()
    assert same(before, state)
