"""Whether measurements and poses have one clock, by which of them come together.

The lead of a measurement is its stamp less that of the newest pose when it comes. With one clock it
is the poses' delay less the measurement's, a fraction of a second that hardly changes, however fast
the messages are played. The median of _WINDOW leads or more, over _SECONDS or more, leaves single
ones out; while no pose comes leads say nothing of the clocks, and the window goes on. Of _LONG
medians, and the _LONG after them,

    a step      where both groups are level (their ranges are _LEVEL of it, and _SECONDS, at most),
                and _STEP apart or more: a clock was set. Where poses pause leads grow as time does,
                which is no level
    two clocks  where the medians of all so far have a median of more than _APART
    two rates   where those of the first, the second and the last third of them lie on a line, to
                _LEVEL of its rise, and rise by _STEP or more

Nothing is dropped by it: what is taken depends on stamps alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median, median_low

__all__ = ["Lead"]

_WINDOW, _LONG = 8, 5  # measurements, and windows
_SECONDS = 0.5
_MOST = 1000  # measurements of a window, whatever their stamps
_STEP, _APART = 0.4, 0.5  # s
_LEVEL = 0.25
_KEPT = 200  # medians, of which the median is the usual lead; of twice as many each other one
_FEWEST_MEDIANS = 30  # that tell a rate


class Lead:
    """Compares the stamp of each measurement with the newest pose's when it comes.

    Args:
        as_received: messages come in the order in which they were received; else nothing is
            compared.
        taken_off: what has been taken off these stamps already, s.
    """

    def __init__(self, as_received: bool = True, taken_off: float = 0.0):
        self._as_received, self._taken_off = as_received, taken_off
        self._window: list[tuple[int, int]] = []  # stamp and lead, ns
        # stamps and medians of the newest windows, for a step; and medians for the usual lead
        self._newest: deque[tuple[int, int]] = deque(maxlen=2 * _LONG)
        self._usual: list[tuple[int, int]] = []
        self._every, self._count = 1, 0  # of how many windows one is kept; windows so far
        self.forget_steps()

    def add(self, stamp: int, pose: int | None) -> None:
        """Take in a measurement.

        Args:
            stamp: its stamp, ns.
            pose: stamp of the newest pose that has come, ns; None: there is none yet.
        """
        if pose is None or not self._as_received:
            return
        self._window.append((stamp, stamp - pose))
        first, lead = self._window[0]
        n, seconds = len(self._window), 1e-9 * abs(stamp - first)
        pause = pose == first - lead  # no other pose has come since
        if n < _MOST and (pause or n < _WINDOW or seconds < _SECONDS):
            return
        if pause:
            self._window.clear()
            return
        lead = median_low([lead for _, lead in self._window])
        self._newest.append((self._window[0][0], lead))
        if self._count % self._every == 0:
            self._usual.append((self._window[0][0], lead))
        self._count += 1
        if len(self._usual) >= 2 * _KEPT:
            self._usual, self._every = self._usual[::2], 2 * self._every
        self._window.clear()
        self._look()

    def add_all(self, stamps: Iterable[int], poses: Iterable[int]) -> None:
        """Take in measurements in the order in which they came.

        Args:
            stamps: of the measurements, ns.
            poses: of the newest pose when each of them came, ns.
        """
        for stamp, pose in zip(stamps, poses):
            self.add(stamp, pose)

    def forget_steps(self) -> None:
        """Forget the steps that were found."""
        self._steps = 0
        self._largest = 0, 0  # stamp and size of the largest step, ns

    def restart(self) -> None:
        """Forget what has come: the time of both streams is another one. Steps stay."""
        self._window.clear()
        self._newest.clear()
        self._usual.clear()
        self._every, self._count = 1, 0

    def _look(self) -> None:
        """Look for a step in the middle of the newest windows."""
        if len(self._newest) < 2 * _LONG:
            return
        leads = [lead for _, lead in self._newest]
        before, after = leads[:_LONG], leads[_LONG:]
        step = median_low(after) - median_low(before)
        if abs(step) < 1e9 * _STEP:
            return
        level = min(_LEVEL * abs(step), 1e9 * _SECONDS)
        if any(max(part) - min(part) > level for part in (before, after)):
            return

        self._steps += 1
        self._largest = max(
            self._largest, (self._newest[_LONG][0], step), key=lambda each: abs(each[1])
        )

    def step_notes(self) -> list[str]:
        """Say that the clocks were set apart, where they were."""
        if not self._steps:
            return []
        stamp, step = self._largest
        times = "once" if self._steps == 1 else f"{self._steps} times"
        late = "poses" if step > 0 else "measurements"
        return [
            f"the clocks of measurements and poses were set apart {times}: from the measurement at stamp "
            f"{stamp / 1e9:.1f} on its stamps are {step / 1e9:+.3g} s from where they were beside those of the poses "
            f"that come with them: a clock was set, unless {late} take that much longer to arrive since; what was "
            "measured then lies in wrong places, where it finds poses at all: map the parts before and after by "
            "themselves, and let all computers keep one time (NTP, PTP)"
        ]

    def _rise(self) -> tuple[float, float] | None:
        """By how much leads rise steadily, and in what time, s; None where they do not."""
        n = len(self._usual)
        if n < _FEWEST_MEDIANS or self._steps:
            return None
        thirds = [
            self._usual[: n // 3],
            self._usual[n // 3 : n - n // 3],
            self._usual[n - n // 3 :],
        ]
        (t0, first), (t1, second), (t2, third) = (
            (median(stamp for stamp, _ in part), median(lead for _, lead in part))
            for part in thirds
        )
        seconds = (self._usual[-1][0] - self._usual[0][0]) / 1e9
        if t2 <= t0:
            return None
        rise = (third - first) / (t2 - t0)
        total, off = rise * seconds, (second - first - rise * (t1 - t0)) / 1e9
        away = [abs(lead - first - rise * (stamp - t0)) / 1e9 for stamp, lead in self._usual]
        if abs(total) < _STEP or max(abs(off), median(away)) > _LEVEL * abs(total) / 2.0:
            return None
        return total, seconds

    @property
    def _lead(self) -> float:
        """The usual lead, s."""
        return median(lead for _, lead in self._usual) / 1e9

    def mends(self) -> str:
        """The setting that makes one clock of two; '' while that is not known."""
        if len(self._usual) < 2 * _LONG:
            return ""
        return f"stamp_offset: {self._taken_off + self._lead:.1f}"

    def notes(self, behind: float = 0.0) -> list[str]:
        """Say that there are two clocks, where a constant lead is long, or one that grows.

        Args:
            behind: by how much poses came too late for measurements, s; 0: they did not.
        """
        if len(self._usual) < 2 * _LONG:
            return []
        if (risen := self._rise()) is not None:
            rise, seconds = risen
            late = "poses" if rise > 0.0 else "measurements"
            return [
                f"the clocks of measurements and poses run apart: in {seconds:.0f} s the stamps of measurements have "
                f"moved by {rise:+.2g} s ({100.0 * rise / seconds:+.2g} %) beside those of the poses that come with "
                f"them, unless {late} take ever longer to arrive: what is measured lies ever farther from where it "
                "belongs, which no stamp_offset mends; let all computers keep one time (NTP, PTP), and map this "
                "recording in short parts, each with a stamp_offset of its own"
            ]
        lead = self._lead
        if abs(lead) <= _APART:
            return []
        late = "poses" if lead > 0.0 else "measurements"
        what = f" (then raise max_wait above {behind:.3g})" if behind else ""
        return [
            f"measurements are stamped {abs(lead):.3g} s {'after' if lead > 0.0 else 'before'} the poses that come "
            f"with them: unless {late} take that long to arrive{what}, these are two clocks, and the map is wrong by "
            f"the way that the robot drives meanwhile; synchronise the computers, or write {self.mends()}"
        ]
