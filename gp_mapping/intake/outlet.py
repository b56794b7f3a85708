"""Samples out: measurements whose poses are known, until they are taken, cut where passes begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.intake.columns import Readings
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.messages import Reading
from gp_mapping.intake.placing import Placed, Placer
from gp_mapping.intake.poses.buffer import Bracket
from gp_mapping.intake.poses.transforms import Transform
from gp_mapping.intake.stretch import PoseRows

__all__ = ["Outlet"]


class Outlet:
    """Measurements with their poses, in stamp order, handed out as Samples.

    A new pass begins where the epoch is another one, or after a pause longer than a pass may have; no samples are ever
    handed out across that.

    Args:
        placer: makes Samples of them.
        drops: counts those that cannot be placed, and those that nobody takes.
        most: so many wait to be taken.
    """

    def __init__(self, placer: Placer, drops: DropCounter, most: int):
        self._placer, self._drops, self._most = placer, drops, most
        self._ready: deque[Placed] = deque()
        self._newest: tuple[int, int] | None = None  # epoch and stamp of the newest that came, ns
        self._force_break = self._at_break = False
        self.samples = 0  # handed out
        self.first_stamp: float | None = None  # s, of the first sample

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be taken."""
        return not self._ready

    def begin_pass(self) -> None:
        """What comes next belongs to another pass than what came until now."""
        self._force_break = self._newest is not None

    # ---- one by one ----------------------------------------------------------------------------------------------

    def add(
        self,
        epoch: int,
        reading: Reading,
        bracket: Bracket,
        mounting: Transform | None,
        longest: int,
    ) -> None:
        """A measurement between two poses. longest: a longer pause before it begins a new pass, ns."""
        if len(self._ready) >= self._most:
            return self._drops.count(DropReason.QUEUE_FULL)

        last = self._newest
        paused = last is not None and (epoch != last[0] or reading.stamp - last[1] > longest)
        self._ready.append(Placed(reading, bracket, mounting, self._force_break or paused))
        self._force_break, self._newest = False, (epoch, reading.stamp)

    def take(self, oriented: bool) -> Samples | None:
        """All that wait, up to the next break; None: nothing, or a break comes. oriented: poses have orientations."""
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
        return samples

    def take_break(self) -> bool:
        """True once where the next samples begin a new pass."""
        if not self._at_break:
            return False
        self._at_break = False
        self._ready[0] = self._ready[0]._replace(new_pass=False)
        return True

    def batches(self, oriented: bool) -> Iterator[tuple[bool, Samples]]:
        """(begins a new pass, samples) until nothing is left to hand out."""
        new_pass = False
        while self._ready:
            new_pass, self._at_break = new_pass or self._ready[0].new_pass, False
            self._ready[0] = self._ready[0]._replace(new_pass=False)
            samples = self.take(oriented)
            if samples is not None and len(samples):
                yield new_pass, samples
                new_pass = False

    # ---- many at once --------------------------------------------------------------------------------------------

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
        """Samples of measurements at stamps (N,) in ns, between poses of these numbers, cut where passes begin.

        Nothing waits to be taken before them.
        """
        if not len(stamps):
            return []
        last = self._newest
        pause = np.diff(stamps, prepend=stamps[0] if last is None else last[1]) > longest
        pause[0] |= self._force_break or (last is not None and last[0] != epoch)
        self._force_break, self._newest = False, (epoch, int(stamps[-1]))

        out, new_pass = [], False
        ends = [*np.flatnonzero(pause[1:]).tolist(), len(stamps) - 1]
        for start, end in zip([0, *(end + 1 for end in ends)], ends):
            part = np.arange(start, end + 1)
            new_pass |= bool(pause[start])
            samples = self._placer.place_rows(
                stamps[part],
                rows.between(stamps[part], before[part], after[part]),
                readings.at(part),
            )
            if self._count(len(part), samples):
                out.append((new_pass, samples))
                new_pass = False
        return out

    def _count(self, count: int, samples: Samples) -> int:
        """Count what is handed out of so many measurements; how many samples that is."""
        self._drops.count(DropReason.NOT_PLACEABLE, count - len(samples))
        self.samples += len(samples)
        if self.first_stamp is None and samples.stamp is not None and len(samples):
            self.first_stamp = float(samples.stamp[0])
        return len(samples)
