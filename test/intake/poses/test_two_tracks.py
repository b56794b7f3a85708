"""Two sources of poses on one topic, or of one frame of TF, are spoken of; what one source does is not."""

import numpy as np
import pytest
from intake_messages import by_stamp, drive, feed, tf_message

from gp_mapping.intake import Intake, PoseBuffer, TfTree
from gp_mapping.intake.poses.buffer import Pose, PoseRows
from gp_mapping.intake.poses.track import PoseTrack
from gp_mapping.intake.poses.two_tracks import TwoTracks
from gp_mapping.settings.intake import IntakeSettings

SECONDS = 30.0
SAID = (
    "{what} alternate between two tracks, {apart} m apart: do two robots, or two localisers, publish the same? "
    "The map lies between them: remap one, or turn it off"
)


def one_source(rate, aside=(0.0, 0.0), late=0.0, turn=0.05, noise=0.0, step=0.0, seconds=SECONDS):
    """Stamps (n,) in s and positions (n, 3) in m of a robot that drives along an arc at .4 m/s."""
    stamps = np.arange(late, seconds, 1.0 / rate)
    angle = turn * stamps
    places = 0.4 / turn * np.stack([np.sin(angle), 1.0 - np.cos(angle)], 1) + np.array(aside)
    places += noise * np.random.default_rng(4).standard_normal(places.shape)
    if step:
        places = np.round(places / step) * step
    return stamps, np.pad(places, ((0, 0), (0, 1)))


def said(*sources) -> list[str]:
    stamps, places = (np.concatenate(part) for part in zip(*sources, strict=True))
    tracks = TwoTracks()
    order = np.argsort(stamps, kind="stable")
    stamps, places = np.round(1e9 * (1000.0 + stamps[order])).astype(np.int64), places[order]
    for stamp, place in zip(stamps.tolist(), places.tolist()):
        tracks.add(stamp, tuple(place))
    if (np.diff(stamps) > 0).all():
        together = TwoTracks()
        for part in np.array_split(np.arange(len(stamps)), 7):
            together.add_all(stamps[part], places[part])
        assert together.notes() == tracks.notes()
    return tracks.notes()


@pytest.mark.parametrize(
    ("rate", "other", "aside", "apart"),
    [
        (20.0, 20.0, (0.3, 0.4), "0.5"),
        (20.0, 33.0, (0.2, 0.0), "0.2"),
        (50.0, 10.0, (5.0, 0.0), "5"),  # of a window of 24 four are of the second
        (5.0, 5.0, (0.0, 40.0), "40"),
    ],
)
def test_two_sources_are_found_with_their_distance(rate, other, aside, apart):
    seconds = 60.0 if rate == 5.0 else SECONDS
    text = said(
        one_source(rate, seconds=seconds), one_source(other, aside, late=0.007, seconds=seconds)
    )
    assert text == [SAID.format(what="poses", apart=apart)]


@pytest.mark.parametrize(
    "source",
    [
        one_source(20.0),
        one_source(20.0, turn=3.0),  # tight circles
        one_source(20.0, noise=0.3),  # a receiver without corrections
        one_source(
            20.0, noise=3.0, step=2.0
        ),  # flickers among several numbers: more than two tracks
        one_source(20.0, step=0.2),  # rounded: it flickers at the border of two numbers
        one_source(2.0, turn=3.0, seconds=300.0),
        one_source(1000.0, noise=0.02, seconds=15.0),
    ],
)
def test_one_source_is_not_spoken_of(source):
    assert said(source) == []


def test_a_localiser_that_leaps_now_and_then_is_one_source():
    stamps, places = one_source(20.0)
    places[::40, 0] += 2.0
    assert said((stamps, places)) == []


def test_a_robot_that_goes_to_and_fro_between_two_places_is_one_source():
    """Poses come where it stands: a metre apart, with the time to drive it."""
    stamps = np.arange(0.0, 600.0, 2.0)
    places = np.zeros((len(stamps), 3))
    places[1::2, 0] = 1.0
    assert said((stamps, places)) == []


def test_time_that_jumps_back_begins_anew():
    stamps, places = one_source(20.0)
    other = one_source(20.0, (0.5, 0.0), late=0.007)
    tracks = TwoTracks()
    for begin in range(0, len(stamps), 10):  # never as many in a row as make a window
        part = range(begin, begin + 10)
        for i in part:
            tracks.add(round(1e9 * stamps[i]) - 10**10 * begin, tuple(places[i]))
            if i < len(other[0]):
                tracks.add(round(1e9 * other[0][i]) - 10**10 * begin, tuple(other[1][i]))
    assert tracks.notes() == []


def test_an_intake_watches_its_poses():
    fields, poses = drive(start=100.0, seconds=16.0, rate=20.0)
    aside = drive(start=100.007, seconds=16.0, rate=20.0)[1]
    for message in aside:
        message.pose.pose.position.x += 0.5
    intake = Intake(IntakeSettings())
    feed(intake, by_stamp(fields, poses, aside))
    assert SAID.format(what="poses", apart="0.499") in intake.warnings


def test_poses_that_come_many_at_once_are_watched():
    track = PoseTrack(lambda: PoseBuffer(5000), 10**9)
    for begin in range(0, 700, 100):
        turn = (0.0, 0.0, 0.0, 1.0)
        poses = [
            Pose(25_000_000 * i, (0.01 * i + 0.3 * (i % 2), 0.0, 0.0), turn)
            for i in range(begin, begin + 100)
        ]
        track.extend(PoseRows.of(poses))
    assert track.tracks.notes() == [SAID.format(what="poses", apart="0.3")]


def test_two_nodes_that_publish_one_link_of_tf_are_said_with_its_frames():
    tree = TfTree(lambda: PoseBuffer(5000), 10**9)
    for i in range(700):
        stamp, aside = 1.0 + 0.025 * i, 0.3 * (i % 2)
        tree.add(tf_message((stamp, "odom", "base_link", (0.01 * i + aside, 0.0, 0.0))))
        tree.add(tf_message((stamp, "base_link", "wheel", (aside, 0.0, 0.0))))  # which nobody uses
        tree.lookup("odom", "base_link", round(1e9 * stamp))
    assert tree.warnings == [
        SAID.format(what="TF: transforms of 'odom' to 'base_link'", apart="0.3")
    ]
