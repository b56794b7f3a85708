"""Samples out: placed measurements wait here until they are taken, cut where passes begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.intake.columns import Readings
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.messages import Reading
from gp_mapping.intake.placing import Placed, Placer
from gp_mapping.intake.poses.buffer import Bracket, PoseRows
from gp_mapping.intake.poses.motion import Motion
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.intake.sensors.sketch import Sketch

__all__ = ["Outlet"]


class Outlet:
    """Measurements with their poses, in stamp order, handed out as Samples.

    A new pass begins where the epoch changes, or after a pause longer than a pass may have. A batch
    of samples never spans such a break.

    Args:
        placer: makes Samples of measurements.
        drops: counts measurements that cannot be placed, and those that nobody takes.
        most: how many may wait to be taken.
        sketch: notes which measurements were handed out; None: a new one.
        late: by how much stamps as they came are later than those of the readings, ns.

    Attributes:
        samples: how many were handed out.
        first_stamp: of the first of them, s.
        motion: how they moved.
    """

    def __init__(
        self,
        placer: Placer,
        drops: DropCounter,
        most: int,
        sketch: Sketch | None = None,
        late: int = 0,
    ):
        self._placer, self._drops, self._most, self._late = placer, drops, most, late
        self._sketch = sketch or Sketch()
        self._ready: deque[Placed] = deque()
        self._newest: tuple[int, int] | None = None  # epoch and stamp (ns) of the newest that came
        # the next measurement begins a new pass whatever its stamp; take() has stopped at a break
        self._force_break = self._at_break = False
        self.samples, self.motion = 0, Motion()
        self.first_stamp: float | None = None

    @property
    def empty(self) -> bool:
        """Whether no measurement waits to be taken."""
        return not self._ready

    def begin_pass(self) -> None:
        """Let a new pass begin with the next measurement."""
        self._force_break = self._newest is not None

    # ---- one by one ------------------------------------------------------------------------------

    def add(
        self,
        epoch: int,
        reading: Reading,
        bracket: Bracket,
        mounting: Transform | None,
        longest: int,
    ) -> None:
        """Append a measurement between two poses.

        Args:
            epoch: of measurement and poses.
            reading: the measurement.
            bracket: the poses around it.
            mounting: T_base_sensor at its stamp; None: as the settings say.
            longest: a longer pause before it begins a new pass, ns.
        """
        if len(self._ready) >= self._most:
            return self._drops.count(DropReason.QUEUE_FULL)

        last = self._newest
        # stamps of another epoch do not compare
        paused = last is not None and (epoch != last[0] or reading.stamp - last[1] > longest)
        self._ready.append(Placed(reading, bracket, mounting, self._force_break or paused))
        self._force_break, self._newest = False, (epoch, reading.stamp)

    def take(self, oriented: bool) -> Samples | None:
        """Hand out all that wait, up to the next break.

        Args:
            oriented: whether the poses have orientations.

        Returns:
            None where nothing waits, or where a break comes first.
        """
        if not self._ready:
            return None
        if self._ready[0].new_pass:
            self._at_break = True
            return None

        batch = [self._ready.popleft()]
        while self._ready and not self._ready[0].new_pass:
            batch.append(self._ready.popleft())
        samples = self._placer.place(batch, oriented)
        self._count(len(batch), samples)
        self._sketch.add(
            np.array([placed.reading.stamp + self._late for placed in batch]),
            np.array([placed.reading.values for placed in batch], float),
        )
        return samples

    def take_break(self) -> bool:
        """True once where the next samples begin a new pass."""
        if not self._at_break:
            return False

        self._at_break = False
        self._ready[0] = self._ready[0]._replace(new_pass=False)
        return True

    def batches(self, oriented: bool) -> Iterator[tuple[bool, Samples]]:
        """Hand out all that wait, in batches cut at breaks.

        Args:
            oriented: whether the poses have orientations.

        Yields:
            Whether a new pass begins, and the samples.
        """
        new_pass = False
        while self._ready:
            # a break stays due while batches come out empty
            new_pass, self._at_break = new_pass or self._ready[0].new_pass, False
            self._ready[0] = self._ready[0]._replace(new_pass=False)

            samples = self.take(oriented)
            if samples is not None and len(samples):
                yield new_pass, samples
                new_pass = False

    # ---- many at once ----------------------------------------------------------------------------

    def place_rows(
        self,
        epoch: int,
        stamps: np.ndarray,
        rows: PoseRows,
        before: np.ndarray,
        after: np.ndarray,
        readings: Readings,
        longest: int,
    ) -> list[tuple[bool, Samples]]:
        """Hand out many measurements at once, cut where passes begin; nothing may wait before them.

        Args:
            epoch: of measurements and poses.
            stamps: (N,) of the measurements, ns.
            rows: poses.
            before: (N,) number of the pose before each stamp.
            after: (N,) number of the pose after each stamp.
            readings: N measurements.
            longest: a longer pause between two measurements begins a new pass, ns.

        Returns:
            Whether a new pass begins, and the samples, for each part.
        """
        if not len(stamps):
            return []
        self._sketch.add(stamps + self._late, readings.values)

        last = self._newest
        # begins[i]: a new pass begins with measurement i
        begins = np.diff(stamps, prepend=stamps[0] if last is None else last[1]) > longest
        begins[0] |= self._force_break or (last is not None and last[0] != epoch)
        self._force_break, self._newest = False, (epoch, int(stamps[-1]))

        out, new_pass = [], False
        # number of the last measurement of each part
        ends = [*np.flatnonzero(begins[1:]).tolist(), len(stamps) - 1]
        for start, end in zip([0, *(end + 1 for end in ends)], ends):
            part = np.arange(start, end + 1)
            new_pass |= bool(begins[start])
            samples = self._placer.place_rows(
                stamps[part],
                rows.between(stamps[part], before[part], after[part]),
                readings.select(part),
            )
            if self._count(len(part), samples):
                out.append((new_pass, samples))
                new_pass = False
        return out

    def _count(self, count: int, samples: Samples) -> int:
        """Count `count` measurements as handed out, and return how many samples they gave.

        The difference is counted as NOT_PLACEABLE.
        """
        self._drops.count(DropReason.NOT_PLACEABLE, count - len(samples))
        self.samples += len(samples)
        self.motion.watch(samples, self._placer.heights)
        if self.first_stamp is None and samples.stamp is not None and len(samples):
            self.first_stamp = float(samples.stamp[0])
        return len(samples)
