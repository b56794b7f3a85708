"""Whether samples that lie far from those around them are too many to be gross errors.

Gas comes in gusts, a radio fades: each third or fifth measurement lies far from the others, there
where the gas is. These are no errors of the sensor, but what the field, or the noise about it, is
like. A map without them would be wrong, and sure of that.

Of the newest samples each is compared with the median of the nine around it, so that slopes and
edges of the field are not seen, nor where a pass begins. The quiet scale is by lower quartiles,
which bursts do not reach: of these deviations, and of the steps from sample to sample, since what
is smooth has steps and hardly any deviations. Samples beyond GROSS of it are no errors where they
are more than _SHARE of all, or more than _ONE_SIDED and nearly all to one side: a sensor errs up as
well as down. Of one that errs once in ten samples either is more than three standard deviations
off. It is over where they are half as many.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from gp_mapping.mapping.averaging.gross_errors import GROSS

__all__ = ["Bursts"]

_NEWEST = 100  # samples
_AROUND = 9  # samples, of whose median one of them may lie far
_FEWEST = 100  # samples that tell anything: a sensor that is switched on may err in a row
_SHARE, _ONE_SIDED = 0.25, 0.2
_NEARLY = 0.9  # of them, to one side
_QUARTILE = 0.3186  # of |z|, standard normal


class Bursts:
    """Watches the values of one sensor, in order of time.

    Attributes:
        now: whether samples far from those around them are no errors at the moment.
        count: samples that came while they were none.
        newest: stamp of the newest of these, s.
    """

    def __init__(self) -> None:
        self.now, self.count, self.newest = False, 0, 0.0
        self._values: deque[float] = deque(maxlen=_NEWEST)

    def add(self, values: Sequence[float], stamp: float, least: float) -> None:
        """Take in samples, before any of them is left out.

        Args:
            values: SI, in order of time.
            stamp: of the last, s.
            least: standard deviation of a sample about the field at least, SI.
        """
        self._values.extend(values[-_NEWEST:])
        self.now = len(self._values) >= _FEWEST and self._are_many(least)
        if self.now:
            self.count, self.newest = self.count + len(values), stamp

    def _are_many(self, least: float) -> bool:
        """Whether of the newest samples more lie far from those around them than errors do."""
        y = np.array(self._values)
        middle = y[_AROUND // 2 : -(_AROUND // 2)]
        around = np.lib.stride_tricks.sliding_window_view(y, _AROUND)
        away = middle - np.partition(around, _AROUND // 2, axis=1)[:, _AROUND // 2]
        steps = np.diff(y) / math.sqrt(2.0)
        quiet = max(least, *(_lower_quartile(abs(each)) / _QUARTILE for each in (away, steps)))
        up, down = (float((side > GROSS * quiet).mean()) for side in (away, -away))
        share = _ONE_SIDED if max(up, down) >= _NEARLY * (up + down) else _SHARE
        return up + down > (0.5 * share if self.now else share)

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "now": self.now,
            "count": self.count,
            "newest": self.newest,
            "values": list(self._values),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.now, self.count = bool(state["now"]), int(state["count"])
        self.newest = float(state["newest"])
        self._values = deque(map(float, state["values"]), maxlen=_NEWEST)


def _lower_quartile(values: np.ndarray) -> float:
    return float(np.partition(values, len(values) // 4)[len(values) // 4])
