"""Stamps that leap, and messages that come late: each number at which another decision is taken."""

import random

import pytest

from gp_mapping.intake.clocks.order import InOrder
from gp_mapping.intake.clocks.stamps import ClockRanges, Stamped, StampGate

STEP = 10  # ns between two messages
BACK = 100  # ns; jump_back


def gate_at(stamps=range(0, 201, STEP), witness=None, **given) -> StampGate:
    gate = StampGate(BACK, **given)
    gate.set_witness((lambda: witness) if not callable(witness) else witness)
    for stamp in stamps:
        assert admitted(gate, stamp) == ([stamp], 0)
    return gate


def admitted(gate, stamp):
    taken, strays = gate.admit(stamp, -stamp)
    assert all(message.content == -message.stamp for message in taken)
    return [message.stamp for message in taken], strays


@pytest.mark.parametrize("seed", range(8))
def test_what_is_admitted_together_is_what_is_admitted_one_by_one(seed):
    chance = random.Random(seed)
    planned = refused = 0
    for _ in range(60):
        together, alone = (gate_at(witness=((0, 10**9),)) for _ in range(2))
        stamps, at = [], 200
        for _ in range(chance.randrange(1, 12)):
            step = chance.choice(
                [STEP, STEP, STEP + 3, 0, 60, 100, 101, -BACK, -BACK - 1, -30, 140]
            )
            stamps.append(at + step)
            at = max(at, at + step)
        found = together.plan_admission(stamps)
        newest, late, usual = 200, {}, True
        for i, stamp in enumerate(stamps):
            if stamp <= newest and stamp >= newest - BACK:
                late[i] = stamp == newest
            newest = max(newest, stamp)
            usual &= admitted(alone, stamp) == ([stamp], 0) and stamp >= newest - BACK
        assert (found is not None) == usual
        if found is None:
            refused += 1
            assert together.newest == 200, "nothing is changed"
            continue
        planned += 1
        assert found[2] == late
        together.admit_planned(*found[:2])
        assert together.plan_admission([]) == alone.plan_admission([])
        assert together.newest == alone.newest == newest
    assert planned > 5 and refused > 5


def test_nothing_is_planned_before_a_stream_has_been_near_its_witness_or_while_it_holds():
    assert gate_at(witness=()).plan_admission([210]) is None
    assert gate_at(witness=((900, 900),)).plan_admission([210]) is None
    assert gate_at([0], witness=((0, 0),)).plan_admission([10]) is None, "no step is known"
    gate = gate_at(witness=((0, 200),))
    assert gate.plan_admission([210]) == (210, pytest.approx(STEP), {})
    assert admitted(gate, 5000) == ([], 0) and gate.holding == 1
    assert gate.plan_admission([210]) is None


def test_a_step_leaps_beyond_five_usual_ones_and_beyond_jump_back():
    for step, leaps in ((BACK, False), (BACK + 1, True), (-BACK, False), (-BACK - 1, True)):
        assert admitted(gate_at(), 200 + step) == ([] if leaps else [200 + step], 0), step
    slow = [0, 30, 60, 90, 120]
    for step, leaps in ((150, False), (151, True)):
        assert admitted(gate_at(slow), 120 + step) == ([] if leaps else [120 + step], 0), step
    minute = 60 * 10**9
    for step, leaps in ((minute, False), (minute + 1, True)):
        assert admitted(gate_at([7]), 7 + step) == ([] if leaps else [7 + step], 0), step


def test_the_usual_step_follows_a_stream_slowly():
    gate = gate_at([0, 10], witness=((0, 100),))
    assert gate.plan_admission([])[:2] == (10, 10.0)
    admitted(gate, 30)
    assert gate.plan_admission([])[:2] == (30, pytest.approx(11.0))
    admitted(gate, 25)  # late: neither a step nor the newest
    assert gate.plan_admission([])[:2] == (30, pytest.approx(11.0))
    admitted(gate, 130)
    assert gate.plan_admission([])[:2] == (130, pytest.approx(19.9))


def test_who_goes_on_makes_what_is_held_stray_and_who_follows_it_confirms_it():
    gate = gate_at()
    assert admitted(gate, 5000) == ([], 0)
    assert admitted(gate, 210) == ([210], 1) and gate.holding == 0
    assert admitted(gate, 5000) == ([], 0)
    assert admitted(gate, 5010) == ([5000, 5010], 0)
    assert gate.newest == 5010
    # back as well
    assert admitted(gate, 1000) == ([], 0) and admitted(gate, 1010) == ([1000, 1010], 0)
    assert gate.newest == 1010
    # neither goes on: the one that is held is stray, and the new one is held
    assert admitted(gate, 9000) == ([], 0)
    assert admitted(gate, 500) == ([], 1) and gate.holding == 1
    assert admitted(gate, 510) == ([500, 510], 0)


@pytest.mark.parametrize("step, taken", [(BACK, True), (BACK + 1, False)])
def test_what_follows_within_a_step_confirms(step, taken):
    gate = gate_at()
    admitted(gate, 5000)
    assert admitted(gate, 5000 + step) == ([5000, 5000 + step] if taken else [], 0)
    assert admitted(gate_at_held(), 5000) == ([], 0), "the same stamp once more confirms nothing"


def gate_at_held():
    gate = gate_at()
    admitted(gate, 5000)
    return gate


def test_of_five_leaps_in_a_row_a_stream_has_become_slow():
    gate = gate_at()
    leaps = [1000, 2000, 3000, 4000]
    for stamp in leaps:
        assert admitted(gate, stamp) == ([], 0)
    assert gate.holding == 4
    assert admitted(gate, 5000) == ([*leaps, 5000], 0)
    assert admitted(gate, 6000) == ([6000], 0), "that is its step now"
    # while no step is known two are enough
    first = gate_at([0])
    minutes = [i * 100 * 10**9 for i in (1, 2)]
    assert admitted(first, minutes[0]) == ([], 0) and admitted(first, minutes[1]) == (minutes, 0)


