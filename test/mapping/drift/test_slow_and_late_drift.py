"""A sensor that is late and slow is no drifting one, and a drift that was found in it is forgotten."""

from dataclasses import replace

import pytest
import torch
from drifting import done
from slow_sensor import drive, lawnmower, track

from gp_mapping.mapping.drift.evidence import Drift, DriftSearch, DriftTrack
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.settings.mapping import MapSettings


def test_what_is_late_and_follows_slowly_does_not_drift():
    """On lanes that cross; without that explanation a drift is 7 nats better than all others."""
    lanes = lawnmower(step=0.3, width=4.0, depth=4.0)
    x = torch.cat([lanes, lanes.flip(1)])
    told = track(0, 8.0, 3.2, noise=0.01, length=1.2, x=x, elapsed=0.6)
    passes = torch.zeros(len(x), dtype=torch.int64)
    search = DriftSearch(DriftTrack(told.x, told.y, told.stamp, passes), 1.44, "matern52")
    assert search.finish() is None and not search.contradicts


class Climbing(DriftSearch):
    """Takes for the evidence of each lag and delay what it is given, and keeps which it was asked for."""

    def _slow(self, tau, delay=0.0):
        self.asked.append((tau, delay))
        return self.given(tau, delay)
        yield


@pytest.mark.parametrize(
    ("given", "highest"),
    [
        (lambda tau, delay: -abs(tau - 1.2) - delay, (1.2, 0.0)),  # a slow sensor alone
        (lambda tau, delay: -tau - abs(delay - 1.2), (0.0, 1.2)),  # late stamps alone
        (lambda tau, delay: -tau - delay, (0.0, 0.0)),
        (lambda tau, delay: tau + delay, (22.8, 22.8)),  # up to double the pass, 19 of .6 s
    ],
)
def test_a_climb_over_lags_and_delays_ends_where_one_of_them_is_none(given, highest):
    """Where the evidence rises for ever it asks some dozens of times, and never twice the same."""
    told = track(0, x=lawnmower(step=0.3, width=6.0, depth=0.0)[:20], elapsed=0.6)
    passes = torch.zeros(20, dtype=torch.int64)
    search = Climbing(DriftTrack(told.x, told.y, told.stamp, passes), 1.44, "matern52")
    search.asked, search.given = [], given
    value = done(search._slow_and_late())  # noqa: SLF001  a part of the search
    assert value == pytest.approx(given(*highest), abs=0.25)
    assert len(search.asked) == len(set(search.asked)) < 100
    assert any(at == pytest.approx(highest, abs=0.25) for at in search.asked)


def test_a_drift_is_forgotten_where_cells_turn_out_to_be_of_a_slow_sensor():
    """And looked for again among what the sensor would settle at."""
    watch = DriftWatch(MapSettings(learn_bias=True, bias_stddev=1.0), looks=True)
    cell = replace(drive(0, 0.0)[:1], velocity=torch.tensor([[0.5, 0.0]]).double())
    watch.add(cell, 1)
    watch.drift, watch.bias_time = Drift(100.0, 90.0, 1.0, False, 20.0), 9.0
    assert watch.again() and watch.notes()
    watch.replace([(cell, 1), (cell, 1)])
    assert watch.drift is None and watch.bias_time == 0.0 and not watch.notes()
    assert len(watch.again()) == 2

    given = DriftWatch(MapSettings(bias_time=5.0), looks=True)
    given.replace([(cell, 1)])
    assert given.bias_time == 5.0 and not given.again()
