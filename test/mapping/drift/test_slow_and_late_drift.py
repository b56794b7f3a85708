"""A sensor that is late and slow is no drifting one, and a drift that was found in it is forgotten."""

from dataclasses import replace

import torch
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
