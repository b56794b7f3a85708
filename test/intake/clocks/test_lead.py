"""Measurements and poses whose clocks differ, or are set apart on the way: said, and nothing else is."""

import math

import pytest
from intake_messages import by_stamp, drain, drive, feed, field_message

from gp_mapping.intake import DropReason, Intake
from gp_mapping.intake.clocks.arrival import NewestPose
from gp_mapping.intake.clocks.lead import Lead
from gp_mapping.intake.poses.tf_tree import Missing
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.settings.intake import IntakeSettings

NS = 10**9


def said_of(messages, as_received=True, **settings) -> list[str]:
    intake = Intake(IntakeSettings(**settings), as_received=as_received)
    feed(intake, messages)
    drain(intake)
    return [w for w in intake.warnings if "a clock was set" in w or "two clocks" in w]


def seconds_of(message) -> float:
    return message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec


def with_stamps(messages, fields, late):
    """The messages as they came; each of `fields` is stamped late(seconds) seconds later."""
    ids = set(map(id, fields))
    return [
        field_message(seconds_of(m) + late(seconds_of(m))) if id(m) in ids else m for m in messages
    ]


@pytest.mark.parametrize("step", [-3600.0, -10.0, -0.5, 0.0, 0.3, 1.0, 3600.0])
def test_a_clock_that_is_set_on_the_way_is_named(step):
    fields, poses = drive(start=10_000.0, seconds=40.0, speed=0.5, rate=10.0)
    said = said_of(with_stamps(by_stamp(fields, poses), fields, lambda s: step * (s >= 10_020.0)))
    assert len(said) == (abs(step) >= 0.4)
    for text in said:
        assert "set apart once" in text and f"{step:+.3g} s" in text
        assert f"unless {'poses' if step > 0 else 'measurements'} take" in text


@pytest.mark.parametrize("late", [-18.0, -1.5, -0.3, 0.0, 0.3, 1.5, 3.0, 18.0, 3600.0])
def test_two_clocks_are_named_with_the_offset_that_mends_them(late):
    fields, poses = drive(start=10_000.0, seconds=20.0, speed=0.5, rate=10.0)
    messages = with_stamps(by_stamp(fields, poses), fields, lambda _: late)
    said = said_of(messages)
    assert len(said) == (abs(late) > 0.5)
    # none of those finds its pose in time
    assert all("raise max_wait above" in text for text in said if 3.0 <= late < 20.0)
    for text in said:
        offset = float(text.rpartition("stamp_offset: ")[2].split()[0])
        assert offset == pytest.approx(late, abs=0.15)
        assert said_of(messages, stamp_offset=offset) == []
        (again,) = said_of(messages, stamp_offset=offset + 1.0)  # a wrong one is put right
        assert float(again.rpartition("stamp_offset: ")[2]) == pytest.approx(late, abs=0.15)
        assert late > 20.0 or said_of(messages, False) == []


@pytest.mark.parametrize("rate", [-0.02, -0.001, 0.0, 0.001, 0.02])
def test_clocks_that_run_apart_are_named_with_their_rate(rate):
    """A constant offset was said to mend it."""
    lead = Lead()
    for k in range(12_000):
        now = k * NS // 10
        lead.add(now + round(rate * now), now)
    (text,) = (
        lead.notes()
        if rate
        else [
            "",
        ]
    )
    assert lead.notes() == [text] * bool(rate) and lead.step_notes() == []
    if rate:
        assert "run apart" in text and "write stamp_offset: " not in text
        assert f"by {rate * 1200:+.2g} s ({100 * rate:+.2g} %)" in text
        late = "poses" if rate > 0 else "measurements"
        assert f"unless {late} take ever longer" in text


def test_leads_that_wander_are_no_rate():
    lead = Lead()
    for k in range(12_000):
        now = k * NS // 10
        lead.add(now, now - round(NS * (0.3 + 0.3 * math.sin(k / 600.0))))
    assert lead.notes() == []
    assert len(lead._usual) < 400  # noqa: SLF001


