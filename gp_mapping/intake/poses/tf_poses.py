"""Poses and mountings by TF look-up.

From our own tree, or from a look-up that the caller injects (tf2, in a node).
"""

from __future__ import annotations

from collections.abc import Callable

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.buffer import Bracket, Pose
from gp_mapping.intake.poses.tf_tree import Missing, TfTree
from gp_mapping.intake.poses.transforms import Transform

__all__ = ["Lookup", "TfPoses"]

Lookup = Callable[[str, str, int], Transform | Missing]
"""lookup(target, source, stamp in ns) -> T_target_source.

It takes coordinates in frame `source` to coordinates in frame `target`.
"""


class TfPoses:
    """The pose of frame `base` in frame `map_frame` at a stamp, with the interface of a PoseTrack.

    Args:
        map_frame: frame of the samples.
        base: frame of the robot.
        tree: where transforms come from, unless `lookup` is given.
        lookup: with it, time jumps are the caller's task: it clears its buffer, and calls
            Intake.time_jump.

    Attributes:
        problem: why the last look-up failed; None where it succeeded.
        waited_in_vain: whether a measurement was given up since the last look-up that succeeded.
    """

    def __init__(
        self, map_frame: str, base: str, tree: TfTree | None = None, lookup: Lookup | None = None
    ):
        self.map_frame, self.base, self._tree, self._lookup = map_frame, base, tree, lookup

        self._epoch = 0
        self.problem: Missing | None = None
        self.waited_in_vain = False

    @property
    def epoch(self) -> int:
        """As PoseTrack.epoch."""
        return self._epoch if self._tree is None else self._tree.epoch

    @property
    def newest(self) -> int | None:
        """Stamp of the newest transform, ns; None where that is not known."""
        return None if self._tree is None else self._tree.newest

    @property
    def apart(self) -> bool:
        """Whether the last look-up failed, and not for want of its stamp alone."""
        return self.problem is not None and not self.problem.linked

    def move_to(self, epoch: int) -> None:
        """As PoseTrack.move_to."""
        self._epoch = epoch
        if self._tree is not None:
            self._tree.move_to(epoch)

    def restart(self, epoch: int) -> None:
        """As PoseTrack.restart."""
        self._epoch = epoch
        if self._tree is not None:
            self._tree.restart(epoch)

    def find(self, epoch: int, stamp: int, last_chance: bool) -> Bracket | DropReason | None:
        """The pose at a stamp, as a bracket of that one pose.

        Args:
            epoch: in which the stamp is.
            stamp: ns.
            last_chance: nothing more will come.

        Returns:
            None: not known yet. A reason: it will never be known.
        """
        found = self.transform(self.map_frame, self.base, stamp, epoch, last_chance)
        if isinstance(found, Transform):
            pose = Pose(stamp, found.translation, found.rotation)
            return Bracket(pose, pose)
        return found

    def transform(
        self,
        target: str,
        source: str,
        stamp: int,
        epoch: int | None = None,
        last_chance: bool = False,
    ) -> Transform | DropReason | None:
        """T_target_source at a stamp.

        Args:
            target: frame.
            source: frame.
            stamp: ns.
            epoch: in which the stamp is; None: the current one.
            last_chance: nothing more will come.

        Returns:
            None: not known yet. A reason: it will never be known.

        Raises:
            ValueError: there is neither a tree nor a look-up.
        """
        if self._tree is not None:
            found = self._tree.lookup(target, source, stamp, epoch, last_chance)
        elif self._lookup is not None:
            found = self._lookup(target, source, stamp)
        else:
            raise ValueError("poses by TF need a tree, or a look-up")

        if isinstance(found, Missing):
            self.problem = found
            # in an epoch that is over nothing more will come
            over = last_chance or (epoch is not None and epoch < self.epoch)
            return found.reason or (DropReason.NO_TRANSFORM if over else None)

        self.problem, self.waited_in_vain = None, False
        return found
