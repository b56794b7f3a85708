"""Whether the sensor tells numbers of another range from one measurement on: its unit has changed.

Numbers of a field come one from another: where the robot drives on, each is near those of before.
So two ranges, one after the other, that a leap in one place divides are the field's only where it
has a step there. They count as two where

    each of them     has been driven through for _DRIVEN m, and holds _KINDS numbers or more
    between them     lies more than both are wide together, and less than _PLACE m of the way

A number that comes back to the range before it ends the new one: a spike, or a source that was
passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Leaps"]

_DRIVEN = 3.0  # m
_PLACE = 0.5  # m
_KINDS = 8  # numbers; of fewer, as of labels and of a sensor that rounds, a leap is a step


@dataclass(slots=True)
class _Range:
    """Numbers that came one after another.

    Attributes:
        low: the least, SI.
        high: the largest, SI.
        metres: driven meanwhile.
        kinds: some of the numbers, _KINDS at most.
    """

    low: float
    high: float
    metres: float = 0.0
    kinds: set[float] = field(default_factory=set)

    def add(self, value: float, step: float) -> None:
        """Take in a number.

        Args:
            value: SI.
            step: the way to it, m.
        """
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.metres += min(step, _PLACE)  # a robot that was carried has not seen the field
        if len(self.kinds) < _KINDS:
            self.kinds.add(value)

    @property
    def is_full(self) -> bool:
        """Whether it keeps no more numbers."""
        return len(self.kinds) >= _KINDS

    @property
    def is_known(self) -> bool:
        """Whether so much of the field was seen that its range is one."""
        return self.metres >= _DRIVEN and self.is_full

    def gap(self, other: _Range) -> float:
        """How far apart two ranges are, less what both are wide; SI."""
        between = max(other.low - self.high, self.low - other.high)
        return between - (self.high - self.low) - (other.high - other.low)


class Leaps:
    """Watches the numbers of one sensor, in order of time."""

    def __init__(self) -> None:
        self._range: _Range | None = None  # of the numbers so far
        self._new: _Range | None = None  # far from these, and not known yet
        self._since = 0.0  # stamp of its first, s
        self._found: tuple[float, _Range, _Range] | None = None  # stamp (s), before and after
        self._count = 0

    def add_all(self, values: list[float], steps: list[float], stamps: list[float]) -> None:
        """Take in measurements.

        Args:
            values: SI.
            steps: how far each is from the one before, m.
            stamps: s.
        """
        known = self._range
        if self._new is None and known is not None and known.is_full and values:
            if known.low <= min(values) and max(values) <= known.high:
                known.metres += sum([step if step < _PLACE else _PLACE for step in steps])
                return
        for value, step, stamp in zip(values, steps, stamps):
            known = self._range
            if self._new is None and known is not None and known.is_full:
                if known.low <= value <= known.high:  # nearly always
                    known.metres += step if step < _PLACE else _PLACE
                    continue
            self.add(value, step, stamp)

    def add(self, value: float, step: float, stamp: float) -> None:
        """Take in a measurement.

        Args:
            value: SI.
            step: how far it is from the one before, m.
            stamp: s.
        """
        known, new = self._range, self._new
        if known is None:
            self._range = _Range(value, value, kinds={value})
        elif new is not None:
            self._add_after_leap(known, new, value, step)
        elif known.low <= value <= known.high:
            known.add(value, step)
        elif known.is_known and step < _PLACE and known.gap(_Range(value, value)) > 0.0:
            self._new, self._since = _Range(value, value, kinds={value}), stamp
        else:
            known.add(value, step)

    def _add_after_leap(self, known: _Range, new: _Range, value: float, step: float) -> None:
        """Take in a number after a leap."""
        here = _Range(value, value)
        if known.gap(here) <= 0.0:
            self._new = None
            return

        new.add(value, step)
        if known.gap(new) <= 0.0:  # it is the field, which is wide
            known.add(new.low, new.metres)
            known.add(new.high, 0.0)
            self._new = None
        elif new.is_known:
            self._count += 1
            self._found = self._found or (self._since, known, new)
            self._range, self._new = new, None

    def notes(self, scale: float, unit: str) -> list[str]:
        """What to say of the sensor: a sentence where its numbers have leapt and stay.

        Args:
            scale: one display unit in SI.
            unit: its name.
        """
        if self._found is None:
            return []
        stamp, before, after = self._found
        times = "once" if self._count == 1 else f"{self._count} times"
        old, new = (f"{each.low / scale:.4g} … {each.high / scale:.4g}" for each in (before, after))
        return [
            f"what the sensor tells leaps {times} and stays, first at stamp {stamp:.1f} from {old} to {new} {unit}: "
            "has its unit, its range or the sensor itself changed? What was mapped before and after does not go "
            "together: begin a new map there; where the field itself has such a step, nothing is wrong"
        ]