def test_pauses_bursts_and_slow_poses_are_no_two_clocks():
    """Poses that stop for a while, measurements that come ten at a time, and poses every 4 s."""
    for rate in (10, 200):
        lead = Lead()
        for k in range(200 * rate):
            now = k * NS // rate
            lead.add(now, 50 * NS if 50 * NS <= now < 120 * NS else now)
        assert lead.notes() == lead.step_notes() == []

    bursts, slow = Lead(), Lead()
    for k in range(1000):
        bursts.add(k * NS // 20, (k // 10 + 1) * 10 * NS // 20)
        slow.add(k * NS // 20, k // 80 * 80 * NS // 20)
    assert bursts.notes() == [] and bursts.step_notes() == slow.step_notes() == []


def test_after_a_jump_of_time_leads_are_compared_anew():
    """Of two recordings, one after the other, the second had two clocks: none was set on the way."""
    intake = Intake(as_received=True)
    feed(intake, by_stamp(*drive(start=10_000.0, seconds=20.0, speed=0.5, rate=10.0)))
    intake.time_jump()
    fields, poses = drive(start=5_000.0, seconds=20.0, speed=0.5, rate=10.0)
    feed(intake, with_stamps(by_stamp(fields, poses), fields, lambda _: 1.0))
    drain(intake)
    words = " ".join(intake.warnings)
    assert "two clocks" in words and "a clock was set" not in words


def test_what_is_forgotten_at_a_jump_of_both_is_no_step():
    lead = Lead()
    for k in range(100):
        lead.add(k * NS // 10, k * NS // 10)
    lead.restart()
    for k in range(100):
        lead.add(k * NS // 10, k * NS // 10 - 2 * NS)
    (text,) = lead.notes()
    assert "two clocks" in text and lead.step_notes() == []


@pytest.mark.parametrize("late", [-1.5, 0.0, 1.5])
def test_what_arrived_together_counts_and_not_what_is_handed_on_together(late):
    """As a node takes messages after a stall: three seconds of poses, and then of measurements."""
    intake, newest = Intake(as_received=True), NewestPose()
    fields, poses = drive(start=10_000.0, seconds=21.0, speed=0.5, rate=10.0)
    arrived = {id(m): round(seconds_of(m) * NS) for m in fields + poses}
    for second in range(10_000, 10_021, 3):
        taken = [[m for m in s if second <= seconds_of(m) < second + 3] for s in (poses, fields)]
        for pose in taken[0]:
            newest.add(arrived[id(pose)], arrived[id(pose)])
            intake.add_odometry(pose)
        for field in taken[1]:
            late_one = field_message(seconds_of(field) + late)
            intake.add_field(late_one, posed=newest.at(arrived[id(field)]))
    drain(intake)
    said = [w for w in intake.warnings if "two clocks" in w]
    assert len(said) == (late != 0.0)
    for text in said:
        assert float(text.rpartition("stamp_offset: ")[2]) == pytest.approx(late, abs=0.15)


def test_the_newest_pose_is_that_of_the_time_of_arrival():
    newest = NewestPose()
    assert newest.at(10) is None
    for received, stamp in ((10, 1), (20, 2), (30, 3)):
        newest.add(received, stamp)
    assert [newest.at(received) for received in (5, 10, 25, 25, 40)] == [None, 1, 2, 2, 3]
    newest.add(4, 5)  # the middleware's clock was set back
    assert newest.at(3) is None and newest.at(4) == 5


def test_a_clock_that_is_set_leaves_no_pose_of_the_time_before():
    """Also where some of them are later than any measurement was; two of one moment stay both."""
    newest = NewestPose()
    for received, stamp in ((10, 1), (20, 2), (20, 3)):
        newest.add(received, stamp)
    assert newest.at(15) == 1 and newest.at(20) == 3
    newest.add(30, 4)
    newest.add(4, 5)
    assert newest.at(5) == 5


def test_an_emptied_map_has_nothing_of_before_a_step():
    intake = Intake(as_received=True)
    fields, poses = drive(start=10_000.0, seconds=20.0, speed=0.5, rate=10.0)
    feed(intake, with_stamps(by_stamp(fields, poses), fields, lambda s: 1.0 * (s >= 10_010.0)))
    assert any("a clock was set" in w for w in intake.warnings)
    intake.forget_frames()
    assert not any("a clock was set" in w for w in intake.warnings)


def test_what_is_held_as_stray_at_the_end_is_counted():
    """Each measurement that came was used, or was dropped."""
    intake = Intake()
    fields, poses = drive(start=10_000.0, seconds=5.0, speed=0.5, rate=10.0)
    feed(intake, by_stamp(fields, poses))
    feed(intake, [field_message(90_000.0)])
    rows, _ = drain(intake)
    assert intake.drops[DropReason.STRAY_STAMP] == 1
    assert len(rows) + intake.drops.measurements == len(fields) + 1


def test_after_a_jump_back_nothing_waits_for_what_a_look_up_did_not_know():
    """It is asked for the new time, and never again for the one before."""

    def look_up(target, source, stamp):
        if stamp > 50 * NS:
            return Missing("not yet")
        return Transform((1e-9 * stamp, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))

    intake = Intake(IntakeSettings(pose_source="tf"), lookup=look_up)
    feed(intake, map(field_message, [100.0, 100.1, 100.2, 10.0, 10.1, 10.2]))
    rows, _ = drain(intake, finish=False)
    assert [row[0] for row in rows] == pytest.approx([10.0, 10.1, 10.2])
    assert intake.drops[DropReason.NO_TRANSFORM] == 3


@pytest.mark.parametrize("rate", [10, 50])
def test_poses_that_stop_for_a_minute_are_no_clock_that_runs_apart(rate):
    """And while they stay away, too: their last stamp stands, and that of the measurements goes on."""
    lead = Lead()
    for i in range(70 * rate):
        second = i / rate
        pose = min(second, 4.0) if second < 65.0 else second
        lead.add(round(second * NS), round((pose // 0.1) * 0.1 * NS))
        assert not i % rate or lead.notes() == lead.step_notes() == []
