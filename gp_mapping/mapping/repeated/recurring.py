"""Which measurements are no new ones, since they tell a number again.

A sensor that does not round hardly ever gives one number twice to the bit. Where it does,

    its driver holds    the driver publishes more often than the sensor measures: nearly all runs of
                        one number are equally long. Each run is one measurement, its first
    it hangs            a number within the range of all before is repeated, of a sensor whose
                        noise shows from one measurement to the next. The first one counts
    it is at its end    the largest number of all is repeated, without the noise that shows
                        elsewhere: the field is beyond the sensor's range. The first one counts
    it drops out        a number far from all others comes back again and again, and each time by a
                        leap (0, or 85 °C, while a cable is loose). None of them counts. Where it is
                        told again at once, the smallest of all as well, the first one counts

Where a sensor that rounds repeats a number it has measured that number again, so its repeats stay,
and so does the smallest number of all that is no leap away: where there is nothing to measure (no
gas, no light) it is what there is to know. Numbers without noise, as of a simulator, repeat where
the field is the same, so they stay as well.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from itertools import pairwise
from operator import sub
from statistics import median_low

import torch

__all__ = ["Recurring", "keys_of"]

_WINDOW = 64  # newest runs of one number
_KNOWN = 20  # runs from which on a sensor is known
_FEW = 3  # different numbers, at most, that repeat although the sensor does not round
_REGULAR = 0.9  # fraction of the runs that are as long as the others, give or take one
# times that a number far from all others has come, from which on it is no measurement: of a sensor
# that does not round, and of others
_ONCE, _TWICE = 1, 2
_SUSPECTS = 8  # such numbers that are kept
_RARE = 1.0 / 3.0  # of the runs, at most, that are dropouts
_LEAP = 10.0  # usual steps
# of the steps that turn back: two thirds of those of white noise do, hardly one of a field's own
_NOISY = 0.25
_WHOLE = 0.02  # of the smallest step: a multiple of it, as a sensor has that rounds
_DIGITS = 2.0**33  # of a vector's norm: rounding of one that was turned with the robot is none


def keys_of(y: torch.Tensor) -> list[float]:
    """What measurements y (N, C) are compared by: of a vector its norm, since it turns."""
    if y.shape[1] == 1:
        return y.reshape(-1).tolist()
    mantissa, exponent = torch.frexp(torch.linalg.vector_norm(y, dim=1))
    return torch.ldexp(torch.round(mantissa * _DIGITS) / _DIGITS, exponent).tolist()


class Recurring:
    """Watches the numbers of one sensor, in order of time.

    Args:
        limits: ends of its range, SI, infinite where none is known; numbers there may repeat.

    Attributes:
        held: repeats that its driver has published, which are left out.
        beyond: repeats of the largest number, which are left out.
        hung: other measurements that were left out.
    """

    def __init__(self, limits: tuple[float, float] = (-math.inf, math.inf)):
        self._limits = limits
        self.held = self.beyond = self.hung = 0
        self._run: list[float] | None = None  # number and length of the run that goes on
        self._void = False  # whether all of that run is void
        self._runs: deque[list[float]] = deque(maxlen=_WINDOW)  # those before it
        self._range: list[float] | None = None  # least and largest number of all runs
        # numbers far from all others, and how often they came; the usual step, as of some runs ago
        self._far: Counter[float] = Counter()
        self._step, self._age = 0.0, 0
        # what the window says: usual length of a run that is held, else 0; whether the sensor
        # is fine, and whether its noise shows
        self._held_for, self._fine, self._noisy, self._dated = 0, False, False, True

    def first_void(self, keys: list[float], start: int, stop: int) -> int:
        """Look at measurements up to the first that is void.

        Args:
            keys: of all measurements (`keys_of`).
            start: index of the first one to look at.
            stop: index of the one after the last.

        Returns:
            Its index; `stop` if none is.
        """
        k = start
        while k < stop:
            # numbers that are all new need no look at each, until the usual step is looked at again
            end = min(stop, k + _KNOWN - self._age)
            if end > k + 1 and self._pass_new(keys[k:end]):
                k = end
                continue
            while k < end:
                if self._is_void(keys[k]):
                    return k
                k += 1
        return stop

    def _pass_new(self, keys: list[float]) -> bool:
        """Look at measurements of which none repeats the one before, and none leaps.

        Returns:
            False, and nothing is done, where one does, or where one may come back.
        """
        run = self._run
        if run is None or self._void or self._far or self._range is None:
            return False
        step, ended = self._step, [run[0], *keys[:-1]]
        steps = list(map(abs, map(sub, [*ended, keys[-1]], [self._runs[-1][0], *ended])))
        if not 0.0 < min(steps) <= max(steps) <= step:
            return False

        new = [[key, 1.0] for key in keys]
        self._runs.extend([run, *new[:-1]])
        self._run = new[-1]
        self._dated, self._age = True, (self._age + len(ended)) % _KNOWN
        if not self._age:
            self._renew_step()
        low, high = self._range
        self._range = [min(low, *ended), max(high, *ended)]
        return True

    def _is_void(self, key: float) -> bool:
        """Look at the next measurement: whether it is to be left out."""
        run = self._run
        if run is None or key != run[0]:
            if run is not None:
                self._close(run)
            self._run = [key, 1.0]
            low, high = self._limits
            self._void = bool(self._far) and low < key < high and self._comes_back(key)
            self.hung += self._void
            return self._void

        run[1] += 1.0
        low, high = self._limits
        if not low < key < high:
            return False
        if self._void:
            self.hung += 1
            return True
        self._judge()
        if self._held_for and run[1] <= self._held_for + 1:
            self.held += 1
            return True
        if self._range is None or not self._noisy or not (self._fine or self._held_for):
            return False
        low, high = self._range
        self.beyond += key >= high
        gone = key <= low and self._is_far(key)
        self.hung += gone or low < key < high
        return gone or key > low

    def _close(self, run: list[float]) -> None:
        """Take a run that has ended into the window."""
        key, runs = run[0], self._runs
        leaps = bool(runs) and abs(key - runs[-1][0]) > self._step
        if leaps and self._is_far(key):
            self._far[key] += 1
            self._far = Counter(dict(self._far.most_common(_SUSPECTS)))
        runs.append(run)
        self._dated, self._age = True, (self._age + 1) % _KNOWN
        if not self._age:
            self._renew_step()
        if not self._void:
            low, high = self._range or (key, key)
            if self._range is None or key < low or key > high:
                self._range = [min(low, key), max(high, key)]

    def _renew_step(self) -> None:
        """Half of what counts as a leap: it may have changed since."""
        self._step = 0.5 * _LEAP * _usual_step([value for value, _ in self._runs])

    @property
    def _count(self) -> Counter[float]:
        """Runs in the window by their number."""
        return Counter(value for value, _ in self._runs)

    def _judge(self) -> None:
        """Find out whether the sensor rounds, and whether its driver holds each number."""
        if not self._dated:
            return
        self._held_for, self._fine, self._noisy, self._dated = 0, False, False, False
        if len(self._runs) < _KNOWN:
            return
        steps = [b[0] - a[0] for a, b in pairwise(self._runs)]
        turns = sum(a * b < 0.0 for a, b in pairwise(steps))
        self._noisy = turns >= _NOISY * (len(steps) - 1)

        counts = self._count
        again = {value for value, count in counts.items() if count > 1}
        repeated = {value for value, length in self._runs if length > 1}
        if len(again) > _FEW or len(counts) < _KNOWN // 2:
            return  # it rounds
        if len(again | repeated) <= _FEW:
            # of a sensor that rounds so many numbers hardly ever differ all
            self._fine = len(self._runs) == _WINDOW and not self._rounds()
            return

        usual = median_low([length for _, length in self._runs])
        regular = sum(abs(length - usual) <= 1.0 and length > 1 for _, length in self._runs)
        if usual > 1 and regular >= _REGULAR * len(self._runs) and not self._rounds():
            self._held_for = int(usual)

    def _rounds(self) -> bool:
        """Whether steps from run to run are multiples of the smallest one."""
        values = [value for value, _ in self._runs]
        steps = [abs(b - a) for a, b in pairwise(values)]
        least = min(steps)
        whole = sum(abs(step / least - round(step / least)) < _WHOLE for step in steps)
        return whole >= _REGULAR * len(steps)

    def _comes_back(self, key: float) -> bool:
        """Whether a number that begins a run has come before, far from all others as now."""
        if not self._far.get(key):
            return False  # nearly always
        self._judge()
        return self._far[key] >= (_ONCE if self._fine else _TWICE) and self._is_far(key)

    def _is_far(self, key: float) -> bool:
        """Whether a number is far from all others of the window, and rare among them."""
        others = [value for value, _ in self._runs if value != key]
        if len(others) < _KNOWN // 2 or self._count[key] > _RARE * len(self._runs):
            return False
        return min(abs(value - key) for value in others) > _LEAP * _usual_step(others)

    @property
    def end(self) -> float:
        """The end of the sensor's range, where it has given it again and again; else inf."""
        return self._range[1] if self.beyond and self._range else math.inf

    def notes(self, says_beyond: bool = True) -> list[str]:
        """What was left out, in sentences.

        Args:
            says_beyond: whether of the end of the sensor's range, too.
        """
        out = []
        if self.held:
            out.append(
                f"{self.held} measurements repeat the one before them to the bit: the driver publishes more often "
                "than the sensor measures; each number counts once"
            )
        if self.beyond and says_beyond:
            out.append(
                f"{self.beyond} measurements repeat the largest of all to the bit: the field is beyond the end of the "
                "sensor's range there, or the sensor hangs; they are left out, and the field there is not known"
            )
        if self.hung:
            out.append(
                f"{self.hung} measurements tell a number again that this sensor does not measure twice: it hangs or "
                "drops out; they are left out of the map: look at its cable and driver"
            )
        return out

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "held": self.held,
            "beyond": self.beyond,
            "hung": self.hung,
            "run": self._run and list(self._run),
            "void": self._void,
            "runs": [list(run) for run in self._runs],
            "range": self._range and list(self._range),
            "far": [[value, count] for value, count in self._far.items()],
            "step": self._step,
            "age": self._age,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.held, self.hung, self._void = (
            int(state["held"]),
            int(state["hung"]),
            bool(state["void"]),
        )
        self.beyond = int(state.get("beyond", 0))  # of a version that took them for the field
        self._run = None if state["run"] is None else list(map(float, state["run"]))
        self._runs = deque((list(map(float, run)) for run in state["runs"]), maxlen=_WINDOW)
        self._range = None if state["range"] is None else list(map(float, state["range"]))
        self._far = Counter({float(value): int(count) for value, count in state["far"]})
        self._step, self._age, self._dated = float(state["step"]), int(state["age"]), True


def _usual_step(values: list[float]) -> float:
    """Median step from one number to the next."""
    steps = sorted(map(abs, map(sub, values[1:], values)))
    return steps[(len(steps) - 1) // 2]
