"""Heights at one and the same place, in bounded memory."""

import pytest

from gp_mapping.intake.poses import floors
from gp_mapping.intake.poses.floors import Floors


def test_a_place_counts_once_however_often_the_robot_changes_floors():
    there = Floors()
    for _ in range(5):
        for height in (0.0, 3.0, 1.0):
            there.note((0.2, 0.4), height)
    assert (len(there), there.above, there.most) == (1, 1, 3.0)


@pytest.mark.parametrize("slope", [0.2, 0.9])
def test_places_are_joined_and_a_slope_within_one_is_none(monkeypatch, slope):
    monkeypatch.setattr(floors, "_PLACES", 16)
    there = Floors()
    for i in range(1000):
        there.note((0.5 * i, 0.0), slope * 0.5 * i)
        assert len(there) <= 16
    assert there.above == 0

    # a bridge over all of it
    for i in range(1000):
        there.note((0.5 * i, 0.0), slope * 0.5 * i + 100.0)
    assert there.above == len(there) and there.most >= 100.0
