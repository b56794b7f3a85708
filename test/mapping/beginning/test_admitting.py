"""Each raw sample may be scored, and each finished cell is shown to whatever looks for a fault of the drive."""

import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.mapping.beginning.renewing import RenewableMap
from gp_mapping.mapping.beginning.warm_up import WarmUp
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.mapping.frames.watch import FrameWatch
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.session import MapSession

SETTINGS = {
    "model": "exact",
    "learn_hyperparameters": False,
    "field_scale": 1.0,
    "lengthscale": 0.7,
}


def drive(n: int) -> Samples:
    """Along x, a cell each .3 m."""
    x = torch.stack([0.3 * torch.arange(n), torch.zeros(n)], 1).double()
    return Samples(x, torch.sin(x[:, :1]), stamp=torch.arange(float(n)).double())


@pytest.mark.parametrize(
    ("slow", "again", "most"), [(False, False, 20), (True, False, 10), (False, True, 0)]
)
def test_raw_samples_are_picked_for_scores_where_the_map_is_of_what_they_tell(
    monkeypatch, slow, again, most
):
    """Of a slow sensor its blocks are, which are fewer; beside a new map nothing is."""
    rows = []
    monkeypatch.setattr(OneStepAhead, "pick_rows", lambda self, x, *_: rows.extend(x))
    monkeypatch.setattr(RenewableMap, "is_renewing", again)
    MapSession(MapSettings(**SETTINGS, response_time=2.0 * slow)).ingest(drive(20))
    assert len(rows) == most or len(rows) < most == 10


def test_with_each_cell_a_few_steps_are_done_of_each_search(monkeypatch):
    """Of frames, of a slow sensor and of a drift; of those two none where frames contradict each other."""
    done = {watch: [] for watch in (FrameWatch, Response, DriftWatch)}
    for watch, times in done.items():
        monkeypatch.setattr(watch, "look", lambda self, length, times=times: times.append(length()))
    monkeypatch.setattr(FrameWatch, "is_contradicted", False)
    session, samples = MapSession(MapSettings(**SETTINGS)), drive(30)
    session.ingest(samples[:20])
    counts = [len(times) for times in done.values()]
    assert counts[0] > 10 and counts == [counts[0]] * 3, counts
    assert all(length == done[FrameWatch][-1] for length in (times[-1] for times in done.values()))

    monkeypatch.setattr(FrameWatch, "is_contradicted", True)
    session.ingest(samples[20:])
    assert [len(times) for times in done.values()] == [counts[0] + 10, counts[0], counts[0]]


def test_a_map_that_another_was_merged_into_does_not_begin_again(monkeypatch):
    """Its first cells are not all that it holds, also where nothing is noted of the other's beginning."""
    first, closed = FirstValues(MapSettings()), []
    monkeypatch.setattr(
        WarmUp, "close", lambda self: closed.append(1)
    )  # who looks for it, and begins again
    first.join([])
    assert len(closed) == 1 and first.notes == []
    first.join(["a", "a"])
    first.join(["a"])
    assert len(first.notes) == 1, "each is noted once"
