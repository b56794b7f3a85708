"""A measurement's latency ends when a sample as new as it is in the map."""

import math

from gp_mapping.runtime.timing import Durations, Latency


def test_each_is_recorded_once_up_to_the_newest_sample():
    durations = Durations()
    latency = Latency(durations)
    for i in range(4):
        latency.add_arrival(10.0 + i, 100.0 + i)
    latency.reach(11.0 - 1e-7, 105.0)  # stamps in floating point
    assert durations.summary()["count"] == 2 and durations.summary()["max_ms"] == 5000.0
    latency.reach(11.0, 106.0)
    assert durations.count == 2
    latency.reach(math.inf, 112.0)
    assert durations.count == 4 and durations.summary()["max_ms"] == 10000.0


def test_what_never_came_into_the_map_is_forgotten_after_a_minute():
    durations = Durations()
    latency = Latency(durations)
    latency.add_arrival(50.0, 100.0)
    latency.add_arrival(10.0, 101.0)
    latency.reach(20.0, 160.0)
    assert durations.count == 0, "the older one still waits before it"
    latency.reach(20.0, 160.5)
    assert durations.count == 1 and durations.summary()["max_ms"] == 59500.0
