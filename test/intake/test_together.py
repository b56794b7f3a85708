"""Messages that are taken in together give what they give one by one, whatever is wrong with them."""

import math
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
from intake_messages import covariance_of, field_message, odometry_message

from gp_mapping.intake import Intake
from gp_mapping.intake.columns import Columns, Stream
from gp_mapping.settings.intake import IntakeSettings

NS = 10**9


def stamp_of(name):
    return lambda message: getattr(message.header.stamp, name)


STAMP = {"header.stamp.sec": stamp_of("sec"), "header.stamp.nanosec": stamp_of("nanosec")}
FIELD = {
    **STAMP,
    **{f"magnetic_field.{a}": lambda m, a=a: getattr(m.magnetic_field, a) for a in "xyz"},
    "magnetic_field_covariance": lambda m: m.magnetic_field_covariance,
}
POSE = {
    **STAMP,
    **{f"pose.pose.position.{a}": lambda m, a=a: getattr(m.pose.pose.position, a) for a in "xyz"},
    **{
        f"pose.pose.orientation.{a}": lambda m, a=a: getattr(m.pose.pose.orientation, a)
        for a in "xyzw"
    },
    "pose.covariance": lambda m: m.pose.covariance,
}
SCALAR = {"data": lambda m: m.data}


def stream(numbered, names) -> Stream:
    """Of (number, time of recording, message) of one topic."""
    where = np.array([i for i, _, _ in numbered])
    recorded = np.array([at for _, at, _ in numbered])
    messages = [m for _, _, m in numbered]
    kind = [
        (n, int if "stamp" in n else float, np.shape(of(messages[0]))) for n, of in names.items()
    ]
    rows = np.array([tuple(of(m) for of in names.values()) for m in messages], kind)
    texts = {} if names is SCALAR else {"header.frame_id": messages[0].header.frame_id}
    return Stream(where, recorded, Columns(rows, {**texts, "child_frame_id": "base_link"}))


def is_pose(message) -> bool:
    return hasattr(message, "pose")


def outcome(intake, batches):
    """All that can be seen of an intake after it has handed out these batches."""
    rows = [
        (new, *map(np.asarray, (s.stamp, s.x, s.y, s.position_variance, s.sensor_variance)))
        for new, s in batches
    ]
    numbers = [
        (new, *(column.tolist() if column.dtype != object else None for column in columns))
        for new, *columns in rows
    ]
    seen = intake.samples, intake.waiting, intake.received, intake.first_stamp, intake.last_stamp
    return numbers, intake.drops.as_dict(), seen, sorted(intake.warnings)


def merged(batches):
    """The same samples in as few batches as their passes need."""
    out = []
    for new, *columns in batches:
        if out and not new:
            for mine, more in zip(out[-1][1:], columns):
                if mine is not None:
                    mine.extend(more)
        else:
            out.append([new, *(c if c is None else list(c) for c in columns)])
    return out


def compared(messages, settings, sizes, first=60, names=FIELD, **given):
    """How many chunks were taken in together, of those after the first messages.

    messages: (time of recording in ns, message), in the order in which they came.
    """
    alone, intake = Intake(settings, **given), Intake(settings, **given)
    numbered = [(i, at, m) for i, (at, m) in enumerate(messages)]

    def one_by_one(into, part):
        for _, at, m in part:
            if is_pose(m):
                into.add_pose_message(m)
            else:
                into.add_measurement(m, at)

    for each in (alone, intake):
        one_by_one(each, numbered[:first])
        each.make_final()
    together, at, all_alone, all_of_intake = 0, first, [], []
    all_alone += outcome(alone, alone.batches())[0]
    all_of_intake += outcome(intake, intake.batches())[0]
    while at < len(numbered):
        part = numbered[at : at + sizes[together % len(sizes)]]
        at += len(part)
        one_by_one(alone, part)
        wanted = outcome(alone, alone.batches())
        before = intake.drops.as_dict(), intake.waiting, dict(intake.received)
        topics = [[e for e in part if is_pose(e[2]) == which] for which in (False, True)]
        taken = (
            intake.add_recorded(stream(topics[0], names), stream(topics[1], POSE))
            if all(topics)
            else None
        )
        if taken is None:
            assert before == (intake.drops.as_dict(), intake.waiting, intake.received)
            one_by_one(intake, part)
            taken = list(intake.batches())
        else:
            together += 1
        found = outcome(intake, taken)
        assert found[1:] == wanted[1:]
        all_alone += wanted[0]
        all_of_intake += found[0]
        assert merged(all_of_intake) == merged(all_alone)
    last = [outcome(each, each.batches(finish=True)) for each in (alone, intake)]
    assert last[0] == last[1] and intake.sketch.as_text() == alone.sketch.as_text()
    return together, intake


