"""What the first cells decide: bounds, medians, counts and when it is looked, each by its formula."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.beginning import first_values, restarted, warm_up
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.mapping.beginning.search_watch import Schedule, SearchWatch
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.beginning.stepwise import PendingSearch, Stepwise
from gp_mapping.mapping.beginning.warm_up import WarmUp
from gp_mapping.mapping.growing import cell_map
from gp_mapping.mapping.growing.cell_map import CellMap
from gp_mapping.mapping.growing.counts import SampleCounts

GIVEN = MapSettings(field_scale=1.0, signal_stddev=2.0)


def cell(value, x=0.0, raw=4.0, **more):
    return Samples([[x, 0.0]], [[value]], count=[raw], **more)


# --- when it is looked ----------------------------------------------------------------------------
class Pending(PendingSearch):
    """A search of three steps, which notes how many are done together."""

    def __init__(self, *asked):
        self.asked, self.left, self.done = asked, 3, []

    def advance(self, steps):
        self.done.append(steps)
        self.left -= 1
        return self.left == 0


class Watched(SearchWatch):
    schedule = Schedule((10, 20, 40), fewest=6, most=100, parts=5.0, steps=2, every=4, new=1.5)
    changed = True

    def _make_search(self, kept, length, whole, final):
        self.made = [*getattr(self, "made", []), (len(kept), length, whole, final)]
        return Pending()

    def _adopt(self, search, last):
        self.adopted = last
        return self.changed

    def _is_whole(self, check):
        return check == 20

    def after(self, cells, way):
        """With so many cells, and so many metres driven."""
        self._kept, self._way = list(range(cells)), way
        return self

    def state(self):
        return self._checks, self._looked, self._search, self._kept


def watched():
    return Watched([])


def test_a_search_is_due_at_so_many_blocks():
    """Of a fifth of a lengthscale; looked for with each fourth cell."""
    for cells, way, due in (
        (40, 3.99, False),
        (40, 4.0, True),
        (41, 9.0, False),
        (9, 9.0, False),
        (12, 9.0, True),
        (8, 9.0, False),
    ):
        one = watched().after(cells, way)
        assert not one.look(lambda: 2.0)
        assert hasattr(one, "made") == due, (cells, way)
    assert one.look(lambda: 2.0) is False
    assert watched().after(0, 9.0).look(lambda: 2.0) is False
    none = Watched(None)
    assert not none.look(lambda: 2.0) and not hasattr(none, "made")


def test_what_is_found_is_adopted_after_its_last_step():
    one = watched().after(40, 4.0)
    assert [one.look(lambda: 2.0) for _ in range(3)] == [False, False, True]
    assert one.made == [(40, 2.0, False, False)] and one.adopted is False
    assert one.state()[:3] == (1, 10, None)
    one.after(44, 7.9)
    assert not one.look(lambda: 2.0) and len(one.made) == 1
    one.after(44, 8.0)
    one.changed = False
    assert [one.look(lambda: 2.0) for _ in range(3)] == [False] * 3
    assert one.made[-1] == (44, 2.0, True, False) and one.state()[:2] == (2, 20)
    one.after(48, 16.0)  # the last check is not passed; it is of the whole way
    one.look(lambda: 2.0)
    assert one.made[-1] == (48, 2.0, True, True) and one.state()[:2] == (2, 40)


def test_several_checks_at_once_are_one_search():
    one = watched().after(60, 9.0)
    one.look(lambda: 2.0)
    assert one.made == [(60, 2.0, True, False)] and one.state()[:2] == (2, 22)


def test_a_full_watch_looks_for_the_last_time():
    one = watched().after(100, 0.1)
    one.look(lambda: 2.0)
    assert one.made == [(100, 2.0, True, True)]
    for cells, kept in ((96, True), (100, False)):
        one = watched().after(cells, 9.0)
        assert not one.look(lambda: None) and (one.state()[3] is not None) == kept


def last(one, length=2.0):
    work, steps = one.looking_last(lambda: length), 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


def test_at_the_end_it_is_looked_where_enough_is_new():
    """Six blocks at least, and half as many again as last time; whatever the number of cells."""
    assert last(watched().after(41, 2.39)) == (False, 0)
    one = watched().after(41, 2.4)
    assert last(one) == (True, 2) and one.adopted is True
    assert one.made == [(41, 2.0, True, False)]
    assert last(one.after(41, 3.59)) == (False, 0)
    assert last(one.after(41, 3.6))[0] is True
    begun = watched().after(40, 4.0)
    begun.look(lambda: 2.0)
    work = begun.finishing_search()
    assert sum(1 for _ in work) == 1 and begun.adopted is True
    assert list(watched().after(40, 4.0).finishing_search()) == []


class Steps(Stepwise):
    def _search(self):
        for _ in range(3):
            yield
        return "found"


def test_steps_are_counted_and_the_end_is_told():
    one = PendingSearch(Steps())
    assert not one.advance(2) and one.steps == 2 and one.found is None
    assert not one.advance(1) and one.steps == 3
    assert one.advance(5) and one.steps == 3 and one.found == "found"
    none = PendingSearch(None)
    assert none.advance(1) and none.steps == 0 and none.found is None
    assert SearchWatch._is_whole(None, 3) is True


# --- a sensor that has not begun ------------------------------------------------------------------
def test_values_lie_outside_by_ranges_of_all_but_two():
    after = [9.0, 1.0, 3.0, 2.0, -5.0]  # of 1 to 3
    for value, apart, least, outside in (
        (5.0, 1.0, 0.0, False),
        (5.01, 1.0, 0.0, True),
        (-1.0, 1.0, 0.0, False),
        (-1.01, 1.0, 0.0, True),
        (9.0, 3.0, 0.0, False),
        (9.01, 3.0, 0.0, True),
        (7.0, 1.0, 4.0, False),
        (7.01, 1.0, 4.0, True),
    ):
        assert warm_up._outside([value], after, apart, least) == outside
    assert warm_up._outside([99.0, 99.0, 2.0, 99.0], after, 1.0) == 2
    assert warm_up._equal([1.0, 1.0, 2.0, 1.0]) == 2 and warm_up._equal([1.0] * 3) == 3


def warmed(values, settings=GIVEN, step=0.0):
    """Where a warm-up is found: cells before, and after; None else."""
    one = WarmUp(settings)
    for k, value in enumerate(values):
        split = one.add(cell(value, 0.5 * k), step)
        if split is not None:
            return len(split[0]), len(split[1])
    return None


WAVES = [2.0 * math.sin(1.3 * k) for k in range(40)]  # over some ± 2


def test_a_run_of_one_number_outside_the_range_is_no_beginning_once_there_are_more_cells_after():
    """Nine at least; the range is 2 to each side, the signal 2."""
    assert warmed([85.0] * 3 + WAVES) == (3, 9)
    assert warmed([85.0] * 12 + WAVES) == (12, 13)
    assert warmed([85.0] * 12 + WAVES[:12]) is None
    assert warmed([85.0, 85.1, 85.0, *WAVES]) is None, "numbers of the field, however far"
    assert warmed([85.0] * 3 + WAVES[:9] + [7.0, 7.0]) == (3, 9)
    assert warmed([85.0] * 3 + [each for v in WAVES for each in (v, v)]) is None, (
        "it repeats itself"
    )
    assert warmed([4.0] * 3 + WAVES) is None
    assert warmed([85.0] * 3 + WAVES, step=90.0) is None, "a step of the sensor"
    assert warmed([85.0] * 3 + WAVES, replace(GIVEN, signal_stddev=90.0)) is None
    assert warmed([85.0] * 3 + WAVES, replace(GIVEN, robust=False)) is None
    assert warmed([85.0, *WAVES]) is None, "the median leaves out four"


def test_what_lies_outside_by_a_million_is_no_beginning_either():
    wild = [1e10 + 1e8 * k for k in range(5)]
    assert warmed(wild + WAVES) == (5, 9)
    assert warmed(wild[:4] + WAVES) is None
    assert warmed([1e5 + 1e3 * k for k in range(5)] + WAVES) is None


def test_it_is_looked_for_in_a_hundred_cells():
    one = WarmUp(GIVEN)
    for k in range(100):
        assert one.state_dict() is not None
        one.add(cell(math.sin(1.3 * k), 0.5 * k))
    assert one.state_dict() is None


# --- first values ---------------------------------------------------------------------------------
def begun(values=(0.0, 1.0, -1.0, 0.5, -0.5, 0.2, -0.2, 1.5, -1.5), settings=GIVEN):
    """First values after nine cells; their median is 0, and their spread less than the signal's 2."""
    first = FirstValues(settings)
    for k, value in enumerate(values):
        assert first.is_open
        first.add_first(cell(value, 0.5 * k))
    assert not first.is_open
    return first


