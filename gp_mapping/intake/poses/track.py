"""Poses of one source through jumps in time: a buffer for each epoch, the current one and the one before."""

from __future__ import annotations

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.buffer import Bracket, Pose, PoseBuffer

__all__ = ["PoseTrack"]


class PoseTrack:
    """A stream of poses that counts its own jumps back in time; `epoch` grows by one with each.

    buffer: makes an empty PoseBuffer.  jump_back: ns.
    """

    def __init__(self, buffer, jump_back: int):
        self._make, self._jump_back = buffer, jump_back
        self.epoch = 0
        self._buffers: dict[int, PoseBuffer] = {0: buffer()}

    @property
    def newest(self) -> int | None:
        """Stamp of the newest pose of this epoch, ns."""
        return self._buffers[self.epoch].newest

    def add(self, pose: Pose) -> DropReason | None:
        """Take in a pose; a reason when it is refused."""
        newest = self.newest
        jumped = newest is not None and pose.stamp < newest - self._jump_back
        buffer = self._make() if jumped else self._buffers[self.epoch]
        refused = buffer.append(pose)
        if refused is None and jumped:
            self._buffers = {self.epoch: self._buffers[self.epoch], self.epoch + 1: buffer}
            self.epoch += 1
        return refused

    @property
    def buffer(self) -> PoseBuffer:
        """The poses of this epoch."""
        return self._buffers[self.epoch]

    def move_to(self, epoch: int) -> None:
        """The measurements have jumped and these poses go with them."""
        self._buffers, self.epoch = {epoch: self._buffers[self.epoch]}, epoch

    def restart(self, epoch: int) -> None:
        """Forget all poses."""
        self._buffers, self.epoch = {epoch: self._make()}, epoch

    def find(self, epoch: int, stamp: int, last_chance: bool) -> Bracket | DropReason | None:
        """The poses around a stamp of an epoch; None: not known yet."""
        buffer = self._buffers.get(epoch)
        if buffer is None:  # long over, or not begun
            if epoch < self.epoch:
                return DropReason.TIME_JUMP
            return DropReason.NO_POSE if last_chance else None
        over = epoch < self.epoch
        found = buffer.bracket(stamp, last_chance=last_chance or over)
        if (
            over
            and found is DropReason.NO_POSE
            and buffer.newest is not None
            and stamp > buffer.newest
        ):
            return DropReason.TIME_JUMP
        return found
