"""Wrong stamps, however many: a stream's clock is where the other stream is, too."""

import functools
import random
from heapq import merge

import pytest
import torch
from intake_messages import field_message, odometry_message, pose_message, tf_message

from gp_mapping.intake import Intake
from gp_mapping.intake.topics import feed
from gp_mapping.settings.intake import IntakeSettings

START = 1000.0  # s
POSES = {
    "odometry": odometry_message,
    "pose": pose_message,
    "tf": lambda t, place: tf_message((t, "map", "base_link", place, (0.0, 0.0, 0.0, 1.0))),
}
WRONG = {
    "zero": lambda t, rng: 0.0,
    "since boot": lambda t, rng: t - START,
    "2038": lambda t, rng: 2.0**31 - 1 + t % 1.0,
    "before": lambda t, rng: t - 900.0,
    "always another": lambda t, rng: rng.uniform(0.0, 2e9),
}


def measurement(t: float):
    return field_message(t, (3e-5 + 1e-7 * (t % 100.0), 1e-6, 4e-5))


def pose(t: float, source: str = "odometry"):
    return POSES[source](t, (0.3 * (t % 100.0), 0.1, 0.0))


def drive(
    seconds: float = 4.0, source: str = "odometry", start: float = START
) -> list[tuple[float, str, object]]:
    """When each comes, in what role, what: 20 measurements and 10 poses a second."""
    fields = [
        (start + k / 20.0, "measurement", measurement(start + k / 20.0))
        for k in range(round(20 * seconds))
    ]
    role = "tf" if source == "tf" else "pose"
    poses = [
        (start + k / 10.0, role, pose(start + k / 10.0, source)) for k in range(round(10 * seconds))
    ]
    return sorted([*fields, *poses], key=lambda one: one[0])


def samples(messages, source: str = "odometry", **settings) -> tuple[list, Intake]:
    """What an intake hands out of (role, message); True where a pass begins."""
    intake, out = Intake(IntakeSettings(pose_source=source, **settings)), []
    for role, message in messages:
        feed(intake, role, message, 0)
        out += list(intake.batches())
    out += list(intake.batches(finish=True))
    assert (
        intake.received["magnetic_field"]
        == intake.samples + intake.drops.measurements + intake.waiting
    )
    return out, intake


def joined(out) -> torch.Tensor:
    """(N, 4): stamp, place, value, whatever the batches were."""
    return torch.cat([torch.cat([s.stamp[:, None], s.x, s.y], 1) for _, s in out])


@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
@pytest.mark.parametrize("role", ["measurement", "pose"])
@pytest.mark.parametrize("wrong", WRONG)
def test_fifty_wrong_stamps_to_each_good_one_change_nothing(wrong, role, first):
    """They agree with one another, and they are the many; but the other stream knows what time it is."""
    rng, good, messages = random.Random(0), drive(2.0), []
    for k, (t, what, message) in enumerate(good):
        bad = []
        if what == role and (first or k > 8):
            bad = [WRONG[wrong](t + 1e-4 * j, rng) for j in range(50)]
        messages += [(role, measurement(s) if role == "measurement" else pose(s)) for s in bad] + [
            (what, message)
        ]
    expected, alone = samples([(what, message) for _, what, message in good])
    found, intake = samples(messages)
    found, expected, hostile = joined(found), joined(expected), len(messages) - len(good)
    if first:  # what came before anybody could know is not placed
        assert len(found) >= len(expected) - 1 and torch.equal(found, expected[-len(found) :])
    else:
        assert torch.equal(found, expected)
        assert intake.drops.total - alone.drops.total == hostile
    name = "stray_stamp" if role == "measurement" else "pose_stray_stamp"
    assert intake.drops.as_dict()[name] >= 0.9 * hostile


@pytest.mark.parametrize("late", ["pose", "measurement"])
@pytest.mark.parametrize("wrong", ["zero", "since boot", "before"])
def test_a_witness_that_has_not_begun_is_waited_for(wrong, late):
    """On a busy machine the middleware hands over one topic seconds after the other: that speaks for no clock."""
    rng, good, messages = random.Random(0), drive(8.0), []
    for k, (t, what, message) in enumerate(good):
        if what != late and k > 8:
            make = measurement if what == "measurement" else pose
            messages += [(t, what, make(WRONG[wrong](t + 1e-4 * j, rng))) for j in range(50)]
        messages.append((t + 5.0 * (what == late), what, message))
    expected, _ = samples([(what, message) for _, what, message in good])
    in_order = sorted(messages, key=lambda one: one[0])
    found, _ = samples([(what, message) for _, what, message in in_order], max_wait=30.0)
    assert torch.equal(joined(found), joined(expected))


@pytest.mark.parametrize("late", ["pose", "measurement"])
def test_a_bag_that_loops_is_followed_though_one_topic_is_late(late):
    """Twice the same stamps, one of the topics five seconds behind: all that can be placed is, in two passes."""
    once = drive(12.0)
    messages = [
        (t + 20.0 * loop + 5.0 * (what == late), what, message)
        for loop in range(2)
        for t, what, message in once
    ]
    in_order = sorted(messages, key=lambda one: one[0])
    found, _ = samples([(what, message) for _, what, message in in_order], max_wait=30.0)
    assert len(joined(found)) == 2 * len(
        joined(samples([(what, message) for _, what, message in once])[0])
    )
    assert sum(begins for begins, _ in found) == 1


