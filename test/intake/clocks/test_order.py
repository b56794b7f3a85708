"""Messages that come late are put in the order of their stamps."""

import numpy as np
import pytest
from any_bag import header, make, write_bag
from intake_messages import field_message, odometry_message

from gp_mapping.intake import Intake
from gp_mapping.intake.clocks.order import InOrder
from gp_mapping.intake.clocks.stamps import Stamped
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.settings.intake import IntakeSettings

NAMES = {"measurement": None, "pose": None}
NS = 10**9
FIELD, ODOMETRY = "sensor_msgs/msg/MagneticField", "nav_msgs/msg/Odometry"


def jittered(n: int, seconds: float, seed: int) -> np.ndarray:
    """Order in which n messages at 50 Hz arrive that are each up to some seconds on their way."""
    return np.argsort(np.arange(n) / 50.0 + np.random.default_rng(seed).uniform(0, seconds, n))


def pushed(order: InOrder, stamps) -> list[int]:
    return [m.stamp for stamp in stamps for m in order.add(Stamped(int(stamp), None))]


def test_a_stream_in_order_passes_through_at_once():
    order = InOrder(NS, NS, 100)
    for stamp in (0, 1, 1, 5, 10 * NS):
        assert pushed(order, [stamp]) == [stamp] and order.passing and not order.holding
    assert not order.sorted and not order.note("measurements")


def test_late_messages_are_handed_out_in_order():
    order, stamps = InOrder(NS, NS, 1000), jittered(3000, 0.3, 0) * NS // 50
    out = pushed(order, stamps) + [m.stamp for m in order.finish()]
    late = sum(a > b for a, b in zip(np.maximum.accumulate(out), out))
    assert sorted(out) == sorted(stamps.tolist()) and late < 8
    assert order.sorted > 1500 and 0.2 * NS < order.latest < 0.3 * NS
    assert "were put in order" in order.note("poses")[0]


def test_after_many_messages_in_order_none_waits_any_longer():
    order = InOrder(NS, NS, 100)
    pushed(order, [0, NS // 10, NS // 20])
    assert not order.passing and order.holding == 0
    assert pushed(order, [NS // 10]) == [NS // 10], "whoever takes it has the other of that stamp"
    assert pushed(order, [NS // 5]) == [] and order.holding == 1
    pushed(order, NS // 5 + np.arange(1, 1001) * NS // 50)
    assert order.passing and pushed(order, [100 * NS])[-1] == 100 * NS


def test_what_waits_is_bounded_and_a_jump_back_ends_it():
    order = InOrder(NS, NS, 3)
    pushed(order, [0, 1000, 999])  # too late: 1000 has been handed out
    order.add(Stamped(2 * NS, None))
    pushed(order, [2 * NS - 5, 2 * NS - NS // 2])
    out = pushed(order, 2 * NS + np.arange(1, 9))
    assert order.holding <= 3 and out == sorted(out)

    back = pushed(order, [0])
    assert back[: len(back) - order.holding or None][0] > NS and sorted(back) == back
    assert [m.stamp for m in order.finish()] == [0]


def write(path, fields, poses):
    """A straight drive at 50 Hz, whose messages were recorded in these orders."""
    entries = []
    for at, (i, j) in enumerate(zip(fields.tolist(), poses.tolist())):
        recorded, times = NS * 1000 + at * NS // 50, [NS * 1000 + k * NS // 50 for k in (i, j)]
        vector = {"x": 0.0, "y": 0.0, "z": (45.0 + 3.0 * np.sin(0.1 * i)) * 1e-6}
        pose = {"position": {"x": 0.02 * j}, "orientation": {"w": 1.0}}
        field = make(FIELD, header=header(times[0], "magnetometer"), magnetic_field=vector)
        odometry = make(
            ODOMETRY, header=header(times[1], "odom"), child_frame_id="base", pose={"pose": pose}
        )
        entries += [("/mag", FIELD, recorded, field), ("/odom", ODOMETRY, recorded, odometry)]
    return write_bag(path, entries)


def read(bag, together=2000):
    intake = Intake()
    batches = list(samples_of(plan_bags(bag, intake.settings, NAMES), intake, "", together))
    rows = np.vstack([np.column_stack((s.stamp, s.x, s.y)) for _, s in batches])
    return rows, sum(new for new, _ in batches), intake


@pytest.mark.parametrize("late", ["fields", "poses", "both"])
def test_a_bag_recorded_over_a_network_with_jitter_is_read_whole(late, tmp_path):
    """70 % of its measurements were dropped as out of order."""
    n, first = 500, 200  # in order at first, where many are read at once
    in_order = np.arange(n)
    jumbled = [np.r_[:first, first + jittered(n - first, 0.3, seed)] for seed in (0, 1)]
    fields, poses = (
        jumbled[i] if late in (name, "both") else in_order
        for i, name in enumerate(("fields", "poses"))
    )
    expected, _, _ = read(write(tmp_path / "ordered", in_order, in_order))
    bag = write(tmp_path / "jumbled", fields, poses)
    found, passes, intake = read(bag)

    assert intake.drops.total < 12 and len(found) > n - 12 and passes == 0
    rows = np.searchsorted(expected[:, 0], found[:, 0])
    np.testing.assert_allclose(found, expected[rows], atol=1e-9)
    assert any("were put in order" in text for text in intake.warnings)
    # as few at a time as live
    np.testing.assert_array_equal(read(bag, together=1)[0], found)


def test_a_jump_back_keeps_its_meaning_while_messages_wait():
    intake, out = Intake(IntakeSettings(jump_back=1.0)), []
    for round_start in (100.0, 50.0):
        for i in [0, 1, 2, 4, 3, *range(5, 200)]:
            intake.add_pose_message(odometry_message(round_start + i / 50, (0.01 * i, 0.0, 0.0)))
            intake.add_measurement(field_message(round_start + i / 50))
        out += list(intake.batches())
    out += list(intake.batches(finish=True))
    stamps = np.concatenate([np.asarray(s.stamp) for _, s in out])
    assert len(stamps) >= 2 * 198 and sum(np.diff(stamps) < 0) == 1
    assert sum(new for new, _ in out) == 1