def test_a_witness_is_waited_for_but_not_beyond_a_bound():
    spans = [(150, 200)]
    gate = gate_at(witness=lambda: tuple(spans), near=50, most=3)
    for stamp in (5000, 5010):
        assert admitted(gate, stamp) == ([], 0)
    assert not gate.release() and list(gate.covered_and_held()) == [(200, 200), (5000, 5010)]
    # with a near of 50 or the step that is no leap, whichever is more
    spans[0] = (5111, 5111)
    assert not gate.release()
    spans[0] = (5110, 5110)
    assert [m.stamp for m in gate.release()] == [5000, 5010] and gate.holding == 0
    spans[0] = (5000, 5010)
    for stamp in (9000, 9010, 9020):
        assert admitted(gate, stamp) == ([], 0)
    assert admitted(gate, 9030) == ([9000, 9010, 9020, 9030], 0), "three are held, no more"
    # a witness that cannot tell is not waited for
    unknown = gate_at(witness=None)
    admitted(unknown, 5000)
    assert admitted(unknown, 5010) == ([5000, 5010], 0)


def test_a_stream_that_was_never_near_its_witness_goes_there_at_once():
    gate = gate_at(witness=((5000, 5000),))
    assert admitted(gate, 5000) == ([5000], 0)
    sure = gate_at(witness=((200, 200), (5000, 5000)))
    assert admitted(sure, 5000) == ([], 0)


@pytest.mark.parametrize(
    "spans, strays", [(((200, 200),), 1), (((200, 200), (5000, 5000)), 0), ((), 0), (None, 0)]
)
def test_at_the_end_what_is_held_is_stray_where_the_stream_was_with_its_witness(spans, strays):
    gate = gate_at(witness=spans)
    admitted(gate, 5000)
    taken, found = gate.finish()
    assert ([m.stamp for m in taken], found) == (([] if strays else [5000]), strays)
    assert gate.holding == 0 and gate.finish() == ([], 0)


def pushed(order, *stamps):
    return [m.stamp for stamp in stamps for m in order.add(Stamped(stamp, None))]


def test_messages_wait_half_as_long_again_as_the_latest_was_late():
    order = InOrder(1000, 1000, 100)
    assert pushed(order, 0, 100, 60) == [0, 100, 60] and not order.passing
    assert order.sorted == 0, "100 had gone"
    assert pushed(order, 200) == [] and order.holding == 1
    assert pushed(order, 259) == [] and pushed(order, 260) == [200]
    assert pushed(order, 240) == [] and (order.sorted, order.latest) == (1, 20)
    assert pushed(order, 320) == [240, 259, 260]
    # at most as long as is allowed
    assert pushed(order, 2000) == [320] and pushed(order, 1200) == []
    assert (order.sorted, order.latest) == (2, 800)
    assert pushed(order, 2199) == [] and pushed(order, 2200) == [1200]
    assert pushed(order, 2999) == [] and pushed(order, 3000) == [2000]


def test_a_jump_back_hands_out_what_waits_before_it():
    order = InOrder(1000, 500, 100)
    pushed(order, 0, 100, 60, 200)
    assert pushed(order, -300) == [-300] and order.holding == 1, "by just so much it is late"
    assert pushed(order, -301) == [200] and order.holding == 1
    assert [m.stamp for m in order.finish()] == [-301]
    order.clear()
    assert order.passing and pushed(order, 5, 6) == [5, 6]


def test_few_messages_out_of_order_are_not_spoken_of():
    order = InOrder(10**9, 10**9, 100)
    pushed(order, 0, 100, 60)
    for i in range(9):
        pushed(order, 1000 * i + 2000, 1000 * i + 1950)
    assert order.sorted == 9 and not order.note("poses")
    pushed(order, 20_000, 19_950)
    (text,) = order.note("poses")
    assert text.startswith(
        "poses came out of the order of their stamps, up to 5e-08 s late, and 10"
    )


def test_what_was_in_order_elsewhere_goes_on():
    order = InOrder(1000, 1000, 100)
    pushed(order, 0, 100)
    order.go_on(500)
    assert pushed(order, 480) == [480] and order.sorted == 0 and not order.passing


def test_a_thousand_in_order_end_the_wait():
    order = InOrder(1000, 1000, 100)
    pushed(order, 0, 100, 60)
    pushed(order, *range(101, 1100))
    assert not order.passing
    assert pushed(order, 1100)[-1] == 1100 and order.passing and order.holding == 0
    pushed(order, 1050)
    assert not order.passing, "one late message, and they wait again"


@pytest.mark.parametrize("order", [1, -1])
def test_two_clocks_are_those_of_ranges_farther_apart_than_near(order):
    ranges = ClockRanges()
    early, late = (ranges.add_field, ranges.add_pose)[::order]
    assert ranges.notes(0, lost=True) == []
    for second in (5, 3, 9):
        early(second * 10**9)
    assert ranges.notes(0, lost=True) == [], "there is one range yet"
    for second in (30, 12, 20):
        late(second * 10**9)
    assert ranges.notes(3 * 10**9, lost=True) == []
    (said,) = ranges.notes(3 * 10**9 - 1, lost=True)
    field, pose = ("from 3.0 to 9.0 s", "from 12.0 to 30.0 s")[::order]
    assert f"stamped {field} and poses {pose}, 3.0 s apart" in said
    late(8 * 10**9)
    assert ranges.notes(0, lost=True) == [], "they overlap"
