"""A slow sensor's cells, blocks and averages, each by its formula and by brute force."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.response import blocks, response
from gp_mapping.mapping.response.block_length import best_length, blur
from gp_mapping.mapping.response.blocks import Row
from gp_mapping.mapping.response.delay_line import DelayLine, taken_in
from gp_mapping.mapping.response.posterior import Known
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.response.track import Track
from gp_mapping.settings.mapping import MapSettings

ROW = Row((1.0, 2.0), 3.0, 4.0, 0.1, -1.0, 7, 1.0, 0.0)


def test_rows_of_a_cell_have_the_noise_of_its_mean_and_what_rounding_adds():
    cell = Samples(
        [[1.0, 2.0], [3.0, 4.0]],
        [[5.0], [6.0]],
        stamp=[7.0, 8.0],
        count=[4.0, 5.0],
        sensor_variance=[0.8, 0.5],
        position_variance=[0.0, 0.3],
    )
    assert blocks.rows_of_cell(cell, 9, 0.01) == [
        Row((1.0, 2.0), 5.0, 7.0, pytest.approx(0.21), 0.0, 9, 1.0, 0.0),
        Row((3.0, 4.0), 6.0, 8.0, pytest.approx(0.11), 0.3, 9, 1.0, 0.0),
    ]
    bare = Samples([[1.0, 2.0]], [[5.0]], stamp=[7.0])
    assert blocks.rows_of_cell(bare, 9, 0.01) == [
        Row((1.0, 2.0), 5.0, 7.0, 0.01, -1.0, 9, 1.0, 0.0)
    ]
    counted = Samples([[1.0, 2.0]], [[5.0]], stamp=[7.0], sensor_variance=[0.8])
    assert blocks.rows_of_cell(counted, 9, 0.0)[0].variance == 0.8


def test_a_way_is_driven_within_a_pass_alone():
    other = ROW._replace(x=(4.0, 6.0))
    assert blocks.way_between(ROW, other) == 5.0
    assert (
        blocks.way_between(None, other) == blocks.way_between(ROW._replace(passes=6), other) == 0.0
    )


def test_a_block_is_the_mean_of_its_cells_by_their_counts():
    one = ROW._replace(count=3.0, variance=0.2, position=0.4)
    other = Row((5.0, -2.0), 11.0, 12.0, 0.6, 0.8, 7, 1.0, 9.0)
    told = blocks.averaged([one, other])
    assert told == Row(
        (2.0, 1.0), 5.0, 6.0, pytest.approx(2.4 / 16), pytest.approx(0.5), 7, 4.0, 0.0
    )


def test_two_blocks_say_where_and_when_they_are_an_average_of():
    """By the weights of a field that is a line between them; as unsure as the worse place."""
    before = ROW._replace(position=0.0)
    block = before._replace(x=(1.5, 1.0), y=3.7, stamp=5.2, position=0.3)
    told = blocks.settled(before, block, 2.0, 0.0, False)
    a = math.exp(-0.6)
    late = 1.0 - (1.0 - a) * 2.0 / 1.2  # of the later field in what comes since
    share = late / (1.0 - a)
    assert told.x.tolist() == [pytest.approx([1.0 + 0.5 * share, 2.0 - share])]
    assert told.stamp.tolist() == [pytest.approx(4.0 + 1.2 * share)]
    assert told.velocity.tolist() == [pytest.approx([0.5 / 1.2, -1.0 / 1.2])]
    assert told.position_variance.tolist() == [0.3] and told.count.tolist() == [1.0]
    unknown = blocks.settled(before._replace(position=-1.0), block, 2.0, 0.0, False)
    assert unknown.position_variance is None
    assert blocks.as_samples(before, before).position_variance.tolist() == [0.0]


def test_columns_of_blocks_say_where_passes_begin():
    parts = [[ROW], [ROW._replace(stamp=5.0)], [ROW._replace(stamp=6.0, passes=8)]]
    told = blocks.track_of(parts)
    assert told.begins.tolist() == [True, False, True]
    assert told.x.tolist() == [[1.0, 2.0]] * 3 and told.y.tolist() == [3.0] * 3


def test_a_block_ends_where_its_step_is_reached_but_for_rounding():
    cells = [ROW._replace(x=(0.3 * k * (1 - 5e-7), 0.0), stamp=float(k)) for k in range(3)]
    assert [len(part) for part in blocks.blocks_of(cells, 0.3, 9)] == [1, 1, 1]
    cells = [each._replace(x=(each.x[0] * (1 - 2e-6), 0.0)) for each in cells]
    assert [len(part) for part in blocks.blocks_of(cells, 0.3, 9)] == [2, 1]


# --- cells in, measurements out -------------------------------------------------------------------
def cell(t, x=0.0, y=0.0, **columns):
    """One of three samples."""
    given = {"count": [3.0], "sensor_variance": [0.6], **columns}
    return Samples([[x, 0.0]], [[y]], stamp=[t], velocity=[[0.0, 0.0]], **given)


def with_step(tau, step):
    """A response that is known, in blocks of a length; inf: that is not known."""
    one = Response(MapSettings(response_time=tau, learn_response_time="never"))
    one.step = step
    return one


def begun(one, cells, passes=lambda k: 1):
    """Numbers of the cells that a block ends before."""
    out = []
    for k, each in enumerate(cells):
        held = len(one.state_dict()["open"])
        one.add(each, passes(k), math.inf)
        if held and len(one.state_dict()["open"]) == 1:
            out.append(k)
    return out


def test_a_block_lasts_for_a_quarter_of_the_time_constant_or_for_its_step():
    """Not longer than that constant; to the end of a pass, and to a stamp that is no later."""
    still = [cell(0.5 * k) for k in range(12)]
    assert begun(with_step(4.0, math.inf), still) == [2, 4, 6, 8, 10]
    assert begun(with_step(2.0, 1.0), still) == [4, 8], "a robot that stands"
    moved = [cell(0.5 * k, 0.25 * k) for k in range(12)]
    assert begun(with_step(40.0, 1.0), moved) == [4, 8]
    assert begun(with_step(40.0, 1.0 + 5e-7), moved) == [4, 8], "but for rounding"
    assert begun(with_step(40.0, 1.0 + 2e-6), moved) == [5, 10]
    assert begun(with_step(40.0, 1.0), moved, lambda k: 1 + (k > 1)) == [2, 6, 10]
    again = [cell(0.5 * min(k, 2), 0.25 * k) for k in range(4)]
    assert begun(with_step(40.0, 1.0), again) == [3]


def test_noise_and_its_factor_are_usual_ones():
    """A fiftieth of each new one; blocks of two cells, whose samples round to steps of .3."""
    one = with_step(4.0, math.inf)
    one.blur = 2.0
    made = []
    for k in range(9):
        made += one.add(cell(0.5 * k, 0.1 * k**2, float(k)), 1, 0.3)
    each = [float(m.sensor_variance[0]) for m in made]
    rows = [[Row((0.1 * k**2, 0.0), float(k), 0.5 * k, 0.2 + 0.0075, -1.0, 1, 1.0, 0.0) for k in two]
            for two in ((0, 1), (2, 3), (4, 5), (6, 7))]  # fmt: skip
    means = [blocks.averaged(two) for two in rows]
    wanted = [blocks.settled(b, c, 4.0, 2.0, False) for b, c in itertools.pairwise(means)]
    assert [float(m.y) for m in made] == pytest.approx([float(m.y) for m in wanted])
    assert each == pytest.approx([float(m.sensor_variance) for m in wanted])
    assert each[0] < each[1] < each[2] and made[0].response_slope is None
    a = math.exp(-0.25)
    gain = (0.5 + 0.5 * a**2) / (1.0 - a) ** 2
    variance = 0.98 * (0.98 * each[0] + 0.02 * each[1]) + 0.02 * each[2]
    assert (one.variance, one.gain) == pytest.approx((variance, gain))
    one.add(cell(4.4), 1, 0.3)
    one.add(cell(4.8), 1, 0.3)  # ends the block, of the cells at 4 and 4.4 s
    one.flush()
    a = math.exp(-1.2 / 4.0)  # to the block of two from 3.25 s to 4.2 s
    last = one.gain
    assert last != pytest.approx(gain)

    cells = SimpleNamespace(single_variance=0.0, averaged_variance=0.2, known_by=5)
    alone = SimpleNamespace(variance=0.5, with_mates=lambda *parts: parts)
    assert one.white_noise(cells, alone) == pytest.approx((one.variance + 0.5 * last,) * 2)
    cells.single_variance = 0.1
    assert one.white_noise(cells, alone) == (one.variance,) * 2
    assert with_step(0.0, 1.0).white_noise(cells, alone) == (0.1, 0.2, 5)


def test_the_factor_of_blocks_of_several_sizes():
    """(1/n₂ + a²/n₁)/(1 − a)², and a fiftieth of it beside what was usual."""
    one = with_step(4.0, math.inf)
    for t in (0.0, 0.5, 1.0, 2.0, 2.3, 2.6, 3.0):
        one.add(cell(t), 1, math.inf)
    a, b = math.exp(-0.75 / 4.0), math.exp(-1.3 / 4.0)
    first = (1.0 + 0.5 * a**2) / (1.0 - a) ** 2
    second = (1.0 / 3.0 + b**2) / (1.0 - b) ** 2
    assert one.gain == pytest.approx(0.98 * first + 0.02 * second)


def test_blocks_of_two_passes_and_of_one_moment_say_nothing_together():
    one = with_step(4.0, math.inf)
    assert one.flush() == []
    for t, passes in ((0.0, 1), (2.0, 2), (4.0, 2), (6.0, 2)):
        made = one.add(cell(t), passes, math.inf)
        assert len(made) == (t == 6.0)
    assert float(made[0].y) == 0.0 and one.flush()


def test_cells_are_kept_with_the_way_to_them_while_it_is_looked():
    one = Response(MapSettings(learn_response_time="always"), looks=True)
    for k, x in enumerate((0.0, 3.0, 7.0, 50.0)):
        (out,) = one.add(cell(float(k), x), 1 + k // 3, 0.6)
        assert out.x.tolist() == [[x, 0.0]]
    state = one.state_dict()
    kept = blocks.rows_of_table(state["kept"])
    assert [row.way for row in kept] == [0.0, 3.0, 4.0, 0.0] and state["way"] == 7.0
    assert kept[0].variance == pytest.approx(0.2 + 0.36 / 12.0)
    assert Response(one.settings).state_dict()["kept"] is None
    never = MapSettings(learn_response_time="never")
    assert Response(never, looks=True).state_dict()["kept"] is None
    again = [(float(each.stamp), each.velocity.tolist(), p) for each, p in one.again()]
    steady = [[3.0, 0.0]], [[4.0, 0.0]]
    assert again == [
        (0.0, [[0.0, 0.0]], 1),
        (1.0, steady[0], 1),
        (2.0, steady[1], 1),
        (3.0, [[0.0, 0.0]], 2),
    ]
    one.forget_before(1.0)
    state = one.state_dict()
    assert [row.stamp for row in blocks.rows_of_table(state["kept"])] == [1.0, 2.0, 3.0]
    assert state["way"] == 7.0
    one.stop_looking()
    assert one.state_dict()["kept"] is None
    for odd in (Samples([[0.0, 0.0]], [[1.0, 2.0]], stamp=[0.0]), Samples([[0.0, 0.0]], [[1.0]])):
        one = Response(MapSettings(response_time=3.0, learn_response_time="always"), looks=True)
        assert one.add(odd, 1, math.inf) == [odd] and not one.is_active
        assert one.state_dict()["kept"] is None


def test_what_a_new_pass_ends_is_of_the_pass_before():
    one = Response(MapSettings(learn_response_time="always"), looks=True)
    for k in range(6):
        one.add(cell(float(k)), 1 + k // 3, math.inf)
    one.seconds, one.variance, one.gain = 2.0, 9.0, 9.0  # was found
    told = [(float(each.stamp), passes) for each, passes in one.again()]
    assert [passes for _, passes in told] == [1, 1, 2]
    one.forget_before(5.0)
    state = one.state_dict()
    assert [row.stamp for row in blocks.rows_of_table(state["open"])] == [5.0] and state[
        "last"
    ] is None


def test_a_file_of_an_older_version_knows_its_constant_for_certain():
    one = with_step(4.0, 0.7)
    state = one.state_dict()
    for name in ("gain", "sureness", "delay", "line", "search"):
        del state[name]
    other = Response(MapSettings(learn_response_time="never"))
    other.load_state_dict(state)
    assert (other.seconds, other.step, other.gain) == (4.0, 0.7, 0.0)
    assert other.uncertainty == (0.0, 0.0, 0.0) and other.blur == 0.0
    assert (other.delay, other.delay_stddev, other.unplaced) == (0.0, 0.0, 0)


# --- raw samples of a pass ------------------------------------------------------------------------
def test_the_usual_time_of_a_block_is_that_of_its_step_at_the_mean_speed():
    """At least from one sample to the next, at most the time constant."""
    x = torch.tensor([[0.0, 0.0], [0.3, 0.4], [0.6, 0.8], [1.2, 1.6]], dtype=torch.float64)
    samples = Samples(x, torch.zeros(4, 1), stamp=[10.0, 10.4, 10.8, 11.6])  # 2 m in 1.6 s
    for tau, step, wanted in (
        (3.0, 1.0, 0.8),
        (3.0, 0.1, 0.4),
        (0.7, 1.0, 0.7),
        (3.0, math.inf, 0.75),
        (1.0, math.inf, 0.4),
    ):
        assert with_step(tau, step)._usual_time(samples) == pytest.approx(wanted)


def test_averages_over_a_time_are_those_of_the_samples_within():
    """Ends included; where there are none, of the first one after it, or the last."""
    stamp = torch.tensor([0.0, 0.5, 1.0, 1.5, 4.0], dtype=torch.float64)
    y = torch.tensor([1.0, 3.0, 10.0, -4.0, 7.0], dtype=torch.float64)[:, None]
    sums = torch.cat([torch.zeros(1, 1), y.cumsum(0)])
    centre = torch.tensor([0.5, 0.75, 2.6, 4.0, 5.5], dtype=torch.float64)
    told = response._averages(sums, stamp, centre, 1.0)[:, 0]
    assert told.tolist() == pytest.approx([14.0 / 3, 6.5, 7.0, 7.0, 7.0])


def test_two_samples_and_samples_of_one_moment_are_settled_too():
    one = with_step(2.0, math.inf)
    two = Samples([[0.0, 0.0], [1.0, 0.0]], [[5.0], [7.0]], stamp=[100.0, 101.0])
    a = math.exp(-0.25)
    # second by second: means of 5, and of 5 and 7, half a second apart; then of both, and of 7
    told = [5.0 + 1.0 / (1.0 - a), 6.0 + 1.0 / (1.0 - a)]
    assert one.settled(two).y[:, 0].tolist() == pytest.approx(told)
    still = Samples(two.x, two.y, stamp=[100.0, 100.0])
    assert one.settled(still).y.tolist() == two.y.tolist()


# --- searches -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("step", "finer"), [(0.05, 0.2), (0.5, 0.5)])
def test_a_search_has_blocks_of_a_fifth_of_a_lengthscale_and_finer_ones(monkeypatch, step, finer):
    """As fine as the 400 of them allow, and half as long at the most."""
    asked = []
    monkeypatch.setattr(response, "LagSearch", lambda *parts: asked.append(parts))
    cells = [
        ROW._replace(x=(step * k, 0.0), stamp=float(k), way=step * (k > 0)) for k in range(500)
    ]
    one = response._PendingLag(cells, 2.0, "rbf", True)
    coarse = math.ceil(500 * step / 0.4) if step < 0.4 else 400
    assert one.blocks == coarse and one.final
    ((track, length, kernel, fine),) = asked
    assert (length, kernel) == (2.0, "rbf") and len(track.y) == coarse
    assert float(fine.x[1, 0] - fine.x[0, 0]) == pytest.approx(finer)
    state = one.state_dict()
    assert state == {"cells": 500, "length": 2.0, "final": True, "steps": 0}


@pytest.mark.parametrize(("n", "looks"), [(47, False), (48, True)])
def test_fewer_than_48_blocks_tell_nothing(monkeypatch, n, looks):
    asked = []
    monkeypatch.setattr(response, "LagSearch", lambda *parts: asked.append(parts))
    cells = [ROW._replace(x=(0.5 * k, 0.0), stamp=float(k)) for k in range(n)]
    response._PendingLag(cells, 2.0, "rbf", False)
    assert bool(asked) == looks


def test_a_long_drive_has_finer_blocks_as_long_as_leaves_400_of_them(monkeypatch):
    asked = []
    monkeypatch.setattr(response, "LagSearch", lambda *parts: asked.append(parts))
    cells = [ROW._replace(x=(0.05 * k, 0.0), stamp=float(k), way=0.05) for k in range(2400)]
    response._PendingLag(cells, 2.0, "rbf", False)
    fine = asked[0][3]
    assert len(fine.y) == 400 and float(fine.x[1, 0] - fine.x[0, 0]) == pytest.approx(0.3)


@pytest.mark.parametrize("speed", [0.5, 2.0])
@pytest.mark.parametrize(("tau", "noise"), [(1.0, 0.02), (4.0, 0.05), (20.0, 0.01)])
def test_the_best_block_has_the_least_noise_and_blur_of_a_metre(speed, tau, noise):
    """Of thirteen lengths; at the median speed, a pause and the way between passes left out."""
    x = torch.zeros(12, 2, dtype=torch.float64)
    stamp = torch.arange(12, dtype=torch.float64) * 0.8
    x[:, 0] = speed * stamp
    stamp[6:] += 100.0
    x[6:] += 50.0
    begins = torch.arange(12) % 6 == 0
    length = 2.0
    told = best_length(
        Track(x, x[:, 0], stamp, begins), Known(tau, 0.1, length, noise, 1.0), "matern52"
    )
    lengths = [0.1 * length * 1.1**k for k in range(13)]
    variance = []
    for each in lengths:
        seconds = each / speed
        a = math.exp(-seconds / tau)
        white = noise**2 * 0.8 / seconds * (1.0 + a * a) / (1.0 - a) ** 2
        # a mean over two blocks, each uniform: of variance L²/12 twice
        variance.append((white + blur("matern52", length) * (each**2 / 6.0) ** 2) * each)
    assert told == pytest.approx(lengths[variance.index(min(variance))])


def test_blocks_of_a_robot_that_stands_have_a_length():
    x, stamp = torch.zeros(5, 2, dtype=torch.float64), torch.arange(5, dtype=torch.float64)
    still = Track(x, x[:, 0], stamp, stamp == 0.0)
    told = best_length(still, Known(2.0, 0.1, 3.0, 0.1, 1.0), "matern52")
    assert told == pytest.approx(0.1 * 3.0), "so slow that noise is none"


def test_rows_of_a_delay_line_are_forgotten_from_a_time_on():
    rows = [ROW._replace(stamp=float(k), x=(float(k), 0.0)) for k in range(4)]
    line = DelayLine(10.0, rows)
    line.forget_before(2.0)
    assert [row.stamp for row in line.rows] == [2.0, 3.0]
    line = DelayLine(1.5)
    assert line.place(rows[0]) is None
    placed = line.place(rows[2]._replace(position=0.0))
    assert placed.x == (0.5, 0.0) and placed.position == -1.0
    sure = [row._replace(position=0.0) for row in rows]
    line = DelayLine(1.0)
    assert line.place(sure[0]) is None and line.place(sure[1]).position == 0.0
    assert line.place(sure[2]).x == (1.0, 0.0) and len(line.rows) == 2, "a place of a row itself"


def test_two_samples_have_places_of_before_and_one_has_none():
    samples = Samples(
        [[float(k), 0.0] for k in range(4)], torch.zeros(4, 1), stamp=[0.0, 1.0, 2.0, 3.0]
    )
    assert taken_in(samples, 2.0).x[:, 0].tolist() == [0.0, 1.0]
    assert taken_in(samples, 2.5) is samples
