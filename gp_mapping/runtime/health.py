"""What /diagnostics says once a second: numbers, drops by reason, and warnings in plain words. No rclpy."""

from __future__ import annotations

import os
import resource
from collections import Counter
from dataclasses import dataclass, field

from gp_mapping.mapping.fullness import spoiled

__all__ = ["Area", "Health", "InputWatch", "resident_megabytes"]

OK, WARN, ERROR = 0, 1, 2


@dataclass
class Area:
    """One DiagnosticStatus: name, level, warnings (joined to its message), values."""

    name: str
    level: int = OK
    warnings: list[str] = field(default_factory=list)
    values: dict[str, object] = field(default_factory=dict)

    def warn(self, text: str, level: int = WARN) -> None:
        """Raise the level and say why."""
        self.level = max(self.level, level)
        self.warnings.append(text)

    @property
    def message(self) -> str:
        """All warnings, or that all is well."""
        return "; ".join(self.warnings) or "ok"


class InputWatch:
    """Arrivals on one topic: a rate over the last report, and the silence since. Times are the caller's, in seconds.

    steady: silence is a fault, as it is not on /tf_static.
    """

    def __init__(self, topic: str, steady: bool = True):
        self.topic, self.steady = topic, steady
        self.count = self.lost = 0
        self._since: tuple[float, int] | None = None
        self._last: float | None = None

    def arrived(self, now: float) -> None:
        """Count one message."""
        self.count += 1
        self._last = now

    def rate(self, now: float) -> float:
        """Messages per second since the last call."""
        before, self._since = self._since, (now, self.count)
        if before is None or now <= before[0]:
            return 0.0
        return (self.count - before[1]) / (now - before[0])

    def silence(self, now: float) -> float | None:
        """Seconds since the last message; None where there never was one."""
        return None if self._last is None else max(0.0, now - self._last)


def resident_megabytes() -> float:
    """Memory of this process: resident set now (Linux), else its peak."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


class Health:
    """Collects what the node knows into areas 'input', 'map' and 'timing'."""

    def __init__(self, silence_warning: float):
        self.silence_warning = silence_warning
        self._drops_before: dict[str, int] = {}
        self._started: float | None = None

    def areas(self, *, now, status, watches, paused, notes, limits, published, stamp_age, queue,
              obstacles: str = "") -> list[Area]:
        """now: monotonic s.  status: worker.Status.  watches: InputWatch list.  notes: (level, text) from the node.

        limits: outbound.Limits or None.
        obstacles: what suggestions know of them.  stamp_age: node clock − newest measurement stamp in s, or None.
        """
        self._started = now if self._started is None else self._started
        return [self._input(now, status, watches, paused, notes, stamp_age),
                self._map(status, limits, published, obstacles), self._timing(now, status, queue)]

    def _input(self, now, status, watches, paused, notes, stamp_age) -> Area:
        area = Area("input")
        for watch in watches:
            area.values[f"{watch.topic} rate (Hz)"] = watch.rate(now)
            area.values[f"{watch.topic} received"] = watch.count
            area.values[f"{watch.topic} lost by the middleware"] = watch.lost
            silence = watch.silence(now)
            if paused or not watch.steady:
                continue
            if silence is None and now - self._started > self.silence_warning:
                area.warn(f"no {watch.topic} since the start {now - self._started:.1f} s ago: is the topic remapped, "
                          "and does somebody publish it?")
            elif silence is not None and silence > self.silence_warning:
                area.warn(f"no {watch.topic} for {silence:.1f} s")
        if paused:
            area.warn("paused: measurements are not used")
        for level, text in notes:
            area.warn(text, level)
        others = {name: n for name, n in status.counts.items() if not name.startswith("error")}
        dropped = Counter(status.drops) + Counter(others)  # both the worker and the intake have a queue_full
        for reason, n in dropped.items():
            area.values[f"dropped: {reason}"] = n
            if n > self._drops_before.get(reason, 0):
                explained = [line for line in status.explanations if f" {reason}:" in line]
                area.warn(explained[0] if explained else f"{n} {reason}")
            self._drops_before[reason] = n
        for text in status.warnings:
            area.warn(text)
        area.values["waiting for a pose"] = status.waiting
        if stamp_age is not None:
            area.values["age of the newest stamp (s)"] = stamp_age
            if abs(stamp_age) > 3600.0:
                side = "behind" if stamp_age > 0 else "ahead of"
                area.warn(f"measurement stamps are {abs(stamp_age):.0f} s {side} the node's clock; for a recording, "
                          "play it with /clock and set use_sim_time: true")
        return area

    def _map(self, status, limits, published, obstacles) -> Area:
        area = Area("map")
        for name, value in _flat(status.report):
            area.values[name] = value
        if limits is not None:
            for name, value in limits._asdict().items():
                area.values[f"{name} (SI)"] = value
        area.values["published"] = published
        if obstacles:
            area.values["obstacles"] = obstacles
        coarser, refused, left_out = (self._grown(name, status.report.get(name, 0))
                                      for name in ("coarsened", "refused", "left_out"))
        if coarser:
            area.warn(f"the map's lattice would exceed max_grid_nodes: its spacing has been doubled, {coarser} times "
                      "by now")
        if refused:
            area.warn(f"{refused} cells or measurements lie where the map's lattice cannot reach, and are left out")
        if left_out:
            area.warn(f"the map is full: {left_out} cells or measurements are left out, and the map stays as it is")
        thin = spoiled(status.report)
        if thin:
            area.warn(thin)
        area.values["memory (MB)"] = resident_megabytes()
        for name, n in status.counts.items():
            if name.startswith("error"):
                area.values[name] = n
                if n > self._drops_before.get(name, 0):
                    area.warn(f"{n} failures at {name.removeprefix('error_')}; the log has the traceback", ERROR)
                self._drops_before[name] = n
        return area

    def _grown(self, name: str, count: int) -> int:
        """The count, where it is more than in the last report; else 0."""
        before, self._drops_before[name] = self._drops_before.get(name, 0), count
        return count if count > before else 0

    def _timing(self, now, status, queue) -> Area:
        area = Area("timing", values={"queue": queue})
        for name, summary in status.timings.items():
            for key, value in summary.items():
                area.values[f"{name} {key}"] = value
        age = now - status.made
        if age > max(2.0, self.silence_warning):
            area.warn(f"the map has been busy for {age:.1f} s without an answer")
        return area


def _flat(report: dict, prefix: str = ""):
    """A nested dict as (name, value) pairs, 'a.b' for report['a']['b']."""
    for name, value in report.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
