"""Whether poses came after the measurements of their time, or were forgotten before these."""

from __future__ import annotations

from gp_mapping.intake.poses.buffer import PoseBuffer

__all__ = ["Lateness", "forgotten_notes"]

_FEW = 3  # late poses, or measurements, that are not spoken of


class Lateness:
    """Compares poses that come with measurements that have waited in vain.

    A pose that is older than a measurement that was given up has come too late for it: had it
    waited, it would have a pose. A measurement that was taken before the first pose, or while there
    are none, is none of these.
    """

    def __init__(self) -> None:
        self._given_up: tuple[int, int] | None = None  # epoch and stamp (ns) of the newest one
        self._late = 0
        self._latest = 0  # ns

    def give_up(self, epoch: int, stamp: int) -> None:
        """Note a measurement that has waited for too long.

        Args:
            epoch: of the measurements.
            stamp: ns.
        """
        self._given_up = epoch, stamp

    def add_pose(self, epoch: int, stamp: int, newest: int | None) -> None:
        """Note a pose.

        Args:
            epoch: of the poses.
            stamp: ns.
            newest: stamp of the newest measurement, ns.
        """
        if self._given_up is None or newest is None:
            return
        if self._given_up[0] == epoch and stamp <= self._given_up[1]:
            self._late += 1
            self._latest = max(self._latest, newest - stamp)

    @property
    def seconds(self) -> float:
        """By how much poses came late, s; 0 where no more than a few were late."""
        return self._latest / 1e9 if self._late > _FEW else 0.0

    def note(self, max_wait: float) -> list[str]:
        """Say in words by how much poses are late, where more than a few were.

        Args:
            max_wait: as in IntakeSettings.
        """
        if not self.seconds:
            return []
        return [
            f"poses came up to {self.seconds:.3g} s later than measurements of the same time, and these wait "
            f"for {max_wait:g} s: raise max_wait above that (and queue_size, where measurements come often), or look "
            "at what delays the poses"
        ]


def forgotten_notes(buffer: PoseBuffer) -> list[str]:
    """Say that measurements came when the poses of their time were forgotten.

    Args:
        buffer: of the poses.
    """
    if buffer.missed <= _FEW:
        return []
    return [
        f"{buffer.missed} measurements came when the poses of their time were forgotten already, since only the "
        f"newest are kept: raise pose_buffer_size ({buffer.size}) to those of {buffer.behind / 1e9:.3g} s and more"
    ]
