"""Fixes of a receiver beside poses: each is used, dropped by reason, or waiting."""

import math
import pickle
from types import SimpleNamespace

import pytest
from intake_messages import odometry_message

from gp_mapping.intake import Intake
from gp_mapping.settings.intake import IntakeSettings


def fix(stamp, latitude=52.0, longitude=4.0, status=0):
    time = SimpleNamespace(sec=int(stamp // 1), nanosec=round(stamp % 1 * 1e9))
    return SimpleNamespace(
        header=SimpleNamespace(stamp=time, frame_id="gps"),
        latitude=latitude,
        longitude=longitude,
        status=SimpleNamespace(status=status),
    )


def intake(**settings):
    return Intake(IntakeSettings(fix_topic="fix", **settings))


def counted(made):
    """(used so far are taken by the test) dropped and waiting."""
    return (
        sum(n for name, n in made.drops.as_dict().items() if name.startswith("fix_"))
        + made.fixes.waiting
    )


def test_a_fix_gets_the_place_at_its_own_stamp():
    made = intake()
    made.add_fix(fix(10.25, 52.5, 4.5))
    assert made.fixes.take() == [] and made.fixes.waiting == 1
    for k in range(5):
        made.add_pose_message(odometry_message(10.0 + 0.1 * k, (2.0 * k, -k, 0.0)))
    (row,) = made.fixes.take()
    assert (
        row == pytest.approx((5.0, -2.5, 52.5, 4.5))
        and made.received["fix"] == 1
        and counted(made) == 0
    )
    assert made.fixes.take() == [], "each is handed out once"


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": -1},
        {"latitude": math.nan},
        {"latitude": 91.0},
        {"longitude": -181.0},
        {"longitude": math.inf},
    ],
)
def test_what_is_no_place_of_the_earth_is_dropped(wrong):
    made = intake()
    made.add_fix(fix(10.0, **wrong))
    assert made.drops.as_dict() == {"fix_invalid": 1} and made.drops.measurements == 0


def test_received_is_used_dropped_and_waiting_whatever_comes():
    """Gaps of the poses, fixes before and after them, a jump back in time, a queue that is too short."""
    made, used = intake(queue_size=5, max_wait=2.0), 0
    came = 0
    for start in (100.0, 50.0):
        for k in range(200):
            stamp = start + 0.1 * k
            if not 60 < k < 100:
                made.add_pose_message(odometry_message(stamp, (0.1 * k, 0.0, 0.0)))
            if k % 3 == 0:
                made.add_fix(fix(stamp - (5.0 if k < 10 else 0.05)))
                came += 1
            used += len(made.fixes.take())
            assert made.fixes.waiting <= 5
    for k in range(20):
        made.add_fix(fix(90.0 + 0.01 * k))
        came += 1
    used += len(made.fixes.take())
    assert made.received["fix"] == came == used + counted(made)
    used += len(made.fixes.take(finish=True))
    assert made.fixes.waiting == 0 and came == used + counted(made)
    assert used > 80 and made.drops.as_dict()["fix_no_pose"] > 20 and made.drops.measurements == 0


def test_what_nobody_takes_is_bounded():
    made = intake(queue_size=5)
    for k in range(40):
        made.add_pose_message(odometry_message(10.0 + 0.1 * k))
        made.add_fix(fix(10.0 + 0.1 * k))
    assert len(made.fixes.take()) == 5 and made.drops.as_dict() == {"fix_queue_full": 35}


def test_fixes_that_cannot_be_read_are_counted_and_the_first_ones_named():
    made = intake()
    for k in range(10):
        made.add_unreadable("fix", f"message {k} is none")
    assert made.received["fix"] == 10 and made.drops.as_dict() == {"fix_unreadable": 10}
    assert [text for text in made.warnings if "is none" in text] == [
        f"message {k} is none; it is left out" for k in range(3)
    ]


def test_an_intake_goes_on_in_another_process():
    """What is put into a file while fixes and measurements wait: there the same becomes of them, in the same counts."""
    made = intake()
    made.add_pose_message(odometry_message(10.0, (0.0, 0.0, 0.0)))
    made.add_fix(fix(10.25, 52.5, 4.5))
    for one in (other := pickle.loads(pickle.dumps(made)), made):
        one.add_fix(fix(10.3, math.nan))
        one.add_pose_message(odometry_message(10.5, (5.0, 0.0, 0.0)))
        (row,) = one.fixes.take()
        assert row == pytest.approx((2.5, 0.0, 52.5, 4.5))
        assert (
            one.drops.as_dict() == {"fix_invalid": 1}
            and one.received["fix"] == 2
            and counted(one) == 1
        )
    assert other.drops is not made.drops
