"""A map that is made again takes the first cells in blocks, and is the map of all of them."""

import math

import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.beginning import restarted
from gp_mapping.mapping.beginning.restarted import RestartedMap
from gp_mapping.mapping.feeding import absorb_batch, new_map

GIVEN = {"lengthscale": 1.0, "signal_stddev": 2.0, "noise_stddev": 0.1, "constant_stddev": 9.0}
CENTRE = torch.zeros(1, dtype=torch.float64)
TOGETHER = 32
THERE = torch.tensor([[0.5, 0.2], [3.3, -0.1], [7.0, 1.0]], dtype=torch.float64)


def settings_of(model="exact", **more) -> MapSettings:
    given = {"field_scale": 1.0, "learn_hyperparameters": False, "max_exact_samples": 500}
    return MapSettings(model=model, **given | GIVEN | more)


def cells(count: int) -> list[Samples]:
    along = 0.1 * torch.arange(count, dtype=torch.float64)
    x = torch.stack([along, (0.3 * along).sin()], 1)
    return [
        Samples(x[i : i + 1], along[i : i + 1].sin()[:, None], stamp=along[i : i + 1])
        for i in range(count)
    ]


def made_again(first, settings, monkeypatch=None):
    """The map once it has seen all, and the sizes of its updates, call by call."""
    again, calls, refused = RestartedMap(new_map(settings, None, CENTRE), rough=False), [], []
    if monkeypatch is not None:
        take = lambda field, cell, refuse: (  # noqa: E731
            calls[-1].append(len(cell)) or absorb_batch(field, cell, refuse)
        )
        monkeypatch.setattr(restarted, "absorb_batch", take)
    while True:
        calls.append([])
        if again.feed(first, 0.0, lambda *why: refused.append(why)):
            return again, calls, refused


def one_by_one(first, settings):
    field = new_map(settings, None, CENTRE)
    for cell in first:
        for _ in absorb_batch(field, cell, lambda *_: None):
            pass
    return field


# of `dual_svgp` the inducing inputs leave a fiftieth of the variance out at most
@pytest.mark.parametrize("model", ["exact", "dual_svgp"])
def test_blocks_make_the_map_that_single_cells_make(model, monkeypatch):
    first, settings = cells(75), settings_of(model, inducing_information=0.0)
    again, calls, refused = made_again(first, settings, monkeypatch)
    assert calls == [[32], [32], [11]] and again.used == 75 and not refused
    told, judge = again.map.predict(THERE), one_by_one(first, settings_of()).predict(THERE)
    tolerance = 1e-8 if model == "exact" else 2e-2
    torch.testing.assert_close(told.mean, judge.mean, rtol=0.0, atol=tolerance)
    torch.testing.assert_close(told.variance, judge.variance, rtol=tolerance, atol=1e-3 * tolerance)


def test_a_weakened_cell_stays_weakened_among_cells_without_a_sensor_variance():
    """Only batches with the same columns are joined: else a column that some lack is lost."""
    first = cells(20)
    weak = Samples(first[5].x, first[5].y + 50.0, stamp=first[5].stamp, sensor_variance=[1e8])
    first[5] = weak
    again, _, _ = made_again(first, settings_of())
    assert [len(part) for part in again.taken] == [5, 1, 14]
    assert float(again.taken[1].sensor_variance) == 1e8
    judge = one_by_one(first, settings_of())
    torch.testing.assert_close(again.map.predict(THERE).mean, judge.predict(THERE).mean)


def test_it_overtakes_batches_of_many_raw_samples():
    """Each time that one more batch has come, by eight of them, whatever their length."""
    raw = [Samples.concatenate(cells(25)) for _ in range(24)]
    again, steps = RestartedMap(new_map(settings_of(max_exact_samples=1000), None), False), 0
    there = raw[:16]
    while not again.feed(there, 0.0, lambda *_: None):
        steps += 1
        there = raw[: 16 + steps]
        assert again.used == 8 * steps
    assert again.used == len(there) == 18


def test_a_full_map_takes_of_a_block_what_it_has_room_for():
    again, _, refused = made_again(cells(75), settings_of(max_exact_samples=50))
    assert sum(map(len, again.taken)) == again.map.samples == 50
    assert len(refused) == 25 and all(len(cell) == 1 for cell, _ in refused)


def test_work_of_one_call_is_bounded(monkeypatch):
    """As many cells as a robot that stands may leave behind come a few at a time."""
    _, calls, _ = made_again(cells(300), settings_of(), monkeypatch)
    assert max(sum(sizes) for sizes in calls) <= TOGETHER
    assert len(calls) == math.ceil(300 / TOGETHER)
