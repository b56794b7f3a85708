"""A TF tree from the messages of /tf and /tf_static: what a bag needs, and what a node may use instead of tf2.

As in tf2, each link is interpolated by itself (linear and slerp), at the stamp that is asked for and never at the
latest, and the links are then chained. Where map→odom jumps (a localiser corrects itself), the transform at the stamp
of the measurement counts: between the two messages the jump is a short ramp, and samples taken before it stay where
they were put, since nobody can tell which of them the correction would have moved.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import NamedTuple

from gp_mapping.errors import named
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.frames import LONGEST
from gp_mapping.intake.messages import frame_of, stamp_ns
from gp_mapping.intake.poses.buffer import Pose, PoseBuffer
from gp_mapping.intake.poses.transforms import IDENTITY, Transform, slerp

__all__ = ["Missing", "TfTree"]

_FRAMES = 2000  # links that are kept, static and moving: a robot has tens
_SHOWN = 20  # frames in a sentence
_UNUSED = 1000  # transforms kept of a link that no look-up has met: joints of an arm, wheels


class Missing(NamedTuple):
    """Why there is no transform, in words; reason None: it may still come."""

    text: str
    reason: DropReason | None = None


class _Link(NamedTuple):
    parent: str
    transforms: (
        PoseBuffer  # of the child in the parent's frame; one, without a stamp, where it is static
    )


class TfTree:
    """Bounded buffers of T_parent_child for each child frame; time that goes back begins a new epoch.

    buffer: makes an empty PoseBuffer.  jump_back: ns.  drops: where refused transforms of used links are counted.
    """

    def __init__(self, buffer, jump_back: int, drops: DropCounter | None = None):
        self._make, self._jump_back = buffer, jump_back
        self._drops = drops or DropCounter()
        self.epoch = 0
        self.warnings: list[str] = []
        self._static: dict[str, _Link] = {}
        self._moving: dict[int, dict[str, _Link]] = {
            0: {}
        }  # epoch -> child -> link; this epoch and the one before
        self._newest: int | None = None
        self._used: set[str] = set()

    @property
    def newest(self) -> int | None:
        """Newest stamp of a moving link in this epoch, ns."""
        return self._newest

    def add(self, message, static: bool = False) -> list[int]:
        """Take in a tf2_msgs/TFMessage (static: from /tf_static); the stamps of the moving links in it that were used."""
        stamps = []
        for item in message.transforms:
            t, q = item.transform.translation, item.transform.rotation
            pose = (t.x, t.y, t.z), (q.x, q.y, q.z, q.w)
            parent, child = frame_of(item), str(item.child_frame_id).lstrip("/")
            if self._too_many(parent, child):
                self._drops.count(DropReason.POSE_FRAMES_FULL)
                continue
            refused = (
                self._set_static(parent, child, *pose)
                if static
                else self._add_moving(parent, child, stamp_ns(item), *pose)
            )
            bad = refused in (DropReason.POSE_NOT_FINITE, DropReason.POSE_ZERO_QUATERNION)
            if refused is not None and (
                bad or child in self._used
            ):  # repeats of wheels and doors are nobody's loss
                self._drops.count(refused)
            elif refused is None and not static:
                stamps.append(stamp_ns(item))
        return stamps

    def _too_many(self, parent: str, child: str) -> bool:
        """Whether this link would be one more than may be kept, or has a name that is none."""
        moving = self._moving[self.epoch]
        known = child in self._static or child in moving
        full = not known and len(self._static) + len(moving) >= _FRAMES
        if full or max(len(parent), len(child)) > LONGEST:
            self._warn(
                f"TF has more than {_FRAMES} frames, or names of more than {LONGEST} characters: what is beyond "
                "that is left out"
            )
            return True
        return False

    def _set_static(self, parent: str, child: str, position, quaternion) -> DropReason | None:
        transforms = PoseBuffer(2)
        refused = transforms.add(0, position, quaternion)
        if refused is None:
            self._static[child] = _Link(parent, transforms)
        return refused

    def _add_moving(
        self, parent: str, child: str, stamp: int, position, quaternion
    ) -> DropReason | None:
        links, before = self._moving[self.epoch], self._moving.get(self.epoch - 1, {})
        link = links.get(child)
        if (
            link is None
            and child in before
            and self._newest is not None
            and stamp > self._newest + self._jump_back
            and stamp >= _newest(before[child]) - self._jump_back
        ):
            return before[child].transforms.add(
                stamp, position, quaternion
            )  # it has not made the jump yet
        jumped = link is not None and stamp < _newest(link) - self._jump_back
        if link is not None and link.parent != parent and not jumped:
            self._warn(
                f"TF: {named(child)} was below {named(link.parent)} and is now below {named(parent)}; two nodes "
                "that publish the same frame cannot both be right"
            )
            link = None
        if link is None or jumped:
            link = _Link(parent, self._make())
        refused = link.transforms.add(stamp, position, quaternion)
        if refused is not None:
            return refused
        if jumped:
            self._moving = {self.epoch: links, self.epoch + 1: {}}
            self.epoch, self._newest = self.epoch + 1, None
        if child not in self._used and len(link.transforms) > _UNUSED:
            link.transforms.trim(_UNUSED // 2)
        self._moving[self.epoch][child] = link
        self._newest = stamp if self._newest is None else max(stamp, self._newest)
        return None

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < 10:
            self.warnings.append(text)

    def move_to(self, epoch: int) -> None:
        """The measurements have jumped and these transforms go with them."""
        self._moving, self.epoch = {epoch: self._moving[self.epoch]}, epoch

    def restart(self, epoch: int) -> None:
        """Forget the moving links."""
        self._moving, self.epoch, self._newest = {epoch: {}}, epoch, None

    def lookup(
        self,
        target: str,
        source: str,
        stamp: int,
        epoch: int | None = None,
        last_chance: bool = False,
    ) -> Transform | Missing:
        """T_target_source at a stamp in ns: takes coordinates in frame `source` to coordinates in frame `target`.

        epoch: None is the current one.  last_chance: nothing more will come.
        """
        target, source, epoch = (
            target.lstrip("/"),
            source.lstrip("/"),
            self.epoch if epoch is None else epoch,
        )
        links = ChainMap(self._moving.get(epoch, {}), self._static)
        up, down = list(_ancestors(source, links)), list(_ancestors(target, links))
        there = set(down)
        common = next((frame for frame in up if frame in there), None)
        if common is None:
            return self._apart(target, source, links, epoch, last_chance)
        parts, waits, fails = [], None, None
        for frames in (up[: up.index(common)], down[: down.index(common)]):
            total = IDENTITY
            for child in frames:
                found = self._link_at(child, links[child], stamp, last_chance, epoch < self.epoch)
                if isinstance(found, Missing):
                    waits, fails = (found, fails) if found.reason is None else (waits, found)
                else:
                    total = found @ total  # T_common_child, from the bottom up
            parts.append(total)
        problem = waits or fails
        return problem if problem is not None else parts[1].inverse() @ parts[0]

    def _apart(self, target: str, source: str, links, epoch: int, last_chance: bool) -> Missing:
        frames = sorted({*links, *(link.parent for link in links.values())})
        rest = [f"{len(frames) - _SHOWN} more"] if len(frames) > _SHOWN else []
        shown = ", ".join([*map(named, frames[:_SHOWN]), *rest])
        text = (
            f"TF does not connect {named(target)} and {named(source)}; the frames known so far are "
            f"{shown or 'none'}"
        )
        if epoch < self.epoch:
            return Missing(text, DropReason.TIME_JUMP)
        return Missing(text, DropReason.NO_TRANSFORM if last_chance else None)

    def _link_at(
        self, child: str, link: _Link, stamp: int, last_chance: bool, over: bool
    ) -> Transform | Missing:
        """T_parent_child at a stamp. over: its epoch is."""
        if self._static.get(child) is link:
            return _transform(link.transforms.since(1)[0])
        self._used.add(child)
        found = link.transforms.bracket(stamp, last_chance or over)
        if over and found is DropReason.NO_POSE and stamp > _newest(link):
            found = DropReason.TIME_JUMP
        if found is None:
            return Missing(
                f"TF {named(link.parent)} to {named(child)} has not come yet for {stamp / 1e9:.3f} s"
            )
        if isinstance(found, DropReason):
            return Missing(
                f"TF {named(link.parent)} to {named(child)} cannot be told for {stamp / 1e9:.3f} s",
                found,
            )
        before, after = found
        if after is before:
            return _transform(before)
        weight = (stamp - before.stamp) / (after.stamp - before.stamp)
        (x, turn), (end, end_turn) = _transform(before), _transform(after)
        position = (
            x[0] + weight * (end[0] - x[0]),
            x[1] + weight * (end[1] - x[1]),
            x[2] + weight * (end[2] - x[2]),
        )
        return Transform(position, slerp(turn, end_turn, min(max(weight, 0.0), 1.0)))


def _newest(link: _Link) -> int:
    """Stamp of a link's newest transform; it is kept with its first one."""
    newest = link.transforms.newest
    if newest is None:
        raise ValueError(f"the link to {named(link.parent)} has no transform")
    return newest


def _transform(pose: Pose) -> Transform:
    return Transform(pose.position, pose.quaternion or IDENTITY.rotation)


def _ancestors(frame: str, links: Mapping[str, _Link]) -> dict[str, None]:
    """The frame and what is above it, nearest first; a loop ends where it closes."""
    out, last = {frame: None}, frame
    while last in links and links[last].parent not in out:
        last = links[last].parent
        out[last] = None
    return out