def drive(seconds=6.0, rate=50.0, poses=20.0, late=0.0, delay=0.0, begin=1000.0, known=False):
    """(time of recording, message) of a straight drive; poses come `late` s after their stamp."""
    variance = np.diag([1e-16, 2e-16, 3e-16]).ravel() if known else None
    out = []
    for i in range(int(seconds * rate)):
        t = begin + i / rate
        field = (3e-5 + 1e-12 * i, 1e-7 * (i % 11), 4e-5 + 1e-8 * i)
        out.append((t + delay, field_message(t, field, covariance=variance)))
    for i in range(int(seconds * poses) + 1):
        t, angle = begin + i / poses, 0.01 * i
        turn = (0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2))
        place = (0.3 * i / poses, 0.1 * math.sin(i / poses), 0.0)
        out.append(
            (t + late, odometry_message(t, place, turn, covariance=covariance_of(0.01, 0.02)))
        )
    return [(round(at * NS), m) for at, m in sorted(out, key=lambda each: each[0])]


def of_kind(messages, pose):
    return [i for i, (_, m) in enumerate(messages) if is_pose(m) == pose]


@pytest.mark.parametrize(
    "settings, given",
    [
        ({}, {}),
        ({}, {"late": 0.3}),
        ({}, {"delay": 0.2}),
        ({"field_component": "y"}, {"known": True}),
        ({"field_component": "xyz", "use_pose_covariance": False}, {"known": True, "late": 0.1}),
        ({"max_speed": 0.4, "soft_iron_xy": 0.2, "hard_iron_x": 1e-6}, {"known": True}),
        ({"pass_gap": 0.081}, {}),
        ({"max_pose_gap": 0.05}, {}),
    ],
)
def test_an_orderly_drive_is_taken_in_together(settings, given):
    together, intake = compared(drive(**given), IntakeSettings(**settings), [30, 47], first=80)
    # chunks of 30 and 47 by turns
    assert together >= 8 and not intake.drops.total and intake.samples == 300


@pytest.mark.parametrize(
    "settings, given, reason",
    [
        # just at and just beyond each bound of waiting
        ({"max_wait": 0.25}, {"late": 0.2}, None),
        ({"max_wait": 0.2}, {"late": 0.3}, "no_pose"),
        ({"queue_size": 14}, {"late": 0.2}, None),
        ({"queue_size": 8}, {"late": 0.2}, "queue_full"),
        ({"max_speed": 0.31}, {}, "pose_too_fast"),
        ({"pass_gap": 0.05}, {}, None),
        ({"pass_gap": 0.01}, {}, None),
        ({"max_pose_gap": 0.04}, {}, "pose_gap"),
        ({"pose_buffer_size": 5}, {}, None),
    ],
)
def test_a_bound_cuts_alike(settings, given, reason):
    _, intake = compared(drive(**given), IntakeSettings(**settings), [7, 20, 33])
    assert (reason in intake.drops.as_dict()) if reason else not intake.drops.total


def test_two_clocks_are_seen_alike():
    """Poses that come .8 s after their stamps."""
    messages, settings = drive(20.0, rate=20.0, late=0.8), IntakeSettings(max_wait=2.0)
    together, intake = compared(messages, settings, [60, 90], as_received=True)
    assert together >= 5 and any("two clocks" in words for words in intake.warnings)


def test_steps_of_what_was_taken_in_together_count_for_the_pause_that_ends_a_pass():
    """Seven of fifteen slow ones in such a chunk, and an eighth after it: then the sensor is a slow one."""
    settings = IntakeSettings(pass_gap=0.5, max_pose_gap=10.0)
    steps = [0.02] * 60 + [0.2] * 7 + [0.2] + [0.7] + [0.02] * 30 + [0.7] + [0.02] * 30
    stamps = 1000.0 + np.cumsum(steps)
    messages = [m for m in drive(12.0, rate=1.0) if is_pose(m[1])]
    messages += [(round(t * NS), field_message(t, (3e-5, 0.0, 4e-5))) for t in stamps.tolist()]
    messages.sort(key=lambda each: each[0])
    fast = sum(at < round(stamps[30] * NS) for at, _ in messages)
    chunk = sum(at <= round(stamps[66] * NS) for at, _ in messages) - fast
    together, intake = compared(messages, settings, [chunk, 20, 8], first=fast)
    assert together >= 2 and intake.samples == len(steps)


