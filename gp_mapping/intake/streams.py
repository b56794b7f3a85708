"""The two streams, measurements and poses, paired by their stamps.

Nothing here depends on the messages that they came in, nor on how the two interleave.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.intake import stretch
from gp_mapping.intake.clocks.field_clock import FieldClock
from gp_mapping.intake.clocks.lead import Lead
from gp_mapping.intake.clocks.order import InOrder
from gp_mapping.intake.clocks.stamps import ClockRanges, Spans, Stamped, StampGate
from gp_mapping.intake.columns import Readings, Stream
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.messages import Reading
from gp_mapping.intake.outlet import Outlet
from gp_mapping.intake.placing import Placer
from gp_mapping.intake.poses.buffer import Bracket, Pose, PoseBuffer, PoseRows, read_numbers
from gp_mapping.intake.poses.lateness import Lateness, forgotten_notes
from gp_mapping.intake.poses.tf_poses import TfPoses
from gp_mapping.intake.poses.track import PoseTrack
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.intake.sensors.sketch import Sketch
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["Mounting", "Streams", "pose_buffer", "to_nanoseconds"]

_READY_FACTOR = 100  # bound of the samples that nobody takes, in units of queue_size

# T_base_sensor at a stamp (ns), given whether nothing more will come; None: not known yet
Mounting = Callable[[int, bool], Transform | DropReason | None]


def to_nanoseconds(seconds: float) -> int:
    """Seconds in integer nanoseconds."""
    return round(1e9 * seconds)


def pose_buffer(settings: IntakeSettings) -> PoseBuffer:
    """An empty buffer of poses, or of the transforms of one TF link."""
    return PoseBuffer(
        settings.pose_buffer_size,
        to_nanoseconds(settings.max_pose_gap),
        to_nanoseconds(settings.max_extrapolation),
        settings.max_position,
    )


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


class Streams:
    """Pairs each measurement with the pose at its own stamp.

    Each of the two streams counts its own jumps back in time (its epoch), and a measurement is
    paired with poses of the same epoch only: how the two topics interleave on the way does not
    matter.

    Args:
        settings: how measurements and poses are paired.
        placer: makes Samples of them.
        drops: counts what is not used.
        warn: is given sentences for a person.
        tf: the TF look-up, where poses or the mounting come from TF.
        jumps: whether poses by TF notice jumps back in time themselves; an injected look-up does
            not.
        mounting: how the sensor sits on the robot; None: as the settings say.
        sketch: notes which measurements were handed out; None: a new one.
        as_received: messages come in the order in which they were received: what comes together
            tells of clocks.

    Attributes:
        poses: where the robot was.
        ranges: of the stamps of both streams.
    """

    def __init__(
        self,
        settings: IntakeSettings,
        placer: Placer,
        drops: DropCounter,
        warn: Callable[[str], None],
        tf: TfPoses | None = None,
        jumps: bool = True,
        mounting: Mounting | None = None,
        sketch: Sketch | None = None,
        as_received: bool = False,
    ):
        self._settings, self._drops, self._warn = settings, drops, warn
        self._tf, self._jumps, self._mounting = tf, jumps, mounting

        s = settings
        self._max_wait, self._jump_back, self._pass_gap = map(
            to_nanoseconds, (s.max_wait, s.jump_back, s.pass_gap)
        )

        ready = _READY_FACTOR * s.queue_size
        late = to_nanoseconds(s.stamp_offset)
        self._limits = stretch.Limits(
            self._max_wait, self._pass_gap, s.max_speed, s.queue_size, ready, late
        )

        self._out = Outlet(placer, drops, ready, sketch, late)
        self._waiting: deque[_Waiting] = deque()
        self.ranges, self._lateness, self._lead = (
            ClockRanges(),
            Lateness(),
            Lead(as_received, s.stamp_offset),
        )
        # of the newest pose message, as it came: TF has links that are stamped ahead of their time
        self._posed: int | None = None

        # a measurement further from any pose in time is never paired
        near = max(self._max_wait, to_nanoseconds(s.max_pose_gap))
        self._field_gate, self._pose_gate = (
            StampGate(self._jump_back, near, s.queue_size) for _ in range(2)
        )
        # each stream is the other's witness
        self._field_gate.set_witness(self._pose_clock)
        self._pose_gate.set_witness(self._field_gate.covered_and_held)
        # half of max_wait: a measurement that is in order is to find a pose that waited
        self._field_order, self._pose_order = (
            InOrder(self._max_wait // 2, self._jump_back, s.queue_size) for _ in range(2)
        )

        # stamp and position, for max_speed
        self._last_pose: tuple[int, tuple[float, ...]] | None = None
        self._clock = FieldClock(self._jump_back, self._pass_gap)
        self._oriented: bool | None = None  # whether poses have orientations; the first decides

        # of poses that come as messages; a partial, for an intake may go on in another process
        self._track = PoseTrack(partial(pose_buffer, s), self._jump_back)
        self.poses: PoseTrack | TfPoses = (
            tf if tf is not None and s.pose_source == "tf" else self._track
        )

    @property
    def samples(self) -> int:
        """How many samples were handed out."""
        return self._out.samples

    @property
    def motion_notes(self) -> list[str]:
        """What a person should look at of how poses and samples moved, in sentences."""
        track = self._track
        motion = self._out.motion.notes(self._settings.max_speed)
        return [*track.tracks.notes(), *track.restarts.notes(), *motion]

    @property
    def first_stamp(self) -> float | None:
        """Stamp of the first sample, s; None before it."""
        return self._out.first_stamp

    @property
    def last_stamp(self) -> float | None:
        """Stamp of the newest accepted measurement, s; None before the first."""
        return None if self._clock.newest is None else self._clock.newest / 1e9

    @property
    def waiting(self) -> int:
        """How many measurements wait.

        Their pose is not known yet, their stamp leaps and is not confirmed yet, or an older one may
        come.
        """
        return len(self._waiting) + self._field_gate.holding + self._field_order.holding

    @property
    def notes(self) -> list[str]:
        """What came out of order and was put in order, and two clocks, in words."""
        lost = not self.samples and self._drops[DropReason.NO_POSE]
        apart = self.ranges.notes(self._max_wait, bool(lost), self._lead.mends())
        # poses of another clock are not late, whatever max_wait is
        apart = apart or self._lead.step_notes()
        apart = apart or self._lead.notes(self._lateness.seconds)
        apart = apart or self._lateness.note(self._settings.max_wait)
        apart = [*apart, *forgotten_notes(self._track.buffer)]
        if self._drops[DropReason.POSE_GAP]:
            apart += self._track.restarts.seldom_notes(self._settings.max_pose_gap)
        return [*apart, *self._field_order.note("measurements"), *self._pose_order.note("poses")]

    def forget_steps(self) -> None:
        """Forget that clocks were set apart: another map begins."""
        self._lead.forget_steps()

    def forget_leaps(self) -> None:
        """Forget that poses leapt, or began anew: the map is empty."""
        self._track.restarts.forget()
        self._out.motion.forget_leaps()

    # ---- poses in --------------------------------------------------------------------------------

    def add_pose(self, stamp: int, position, quaternion, variance: float) -> None:
        """Take in a pose of the base frame.

        Args:
            stamp: ns.
            position: (3,) m.
            quaternion: x y z w; None: no orientation. All poses have one, or none, as the first.
            variance: of a coordinate, m².
        """
        if self._oriented is None:
            self._oriented = quaternion is not None
        if self._oriented and quaternion is None:
            return self._drops.count(DropReason.POSE_ZERO_QUATERNION)

        pose = read_numbers(
            position, quaternion if self._oriented else None, self._settings.max_position
        )
        if isinstance(pose, DropReason):
            return self._drops.count(pose)

        self.ranges.add_pose(stamp)
        self._posed = stamp
        taken, strays = self._pose_gate.admit(stamp, (*pose, variance))
        self._drops.count(DropReason.POSE_STRAY_STAMP, strays)
        self._order_poses(taken)
        # measurements whose stamps leap may have waited for this pose
        self._order_readings(self._field_gate.release())
        self._resolve()

    def pair_transforms(self, stamps: Iterable[int]) -> None:
        """Pair what TF has made possible.

        Args:
            stamps: of the transforms that have come, ns.
        """
        for stamp in stamps if self.poses is self._tf else ():
            self.ranges.add_pose(stamp)
            self._follow(stamp)

        self._order_readings(self._field_gate.release())
        self._resolve()

    def poll(self) -> None:
        """Look again for the poses of what waits.

        An injected look-up does not say when it has learned something.
        """
        self._resolve()

    def _pose_clock(self) -> Spans | None:
        """Where the poses are in time; None where TF cannot say it."""
        if self.poses is self._tf:
            return None if (newest := self.poses.newest) is None else ((newest, newest),)
        return self._pose_gate.covered_and_held()

    def _order_poses(self, admitted: list[Stamped]) -> None:
        """Take in poses whose stamps have been admitted, in the order of these."""
        for message in admitted:
            for pose in self._pose_order.add(message):
                self._take_pose(pose.stamp, *pose.content)

    def _take_pose(self, stamp: int, position, quaternion, variance: float) -> None:
        """Take in the next pose."""
        last, max_speed = self._last_pose, self._settings.max_speed
        # a pose before the last one (time has jumped back) is not compared with it
        if (
            max_speed > 0.0
            and last is not None
            and last[0] < stamp
            and stretch.distance(position, last[1]) > max_speed * 1e-9 * (stamp - last[0])
        ):
            return self._drops.count(DropReason.POSE_TOO_FAST)

        refused = self._track.add(Pose(stamp, position, quaternion, variance))
        if refused is not None:
            return self._drops.count(refused)

        self._last_pose = stamp, position
        self._follow(stamp)

    def _follow(self, stamp: int) -> None:
        """Let the poses go with measurements that have jumped back.

        Where a pose is not ahead of these measurements, the poses are in the same time already: a
        single stamp was wrong, and no loop began.

        Args:
            stamp: of the pose that has come, ns.
        """
        clock = self._clock
        self._lateness.add_pose(self.poses.epoch, stamp, clock.newest)
        if self.poses.epoch < clock.epoch and clock.is_in_time_of(stamp, clock.newest):
            self.poses.move_to(clock.epoch)

    # ---- measurements in -------------------------------------------------------------------------

    def add_reading(self, reading: Reading, posed: int | None = None) -> None:
        """Take in a measurement.

        Args:
            reading: as its adaptor read it.
            posed: stamp of the newest pose that had arrived by then, ns; None: the newest here.
        """
        self.ranges.add_field(reading.stamp)
        self._lead.add(reading.stamp, self._posed if posed is None else posed)
        taken, strays = self._field_gate.admit(reading.stamp, reading)
        self._drops.count(DropReason.STRAY_STAMP, strays)
        self._order_readings(taken)
        # poses whose stamps leap may have waited for this measurement
        self._order_poses(self._pose_gate.release())

    def _order_readings(self, admitted: list[Stamped]) -> None:
        """Take in measurements whose stamps have been admitted, in the order of these."""
        for message in admitted:
            for reading in self._field_order.add(message):
                self._take_reading(reading.content)

    def _take_reading(self, reading: Reading) -> None:
        """Take in the next measurement."""
        stamp, clock = reading.stamp, self._clock

        if clock.jumps_back(stamp):
            clock.epoch += 1
            # an injected look-up does not notice jumps itself
            if self._tf is self.poses and not self._jumps:
                self.poses.restart(clock.epoch)
        elif clock.is_past(stamp):
            return self._drops.count(
                DropReason.REPEATED_STAMP if stamp == clock.newest else DropReason.OUT_OF_ORDER
            )
        # the poses have jumped back, and this measurement is not ahead of them: one time again
        elif clock.epoch < self.poses.epoch and clock.is_in_time_of(stamp, self.poses.newest):
            clock.epoch = self.poses.epoch

        clock.move_to(stamp)
        self._waiting.append(_Waiting(clock.epoch, reading, clock.advance, self._longest_pause()))

        self._resolve()
        self._give_up()

    def _longest_pause(self) -> int:
        """The longest pause within a pass, ns."""
        longest, slow = self._clock.longest_pause()
        if slow:
            self._warn(
                f"the sensor is slower than pass_gap allows ({self._settings.pass_gap:g} s): a pass ends after a "
                "pause of four of its periods"
            )

        return longest

    # ---- many messages at once -------------------------------------------------------------------

    @property
    def is_steady(self) -> bool:
        """Whether measurements and poses may be taken in at once by `take_stretch`."""
        return bool(
            self._tf is None
            and self._oriented
            and self._out.empty
            and self._field_order.passing
            and self._pose_order.passing
            and self._clock.epoch == self.poses.epoch
            and self._clock.newest == self._field_gate.newest is not None
            and self._last_pose is not None
            and self._last_pose[0] == self._pose_gate.newest
            and all(
                w.epoch == self._clock.epoch and w.longest == self._pass_gap for w in self._waiting
            )
        )

    def take_stretch(
        self, field: Stream, read: Readings, pose: Stream, poses: PoseRows, drops: Counter
    ) -> list[tuple[bool, Samples]] | None:
        """Pair a stretch at once, where `is_steady`.

        Args:
            field: measurements.
            read: as the adaptor read them.
            pose: pose messages.
            poses: a row for each.
            drops: poses that are dropped for what they say, by reason.

        Returns:
            Whether a new pass begins, and the samples, for each batch. None where something is out
            of the ordinary: nothing has been taken in.
        """
        begun = stretch.Begun(
            self._clock,
            (self._field_gate, self._pose_gate),
            self._track.buffer,
            [(waits.reading.stamp, waits.advance) for waits in self._waiting],
        )
        plan = stretch.plan_stretch(begun, self._limits, field, read, pose, poses)
        if plan is None:
            return None

        # nothing is out of the ordinary: from here on the state changes
        for why, times in (drops + plan.drops).items():
            self._drops.count(why, times)
        self._field_gate.admit_planned(*plan.gates[0])
        self._pose_gate.admit_planned(*plan.gates[1])
        self._field_order.go_on(plan.gates[0][0])
        self._pose_order.go_on(plan.gates[1][0])

        poses = plan.poses
        self._track.extend(poses)
        if len(poses.stamps):
            self._last_pose = int(poses.stamps[-1]), tuple(poses.rows[-1, :3].tolist())
            self._posed = self._last_pose[0]
        stamps = plan.stamps[len(self._waiting) :].tolist()
        self._clock.move_through(stamps)
        self._lead.add_all(stamps, plan.met.tolist())

        readings = read.select(plan.usable).preceded_by([w.reading for w in self._waiting])
        return self._pair_planned(plan, readings)

    def _pair_planned(
        self, plan: stretch.StretchPlan, readings: Readings
    ) -> list[tuple[bool, Samples]]:
        """Pair all measurements of a plan, those that had waited among them; the last may wait.

        Args:
            plan: of a stretch.
            readings: (N,) a row for each of the plan's stamps.

        Returns:
            Whether a new pass begins, and the samples, for each batch.
        """
        stamps, rows, epoch = plan.stamps, plan.rows, self._clock.epoch

        # measurements before number `placed` have their pose, the others wait
        placed = int(np.searchsorted(stamps, rows.stamps[-1], side="right"))
        self._waiting = deque(
            _Waiting(epoch, readings.row(i, int(stamps[i])), int(plan.advance[i]), self._pass_gap)
            for i in range(placed, len(stamps))
        )

        max_gap = self._track.buffer.max_gap
        before, after, near = stretch.find_poses(stamps[:placed], rows.stamps, max_gap)
        self._drops.count(DropReason.POSE_GAP, int((~near).sum()))

        return self._out.place_rows(
            epoch,
            stamps[:placed][near],
            rows,
            before[near],
            after[near],
            readings.select(np.flatnonzero(near)),
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
            self.end()

        yield from self._out.batches(self._turns)

    @property
    def _turns(self) -> bool:
        """Whether poses have orientations."""
        return bool(self._oriented) or self.poses is self._tf

    def end(self) -> None:
        """Take in what was held back, since nothing more will come."""
        # poses first: measurements may find their pose among them
        poses, strays = self._pose_gate.finish()
        self._drops.count(DropReason.POSE_STRAY_STAMP, strays)
        self._order_poses(poses)
        for pose in self._pose_order.finish():
            self._take_pose(pose.stamp, *pose.content)

        readings, strays = self._field_gate.finish()
        self._drops.count(DropReason.STRAY_STAMP, strays)
        self._order_readings(readings)
        for reading in self._field_order.finish():
            self._take_reading(reading.content)

        self._resolve(last_chance=True)

    def time_jump(self) -> None:
        """Forget all that waits, and all poses; the next sample begins a new pass.

        Called where the clock was set, or a bag loops.
        """
        self._drops.count(DropReason.TIME_JUMP, self.waiting)
        self._waiting.clear()
        self._field_gate.clear()
        self._pose_gate.clear()
        self._field_order.clear()
        self._pose_order.clear()

        self._last_pose, self._posed, self.ranges = None, None, ClockRanges()
        self._lead.restart()
        # later than any epoch so far
        self._clock.restart(max(self._clock.epoch, self.poses.epoch) + 1)
        self.poses.restart(self._clock.epoch)
        self._out.begin_pass()

    def _resolve(self, last_chance: bool = False) -> None:
        """Move measurements whose pose is known, or never will be, out of the queue."""
        while self._waiting:  # oldest first
            epoch, reading, _, longest = self._waiting[0]
            found = self.poses.find(epoch, reading.stamp, last_chance)

            mounting: Transform | None = None
            # with the sensor's mounting from TF both have to be known
            if isinstance(found, Bracket) and self._mounting is not None:
                looked = self._mounting(reading.stamp, last_chance)
                if isinstance(looked, Transform):
                    mounting = looked
                else:
                    found = looked

            # the oldest still waits, and so do those after it
            if found is None:
                return

            self._waiting.popleft()
            if isinstance(found, DropReason):
                self._drops.count(found)
            else:
                self._out.add(epoch, reading, found, mounting, longest)

    def _give_up(self) -> None:
        """Drop measurements that have waited for too long, or do not fit into the queue.

        Too long: until stamps have advanced by more than max_wait.
        """
        while self._waiting and self._clock.advance - self._waiting[0].advance > self._max_wait:
            waited = self._waiting.popleft()
            self._lateness.give_up(waited.epoch, waited.reading.stamp)
            # where TF does not connect the frames, a transform is what was missing
            missing = self._tf is not None and self._tf.apart
            if self._tf is not None:
                self._tf.waited_in_vain = True
            self._drops.count(DropReason.NO_TRANSFORM if missing else DropReason.NO_POSE)

        while len(self._waiting) > self._settings.queue_size:
            self._waiting.popleft()
            self._drops.count(DropReason.QUEUE_FULL)