def test_a_value_beyond_a_million_deviations_is_no_field():
    first = FirstValues(GIVEN)
    assert first.is_credible([1.9e100]) and not first.is_credible([2.1e100])
    first = begun()
    assert first.is_credible([1.9e6]) and not first.is_credible([-2.1e6])
    assert not first.is_credible([math.nan])
    counts = MapSettings(likelihood="poisson")
    strong = FirstValues(counts)
    for k in range(9):
        strong.add_first(cell(3.0, 0.5 * k))
    assert strong.is_credible([3.99e4]) and not strong.is_credible([4.01e4])


def test_of_the_first_nine_those_beyond_twelve_deviations_of_the_median_are_left_out():
    inside = begun((0.0, 1.0, -1.0, 0.5, -0.5, 0.2, -0.2, 23.9, -1.5))
    assert inside.gross == 0 and inside.seen == 9
    outside = begun((0.0, 1.0, -1.0, 0.5, -0.5, 0.2, -0.2, 24.3, -1.5))
    assert outside.gross == 4
    wide = begun(tuple(30.0 * v for v in (0.0, 1.0, -1.0, 0.5, -0.5, 0.2, -0.2, 1.5, -1.5)))
    assert wide.spread == pytest.approx(1.4826 * 15.0) and wide.gross == 0


