"""The way since a value was held: told again where the question was abandoned, and never guessed."""

import numpy as np
import pytest

from gp_mapping.runtime.surveying.way.track import Track


def drive(track: Track, first: int, last: int) -> None:
    for x in range(first, last + 1):
        track.add(np.array([float(x), 0.0]), False)


def metres(way: np.ndarray) -> list[float]:
    return way[:, 0].tolist()


@pytest.fixture
def track() -> Track:
    """Of a robot that stands at 0 m, with a value that is held."""
    track = Track()
    assert track.begin() is None, "before the first value nothing is known"
    drive(track, 0, 0)
    track.hold()
    return track


def test_the_next_question_goes_on_from_where_the_last_one_was_begun(track):
    drive(track, 1, 3)
    assert metres(track.begin()) == [0, 1, 2, 3]
    drive(track, 4, 5)
    track.hold()
    assert metres(track.begin()) == [3, 4, 5]


def test_an_abandoned_question_loses_nothing(track):
    drive(track, 1, 2)
    track.begin()
    drive(track, 3, 4)
    assert metres(track.begin()) == [0, 1, 2, 3, 4]
    drive(track, 5, 5)
    track.hold()
    assert metres(track.begin()) == [4, 5]


def test_a_leap_and_a_long_way_are_not_known(track):
    track.begin()
    track.add(np.array([90.0, 0.0]), True)
    track.hold()
    assert track.begin() is None
    drive(track, 90, 91)
    track.hold()
    drive(track, 92, 2100)
    assert track.begin() is None
