"""Poses of one source through jumps in time.

There is a buffer for each epoch: the current one and the one before.
"""

from __future__ import annotations

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.buffer import Bracket, Pose, PoseBuffer, PoseRows
from gp_mapping.intake.poses.restarts import Restarts
from gp_mapping.intake.poses.two_tracks import TwoTracks

__all__ = ["PoseTrack"]


class PoseTrack:
    """A stream of poses that counts its own jumps back in time.

    Args:
        buffer: makes an empty PoseBuffer.
        jump_back: stamps that go back by more are a jump, ns.

    Attributes:
        epoch: grows by one with each jump.
        tracks: whether they are of two sources.
        restarts: whether they begin anew after a silence.
    """

    def __init__(self, buffer, jump_back: int):
        self._make, self._jump_back = buffer, jump_back
        self.epoch, self.tracks, self.restarts = 0, TwoTracks(), Restarts()
        self._buffers: dict[int, PoseBuffer] = {0: buffer()}

    @property
    def newest(self) -> int | None:
        """Stamp of the newest pose of this epoch, ns; None without any."""
        return self._buffers[self.epoch].newest

    def add(self, pose: Pose) -> DropReason | None:
        """Take in a pose; return why it is refused, else None."""
        newest = self.newest
        jumped = newest is not None and pose.stamp < newest - self._jump_back
        buffer = self._make() if jumped else self._buffers[self.epoch]

        refused = buffer.append(pose)
        if refused is None:
            self.tracks.add(pose.stamp, pose.position)
            self.restarts.add(pose.stamp, pose.position, pose.quaternion)

        # the epoch before stays for measurements that still wait
        if refused is None and jumped:
            self._buffers = {self.epoch: self._buffers[self.epoch], self.epoch + 1: buffer}
            self.epoch += 1
        return refused

    def extend(self, poses: PoseRows) -> None:
        """As PoseBuffer.extend, of the current epoch."""
        self._buffers[self.epoch].extend(poses)
        self.tracks.add_all(poses.stamps, poses.rows[:, :3])
        self.restarts.add_all(poses.stamps, poses.rows)

    @property
    def buffer(self) -> PoseBuffer:
        """The poses of the current epoch."""
        return self._buffers[self.epoch]

    def move_to(self, epoch: int) -> None:
        """Continue the current poses under another epoch.

        The measurements have jumped in time, and these poses belong to the time after the jump.
        """
        self._buffers, self.epoch = {epoch: self._buffers[self.epoch]}, epoch

    def restart(self, epoch: int) -> None:
        """Forget all poses, and begin this epoch."""
        self._buffers, self.epoch = {epoch: self._make()}, epoch

    def find(self, epoch: int, stamp: int, last_chance: bool) -> Bracket | DropReason | None:
        """Find the poses around a stamp.

        Args:
            epoch: in which the stamp is.
            stamp: ns.
            last_chance: nothing more will come.

        Returns:
            None: not known yet. A reason: it will never be known.
        """
        buffer = self._buffers.get(epoch)
        if buffer is None:  # an epoch that ended long ago, or has not begun
            if epoch < self.epoch:
                return DropReason.TIME_JUMP
            return DropReason.NO_POSE if last_chance else None

        over = epoch < self.epoch
        found = buffer.bracket(stamp, last_chance=last_chance or over)

        # a stamp beyond the end of an epoch that has ended was cut off by the jump
        if (
            over
            and found is DropReason.NO_POSE
            and buffer.newest is not None
            and stamp > buffer.newest
        ):
            return DropReason.TIME_JUMP
        return found
