"""Intake: messages in, Samples out.

Everything goes by stamps, so that live and offline give the same samples. This file is about
messages: what they say, and which frame they are in; streams.py pairs what was read of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from types import SimpleNamespace

from gp_mapping.core.types import Samples
from gp_mapping.errors import named
from gp_mapping.intake import stretch
from gp_mapping.intake.columns import Stream, reads_columns
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.fixes import ROLE, FixQueue
from gp_mapping.intake.frames import LONGEST, FirstMessages, Frames, without_long_names
from gp_mapping.intake.messages import frame_of, has_header, stamp_ns
from gp_mapping.intake.placing import Placer
from gp_mapping.intake.poses.messages import LARGE_VARIANCE, LOST_VARIANCE, read_pose
from gp_mapping.intake.poses.tf_poses import Lookup, TfPoses
from gp_mapping.intake.poses.tf_tree import TfTree
from gp_mapping.intake.poses.track import PoseTrack
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.intake.sensors.adaptor import make_adaptor
from gp_mapping.intake.sensors.guarded import GuardedAdaptor
from gp_mapping.intake.sensors.judged import Judge
from gp_mapping.intake.sensors.setup import SETUP, sensor_notes, setup_of
from gp_mapping.intake.sensors.sketch import MEASURED, Sketch
from gp_mapping.intake.streams import Streams, pose_buffer, to_nanoseconds
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["Intake"]

_UNREADABLE = (DropReason.UNREADABLE, DropReason.POSE_UNREADABLE, DropReason.FIX_UNREADABLE)
_NAMED = 3  # messages that cannot be read, or are in a wrong frame, which are named one by one
# different texts; a frame that changes with each message must not fill the memory
_MAX_WARNINGS = 20


class Intake:
    """Pairs each measurement with the pose at its own stamp, and counts every message.

    How the topics interleave on the way does not matter. It belongs to one thread.

    Use `for new_pass, samples in intake.batches()`: it says where a pass begins. `take` and
    `take_break` are the same in two calls: take() never hands out samples across a break, nor past
    one until take_break() was asked.

    Where no setting names a frame, it is the frame of the majority. The first messages are kept:
    where most of them turn out to be in another frame than the first one, they are taken in again
    as if that frame had been named. What was handed out until then is void, and `take_restart` says
    so: who got it begins an empty map. Who can wait takes nothing before `is_final`.

    Args:
        settings: which sensor, which poses, and how they are paired.
        lookup: a TF look-up to use in place of the intake's own tree (which `add_tf` fills), where
            the settings ask for TF.
        judge: drops values that the map of these samples cannot take, before they wait for a pose;
            None: every number can be taken.
        as_received: messages come in the order in which they were received, so that clocks are
            compared by which of them arrived together.

    Attributes:
        settings: as given.
        stamp_offset: by how much measurements are stamped later than poses, ns.
        drops: counts of messages that were not used.
        received: messages that came, by the name of their input.
        fixes: fixes of a satellite receiver.
        sketch: of the measurements that were handed out, and those that the map held before.
    """

    def __init__(
        self,
        settings: IntakeSettings | None = None,
        lookup: Lookup | None = None,
        judge: Judge | None = None,
        as_received: bool = False,
    ):
        self.settings = s = settings or IntakeSettings()
        self._lookup, self._as_received = lookup, as_received
        self.stamp_offset = to_nanoseconds(s.stamp_offset)
        self._adaptor = GuardedAdaptor(make_adaptor(s, judge), s.sensor)

        self._frames, self._first = Frames(s), FirstMessages()
        self._measured_in = ""  # frame of the sensor that made the map that goes on
        self._held, self.sketch = "", Sketch()  # of the map that goes on; of what comes, too
        self._restarted = False  # take_restart() has to say it

        # one counter for as long as this intake lives: others hold it, too
        self.drops = DropCounter()
        self._begin()

    def _begin(self) -> None:
        """Set up everything as if nothing had come yet; frames and kept messages stay."""
        s, lookup = self.settings, self._lookup
        self.drops.clear()
        self.sketch.go_on(self._held)
        self.received = {s.sensor: 0, s.pose_source: 0}
        self._void = 0  # samples that were handed out and are not in the map any more
        self._warnings: list[str] = []
        self._base = s.base_frame.lstrip("/")
        self._named_base, self._two_bases = "", False  # as the newest pose message names it

        self._tf: TfPoses | None = None
        self._tree: TfTree | None = None
        if "tf" in (s.pose_source, s.mounting):
            self.received["tf"] = 0
            self._tree = (
                TfTree(partial(pose_buffer, s), to_nanoseconds(s.jump_back), self.drops)
                if lookup is None
                else None
            )
            self._tf = TfPoses(self.frame, self._base, self._tree, lookup)

        self._streams = Streams(
            s,
            Placer(s, self._adaptor),
            self.drops,
            self._warn,
            self._tf,
            jumps=lookup is None,
            mounting=self._mounting if s.mounting == "tf" else None,
            sketch=self.sketch,
            as_received=self._as_received,
        )
        self.fixes = FixQueue(s, self.drops, self.received, self._poses)

    def _poses(self) -> PoseTrack | TfPoses:
        """The current source of poses; after a restart it is another object."""
        return self._streams.poses

    def _mounting(self, stamp: int, last_chance: bool) -> Transform | DropReason | None:
        """T_base_sensor at a stamp (ns) by TF; None: not known yet."""
        if self._tf is None:
            return None
        frame = self._frames["sensor_frame"].frame
        return self._tf.transform(self._base, frame, stamp, last_chance=last_chance)

    @property
    def frame(self) -> str:
        """Frame of the samples; empty until the first pose."""
        return self._frames["odometry_frame"].frame

    @property
    def about(self) -> dict:
        """Where and of what the samples are, as plain values, for the map that is made of them."""
        s = self.settings
        return {
            "frame": self.frame,
            "sensor": s.sensor,
            "quantity": s.quantity,
            "sensor_frame": self._frames["sensor_frame"].frame,
            "pose_source": s.pose_source,
            SETUP: setup_of(s),
            "began": self.first_stamp,
            MEASURED: self.sketch.as_text(),
        }

    # ---- frames ----------------------------------------------------------------------------------

    def expect(self, frame: str, sensor_frame: str = "") -> None:
        """Expect this frame: the map is in it already.

        Poses in another frame are dropped, whatever their number.

        Args:
            frame: of the poses.
            sensor_frame: that the map's measurements had; another one is spoken of. '' where it is
                not known.
        """
        self._frames.expect(frame)
        self._measured_in = sensor_frame
        self.make_final()

    def expect_none_of(self, held: str) -> None:
        """Say so where measurements come that the map holds already.

        Args:
            held: the map's Sketch as text; '' where it has none.
        """
        self._held = held
        self.sketch.go_on(held)
        self._streams.forget_steps()  # what was measured before them is in no map any more

    def forget_frames(self) -> None:
        """Learn frames that no setting names again: the map has been emptied."""
        self.expect_none_of("")
        self._streams.forget_leaps()
        self._frames.relearn()
        self._measured_in = ""
        self.make_final()
        self._void = self.samples

    def take_restart(self) -> bool:
        """True once where all samples handed out so far are void.

        They were in another frame than most messages.
        """
        restarted, self._restarted = self._restarted, False
        return restarted

    @property
    def is_final(self) -> bool:
        """Whether everything that was handed out stands, whatever comes."""
        return self._first.is_final

    def make_final(self) -> None:
        """Let everything stand that was handed out, whatever comes.

        No message is kept any longer.
        """
        self._first.make_final()

    def _elect(self, which: str) -> None:
        """Change to the frame of the majority, if it is another one than was expected.

        All kept messages are taken in again; or, where none are kept, only what comes is in that
        frame.

        Args:
            which: sensor_frame or odometry_frame.
        """
        winner, first = self._frames[which].winner, self._first
        # without kept messages, samples in the map cannot be withdrawn: its frame stays
        if winner is None or first.replaying or (first.is_final and self.samples > self._void):
            return

        handed_out = self.samples > 0
        before = self._frames.elect(which, winner)
        text = (
            f"{which}: the first messages were in frame {named(before)} and most are in {named(winner)}, which "
            "is now expected"
        )
        if first.is_final:
            self.time_jump()  # what waits, and the poses, are in the other frame
            self._warn(text)
            return

        self._restarted |= handed_out
        self._begin()
        self._warn(text)  # first: what is said of the kept messages may leave no room for it
        first.replay(self)

    def _frame_fits(self, which: str, msg) -> bool:
        """Count a message in its frame and return whether that is the expected frame.

        Args:
            which: sensor_frame or odometry_frame.
            msg: the message.
        """
        vote, frame = self._frames[which], frame_of(msg)
        if vote.count_and_check(frame):
            return True

        said = sum(text.startswith(f"{which}: a message is") for text in self._warnings)
        # the first ones are named: a name that is always new must not crowd out what else is to say
        if said < _NAMED:
            self._warn(
                f"{which}: a message is in frame {named(frame)}, expected {named(vote.frame)}; such messages are "
                "dropped"
            )
        return False

    @property
    def samples(self) -> int:
        """How many samples were handed out."""
        return self._streams.samples

    @property
    def first_stamp(self) -> float | None:
        """Stamp of the first sample, s; None before it."""
        return self._streams.first_stamp

    @property
    def last_stamp(self) -> float | None:
        """Stamp of the newest accepted measurement, s; None before the first."""
        return self._streams.last_stamp

    @property
    def waiting(self) -> int:
        """How many measurements wait.

        Their pose is not known yet, their stamp leaps and is not confirmed yet, or an older one may
        come.
        """
        return self._streams.waiting

    @property
    def warnings(self) -> list[str]:
        """What a person should look at, in plain words.

        Frames, TF look-ups that fail, poses that are very uncertain, stand still or leap, messages
        out of order.
        """
        out = [*self._warnings, *self._adaptor.notes, *self.drops.notes]
        out += self._streams.notes + self._streams.motion_notes
        out += sensor_notes(self._measured_in, self._frames["sensor_frame"]) + self.sketch.notes
        if self._tf is not None:
            out += self._tree.warnings if self._tree is not None else []
            # each measurement in turn waits for links, which is no problem until one has in vain
            if self._tf.problem is not None and (
                self._tf.problem.reason is not None or self._tf.waited_in_vain or not self.samples
            ):
                out.append(self._tf.problem.text)
        return out

    @property
    def standing(self) -> str:
        """That all measurements have one stamp, in words; "" where stamps move."""
        return self._streams.ranges.note_standing(2)

    # ---- poses in --------------------------------------------------------------------------------

    def add_pose_message(self, msg) -> None:
        """Take in a pose message.

        Args:
            msg: of the type that pose_source names (Odometry, PoseStamped,
                PoseWithCovarianceStamped).
        """
        s = self.settings
        self._first.keep("add_pose_message", without_long_names(msg))
        self.received[s.pose_source] += 1

        if not self._frame_fits("odometry_frame", msg):
            self.drops.count(DropReason.POSE_UNEXPECTED_FRAME)
            return self._elect("odometry_frame")
        self._name_base(str(getattr(msg, "child_frame_id", ""))[:LONGEST].lstrip("/"))

        pose = read_pose(msg, s.pose_source)
        variance = pose.variance if s.use_pose_covariance else 0.0
        if variance > LOST_VARIANCE:
            return self.drops.count(DropReason.POSE_LOST)
        # the pose is used, its variance counts as unknown
        if math.isnan(variance):
            self.drops.count(DropReason.POSE_BAD_COVARIANCE)

        if variance > LARGE_VARIANCE:
            self._warn(
                f"poses are unsure by {math.sqrt(LARGE_VARIANCE):g} m and more, so measurements count little; "
                "if these covariances are placeholders, set use_pose_covariance to false"
            )

        self._streams.add_pose(
            stamp_ns(msg), pose.position, pose.quaternion, 0.0 if math.isnan(variance) else variance
        )

    add_odometry = add_pose_message

    def _name_base(self, frame: str) -> None:
        """Note which body the poses are of, and say where that changes; '': they do not tell."""
        if not frame:
            return
        before, self._base, self._named_base = self._named_base, frame, frame
        # said once: a frame that changes with each message must not crowd out what else is to say
        if before and before != frame and not self._two_bases:
            self._two_bases = True
            self._warn(
                f"poses are of {named(before)} and of {named(frame)} (child_frame_id), which count as one: two "
                "sources on one topic, or two points of the robot? Remap one of them"
            )

    def add_pose(self, stamp: int, position, quaternion=None, variance: float = 0.0) -> None:
        """Take in a pose of the base frame, wherever it comes from.

        Args:
            stamp: ns.
            position: (3,) m.
            quaternion: x y z w; None: no orientation. All poses have one, or none, as the first
                pose.
            variance: of a coordinate, m².
        """
        self._first.keep("add_pose", stamp, position, quaternion, variance)
        self._streams.add_pose(stamp, position, quaternion, variance)

    def add_tf(self, msg, static: bool = False) -> None:
        """Take in a tf2_msgs/TFMessage.

        Args:
            msg: the message.
            static: whether it is from /tf_static.

        Raises:
            ValueError: nothing asks for TF, or a look-up was given.
        """
        if self._tf is None or self._tree is None:
            raise ValueError(
                "a TF message came, but neither pose_source nor mounting is 'tf', or a look-up was given"
            )

        self._first.keep("add_tf", msg, static)
        self.received["tf"] += 1
        self._streams.pair_transforms(self._tree.add(msg, static))

    def add_static_ahead(self, messages: Iterable) -> None:
        """Take in static links of a recording before they come, as a recorder may get them late.

        Args:
            messages: tf2_msgs/TFMessage of /tf_static, which come again in their order.

        Raises:
            ValueError: there is no tree to take them.
        """
        if self._tree is None:
            raise ValueError("static links came ahead, but nothing asks for TF")
        taken = self._tree.add_ahead(messages)
        self._first.keep("add_static_ahead", [SimpleNamespace(transforms=taken)])

    def add_fix(self, msg) -> None:
        """Take in a sensor_msgs/NavSatFix: where on the earth the robot is."""
        self._first.keep("add_fix", without_long_names(msg))
        self.fixes.add(msg)

    def poll(self) -> None:
        """Look again for the poses of what waits.

        An injected look-up does not say when it has learned something.
        """
        self._streams.poll()

    # ---- measurements in -------------------------------------------------------------------------

    def add_measurement(
        self, msg, received_ns: int | None = None, posed: int | None = None
    ) -> None:
        """Take in a message of the sensor.

        Args:
            msg: the message.
            received_ns: when it was received or recorded, ns; stands in for the stamp of messages
                that have none (Float64). None: not known.
            posed: stamp of the newest pose that had arrived by then, ns, where messages are not
                taken in as they arrive; None: that of the newest that was taken in.

        Raises:
            ValueError: there is no stamp, and received_ns is not given.
        """
        self._first.keep("add_measurement", without_long_names(msg), received_ns, posed)
        self.received[self.settings.sensor] += 1

        if has_header(msg):
            stamp = stamp_ns(msg)
            if not self._frame_fits("sensor_frame", msg):
                self.drops.count(DropReason.UNEXPECTED_FRAME)
                return self._elect("sensor_frame")
        elif received_ns is None:
            raise ValueError(
                f"a {type(msg).__name__} has no header; pass received_ns, when it was received"
            )
        else:
            stamp = int(received_ns)

        reading = self._adaptor.read(msg, stamp - self.stamp_offset)
        if isinstance(reading, DropReason):
            return self.drops.count(reading)

        self._streams.add_reading(reading, posed)

    add_field = add_measurement

    # ---- many messages at once -------------------------------------------------------------------

    def add_recorded(self, field: Stream, pose: Stream) -> list[tuple[bool, Samples]] | None:
        """Take in measurements and poses of a recording at once.

        The result is the same, to the bit, as taking them in one by one and then calling `batches`.

        Args:
            field: measurements.
            pose: pose messages.

        Returns:
            Whether a new pass begins, and the samples, for each batch. None where something is out
            of the ordinary: nothing has been taken in, and the messages are to be taken in one by
            one.
        """
        usual = self._first.is_final and self._streams.is_steady
        if not usual or not reads_columns(self._adaptor):
            return None

        votes = [(self._frames["odometry_frame"], pose.columns.frame(), len(pose.columns))]
        if field.columns.stamps() is not None:
            votes.append((self._frames["sensor_frame"], field.columns.frame(), len(field.columns)))
        # a frame that is new decides one by one
        if not all(vote.is_established(frame) for vote, frame, _ in votes):
            return None

        poses, read = (
            stretch.read_poses(pose, self.settings),
            self._adaptor.read_columns(field.columns),
        )
        if read is None or poses is None:
            return None
        batches = self._streams.take_stretch(field, read, pose, *poses)
        if batches is None:
            return None

        for vote, _, count in votes:
            vote.count(count)
        self.received[self.settings.sensor] += len(field.columns)
        self.received[self.settings.pose_source] += len(pose.columns)
        self._name_base(pose.columns.frame("child_frame_id"))
        return batches

    # ---- samples out -----------------------------------------------------------------------------

    def take(self) -> Samples | None:
        """All samples whose pose is known, in stamp order, up to the next break.

        None where there are none, or where a break comes first.
        """
        return self._streams.take()

    def take_break(self) -> bool:
        """True once where the next samples begin a new pass.

        The session must break_pass() before it gets them.
        """
        return self._streams.take_break()

    def batches(self, finish: bool = False) -> Iterator[tuple[bool, Samples]]:
        """Hand out all samples whose pose is known, cut where passes begin.

        Args:
            finish: nothing more will come; as `finish`.

        Yields:
            Whether a new pass begins, and the samples.
        """
        yield from self._streams.batches(finish)

    def finish(self) -> Samples | None:
        """End the stream: hand out what can still be placed, and count the remainder as dropped.

        To be called until it returns None and no break comes.
        """
        self._streams.end()
        return self.take()

    def add_unreadable(self, role: str, why: str) -> None:
        """Count a message whose bytes cannot be read, and say why.

        Args:
            role: of its input, as `inputs_of` names it.
            why: in words.
        """
        self._first.keep("add_unreadable", role, why)

        self._count_unreadable(role, 1)
        # the first ones are named, all are counted
        if sum(self.drops[reason] for reason in _UNREADABLE) <= _NAMED:
            self._warn(f"{why}; it is left out")

    def add_lost(self, counts: dict[str, int], why: str) -> None:
        """Count messages that a recording has lost, and say why.

        Args:
            counts: how many, by the role of their input, as `inputs_of` names it.
            why: a sentence.
        """
        self._first.keep("add_lost", counts, why)
        for role, n in counts.items():
            self._count_unreadable(role, n)
        self._warn(why)

    def add_note(self, text: str) -> None:
        """Say something of what is read, in a sentence."""
        self._first.keep("add_note", text)
        self._warn(text)

    def _count_unreadable(self, role: str, n: int) -> None:
        """Count messages of an input that cannot be read."""
        s = self.settings
        reasons = {"measurement": DropReason.UNREADABLE, ROLE: DropReason.FIX_UNREADABLE}
        self.received[
            {"measurement": s.sensor, "pose": s.pose_source, ROLE: ROLE}.get(role, "tf")
        ] += n
        self.drops.count(reasons.get(role, DropReason.POSE_UNREADABLE), n)

    def time_jump(self) -> None:
        """Forget all that waits, and all poses; the next sample begins a new pass.

        Called where the clock was set, or a bag loops.
        """
        self._first.keep("time_jump")
        self._streams.time_jump()

    def _warn(self, text: str) -> None:
        if text not in self._warnings and len(self._warnings) < _MAX_WARNINGS:
            self._warnings.append(text)
