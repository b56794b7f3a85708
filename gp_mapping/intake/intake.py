"""Intake: messages in, Samples out. Everything goes by stamps, so that live and offline give the same samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.inbound import Reading, field_values, frame_of, read_field, stamp_ns
from gp_mapping.intake.pose_sync import Bracket, PoseBuffer, interpolate
from gp_mapping.intake.settings import IntakeSettings

__all__ = ["Intake"]

_MAX_WARNINGS = 20  # different texts; a frame that changes with each message must not fill the memory
_READY_FACTOR = 100  # samples that nobody takes, in units of queue_size


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)


class _Waiting(NamedTuple):
    epoch: int
    reading: Reading
    advance: int  # how far stamps had advanced in all when it came, ns


class _Ready(NamedTuple):
    reading: Reading
    bracket: Bracket
    new_pass: bool


class Intake:
    """Pairs each measurement with the pose at its own stamp.

    Each of the two streams counts its own jumps back in time (its epoch), and a measurement is paired with poses of
    the same epoch only: how the two topics interleave on the way does not matter.
    Use `for new_pass, samples in intake.batches()`: it says where a pass begins. `take` and `take_break` are the same
    in two calls: take() never hands out samples across a break, nor past one until take_break() was asked.
    """

    def __init__(self, settings: IntakeSettings | None = None):
        self.settings = s = settings or IntakeSettings()
        self.drops = DropCounter()
        self.received = {"magnetic_field": 0, "odometry": 0}
        self.samples = 0  # handed out
        self.warnings: list[str] = []
        self._frames = {"sensor_frame": s.sensor_frame.lstrip("/"), "odometry_frame": s.odometry_frame.lstrip("/")}
        self._frame_known = {name: bool(frame) for name, frame in self._frames.items()}
        self._max_wait, self._jump_back, self._pass_gap = map(_ns, (s.max_wait, s.jump_back, s.pass_gap))
        self._offset = np.array([s.sensor_offset_x, s.sensor_offset_y, s.sensor_offset_z])
        self._need_rotation = bool(self._offset.any()) or (s.field_component != "norm" and s.rotate_field)
        self._waiting: deque[_Waiting] = deque()
        self._ready: deque[_Ready] = deque()
        self._last_ready: tuple[int, int] | None = None  # epoch and stamp of the newest ready sample
        self._force_break = self._at_break = False
        self._field_epoch = self._pose_epoch = 0
        self._last_field: int | None = None
        self._advance = 0
        self._poses = {0: self._new_buffer()}  # epoch -> buffer; the current one and the one before

    def _new_buffer(self) -> PoseBuffer:
        s = self.settings
        return PoseBuffer(s.pose_buffer_size, _ns(s.max_pose_gap), _ns(s.max_extrapolation))

    @property
    def last_stamp(self) -> float | None:
        """Stamp of the newest accepted measurement in seconds."""
        return None if self._last_field is None else self._last_field / 1e9

    @property
    def waiting(self) -> int:
        """Measurements whose pose is not known yet."""
        return len(self._waiting)

    def add_odometry(self, msg) -> None:
        """Take in a nav_msgs/Odometry."""
        self.received["odometry"] += 1
        if not self._frame_fits("odometry_frame", frame_of(msg)):
            return self.drops.count(DropReason.POSE_UNEXPECTED_FRAME)
        p, q = msg.pose.pose.position, msg.pose.pose.orientation
        self.add_pose(stamp_ns(msg), (p.x, p.y, p.z), (q.x, q.y, q.z, q.w))

    def add_pose(self, stamp: int, position, quaternion=None) -> None:
        """Take in a pose of the base frame at a stamp in ns, wherever it comes from (TF, say)."""
        newest = self._poses[self._pose_epoch].newest
        jumped = newest is not None and stamp < newest - self._jump_back
        buffer = self._new_buffer() if jumped else self._poses[self._pose_epoch]
        refused = buffer.add(stamp, position, quaternion)
        if refused is not None:
            return self.drops.count(refused)
        if jumped:
            self._pose_epoch += 1
            self._poses = {e: b for e, b in self._poses.items() if e == self._pose_epoch - 1}
            self._poses[self._pose_epoch] = buffer
        elif self._pose_epoch < self._field_epoch and stamp <= self._last_field + self._jump_back:
            # the measurements jumped and these poses are no way ahead of them: a single wrong stamp, not a loop
            self._poses = {self._field_epoch: buffer}
            self._pose_epoch = self._field_epoch
        self._resolve()

    def add_field(self, msg) -> None:
        """Take in a sensor_msgs/MagneticField."""
        self.received["magnetic_field"] += 1
        if not self._frame_fits("sensor_frame", frame_of(msg)):
            return self.drops.count(DropReason.UNEXPECTED_FRAME)
        reading = read_field(msg, self.settings)
        if isinstance(reading, DropReason):
            return self.drops.count(reading)
        stamp, last = reading.stamp, self._last_field
        if last is not None and stamp < last - self._jump_back:
            self._field_epoch += 1
        elif last is not None and stamp <= last:
            return self.drops.count(DropReason.REPEATED_STAMP if stamp == last else DropReason.OUT_OF_ORDER)
        else:
            newest = self._poses[self._pose_epoch].newest
            if self._field_epoch < self._pose_epoch and newest is not None and stamp <= newest + self._jump_back:
                self._field_epoch = self._pose_epoch
        self._advance += max(stamp - last, 0) if last is not None else 0
        self._last_field = stamp
        self._waiting.append(_Waiting(self._field_epoch, reading, self._advance))
        self._resolve()
        self._give_up()

    def take(self) -> Samples | None:
        """All samples whose pose is known, in stamp order, up to the next break; None: nothing, or a break comes."""
        if not self._ready:
            return None
        if self._ready[0].new_pass:
            self._at_break = True
            return None
        batch = [self._ready.popleft()]
        while self._ready and not self._ready[0].new_pass:
            batch.append(self._ready.popleft())
        self.samples += len(batch)
        return self._place(batch)

    def take_break(self) -> bool:
        """True once where the next samples begin a new pass: the session must break_pass() before it gets them."""
        if not self._at_break:
            return False
        self._at_break = False
        self._ready[0] = self._ready[0]._replace(new_pass=False)
        return True

    def batches(self, finish: bool = False) -> Iterator[tuple[bool, Samples]]:
        """(begins a new pass, samples) until nothing is left to hand out now; finish: as `finish`, for the end."""
        if finish:
            self._resolve(last_chance=True)
        while self._ready:
            new_pass, self._at_break = self._ready[0].new_pass, False
            self._ready[0] = self._ready[0]._replace(new_pass=False)
            yield new_pass, self.take()

    def finish(self) -> Samples | None:
        """End of the stream: what can still be placed (call until None and no break); the rest is counted."""
        self._resolve(last_chance=True)
        return self.take()

    def time_jump(self) -> None:
        """Forget all that waits and all poses (the clock was set, a bag loops); the next sample begins a new pass."""
        self.drops.count(DropReason.TIME_JUMP, len(self._waiting))
        self._waiting.clear()
        self._field_epoch = self._pose_epoch = max(self._field_epoch, self._pose_epoch) + 1
        self._poses = {self._pose_epoch: self._new_buffer()}
        self._last_field = None
        self._force_break = self._last_ready is not None

    def _frame_fits(self, which: str, frame: str) -> bool:
        """True for the frame that is expected, or for the first one where none is."""
        if not self._frame_known[which]:
            self._frames[which], self._frame_known[which] = frame, True
        if frame == self._frames[which]:
            return True
        text = f"{which}: a message is in frame {frame!r}, expected {self._frames[which]!r}; such messages are dropped"
        if text not in self.warnings and len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(text)
        return False

    def _resolve(self, last_chance: bool = False) -> None:
        """Move measurements whose pose is known (or never will be) out of the queue, oldest first."""
        while self._waiting:
            epoch, reading, _ = self._waiting[0]
            buffer, jumped = self._poses.get(epoch), epoch < self._pose_epoch
            if buffer is not None:
                found = buffer.bracket(reading.stamp, last_chance=last_chance or jumped)
            else:  # the poses' epoch is long over, or they have not made this jump yet
                found = DropReason.NO_POSE if jumped or last_chance else None
            if found is None:
                return
            self._waiting.popleft()
            if found is DropReason.NO_POSE and jumped and (buffer is None or reading.stamp > buffer.newest):
                found = DropReason.TIME_JUMP
            if isinstance(found, DropReason):
                self.drops.count(found)
            else:
                self._append_ready(epoch, reading, found)

    def _append_ready(self, epoch: int, reading: Reading, bracket: Bracket) -> None:
        if len(self._ready) >= _READY_FACTOR * self.settings.queue_size:
            return self.drops.count(DropReason.QUEUE_FULL)
        last = self._last_ready
        new_pass = self._force_break or (last is not None and (epoch != last[0] or
                                                               reading.stamp - last[1] > self._pass_gap))
        self._force_break, self._last_ready = False, (epoch, reading.stamp)
        self._ready.append(_Ready(reading, bracket, new_pass))

    def _give_up(self) -> None:
        """Drop what has waited while stamps advanced by more than max_wait, and what does not fit into the queue."""
        while self._waiting and self._advance - self._waiting[0].advance > self._max_wait:
            self._waiting.popleft()
            self.drops.count(DropReason.NO_POSE)
        while len(self._waiting) > self.settings.queue_size:
            self._waiting.popleft()
            self.drops.count(DropReason.QUEUE_FULL)

    def _place(self, batch: list[_Ready]) -> Samples:
        """Positions of the sensor in the map frame (pose + R · lever arm) and the mapped values."""
        readings = [r.reading for r in batch]
        stamps = [r.stamp for r in readings]
        positions, rotation = interpolate([r.bracket for r in batch], stamps, self._need_rotation)
        if self._need_rotation and rotation is None:
            raise ValueError("a lever arm or an axis of the field needs poses with orientation, and these have none")
        if self._offset.any():
            positions = positions + rotation.apply(self._offset)
        y, variance = field_values(readings, self.settings, rotation)
        return Samples(x=positions[:, :2], y=y, stamp=[t / 1e9 for t in stamps], sensor_variance=variance)