def test_a_far_cell_waits_for_two_that_agree():
    first = begun()
    assert len(first.admit(cell(23.9), False)) == 1
    first = begun()
    a, b, c = cell(30.0), cell(40.0), cell(35.0)
    assert first.admit(a, False) == [] and first.waiting_samples == 4
    assert first.admit(b, False) == []
    assert [each.y.item() for each in first.admit(c, False)] == [30.0, 40.0, 35.0]
    assert len(first.admit(cell(40.0), False)) == 1, "they are what the next ones are compared with"
    first = begun()
    first.admit(cell(30.0), False)
    first.admit(cell(61.0), False)  # nearer to the median than half of its distance from the other
    assert first.gross == 4 and first.waiting_samples == 4
    first.admit(cell(0.3), False)
    assert first.gross == 8 and first.waiting_samples == 0


def test_it_agrees_where_it_lies_as_near_as_half_of_its_distance_from_the_median():
    for value, agrees in ((60.0, True), (60.1, False), (15.0, True), (14.9, False), (-30.0, False)):
        first = begun()
        first.admit(cell(30.0), False)
        assert first._agree([value]) == agrees


def test_a_map_judges_by_itself_once_it_has_settled_beyond_a_hundred_cells():
    first = begun()
    for _ in range(90):
        assert len(first.admit(cell(0.1), True)) == 1
    assert first.seen == 99
    assert first.admit(cell(99.0), True) == [], "the hundredth"
    told = first.admit(cell(98.0), True)
    assert [each.y.item() for each in told] == [99.0, 98.0] and first.waiting_samples == 0
    first = begun()
    first.seen = 500
    assert first.admit(cell(99.0), False) == []


def test_the_last_32_cells_are_compared_with():
    first = begun(settings=replace(GIVEN, signal_stddev=0.5))
    for k in range(40):
        first.admit(cell(0.1 * k), False)
    recent = first.state_dict()["recent"]
    assert [row[0] for row in recent] == pytest.approx([0.1 * k for k in range(8, 40)])
    middle, spread = first.state_dict()["reference"]
    assert middle == pytest.approx([2.35]) and spread == pytest.approx([1.4826 * 0.8])


def test_a_sensors_smallest_step_is_seen_in_raw_values():
    first = FirstValues(GIVEN)
    for value in (1.0, 1.5, 1.5 + 1e-13, 0.75):
        first.check_warm_up(cell(value, raw=1.0))
    assert first._step == 0.5
    first.check_warm_up(cell(0.7, raw=2.0))
    first.check_warm_up(cell(0.5, raw=1.0))
    assert first._step == 0.5, "a mean of two shows none, nor does what follows it"
    first.check_warm_up(cell(0.5, raw=1.0), 0.125)
    assert first._step == 0.125 and FirstValues(GIVEN)._step == 0.0


def test_notes_of_merged_maps_say_so_once_and_are_ten_at_most():
    first = FirstValues(GIVEN)
    first.notes = ["a"]
    first.join(["b", first_values._MERGED + "c", "b"])
    assert first.notes == ["a", first_values._MERGED + "b", first_values._MERGED + "c"]
    first.join([str(k) for k in range(20)])
    assert len(first.notes) == 10 and first.state_dict()["early"] is None


# --- starts ---------------------------------------------------------------------------------------
def test_cells_of_a_robot_that_stands_count_an_eighth():
    """It has moved where it is farther than a tenth of a cell."""
    one = Start(MapSettings(field_scale=1.0, cell_length=1.0))
    for apart, count in ((0.0, 1), (0.101, 2), (0.2, 2), (0.21, 3)):
        one._add_places(cell(0.0, apart))
        assert one._count == count
    for _ in range(27):
        one._add_places(cell(0.0, 0.21))
    assert one._count == 3
    one._add_places(cell(0.0, 0.21))
    assert one._count == 4
    raw = Start(MapSettings(field_scale=1.0, cells=False))
    raw._add_places(Samples(torch.zeros(5, 2), torch.zeros(5, 1)))
    assert raw._count == 5


