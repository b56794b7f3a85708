"""Which frame a stream is in: the frame that a setting names, else the frame of the majority.

A stray message that comes first decides nothing.
"""

from __future__ import annotations

from copy import copy

from gp_mapping.intake.messages import frame_of
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["LONGEST", "FirstMessages", "FrameVote", "Frames", "without_long_names"]

LONGEST = 200  # characters of a frame's name; what is longer is no name, and is not kept
# frames that are counted besides the expected one: of however many, one with more than
# 1 / (_NAMES + 1) of the messages in other frames is among them
_NAMES = 16
_DECIDING = 500  # messages that are kept at most, until it is settled which frame they are in
_TF_MAP = "map"  # frame of the samples, where poses come from TF and no setting names it
_LEAD = 5  # messages by which another frame must lead, in addition to being twice as many


def without_long_names(message):
    """Return the message, or a small copy where a frame's name is too long to be kept.

    The name may have megabytes. That of its header stays too long for any frame: taken in again,
    the message is in an unexpected frame, as the original was.

    Args:
        message: what came.
    """
    frame, child = frame_of(message), str(getattr(message, "child_frame_id", ""))
    if max(len(frame), len(child)) <= LONGEST:
        return message

    small = copy(message)
    if len(frame) > LONGEST:
        small.header = copy(message.header)
        small.header.frame_id = "x" * (LONGEST + 1)
    if len(child) > LONGEST:
        small.child_frame_id = child[:LONGEST]
    return small


class FrameVote:
    """Counts the frames of a stream and says which frame is expected.

    Args:
        named: a frame that a setting names: it is expected whatever comes, and nobody votes.
            '' leaves the choice to the stream.
        expected: a frame that is expected to begin with, and that a majority can still replace.
            None: the first message decides for the time being.

    Attributes:
        frame: the expected frame.
        held: whether the frame is fixed by a setting.
        known: whether a frame is expected yet.
    """

    def __init__(self, named: str = "", expected: str | None = None):
        self.frame = expected if expected is not None else named.lstrip("/")
        self.held = bool(named)
        self.known = self.held or expected is not None
        self._votes: dict[str, int] = {}

    def count_and_check(self, frame: str) -> bool:
        """Count a message in `frame` and return whether that is the expected frame."""
        if len(frame) > LONGEST:
            return False

        if not self.known:
            self.frame, self.known = frame, True

        # bounded, as Misra and Gries count: a name that finds no room costs each other one a vote.
        # So many names of few messages each cannot keep out that of the many, and none has more
        # votes than messages; those of the expected frame are all counted
        others = len(self._votes) - (self.frame in self._votes)
        if frame in self._votes or frame == self.frame or others < _NAMES:
            self._votes[frame] = self._votes.get(frame, 0) + 1
        else:
            self._votes = {
                name: votes if name == self.frame else votes - 1
                for name, votes in self._votes.items()
                if name == self.frame or votes > 1
            }

        return frame == self.frame

    def is_established(self, frame: str) -> bool:
        """Whether messages in `frame` have come before and it is the expected frame."""
        return self.known and frame == self.frame and frame in self._votes

    def count(self, more: int) -> None:
        """Count `more` messages in the expected frame.

        At least one message in it must have been counted by `count_and_check` before.
        """
        self._votes[self.frame] += more

    @property
    def winner(self) -> str | None:
        """Another frame that clearly leads the expected one; None where there is none.

        It must have at least twice as many messages, and at least _LEAD more.
        """
        if self.held or not self._votes:
            return None

        most = max(self._votes, key=self._votes.__getitem__)
        expected_votes = self._votes.get(self.frame, 0)

        return (
            most
            if most != self.frame
            and self._votes[most] >= max(2 * expected_votes, expected_votes + _LEAD)
            else None
        )


class Frames:
    """The frames of the two streams: of the sensor, and of the poses, in which the samples are.

    Args:
        settings: may name them; of poses by TF the frame is never put to the vote.
    """

    def __init__(self, settings: IntakeSettings):
        self._settings = settings
        self._votes = {
            name: FrameVote(getattr(settings, name)) for name in ("sensor_frame", "odometry_frame")
        }
        if settings.pose_source == "tf":
            self.expect(settings.odometry_frame or _TF_MAP)

    def __getitem__(self, which: str) -> FrameVote:
        """The vote on sensor_frame, or on odometry_frame."""
        return self._votes[which]

    def expect(self, frame: str) -> None:
        """Expect poses in this frame, whatever comes."""
        self._votes["odometry_frame"] = FrameVote(frame)

    def relearn(self) -> None:
        """Learn frames again that no setting names; those of now are expected until then."""
        for name, vote in self._votes.items():
            # a frame that a setting names, or the default one of TF, stays
            if not (
                vote.held and (getattr(self._settings, name) or self._settings.pose_source == "tf")
            ):
                self._votes[name] = FrameVote(expected=vote.frame) if vote.known else FrameVote()

    def elect(self, which: str, winner: str) -> str:
        """Expect another frame of one stream; the votes on both begin anew.

        Args:
            which: sensor_frame or odometry_frame.
            winner: the frame.

        Returns:
            The frame that was expected before.
        """
        before = self._votes[which].frame
        self._votes = {
            name: vote if vote.held else FrameVote(expected=vote.frame if vote.known else None)
            for name, vote in self._votes.items()
        }

        self._votes[which] = FrameVote(expected=winner)
        return before


class FirstMessages:
    """The first messages as they came, to be taken in again where their frame is another one.

    Attributes:
        replaying: whether they are being taken in again.
    """

    def __init__(self) -> None:
        self._kept: list[tuple] | None = []  # None: what was handed out stands
        self.replaying = False

    @property
    def is_final(self) -> bool:
        """Whether none is kept any longer, so that what was handed out stands."""
        return self._kept is None

    def make_final(self) -> None:
        """Keep none any longer."""
        self._kept = None

    def keep(self, *message) -> None:
        """Keep a message, unless it is one of those that are taken in again.

        Args:
            message: name of the method that takes it in, and arguments.
        """
        if self._kept is not None and not self.replaying:
            self._kept.append(message)
            if len(self._kept) > _DECIDING:
                self.make_final()

    def replay(self, taker: object) -> None:
        """Let `taker` take in all that are kept, in their order, by the methods they came by."""
        self.replaying = True
        for method, *arguments in self._kept or ():
            getattr(taker, method)(*arguments)
        self.replaying = False
