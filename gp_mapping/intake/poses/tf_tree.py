"""A TF tree from the messages of /tf and /tf_static.

A bag needs it, and a node may use it instead of tf2. As in tf2, each link is interpolated by itself
(linear and slerp), at the stamp that is asked for and never at the latest, and the links are then
chained. Where map→odom jumps (a localiser corrects itself), the transform at the stamp of the
measurement counts: between the two messages the jump is a short ramp. Samples taken before it stay
where they are, since nothing tells which of them the correction would have moved.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gp_mapping.errors import named
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.frames import LONGEST
from gp_mapping.intake.messages import frame_of, stamp_ns
from gp_mapping.intake.poses.buffer import Pose, PoseBuffer
from gp_mapping.intake.poses.transforms import IDENTITY, Transform, slerp
from gp_mapping.intake.poses.two_tracks import TwoTracks

__all__ = ["Missing", "TfTree"]

_FRAMES = 2000  # links that are kept, static and moving: a robot has tens
_SHOWN = 20  # frames that a warning lists
_LATE = (DropReason.POSE_REPEATED_STAMP, DropReason.POSE_OUT_OF_ORDER)
_UNUSED = 1000  # transforms kept of a link that no look-up has used: joints of an arm, wheels


class Missing(NamedTuple):
    """Why there is no transform.

    Attributes:
        text: in words.
        reason: None: it may still come.
        linked: whether links connect the frames, and one is not known at that stamp.
    """

    text: str
    reason: DropReason | None = None
    linked: bool = False


class _Link(NamedTuple):
    """T_parent_child over time.

    Attributes:
        parent: frame above the child.
        transforms: poses of the child in the parent's frame; a single one, of stamp 0, where the
            link is static.
    """

    parent: str
    transforms: PoseBuffer


class TfTree:
    """Bounded buffers of T_parent_child for each child frame.

    Time that goes back begins a new epoch.

    Args:
        buffer: makes an empty PoseBuffer.
        jump_back: stamps that go back by more are a jump in time, ns.
        drops: counts refused transforms; late ones only of links that look-ups use.

    Attributes:
        epoch: grows by one with each jump in time.
        warnings: sentences for a person, at most ten.
    """

    def __init__(self, buffer, jump_back: int, drops: DropCounter | None = None):
        self._make, self._jump_back = buffer, jump_back
        self._drops = drops or DropCounter()
        self.epoch = 0
        self.warnings: list[str] = []
        self._static: dict[str, _Link] = {}
        # epoch -> child -> link, of this epoch and the one before
        self._moving: dict[int, dict[str, _Link]] = {0: {}}
        self._newest: int | None = None
        # children whose links look-ups have used, and whether two nodes publish them
        self._used: dict[str, TwoTracks] = {}

    @property
    def newest(self) -> int | None:
        """Newest stamp of a moving link in this epoch, ns; None without any."""
        return self._newest

    def add(self, message, static: bool = False) -> list[int]:
        """Take in a tf2_msgs/TFMessage.

        Args:
            message: holds transforms.
            static: whether it is from /tf_static.

        Returns:
            Stamps in ns of the moving links in it that were taken.
        """
        stamps = []
        for item in message.transforms:
            parent, child, *pose = _read(item)
            if self._too_many(parent, child):
                self._drops.count(DropReason.POSE_FRAMES_FULL)
                continue
            if self._closes_loop(parent, child):
                self._drops.count(DropReason.POSE_FRAMES_LOOP)
                continue

            refused = (
                self._set_static(parent, child, *pose)
                if static
                else self._add_moving(parent, child, stamp_ns(item), *pose)
            )

            # late or repeated transforms of links that no look-up uses (wheels, doors) are no loss;
            # one that is refused for what it says may be why no look-up finds its link
            if refused is not None and (refused not in _LATE or child in self._used):
                self._drops.count(refused)
            elif refused is None and not static:
                stamps.append(stamp_ns(item))
        return stamps

    def add_ahead(self, messages: Iterable) -> list:
        """Take in static links of messages that come later, of each link the first that is valid.

        A static link holds for all time, and a recorder may get /tf_static late. Nothing is
        counted, since the messages come again; a link that changes then holds from there on.

        Args:
            messages: tf2_msgs/TFMessage of /tf_static.

        Returns:
            The transforms that were taken.
        """
        taken: dict[str, Any] = {}
        for item in (item for message in messages for item in message.transforms):
            parent, child, *pose = _read(item)
            if (
                child not in taken
                and not self._too_many(parent, child)
                and not self._closes_loop(parent, child)
                and self._set_static(parent, child, *pose) is None
            ):
                taken[child] = item
        return list(taken.values())

    def _too_many(self, parent: str, child: str) -> bool:
        """Whether a link must be left out: it is one too many, or has a name that is too long."""
        moving = self._moving[self.epoch]
        known = child in self._static or child in moving
        full = not known and len(self._static) + len(moving) >= _FRAMES

        # strange names must not fill the memory
        if full or max(len(parent), len(child)) > LONGEST:
            self._warn(
                f"TF has more than {_FRAMES} frames, or names of more than {LONGEST} characters: what is beyond "
                "that is left out"
            )
            return True
        return False

    def _closes_loop(self, parent: str, child: str) -> bool:
        """Whether a link would put a frame above itself: chains through it would have no end."""
        links = ChainMap(self._moving[self.epoch], self._static)
        known = links.get(child)
        if (known is not None and known.parent == parent) or child not in _ancestors(parent, links):
            return False

        self._warn(
            f"TF: {named(child)} is above {named(parent)}, and is published below it as well; the second is left out: "
            "end the node that publishes a transform the wrong way round"
        )
        return True

    def _set_static(self, parent: str, child: str, position, quaternion) -> DropReason | None:
        """Take in a static link; return a reason where it is refused."""
        transforms = self._make()
        refused = transforms.add(0, position, quaternion)
        if refused is None:
            self._static[child] = _Link(parent, transforms)
        return refused

    def _add_moving(
        self, parent: str, child: str, stamp: int, position, quaternion
    ) -> DropReason | None:
        """Take in a transform of a moving link; return a reason where it is refused."""
        links, before = self._moving[self.epoch], self._moving.get(self.epoch - 1, {})
        link = links.get(child)

        # others have jumped back, this link has not yet: it goes on in the epoch before
        if (
            link is None
            and child in before
            and self._newest is not None
            and stamp > self._newest + self._jump_back
            and stamp >= _newest(before[child]) - self._jump_back
        ):
            return before[child].transforms.add(stamp, position, quaternion)

        jumped = link is not None and stamp < _newest(link) - self._jump_back

        if link is not None and link.parent != parent and not jumped:
            self._warn(
                f"TF: {named(child)} was below {named(link.parent)} and is now below {named(parent)}; two nodes "
                "that publish the same frame cannot both be right"
            )
            # it begins anew below its new parent
            link = None

        if link is None or jumped:
            link = _Link(parent, self._make())

        refused = link.transforms.add(stamp, position, quaternion)
        if refused is not None:
            return refused

        if jumped:
            # a jump in time: the epoch before stays for measurements that still wait
            self._moving = {self.epoch: links, self.epoch + 1: {}}
            self.epoch, self._newest = self.epoch + 1, None

        if child in self._used:
            self._used[child].add(stamp, position)
            for text in self._used[child].notes(
                f"TF: transforms of {named(parent)} to {named(child)}"
            ):
                self._warn(text)
        elif len(link.transforms) > _UNUSED:
            # half at a time, so that trimming is rare
            link.transforms.trim(_UNUSED // 2)
        self._moving[self.epoch][child] = link
        self._newest = stamp if self._newest is None else max(stamp, self._newest)
        return None

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < 10:
            self.warnings.append(text)

    def move_to(self, epoch: int) -> None:
        """Continue the current links under another epoch.

        The measurements have jumped in time, and these transforms belong to the time after the
        jump.
        """
        self._moving, self.epoch = {epoch: self._moving[self.epoch]}, epoch

    def restart(self, epoch: int) -> None:
        """Forget the moving links, and begin this epoch."""
        self._moving, self.epoch, self._newest = {epoch: {}}, epoch, None

    def lookup(
        self,
        target: str,
        source: str,
        stamp: int,
        epoch: int | None = None,
        last_chance: bool = False,
    ) -> Transform | Missing:
        """T_target_source at a stamp: coordinates in frame `source` to those in frame `target`.

        Args:
            target: frame.
            source: frame.
            stamp: ns.
            epoch: in which the stamp is; None: the current one.
            last_chance: nothing more will come.
        """
        target, source, epoch = (
            target.lstrip("/"),
            source.lstrip("/"),
            self.epoch if epoch is None else epoch,
        )
        links = ChainMap(self._moving.get(epoch, {}), self._static)

        # from both frames up to the nearest frame that is above both
        up, down = list(_ancestors(source, links)), list(_ancestors(target, links))
        above_target = set(down)
        common = next((frame for frame in up if frame in above_target), None)
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

        # a link that may still come goes first: the answer is not final before it has
        problem = waits or fails
        return problem if problem is not None else parts[1].inverse() @ parts[0]

    def _apart(self, target: str, source: str, links, epoch: int, last_chance: bool) -> Missing:
        """Why no chain of links connects two frames."""
        frames = sorted({*links, *(link.parent for link in links.values())})
        more = [f"{len(frames) - _SHOWN} more"] if len(frames) > _SHOWN else []
        shown = ", ".join([*map(named, frames[:_SHOWN]), *more])
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
        """T_parent_child of one link at a stamp.

        Args:
            child: frame.
            link: its link.
            stamp: ns.
            last_chance: nothing more will come.
            over: whether the epoch of the link has ended.
        """
        if self._static.get(child) is link:
            return _transform(link.transforms.since(1)[0])

        self._used.setdefault(child, TwoTracks())
        found = link.transforms.bracket(stamp, last_chance or over)
        if over and found is DropReason.NO_POSE and stamp > _newest(link):
            # the link ended where time jumped
            found = DropReason.TIME_JUMP

        if found is None or isinstance(found, DropReason):
            return _missing(child, link, stamp, found)

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
        # the orientation is not extrapolated
        return Transform(position, slerp(turn, end_turn, min(max(weight, 0.0), 1.0)))


def _read(item) -> tuple[str, str, tuple[float, ...], tuple[float, ...]]:
    """Parent, child, translation and rotation of a geometry_msgs/TransformStamped."""
    t, q = item.transform.translation, item.transform.rotation
    child = str(item.child_frame_id).lstrip("/")
    return frame_of(item), child, (t.x, t.y, t.z), (q.x, q.y, q.z, q.w)


def _missing(child: str, link: _Link, stamp: int, reason: DropReason | None) -> Missing:
    """What is missing of a link at a stamp (ns)."""
    first, last = (kept / 1e9 for kept in link.transforms.span)
    parent, frame, seconds = named(link.parent), named(child), stamp / 1e9
    if reason is None:
        text = (
            f"TF {parent} to {frame} has not come yet at stamp {seconds:.3f} s: its newest is of "
            f"{last:.3f} s"
        )
    elif seconds > last:
        text = (
            f"TF {parent} to {frame} is not known at stamp {seconds:.3f} s: it ends at {last:.3f} s"
        )
    elif seconds < first:
        text = f"TF {parent} to {frame} is not known at stamp {seconds:.3f} s: it begins at {first:.3f} s"
    else:
        text = (
            f"TF {parent} to {frame} is not known at stamp {seconds:.3f} s: the transforms around it are more than "
            "max_pose_gap apart"
        )
    return Missing(text, reason, linked=True)


def _newest(link: _Link) -> int:
    """Stamp of a link's newest transform, ns; a link always has at least one."""
    newest = link.transforms.newest
    if newest is None:
        raise ValueError(f"the link to {named(link.parent)} has no transform")
    return newest


def _transform(pose: Pose) -> Transform:
    return Transform(pose.position, pose.quaternion or IDENTITY.rotation)


def _ancestors(frame: str, links: Mapping[str, _Link]) -> dict[str, None]:
    """The frame and all frames above it, nearest first; a loop ends where it closes."""
    out, last = {frame: None}, frame
    while last in links and links[last].parent not in out:
        last = links[last].parent
        out[last] = None
    return out