def shifted(message, seconds):
    t = message.header.stamp.sec * NS + message.header.stamp.nanosec + round(seconds * NS)
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(t, NS)


@pytest.mark.parametrize("late", [-3.0, 18.0, 1.7e9])
def test_stamps_of_a_known_offset_give_the_samples_of_exact_ones(late):
    """To the bit, at turns too: of two clocks, and of a hose, through which it comes so late."""
    exact, settings = drive(4.0), IntakeSettings(stamp_offset=late)
    wanted = handed_out(exact, IntakeSettings())
    assert len(wanted[0][0][1]) == 200
    for delay in (0.0, 18.0) if late == 18.0 else (0.0,):
        messages = stamped_late(drive(4.0, delay=delay), late)
        assert handed_out(messages, settings) == wanted
        together, _ = compared(messages, settings, [30, 47], first=80)
        assert together >= 4 or delay


def test_poses_that_are_forgotten_before_what_comes_through_a_hose_are_said():
    messages, settings = stamped_late(drive(delay=3.0), 3.0), {"stamp_offset": 3.0}
    _, drops, _, (said,) = handed_out(messages, IntakeSettings(**settings, pose_buffer_size=20))
    assert drops["no_pose"] > 100 and f"{drops['no_pose']} measurements came" in said
    assert "raise pose_buffer_size (20) to those of 2.99 s" in said
    assert handed_out(messages, IntakeSettings(**settings, pose_buffer_size=70))[1::2] == ({}, [])


def stamped_late(messages, seconds):
    """The messages, with measurements that are stamped so much later."""
    for _, message in messages:
        if not is_pose(message):
            shifted(message, seconds)
    return messages


def handed_out(messages, settings):
    """What an intake hands out of messages that come one by one."""
    intake = Intake(settings)
    for at, message in messages:
        if is_pose(message):
            intake.add_pose_message(message)
        else:
            intake.add_measurement(message, at)
    return outcome(intake, intake.batches(finish=True))


@pytest.mark.parametrize("pose", [False, True])
@pytest.mark.parametrize(
    "trouble",
    ["repeated", "pause", "long pause", "late", "back", "ahead", "nothing", "large"],
)
def test_a_trouble_costs_alike(trouble, pose):
    """Of the measurements, or of the poses, in the middle of a stretch."""
    messages = drive(8.0)
    mine = of_kind(messages, pose)
    at = mine[len(mine) // 2]
    message = messages[at][1]
    if trouble == "repeated":
        for i in mine[len(mine) // 2 : len(mine) // 2 + 3]:
            messages[i][1].header.stamp.sec = message.header.stamp.sec
            messages[i][1].header.stamp.nanosec = message.header.stamp.nanosec
    elif "pause" in trouble:
        gap = 0.8 if trouble == "pause" else 2.5
        begins = messages[at][0]
        messages = [
            e for i, e in enumerate(messages) if i not in mine or not 0 < e[0] - begins < gap * NS
        ]
    elif trouble == "late":
        shifted(message, -0.2)
    elif trouble == "back":
        for _, m in messages[at:]:
            shifted(m, -100.0)
    elif trouble == "ahead":
        shifted(message, 50.0)
    elif pose:
        message.pose.pose.position.x = math.nan if trouble == "nothing" else 1e9
    else:
        message.magnetic_field.x = math.nan if trouble == "nothing" else 1.0
    together, intake = compared(messages, IntakeSettings(), [60, 90])
    usual = trouble in ("repeated", "pause", "long pause", "nothing", "large")
    assert together >= (4 if usual else 1)
    assert intake.drops.total or trouble in ("pause", "long pause", "back")


def test_scalars_without_a_stamp_go_by_when_they_were_recorded():
    messages = [
        (at, m if is_pose(m) else Namespace(data=20.0 + 0.01 * i))
        for i, (at, m) in enumerate(drive(delay=0.01))
    ]
    number = of_kind(messages, pose=False)[150]
    messages[number][1].data = math.inf
    settings = IntakeSettings(sensor="scalar")
    together, intake = compared(messages, settings, [40], names=SCALAR)
    assert together >= 5 and intake.samples > 290
    assert intake.drops.as_dict() == {"not_finite": 1}