def test_wrong_stamps_beside_transforms_change_nothing():
    good, rng, messages = drive(source="tf"), random.Random(1), []
    for k, (t, what, message) in enumerate(good):
        if what == "measurement" and k > 8:
            messages += [
                (what, measurement(WRONG["since boot"](t + 1e-4 * j, rng))) for j in range(50)
            ]
        messages.append((what, message))
    expected, _ = samples([(what, message) for _, what, message in good], "tf")
    assert torch.equal(joined(samples(messages, "tf")[0]), joined(expected))


STREAMS = {
    "a pause": lambda: [*drive(3.0), *drive(3.0, start=START + 300.0)],
    "a loop": lambda: [*drive(3.0), *drive(3.0)],
    "another day": lambda: [*drive(3.0), *drive(3.0, start=START + 86400.0), *drive(3.0)],
    "a pause of the sensor": lambda: [
        m for m in drive(69.0) if m[1] == "pose" or not 3.0 < m[0] - START < 66.0
    ],
    "a pause of the poses": lambda: [
        m for m in drive(69.0) if m[1] == "measurement" or not 3.0 < m[0] - START < 66.0
    ],
}


@functools.cache
def in_order(name: str) -> tuple[list, list]:
    """(role, message) of one of STREAMS, and what an intake hands out of them as they are."""
    messages = [(what, message) for _, what, message in STREAMS[name]()]
    return messages, samples(messages, max_wait=5.0)[0]


@pytest.mark.parametrize("late", ["measurement", "pose"])
@pytest.mark.parametrize("by", [0, 1, 7, 19])
@pytest.mark.parametrize("name", STREAMS)
def test_pauses_and_loops_are_the_same_however_the_two_streams_interleave(name, by, late):
    """One topic comes some messages later than the other."""
    messages, expected = in_order(name)
    order = [(i + (by if what == late else 0), i) for i, (what, _) in enumerate(messages)]
    shifted = [messages[i] for _, i in sorted(order)]
    found = samples(shifted, max_wait=5.0)[0]
    assert torch.equal(joined(found), joined(expected))
    assert sum(new for new, _ in found) == sum(new for new, _ in expected)
    if name in ("a pause", "a loop"):
        assert len(joined(found)) >= 0.95 * sum(what == "measurement" for what, _ in messages)


def test_a_stream_that_nobody_vouches_for_goes_on_after_a_bounded_time():
    """A sensor's clock leaps alone: all of it is counted, and no more wait than the queue holds."""
    good = drive(3.0)
    leapt = [("measurement", measurement(5000.0 + k / 20.0)) for k in range(400)]
    poses = [("pose", pose(START + 3.0 + k / 10.0)) for k in range(200)]
    intake = Intake(IntakeSettings(queue_size=100))
    most, later = 0, [one for three in zip(leapt[::2], leapt[1::2], poses) for one in three]
    for role, message in [*((what, m) for _, what, m in good), *later]:
        feed(intake, role, message, 0)
        most = max(most, intake.waiting)
        list(intake.batches())
    assert most <= 101
    assert (
        intake.received["magnetic_field"]
        == intake.samples + intake.drops.measurements + intake.waiting
    )


def test_the_clocks_of_both_streams_may_be_set_at_once():
    """NTP: from 1970 to now, on one computer."""
    early, late = drive(3.0, start=5.0), drive(3.0)
    found, _ = samples(
        [(what, message) for _, what, message in merge(early, late, key=lambda one: one[0])]
    )
    assert len(joined(found)) >= 115


@pytest.mark.parametrize("apart", [-900.0, 900.0])
def test_two_clocks_are_named_with_their_ranges(apart):
    """Nothing can be placed, and a person who sees both ranges knows why."""
    messages = [
        (role, measurement(t + apart) if role == "measurement" else message)
        for t, role, message in drive()
    ]
    out, intake = samples(messages)
    assert intake.samples == 0
    said = [w for w in intake.warnings if "two clocks" in w]
    assert len(said) == 1
    assert (
        f"measurements are stamped from {START + apart:.1f} to {START + apart + 4:.1f} s" in said[0]
    )
    assert f"poses from {START:.1f} to {START + 3.9:.1f} s" in said[0]
    # one cause, one remedy: waiting for 900 s is none
    assert not any("raise max_wait" in w for w in intake.warnings)


def test_one_clock_is_not_called_two():
    """Neither where poses begin late, nor where a few measurements have none."""
    late = [(r, m) for t, r, m in drive() if r == "measurement" or t > START + 3.0]
    for messages in (late, [(r, m) for _, r, m in drive()]):
        _, intake = samples(messages)
        assert intake.samples and not any("two clocks" in w for w in intake.warnings)


@pytest.mark.parametrize("stamp", [0.0, START])
def test_stamps_that_do_not_move_are_named(stamp):
    """The measurements of a node whose driver does not stamp; one more stamp, and they move."""
    still = [("measurement", measurement(stamp)) for _ in range(12)]
    _, intake = samples([("pose", m) for _, role, m in drive() if role == "pose"] + still)
    (said,) = [w for w in intake.warnings if "one stamp" in w]
    assert f"all 12 measurements have one stamp, {stamp:.3f} s" in said == intake.standing
    _, intake = samples([*still, ("measurement", measurement(stamp + 1.0))])
    assert not intake.standing and not any("one stamp" in w for w in intake.warnings)
