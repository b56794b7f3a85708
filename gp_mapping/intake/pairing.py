"""Intake: messages in, Samples out.

Everything goes by stamps, so that live and offline give the same samples.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.errors import named
from gp_mapping.intake import stretch
from gp_mapping.intake.columns import Readings, Stream, reads_columns
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.fixes import ROLE, FixQueue
from gp_mapping.intake.frames import FrameVote, to_keep
from gp_mapping.intake.messages import Reading, frame_of, has_header, stamp_ns
from gp_mapping.intake.outlet import Outlet
from gp_mapping.intake.placing import Placer
from gp_mapping.intake.poses.buffer import Bracket, Pose, PoseBuffer, read_numbers
from gp_mapping.intake.poses.messages import LARGE_VARIANCE, LOST_VARIANCE, read_pose
from gp_mapping.intake.poses.tf_poses import Lookup, TfPoses
from gp_mapping.intake.poses.tf_tree import TfTree
from gp_mapping.intake.poses.track import PoseTrack
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.intake.sensors.adaptor import make_adaptor
from gp_mapping.intake.sensors.judged import Judge
from gp_mapping.intake.stamps import Spans, StampGate
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["Intake"]

_UNREADABLE = (DropReason.UNREADABLE, DropReason.POSE_UNREADABLE, DropReason.FIX_UNREADABLE)
_UNREADABLE_NAMED = 3  # messages that cannot be read, which are named one by one
# different texts; a frame that changes with each message must not fill the memory
_MAX_WARNINGS = 20
_READY_FACTOR = 100  # bound of the samples that nobody takes, in units of queue_size
_TF_MAP = "map"  # frame of the samples, where poses come from TF and no setting names it
# messages that are kept, to be taken in again where their frame turns out to be another one
_DECIDING = 500


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)


class _Waiting(NamedTuple):
    """A measurement that waits for its pose.

    Attributes:
        epoch: of the measurements when it came.
        reading: the measurement.
        advance: how far stamps had advanced in all when it came, ns.
        longest: a longer pause before it begins a new pass, ns.
    """

    epoch: int
    reading: Reading
    advance: int
    longest: int


class Intake:
    """Pairs each measurement with the pose at its own stamp.

    Each of the two streams counts its own jumps back in time (its epoch), and a measurement is
    paired with poses of the same epoch only: how the two topics interleave on the way does not
    matter.

    Use `for new_pass, samples in intake.batches()`: it says where a pass begins. `take` and
    `take_break` are the same in two calls: take() never hands out samples across a break, nor past
    one until take_break() was asked.

    Where no setting names a frame, it is the frame of the majority. The first _DECIDING messages
    are kept: where most of them turn out to be in another frame than the first one, they are taken
    in again as if that frame had been named. What was handed out until then is void, and
    `take_restart` says so: who got it begins an empty map.

    Args:
        settings: which sensor, which poses, and how they are paired.
        lookup: a TF look-up to use in place of the intake's own tree (which `add_tf` fills), where
            the settings ask for TF.
        judge: drops values that the map of these samples cannot take, before they wait for a pose;
            None: every number can be taken.

    Attributes:
        settings: as given.
        drops: counts of messages that were not used.
        received: messages that came, by the name of their input.
        fixes: fixes of a satellite receiver.
    """

    def __init__(
        self,
        settings: IntakeSettings | None = None,
        lookup: Lookup | None = None,
        judge: Judge | None = None,
    ):
        self.settings = s = settings or IntakeSettings()
        self._lookup, self._adaptor = lookup, make_adaptor(s, judge)

        self._votes = {
            name: FrameVote(getattr(s, name)) for name in ("sensor_frame", "odometry_frame")
        }
        self._first: list[tuple] | None = []  # messages as they came, until frames are settled
        # take_restart() has to say it; kept messages are being taken in again
        self._restarted = self._again = False

        self._begin()

    def _begin(self) -> None:
        """Set up everything as if nothing had come yet; votes and kept messages stay."""
        s, lookup = self.settings, self._lookup
        self.drops = DropCounter()
        self.received = {s.sensor: 0, s.pose_source: 0}
        self._void = 0  # samples that were handed out and are not in the map any more
        self._warnings: list[str] = []
        self._max_wait, self._jump_back, self._pass_gap = map(
            _ns, (s.max_wait, s.jump_back, s.pass_gap)
        )

        self._out = Outlet(Placer(s, self._adaptor), self.drops, _READY_FACTOR * s.queue_size)
        self._waiting: deque[_Waiting] = deque()

        # a measurement further from any pose in time is never paired
        near = max(self._max_wait, _ns(s.max_pose_gap))
        self._field_gate, self._pose_gate = (
            StampGate(self._jump_back, near, s.queue_size) for _ in range(2)
        )
        # each stream is the other's witness
        self._field_gate.believe(self._pose_clock)
        self._pose_gate.believe(self._field_gate.spans)

        # stamp and position, for max_speed
        self._last_pose: tuple[int, tuple[float, ...]] | None = None
        self._field_epoch = 0
        self._last_field: int | None = None  # stamp of the newest accepted measurement, ns
        self._advance = 0  # of the stamps of measurements in all, without jumps back, ns
        # between the newest measurements, ns
        self._steps: deque[int] = deque(maxlen=stretch.RECENT_STEPS)
        self._oriented: bool | None = None  # whether poses have orientations; the first decides
        self._base = s.base_frame.lstrip("/")

        self._tf: TfPoses | None = None
        if "tf" in (s.pose_source, s.mounting):
            # the frame of TF poses is never put to the vote
            if s.pose_source == "tf":
                self._votes["odometry_frame"] = FrameVote(s.odometry_frame or _TF_MAP)
            else:
                self.received["tf"] = 0
            self._tree = (
                TfTree(self._new_buffer, self._jump_back, self.drops) if lookup is None else None
            )
            self._tf = TfPoses(self.frame, self._base, self._tree, lookup)

        self._track = PoseTrack(self._new_buffer, self._jump_back)  # of poses that come as messages
        self._poses: PoseTrack | TfPoses = (
            self._tf if self._tf is not None and s.pose_source == "tf" else self._track
        )
        self.fixes = FixQueue(s, self.drops, self.received, self._now_poses)

    def _now_poses(self) -> PoseTrack | TfPoses:
        """The current source of poses; after a restart it is another object."""
        return self._poses

    def _new_buffer(self) -> PoseBuffer:
        s = self.settings
        return PoseBuffer(
            s.pose_buffer_size, _ns(s.max_pose_gap), _ns(s.max_extrapolation), s.max_position
        )

    @property
    def frame(self) -> str:
        """Frame of the samples; empty until the first pose."""
        return self._votes["odometry_frame"].frame

    @property
    def about(self) -> dict:
        """Where and of what the samples are, as plain values, for the map that is made of them."""
        s = self.settings
        return {
            "frame": self.frame,
            "sensor": s.sensor,
            "quantity": s.quantity,
            "sensor_frame": self._votes["sensor_frame"].frame,
            "pose_source": s.pose_source,
            "began": self.first_stamp,
        }

    # ---- frames ----------------------------------------------------------------------------------

    def expect(self, frame: str) -> None:
        """Expect this frame: the map is in it already.

        Poses in another frame are dropped, whatever their number.

        Args:
            frame: of the poses.
        """
        self._votes["odometry_frame"] = FrameVote(frame)
        self.settle()

    def forget_frames(self) -> None:
        """Learn frames that no setting names again: the map has been emptied."""
        for name, vote in self._votes.items():
            # a frame that a setting names, or the default one of TF, stays
            if not (vote.held and (getattr(self.settings, name) or self._poses is self._tf)):
                self._votes[name] = FrameVote(expected=vote.frame) if vote.known else FrameVote()

        self.settle()
        self._void = self.samples

    def take_restart(self) -> bool:
        """True once where all samples handed out so far are void.

        They were in another frame than most messages.
        """
        restarted, self._restarted = self._restarted, False
        return restarted

    def settle(self) -> None:
        """Let everything stand that was handed out, whatever comes.

        No message is kept any longer.
        """
        self._first = None

    def _keep(self, *message) -> None:
        """Keep a message while its frame may turn out to be another one.

        Args:
            message: name of the method that takes it in, and arguments.
        """
        if self._first is not None and not self._again:
            self._first.append(message)
            if len(self._first) > _DECIDING:
                self.settle()

    def _elect(self, which: str) -> None:
        """Change to the frame of the majority, if it is another one than was expected.

        All kept messages are taken in again; or, where none are kept, only what comes is in that
        frame.

        Args:
            which: sensor_frame or odometry_frame.
        """
        winner = self._votes[which].winner
        # without kept messages, samples in the map cannot be withdrawn: its frame stays
        if winner is None or self._again or (self._first is None and self.samples > self._void):
            return

        before, handed_out = self._votes[which].frame, self.samples > 0
        self._votes = {
            name: vote if vote.held else FrameVote(expected=vote.frame if vote.known else None)
            for name, vote in self._votes.items()
        }

        self._votes[which] = FrameVote(expected=winner)

        if self._first is None:
            self.time_jump()  # what waits, and the poses, are in the other frame
        else:
            self._restarted |= handed_out
            self._begin()
            self._again = True
            for method, *arguments in self._first:
                getattr(self, method)(*arguments)
            self._again = False

        self._warn(
            f"{which}: the first messages were in frame {named(before)} and most are in {named(winner)}, which "
            "is now expected"
        )

    def _frame_fits(self, which: str, msg) -> bool:
        """Count a message in its frame and return whether that is the expected frame.

        Args:
            which: sensor_frame or odometry_frame.
            msg: the message.
        """
        vote, frame = self._votes[which], frame_of(msg)
        if vote.fits(frame):
            return True

        self._warn(
            f"{which}: a message is in frame {named(frame)}, expected {named(vote.frame)}; such messages are "
            "dropped"
        )
        return False

    @property
    def samples(self) -> int:
        """How many samples were handed out."""
        return self._out.samples

    @property
    def first_stamp(self) -> float | None:
        """Stamp of the first sample, s."""
        return self._out.first_stamp

    @property
    def last_stamp(self) -> float | None:
        """Stamp of the newest accepted measurement, s."""
        return None if self._last_field is None else self._last_field / 1e9

    @property
    def waiting(self) -> int:
        """How many measurements wait.

        Their pose is not known yet, or their stamp leaps and is not confirmed yet.
        """
        return len(self._waiting) + self._field_gate.holding

    @property
    def warnings(self) -> list[str]:
        """What a person should look at, in plain words.

        Frames, TF look-ups that fail, poses that are very uncertain.
        """
        out = list(self._warnings)
        if self._tf is not None:
            out += self._tree.warnings if self._tree is not None else []
            if self._tf.problem is not None and (
                self._tf.problem.reason is not None or not self.samples
            ):
                out.append(self._tf.problem.text)
        return out

    # ---- poses in --------------------------------------------------------------------------------

    def add_pose_message(self, msg) -> None:
        """Take in a pose message.

        Args:
            msg: of the type that pose_source names (Odometry, PoseStamped,
                PoseWithCovarianceStamped).
        """
        s = self.settings
        self._keep("add_pose_message", to_keep(msg, frame_of(msg)))
        self.received[s.pose_source] += 1

        if not self._frame_fits("odometry_frame", msg):
            self.drops.count(DropReason.POSE_UNEXPECTED_FRAME)
            return self._elect("odometry_frame")
        self._base = str(getattr(msg, "child_frame_id", "")).lstrip("/") or self._base

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

        self._pose_in(
            stamp_ns(msg), pose.position, pose.quaternion, 0.0 if math.isnan(variance) else variance
        )

    add_odometry = add_pose_message

    def add_pose(self, stamp: int, position, quaternion=None, variance: float = 0.0) -> None:
        """Take in a pose of the base frame, wherever it comes from.

        Args:
            stamp: ns.
            position: (3,) m.
            quaternion: x y z w; None: no orientation. All poses have one, or none, as the first
                pose.
            variance: of a coordinate, m².
        """
        self._keep("add_pose", stamp, position, quaternion, variance)
        self._pose_in(stamp, position, quaternion, variance)

    def _pose_in(self, stamp: int, position, quaternion, variance: float) -> None:
        """Check a pose, and pass it on with all that its stamp decides."""
        if self._oriented is None:
            self._oriented = quaternion is not None
        if self._oriented and quaternion is None:
            return self.drops.count(DropReason.POSE_ZERO_QUATERNION)

        pose = read_numbers(
            position, quaternion if self._oriented else None, self.settings.max_position
        )
        if isinstance(pose, DropReason):
            return self.drops.count(pose)

        taken, strays = self._pose_gate.admit(stamp, (*pose, variance))
        self.drops.count(DropReason.POSE_STRAY_STAMP, strays)
        for admitted in taken:
            self._take_pose(admitted.stamp, *admitted.content)
        # measurements whose stamps leap may have waited for this pose
        for admitted in self._field_gate.release():
            self._take_reading(admitted.content)
        self._resolve()

    def _pose_clock(self) -> Spans | None:
        """Where the poses are in time; None where TF cannot say it."""
        if self._poses is self._tf:
            return None if (newest := self._poses.newest) is None else ((newest, newest),)
        return self._pose_gate.spans()

    def _take_pose(self, stamp: int, position, quaternion, variance: float) -> None:
        """Take in a pose whose stamp has been admitted."""
        last, max_speed = self._last_pose, self.settings.max_speed
        # a pose before the last one (time has jumped back) is not compared with it
        if (
            max_speed > 0.0
            and last is not None
            and last[0] < stamp
            and stretch.distance(position, last[1]) > max_speed * 1e-9 * (stamp - last[0])
        ):
            return self.drops.count(DropReason.POSE_TOO_FAST)

        refused = self._track.add(Pose(stamp, position, quaternion, variance))
        if refused is not None:
            return self.drops.count(refused)

        self._last_pose = stamp, position
        self._follow(stamp)

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

        self._keep("add_tf", msg, static)
        self.received["tf"] += 1
        for stamp in self._tree.add(msg, static):
            if self._poses is self._tf:
                self._follow(stamp)

        for admitted in self._field_gate.release():
            self._take_reading(admitted.content)
        self._resolve()

    def add_fix(self, msg) -> None:
        """Take in a sensor_msgs/NavSatFix: where on the earth the robot is."""
        self._keep("add_fix", msg)
        self.fixes.add(msg)

    def poll(self) -> None:
        """Look again for the poses of what waits.

        An injected look-up does not say when it has learned something.
        """
        self._resolve()

    def _follow(self, stamp: int) -> None:
        """Let the poses go with measurements that have jumped back.

        Where a pose is not ahead of these measurements, the poses are in the same time already: a
        single stamp was wrong, and no loop began.

        Args:
            stamp: of the pose that has come, ns.
        """
        newest = self._last_field
        if (
            self._poses.epoch < self._field_epoch
            and newest is not None
            and stamp <= newest + self._jump_back
        ):
            self._poses.move_to(self._field_epoch)

    # ---- measurements in -------------------------------------------------------------------------

    def add_measurement(self, msg, received_ns: int | None = None) -> None:
        """Take in a message of the sensor.

        Args:
            msg: the message.
            received_ns: when it was received or recorded, ns; stands in for the stamp of messages
                that have none (Float64).

        Raises:
            ValueError: there is no stamp, and received_ns is not given.
        """
        self._keep("add_measurement", to_keep(msg, frame_of(msg)), received_ns)
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

        reading = self._adaptor.read(msg, stamp)
        if isinstance(reading, DropReason):
            return self.drops.count(reading)

        taken, strays = self._field_gate.admit(stamp, reading)
        self.drops.count(DropReason.STRAY_STAMP, strays)
        for admitted in taken:
            self._take_reading(admitted.content)
        # poses whose stamps leap may have waited for this measurement
        for admitted in self._pose_gate.release():
            self._take_pose(admitted.stamp, *admitted.content)

    def _take_reading(self, reading: Reading) -> None:
        """Take in a measurement whose stamp has been admitted."""
        stamp, last = reading.stamp, self._last_field

        if last is not None and stamp < last - self._jump_back:
            # it jumps back: a new epoch
            self._field_epoch += 1
            # an injected look-up does not notice jumps itself
            if self._tf is self._poses and self._tree is None:
                self._poses.restart(self._field_epoch)
        elif last is not None and stamp <= last:
            return self.drops.count(
                DropReason.REPEATED_STAMP if stamp == last else DropReason.OUT_OF_ORDER
            )
        else:
            # the poses have jumped back, and this measurement is not ahead of them: one time again
            newest = self._poses.newest
            if (
                self._field_epoch < self._poses.epoch
                and newest is not None
                and stamp <= newest + self._jump_back
            ):
                self._field_epoch = self._poses.epoch

        if last is not None and stamp > last:
            self._advance += stamp - last
            self._steps.append(stamp - last)

        self._last_field = stamp
        self._waiting.append(
            _Waiting(self._field_epoch, reading, self._advance, self._longest_pause())
        )

        self._resolve()
        self._give_up()

    add_field = add_measurement

    def _longest_pause(self) -> int:
        """The longest pause within a pass, ns."""
        longest, slow = stretch.longest_pause(self._steps, self._pass_gap)
        if slow:
            self._warn(
                f"the sensor is slower than pass_gap allows ({self.settings.pass_gap:g} s): a pass ends after a "
                "pause of four of its periods"
            )

        return longest

    # ---- many messages at once -------------------------------------------------------------------

    def take_together(self, field: Stream, pose: Stream) -> list[tuple[bool, Samples]] | None:
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
        usual = (
            self._tf is None
            and self._first is None
            and self._oriented
            and self._out.empty
            and self._field_epoch == self._poses.epoch
            and self._last_field == self._field_gate.newest is not None
            and self._last_pose is not None
            and self._last_pose[0] == self._pose_gate.newest
            and all(
                w.epoch == self._field_epoch and w.longest == self._pass_gap for w in self._waiting
            )
        )

        if not usual or not reads_columns(self._adaptor):
            return None

        poses, read = (
            stretch.read_poses(pose, self.settings),
            self._adaptor.read_columns(field.columns),
        )
        return (
            None if read is None or poses is None else self._take_stretch(field, read, pose, *poses)
        )

    def _take_stretch(
        self, field: Stream, read: Readings, pose: Stream, poses: stretch.PoseRows, drops: Counter
    ) -> list[tuple[bool, Samples]] | None:
        """Pair a stretch, or return None where something in it is out of the ordinary.

        Args:
            field: measurements.
            read: as the adaptor read them.
            pose: pose messages.
            poses: a row for each.
            drops: poses that are dropped for what they say, by reason.
        """
        # what is refused for itself never comes to the gates
        usable = np.setdiff1d(np.arange(len(read)), list(read.refused))
        drops.update(read.refused.values())
        stamps = field.columns.stamps()
        stamps = (field.recorded if stamps is None else stamps)[usable]

        known_rows = np.flatnonzero(~np.isnan(poses.rows[:, 0]))
        poses = poses.at(known_rows)

        # where admitting all would lead; None where a stamp leaps
        field_steps, pose_steps = (
            self._field_gate.steady(stamps.tolist()),
            self._pose_gate.steady(poses.stamps.tolist()),
        )

        last_field = self._last_field
        if (
            field_steps is None
            or pose_steps is None
            or last_field is None
            or not len(stamps)
            or not len(known_rows)
        ):
            return None

        gates = field_steps, pose_steps
        for (_, _, late), again, older in (
            (gates[0], DropReason.REPEATED_STAMP, DropReason.OUT_OF_ORDER),
            (gates[1], DropReason.POSE_REPEATED_STAMP, DropReason.POSE_OUT_OF_ORDER),
        ):
            drops.update(again if same else older for same in late.values())

        fresh, on_time = (
            np.setdiff1d(np.arange(n), list(gate[2]))
            for n, gate in zip((len(stamps), len(known_rows)), gates)
        )
        stamps, poses = stamps[fresh], poses.at(on_time)

        buffer, waiting = self._track.buffer, list(self._waiting)
        all_stamps = np.array([*(w.reading.stamp for w in waiting), *stamps.tolist()])
        advance = np.array(
            [*(w.advance for w in waiting), *(self._advance + stamps - last_field).tolist()]
        )
        known = buffer.since(int(all_stamps[0])) if len(stamps) else []
        if not known:
            return None

        # by the order of all messages: the newest pose when each measurement came, and how long
        # measurements waited
        rows = poses.after(known)
        newest_pose = np.searchsorted(pose.where[known_rows[on_time]], field.where[usable[fresh]])
        longest, queue = stretch.waits(
            all_stamps, advance, len(waiting), rows.stamps[len(known) - 1 + newest_pose]
        )
        steps = [*self._steps, *np.diff(stamps, prepend=last_field).tolist()]
        if (
            len(rows.stamps) > buffer.size
            or rows.too_fast(len(known), self.settings.max_speed)
            or longest > self._max_wait
            or queue > self.settings.queue_size
            or len(all_stamps) > _READY_FACTOR * self.settings.queue_size
            or not stretch.seldom_slow(steps, len(self._steps), self._pass_gap)
        ):
            return None

        votes = [(self._votes["odometry_frame"], pose.columns.frame(), len(pose.columns))]
        if field.columns.stamps() is not None:
            votes.append((self._votes["sensor_frame"], field.columns.frame(), len(field.columns)))

        # a frame that is new decides one by one
        if not all(vote.held_by(frame) for vote, frame, _ in votes):
            return None

        # nothing is out of the ordinary: from here on the state changes
        for vote, _, count in votes:
            vote.count(count)
        for why, times in drops.items():
            self.drops.count(why, times)
        self.received[self.settings.sensor] += len(field.columns)
        self.received[self.settings.pose_source] += len(pose.columns)
        self._base = pose.columns.frame("child_frame_id") or self._base
        for gate, (last, step, _) in zip((self._field_gate, self._pose_gate), gates):
            gate.go_on(last, step)

        buffer.extend(poses.poses())
        if len(poses.stamps):
            self._last_pose = int(poses.stamps[-1]), tuple(poses.rows[-1, :3].tolist())
        self._advance, self._last_field = int(advance[-1]), int(stamps[-1])
        self._steps.extend(steps[len(self._steps) :])

        # measurements before number `placed` have their pose, the others wait
        placed = int(np.searchsorted(all_stamps, rows.stamps[-1], side="right"))
        readings = read.at(usable[fresh]).after([w.reading for w in waiting])
        self._waiting = deque(
            _Waiting(
                self._field_epoch,
                readings.row(i, int(all_stamps[i])),
                int(advance[i]),
                self._pass_gap,
            )
            for i in range(placed, len(all_stamps))
        )

        before, after, near = stretch.find_poses(all_stamps[:placed], rows.stamps, buffer.max_gap)
        self.drops.count(DropReason.POSE_GAP, int((~near).sum()))

        return self._out.place_rows(
            self._field_epoch,
            all_stamps[:placed][near],
            rows,
            before[near],
            after[near],
            readings.at(np.flatnonzero(near)),
            self._pass_gap,
        )

    # ---- samples out -----------------------------------------------------------------------------

    def take(self) -> Samples | None:
        """All samples whose pose is known, in stamp order, up to the next break.

        None where there are none, or where a break comes first.
        """
        return self._out.take(self._turns)

    def take_break(self) -> bool:
        """True once where the next samples begin a new pass.

        The session must break_pass() before it gets them.
        """
        return self._out.take_break()

    def batches(self, finish: bool = False) -> Iterator[tuple[bool, Samples]]:
        """Hand out all samples whose pose is known, cut where passes begin.

        Args:
            finish: nothing more will come; as `finish`.

        Yields:
            Whether a new pass begins, and the samples.
        """
        if finish:
            self._end()

        yield from self._out.batches(self._turns)

    @property
    def _turns(self) -> bool:
        """Whether poses have orientations."""
        return bool(self._oriented) or self._poses is self._tf

    def finish(self) -> Samples | None:
        """End the stream: hand out what can still be placed, and count the remainder as dropped.

        To be called until it returns None and no break comes.
        """
        self._end()
        return self.take()

    def add_unreadable(self, role: str, why: str) -> None:
        """Count a message whose bytes cannot be read, and say why.

        Args:
            role: of its input, as `inputs_of` names it.
            why: in words.
        """
        self._keep("add_unreadable", role, why)

        s = self.settings
        reasons = {"measurement": DropReason.UNREADABLE, ROLE: DropReason.FIX_UNREADABLE}
        self.received[
            {"measurement": s.sensor, "pose": s.pose_source, ROLE: ROLE}.get(role, "tf")
        ] += 1

        self.drops.count(reasons.get(role, DropReason.POSE_UNREADABLE))

        # the first ones are named, all are counted
        if sum(self.drops[reason] for reason in _UNREADABLE) <= _UNREADABLE_NAMED:
            self._warn(f"{why}; it is left out")

    def _end(self) -> None:
        """Take in what was held back, since nothing more will come."""
        # poses first: measurements may find their pose among them
        poses, strays = self._pose_gate.finish()
        self.drops.count(DropReason.POSE_STRAY_STAMP, strays)
        for admitted in poses:
            self._take_pose(admitted.stamp, *admitted.content)

        readings, strays = self._field_gate.finish()
        self.drops.count(DropReason.STRAY_STAMP, strays)
        for admitted in readings:
            self._take_reading(admitted.content)

        self._resolve(last_chance=True)

    def time_jump(self) -> None:
        """Forget all that waits, and all poses; the next sample begins a new pass.

        Called where the clock was set, or a bag loops.
        """
        self.drops.count(DropReason.TIME_JUMP, self.waiting)
        self._waiting.clear()
        self._field_gate.clear()
        self._pose_gate.clear()

        self._last_pose = None
        # later than any epoch so far
        self._field_epoch = max(self._field_epoch, self._poses.epoch) + 1
        self._poses.restart(self._field_epoch)
        self._last_field = None
        self._out.begin_pass()

    def _warn(self, text: str) -> None:
        if text not in self._warnings and len(self._warnings) < _MAX_WARNINGS:
            self._warnings.append(text)

    def _resolve(self, last_chance: bool = False) -> None:
        """Move measurements whose pose is known, or never will be, out of the queue."""
        while self._waiting:  # oldest first
            epoch, reading, _, longest = self._waiting[0]
            found = self._poses.find(epoch, reading.stamp, last_chance)

            mounting: Transform | None = None
            # with the sensor's mounting from TF both have to be known
            if isinstance(found, Bracket) and self.settings.mounting == "tf":
                frame = self._votes["sensor_frame"].frame
                looked = (
                    None
                    if self._tf is None
                    else self._tf.transform(
                        self._base, frame, reading.stamp, last_chance=last_chance
                    )
                )
                if isinstance(looked, Transform):
                    mounting = looked
                else:
                    found = looked

            # the oldest still waits, and so do those after it
            if found is None:
                return

            self._waiting.popleft()
            if isinstance(found, DropReason):
                self.drops.count(found)
            else:
                self._out.add(epoch, reading, found, mounting, longest)

    def _give_up(self) -> None:
        """Drop measurements that have waited for too long, or do not fit into the queue.

        Too long: until stamps have advanced by more than max_wait.
        """
        while self._waiting and self._advance - self._waiting[0].advance > self._max_wait:
            self._waiting.popleft()
            # where TF failed, a transform is what was missing
            missing = self._tf is not None and self._tf.problem is not None
            self.drops.count(DropReason.NO_TRANSFORM if missing else DropReason.NO_POSE)

        while len(self._waiting) > self.settings.queue_size:
            self._waiting.popleft()
            self.drops.count(DropReason.QUEUE_FULL)
