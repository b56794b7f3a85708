"""Which frame a stream is in: the one that was named, else that of the many; a stray message first decides nothing."""

from __future__ import annotations

__all__ = ["LONGEST", "FrameVote", "to_keep"]

LONGEST = 200  # characters of a frame's name; what is longer is no name, and is not kept
_NAMES = 16  # frames that are counted one by one
_LEAD = 5  # messages by which another frame must lead, beside being twice as many


class _Unnamed:
    """Stands for a message whose frame has a name of megabytes: it is counted again, and is not kept."""

    class header:
        frame_id = "x" * (LONGEST + 1)

        class stamp:
            sec = nanosec = 0


def to_keep(message, frame: str):
    """A message in that frame, or what is kept in its place."""
    return message if len(frame) <= LONGEST else _Unnamed


class FrameVote:
    """Counts the frames of a stream. `frame` is the expected one: the named one, or the first until others win.

    named: a frame that holds whatever comes; '' leaves it to the stream.
    """

    def __init__(self, named: str = "", expected: str | None = None):
        self.frame = expected if expected is not None else named.lstrip("/")
        self.held = bool(named)  # nobody votes on it
        self.known = self.held or expected is not None
        self._votes: dict[str, int] = {}

    def fits(self, frame: str) -> bool:
        """Count a message; True where it is in the expected frame, which the first one decides for the time being."""
        if len(frame) > LONGEST:
            return False
        if not self.known:
            self.frame, self.known = frame, True
        if frame in self._votes or len(self._votes) < _NAMES:
            self._votes[frame] = self._votes.get(frame, 0) + 1
        return frame == self.frame

    def held_by(self, frame: str) -> bool:
        """Whether messages in that frame have come before, and it is the expected one."""
        return self.known and frame == self.frame and frame in self._votes

    def count(self, more: int) -> None:
        """So many more messages in the expected frame, of which there have been some."""
        self._votes[self.frame] += more

    @property
    def winner(self) -> str | None:
        """Another frame that clearly more messages are in than in the expected one; None: there is none."""
        if self.held or not self._votes:
            return None
        most = max(self._votes, key=self._votes.__getitem__)
        mine = self._votes.get(self.frame, 0)
        return (
            most
            if most != self.frame and self._votes[most] >= max(2 * mine, mine + _LEAD)
            else None
        )
