"""Work that a card is given at once: the same results, however often, on each device that is here."""

import copy
import pickle
import warnings

import pytest
import torch

from gp_mapping.core.device import replay
from gp_mapping.core.device.replay import Replay, record


def test_recorded_work_is_done_as_often_as_it_is_asked_for(device):
    total, one = torch.zeros(3, device=device), torch.ones(3, device=device)

    def work() -> None:
        total.add_(one)

    work()
    again = record(work, total.device)
    assert total.tolist() == [1.0] * 3, "recording does nothing"
    for _ in range(4):
        again()
    assert total.tolist() == [5.0] * 3


def test_a_replay_is_the_function_and_its_results_stay(device):
    def function(a, b):
        return a @ b, a + 1.0

    own, generator = Replay(), torch.Generator().manual_seed(0)
    told = []
    for _ in range(7):
        given = [torch.randn(4, 4, generator=generator).double().to(device) for _ in range(2)]
        told.append((given, own(function, given)))
    for given, results in told:
        for result, wanted in zip(results, function(*given), strict=True):
            torch.testing.assert_close(result, wanted)
    for other in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        given, results = told[0]
        torch.testing.assert_close(other(function, given)[0], results[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="here a card records")
def test_where_nothing_can_be_recorded_the_work_is_done_as_it_stands(monkeypatch):
    monkeypatch.setattr(replay, "_failed", [])
    done = []
    with pytest.warns(UserWarning, match="given one by one, since torch cannot record them"):
        again = record(lambda: done.append(1), torch.device("cuda"))
    assert not done
    again()
    assert done == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        record(again, torch.device("cuda"))()
    assert done == [1, 1]