def test_starts_are_found_anew_at_doublings_to_128():
    one = Start(MapSettings(field_scale=1.0, robust=False, learn_smoothness=False))
    row = [cell(math.sin(0.9 * k), 0.5 * k) for k in range(140)]
    assert one.set_first_cells(Samples.concatenate(row[:9]))
    told = []
    for k in range(9, 140):
        if one.add(row[k]):
            told.append(k + 1)
            assert one.was_guess == (k + 1 <= 32)
            one.adopt_found(list(one.cells))
            assert one.resolved is one.found[0]
    assert told == [16, 32, 64, 128] and one.cells == []
    assert one.resolved.constant_stddev == pytest.approx(3.0 * one.resolved.signal_stddev)
    given = Start(
        MapSettings(lengthscale=1.0, signal_stddev=1.0, noise_stddev=1.0, constant_stddev=1.0)
    )
    assert not given.set_first_cells(row[0]) and not given.add(row[0])


def test_a_map_takes_32_first_cells_together_or_eight_batches():
    rows = [cell(0.0, float(k)) for k in range(40)]
    assert [len(part) for part in restarted._blocks(rows)] == [32]
    assert restarted._blocks([]) == []
    many = [Samples(torch.zeros(5, 2), torch.zeros(5, 1))] * 12
    assert [len(part) for part in restarted._blocks(many)] == [8], "forty rows"
    big = [Samples(torch.zeros(50, 2), torch.zeros(50, 1)), rows[0]]
    assert [len(part) for part in restarted._blocks(big)] == [1], "one at least"
    other = [rows[0], rows[1], cell(0.0, stamp=[1.0]), rows[2]]
    assert [len(part) for part in restarted._blocks(other)] == [2, 1, 1]


# --- counts and lengths of a growing map ----------------------------------------------------------
def test_used_and_refused_samples_are_all_that_came():
    one = SampleCounts()
    one.used = 10
    one.refuse(2, "a")
    one.lose(3, "b")
    assert (one.used, one.refused, one.lost, one.last_refusal, one.entered) == (7, 5, 3, "b", 10)
    other = SampleCounts(1, 1, 1)
    other.follow(one)
    assert (other.used, other.refused, other.lost) == (11, 3, 1)
    other.join(one)
    assert (other.used, other.refused, other.lost) == (18, 8, 4)
    one.offer_again()
    assert (one.used, one.refused, one.lost, one.last_refusal) == (10, 2, 0, "")


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"cell_count": 32}, False),
        ({"active": True}, False),
        ({"started": False}, False),
        ({"learns": False}, False),
    ],
)
def test_cells_are_as_long_as_a_map_of_more_than_32_has_learned(monkeypatch, change, known):
    """By one doubling at a time; from lengthscales where a smooth field is told by what comes as expected."""
    asked = {}
    monkeypatch.setattr(
        cell_map, "suitable_length", lambda *parts: asked.update(short=parts) or 0.3
    )
    monkeypatch.setattr(cell_map, "lengthened", lambda *parts: asked.update(long=parts) or 9.0)
    monkeypatch.setattr(cell_map, "least_lengthscale", lambda learned: 0.8 * learned)
    given = {
        "cell_count": 33,
        "active": False,
        "started": True,
        "learns": True,
        "over": False,
    } | change

    def sized(over):
        one = object.__new__(CellMap)
        one.settings = MapSettings(learn_hyperparameters=given["learns"], cell_lengthscales=0.125)
        one.cell_count, one._start = given["cell_count"], SimpleNamespace(resolved=one.settings)
        one.map = SimpleNamespace(
            started=given["started"],
            hyperparameters=lambda: {"lengthscale": 8.0, "signal_stddev": 3.0},
            learned=lambda: 8.0,
        )
        one._gathered = SimpleNamespace(
            cells=SimpleNamespace(length=0.2, longest=0.5, averaged_variance=0.04),
            response=SimpleNamespace(is_active=given["active"]),
            path_trace=SimpleNamespace(length=70.0),
        )
        one.scores = SimpleNamespace(white_averaged=0.09)
        one._unexpected = SimpleNamespace(is_over=lambda length: over and length == 70.0)
        return one

    short = sized(False)
    assert short.final_length() == (0.3 if known else 0.5)
    assert short.suitable_length() == (0.3 if known else 0.5)
    if known:
        assert asked["short"][1:4] == ("matern52", 8.0, 9.0)
        assert asked["short"][0] == 0.5 and asked["short"][4] == pytest.approx(0.008)
        long = sized(True)
        assert long.final_length() == 9.0 and long.suitable_length() == 1.0
        longest, most, kernel, least, signal, white = asked["long"]
        assert (longest, kernel, signal) == (0.5, "matern52", 9.0)
        assert (most, least, white) == pytest.approx((0.8, 6.4, 0.018))
        long.map.hyperparameters = lambda: {"lengthscale": 7.99, "signal_stddev": 3.0}
        assert long.final_length() == 0.3, "cells of an eighth of it would not be twice as long"
