"""A sensor that is late and then slow, as behind a hose: both times are found, and taken back."""

import math

import pytest
import torch
from drifting import done
from slow_sensor import RATE, drive, lawnmower, track

from gp_mapping.mapping.response.blocks import Row
from gp_mapping.mapping.response.delay_line import DelayLine, taken_in
from gp_mapping.mapping.response.lag import Lag, LagSearch
from gp_mapping.mapping.response.late_posterior import known_both
from gp_mapping.mapping.response.response import Response, _PendingLag
from gp_mapping.settings.mapping import MapSettings


def test_both_times_are_found():
    x = lawnmower(step=0.3, width=6.0, depth=4.0)
    told = track(0, 4.0, 3.2, length=1.2, x=x, elapsed=0.6)
    lag = LagSearch(told, 1.44, "matern52").finish()
    assert abs(math.log(lag.seconds / 4.0)) < 3.0 * lag.deviation < 1.0
    assert abs(lag.delay - 3.2) < 3.0 * lag.delay_stddev < 0.6


def row(stamp, passes=1, position=-1.0):
    """A row at (stamp², 1) m."""
    return Row((stamp**2, 1.0), 5.0, stamp, 0.1, position, passes, 1.0, 0.0)


def test_a_row_gets_the_place_of_so_much_earlier_on_its_pass():
    line = DelayLine(1.5)
    out = [line.place(row(float(t))) for t in range(6)]
    assert out[:2] == [None, None], "before the pass began"
    assert out[2] == row(2.0)._replace(x=(0.5, 1.0))  # half way from (0, 1) to (1, 1)
    assert out[5] == row(5.0)._replace(x=(0.5 * (9.0 + 16.0), 1.0))
    assert len(line.rows) == 3, "no more than it needs"
    assert line.place(row(6.0, passes=2)) is None, "another pass has no place before it"
    assert line.place(row(7.5, passes=2)).x == (36.0, 1.0)
    assert line.place(row(7.5, passes=2)) is None, "a stamp that comes again begins anew"
    same = row(3.0)
    assert DelayLine(0.0).place(same) is same


def test_a_place_between_rows_is_as_unsure_as_the_worse_of_them():
    line = DelayLine(1.5)
    for t, position in ((0.0, 0.2), (1.0, 0.1), (2.0, -1.0)):
        placed = line.place(row(t, position=position))
    assert placed.position == 0.2
    line.place(row(3.0))
    assert line.place(row(4.0)).position == -1.0, "one of them is not known"


def test_raw_samples_are_where_the_robot_was():
    samples = drive(0, 0.0)
    moved = taken_in(samples, 2.0)
    late = round(2.0 * RATE)
    assert torch.equal(moved.y, samples.y[late:]) and torch.equal(moved.stamp, samples.stamp[late:])
    assert torch.allclose(moved.x, samples.x[:-late])
    assert taken_in(samples, 0.0) is samples and taken_in(samples, 1e6) is samples


def found(seconds, delay, deviation=0.1, stddev=0.2, settings=None):
    """A response to which a search has told both times; and whether the map is to begin again."""
    response = Response(settings or MapSettings(learn_response_time="always"), looks=True)
    return response, told(response, seconds, delay, deviation, stddev)


def told(response, seconds, delay, deviation=0.1, stddev=0.2):
    search = _PendingLag([], 2.0, "matern52", final=False)
    search.blocks, lag = 48, Lag(seconds, 2.0, 30.0, deviation, 1.0, 0.1, 2.0, delay, stddev)
    type(search).found = property(lambda self: lag)
    try:
        return response._adopt(search, last=False)  # noqa: SLF001
    finally:
        del type(search).found


def test_blocks_lie_where_the_robot_was_and_a_resumed_map_goes_on_alike():
    samples = drive(0, 0.0)
    response, changed = found(3.0, 2.0)
    assert changed and [*response.again()] == []
    blocks, resumed = [], None
    for k in range(79):
        if k == 31:
            resumed = Response(response.settings)
            resumed.load_state_dict(response.state_dict())
        made = response.add(samples[k], 1, math.inf)
        if resumed is not None:
            again = resumed.add(samples[k], 1, math.inf)
            assert [b.x.tolist() for b in again] == [b.x.tolist() for b in made]
        blocks += made
    assert len(blocks) > 3
    ahead = 0.5 * (torch.cat([b.stamp for b in blocks]) - samples.stamp[0] - 2.0)
    assert torch.allclose(torch.cat([b.x[:, 0] for b in blocks]), ahead, atol=0.01)
    assert (response.delay, response.delay_stddev) == (resumed.delay, resumed.delay_stddev)
    early = int((samples.stamp[:79] < samples.stamp[0] + 2.0).sum())
    assert response.unplaced == resumed.unplaced == early > 0
    assert f" {early} cells that were drawn in before their pass began" in response.notes()[0]


def test_another_delay_is_taken_where_it_lies_beyond_what_it_is_unsure_by():
    response, _ = found(3.0, 2.0)
    assert not told(response, 3.0, 2.15) and response.delay == 2.0
    assert response.delay_stddev == pytest.approx(math.hypot(0.2, 0.15))
    assert told(response, 3.0, 2.1, stddev=0.05) and response.delay == 2.1, "one that is surer"
    assert told(response, 3.0, 2.35) and response.delay == 2.35
    assert told(response, 3.0, 0.0, stddev=0.0) and response.delay == 0.0


def test_what_the_settings_say_of_the_offset_is_part_of_the_delay():
    settings = MapSettings(learn_response_time="always", time_offset=0.3)
    assert found(3.0, 2.0, settings=settings)[0].delay == pytest.approx(1.7)


def test_both_are_named_with_what_they_are_unsure_by_and_what_mends_them():
    (note,) = found(30.0, 8.0, 0.05, 0.4)[0].notes()
    assert "30 ± 1.5 s" in note and "8 ± 0.4 s late" in note
    assert "response_time: 30" in note and "8 more in stamp_offset" in note


def test_a_start_that_is_far_off_ends_without_an_error():
    """The climb to the top is bounded: it may end on its way there."""
    way = torch.arange(0.0, 6.0, 0.4, dtype=torch.float64)
    told = track(0, 4.0, 3.2, x=torch.stack([way, 0.0 * way], 1))
    both = done(known_both(told, "matern52", 400.0, 0.01, 2.0, 0.1))
    assert both.delay >= 0.0 and math.isfinite(both.constant.seconds) and both.stddev > 0.0
