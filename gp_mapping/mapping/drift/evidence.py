"""Whether a sensor drifts or warms up while the robot drives, from places that it passed twice.

Measurements y at places x and times t of pass p, of a field f that stays:

    y_i = f(x_i) + c_p + d_p(t_i) + ε_i

c_p is the pass's unknown constant. Of a sensor that drifts d is an Ornstein-Uhlenbeck process, of
one that warms up it decays from the beginning of the pass, by another amount each time:

    cov(d_i, d_j) = s² exp(−|t_i − t_j|/T)   or   s² exp(−(t_i − t_p)/T) exp(−(t_j − t_p)/T)

With a Gaussian process for f the evidence of y is exact for each s and T. Along one line that never
comes back a drift is a field that varies as much; what tells them apart are neighbouring places at
different times. Other faults look alike, each with a covariance of its own:

    a field rougher than the kernel    exp(−|x_i − x_j|/(v T)), v being the usual speed
    a field that changes with time     k(x_i, x_j) exp(−|t_i − t_j|/T), also about one place alone
    poses that wander                  −∇²k(x_i, x_j) exp(−|t_i − t_j|/T)
    stamps that are late               k of places earlier on the way
    a sensor that follows slowly       H k Hᵀ, also of places earlier on the way
    a field longer along one axis      k of places that are stretched
    a sensor that turns with the robot ĥ_i·ĥ_j, ĥ being the robot's forward axis
    a sensor elsewhere on the robot    k of places that turn with it (sensor_place.py)

The last three show without a drift, too: `DriftSearch.anisotropy`, `turning` and `place` say so.
From lane to lane they look alike, and the best is said. A drift counts as found where it is better
by SURE nats than none, and than all that may be so along one line; by less than that where places
passed twice differ anyhow, and it is only asked what makes them differ.

Nats count under the model, and a field with sharp magnets or edges has not one lengthscale and
noise. So all that is named has to be better than none by SURE nats also where wild blocks have
noise of their own (`TrackEvidence._holds`), and all along the way, not in one stretch (told.py).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.mapping.drift.alternatives import DriftTrack
from gp_mapping.mapping.drift.sensor_place import PlaceEvidence, SensorPlace
from gp_mapping.mapping.drift.told import is_told_everywhere
from gp_mapping.mapping.drift.track_evidence import (
    CHANGES,
    LATE,
    LIKELIER,
    MOVED,
    SPREADS,
    SURE,
    WANDERS,
    Alternative,
    Evidence,
)

__all__ = ["Drift", "DriftSearch", "DriftTrack"]

_FAR = 0.1  # lengthscales that poses wander; what is less is little beside the field
_HARDLY = 2.0  # nats that are no difference between two T


class Drift(NamedTuple):
    """What a sensor's values say of how it drifts.

    Attributes:
        seconds: T, s.
        shortest: the shortest T that is hardly worse, s; for s²/T is known better than either.
        stddev: s, in the unit of the values.
        warms_up: whether it decays from the beginning of each pass; else it wanders.
        gain: nats by which this is better than the best that has none.
    """

    seconds: float
    shortest: float
    stddev: float
    warms_up: bool
    gain: float


class DriftSearch(PlaceEvidence[Drift]):
    """Looks for the drift that suits best, each with the lengthscale and the noise that suit it.

    The work comes in steps of one evidence each: O(N³), some milliseconds.

    Args:
        track: measurements of the sensor; at least ten rows.
        lengthscale: that is expected, m, to a factor of two.
        kernel: name of the field's covariance function.

    Attributes:
        anisotropy: how many times longer the lengthscale along y is than along x, a power of two,
            where values that do not drift say so by SURE nats; else 1.
        turning: standard deviation of the part that turns with the robot, in the unit of the
            values, where the map has none and they say so by SURE nats, as nothing else does; 0
            otherwise.
        place: where the sensor sits, and how late its stamps are, where they say so by SURE nats
            beyond what the map finds by itself, as nothing else does; else None.
        contradicts: whether places that the robot passed twice differ as where its poses wander, by
            a tenth of a lengthscale and more, or where the field changes while it drives.
    """

    turning, contradicts = 0.0, False
    place: SensorPlace | None = None
    _named_added: Tensor  # covariance of the drift, or of what turns with the robot, where found

    # Each of these yields after a step, and returns what it has found.
    def _search(self) -> Generator[None, None, Drift | None]:
        """The drift; a few wild blocks, or one stretch of the way, name nothing."""
        drift = yield from self._searched()
        if drift is not None or self.turning:
            added = self._named_added
            if not (yield from self._holds(lambda i: self._field(i) + added)):
                drift, self.turning = None, 0.0

        place, shifts = self.place, self._shifts()
        if place is not None and shifts is not None:
            at = shifts.new_tensor(place[:3])
            if not (yield from self._holds(lambda i: self._placed(at, shifts, i))):
                self.place = None

        if drift is None and self.anisotropy != 1.0:
            places = self._stretched(self.anisotropy)
            if not (yield from self._holds(lambda i: self._field_at(i, places))):
                self.anisotropy = 1.0
        return drift

    def _searched(self) -> Generator[None, None, Drift | None]:
        """The best drift, where it is better than all that is none."""
        if not (self.usual > 0.0 and self.speed > 0.0 and bool(torch.isfinite(self.y).all())):
            return None

        none, at = yield from self._best(self._field)
        self._alone = at
        stretched, self.anisotropy = yield from self._stretch(none)
        self.start = (*at, *self.start[len(at) :])
        hinted = yield from self._hint(none)
        others = max(none, stretched)
        turned, turned_at = yield from self._turned(others)
        evidence = yield from self._drifts()
        best = max(evidence, key=lambda which: evidence[which][0])
        value, at = evidence[best]
        if turned > max(value, others + SURE):
            yield from self._judge_turned(turned, turned_at)
        others = max(others, turned)
        if value >= others + SURE:
            drift = yield from self._judge_drift(best, value, at, others)
            if drift is not None:
                self.anisotropy = 1.0
                return drift
        if self.turning or self.contradicts:
            return None
        if hinted or self.anisotropy != 1.0 or self._best_placed is not None:
            yield from self._judge_place(none, max(others, value))
        return None

    def _judge_drift(
        self, which: tuple[bool, int], value: float, at: tuple[int, ...], others: float
    ) -> Generator[None, None, Drift | None]:
        """The drift, where it is better than all other faults; None else.

        Args:
            which: whether it warms up, and the number of T.
            value: its log evidence.
            at: its best parameters.
            others: log evidence of what is none, the best so far.
        """
        self.start = at
        beaten, others = yield from self._compare(value, others)
        if beaten:
            return None

        self.start, (warms_up, k), least = at, which, which[1]
        while least > 0:
            shorter = yield from self._more(self._drift(warms_up, least - 1))
            if shorter[0] < value - _HARDLY:
                break
            least -= 1

        self._named_added = SPREADS[at[2]] ** 2 * self._drift(warms_up, k)
        stddev = self._spread_of(self._drift(warms_up, k), at)
        return Drift(self._time(k), self._time(least), stddev, warms_up, value - others)

    def _judge_place(self, none: float, others: float) -> Generator[None, None, None]:
        """Set `place`, and no anisotropy beside it, unless another fault is as good.

        Args:
            none: log evidence of a sensor that is where it is said to be.
            others: the best of what has been tried.
        """
        self.start = (*self._alone, *self.start[len(self._alone) :])
        found = yield from self._chosen(none)
        delayed = self._delayed
        if found is None and delayed is not None and delayed.value >= max(others, none + SURE):
            self.anisotropy = 1.0  # late stamps, which the map finds by itself
        if found is None or found[0] < others:
            return
        value, place = found
        for alternative in self._alternatives():
            if alternative.kind == LATE:
                continue  # it is one of those that were chosen from
            other = yield from alternative.evidence
            if value < other + alternative.margin:
                return
        self.place, self.anisotropy = place, 1.0

    def _compare(self, value: float, others: float) -> Generator[None, None, tuple[bool, float]]:
        """Whether another fault is as good as a drift, and the log evidence of the best.

        Also `contradicts`.

        Args:
            value: log evidence of the drift.
            others: of what is none, the best so far.
        """
        beaten, rivals, plain = False, max(value, others), others
        at_once = wanders = -math.inf
        far = 0.0  # that poses wander, in lengthscales
        for alternative in self._alternatives():
            other = yield from alternative.evidence
            beaten, others = beaten or value < other + alternative.margin, max(others, other)
            if alternative.kind == WANDERS and other > wanders:
                wanders, far = other, SPREADS[self.start[2]]
            if alternative.kind in (WANDERS, CHANGES):
                at_once = max(at_once, other)
                continue
            # the place that changed was looked for: it is to be better by more
            rivals = max(rivals, other - (SURE + LIKELIER) * (alternative.kind == MOVED))
            if beaten and at_once < rivals + SURE:
                return True, others

        if not beaten:
            # evidence of another place is dear: only where all else is worse
            other = yield from self._misplaced()
            beaten, others = value < other + SURE, max(others, other)
        elif far >= _FAR and at_once >= max(rivals, (yield from self._misplaced())) + SURE:
            self.contradicts = is_told_everywhere(at_once, plain)
        return beaten, others

    def _turned(self, others: float) -> Evidence:
        """Largest log evidence of a sensor that turns with the robot, and its best parameters.

        Args:
            others: that of none; what is no better is −∞.
        """
        start, forward = self.start, self.track.forward
        if forward is None:
            return -math.inf, start
        added = forward @ forward.mT
        # the usual case costs no more than this
        if (yield from self._quick(added)) <= others:
            return -math.inf, start
        found = yield from self._more(added)
        self.start = start
        return found

    def _judge_turned(self, value: float, at: tuple[int, ...]) -> Generator[None, None, None]:
        """Set `turning`, and no anisotropy beside it, unless another fault is as good.

        Args:
            value: log evidence of a sensor that turns with the robot.
            at: its best parameters.
        """
        self.start = at
        for alternative in (Alternative(SURE, self._misplaced()), *self._alternatives()):
            other = yield from alternative.evidence
            if value < other + alternative.margin:
                return
        forward = self.track.forward
        if forward is not None:
            self._named_added = SPREADS[at[2]] ** 2 * forward @ forward.mT
            self.turning, self.anisotropy = self._spread_of(forward @ forward.mT, at), 1.0

    def _drifts(
        self,
    ) -> Generator[None, None, dict[tuple[bool, int], tuple[float, tuple[int, ...]]]]:
        """Log evidence and best parameters of drifts: of the best one, and of its neighbours.

        By whether they warm up, and the number of T.
        """
        # the usual case costs no more than this: the parameters of none, with some drift more
        tried: dict[tuple[bool, int], float] = {}
        for warms_up in (False, True):
            for k in range(self._time_count):
                tried[warms_up, k] = yield from self._quick(self._drift(warms_up, k))
        best = max(tried, key=lambda which: tried[which])

        # at its own best, and at that of its neighbours
        evidence: dict[tuple[bool, int], tuple[float, tuple[int, ...]]] = {}
        while True:
            warms_up, k = best
            for near in (k, k - 1, k + 1):
                if 0 <= near < self._time_count and (warms_up, near) not in evidence:
                    evidence[warms_up, near] = yield from self._more(self._drift(warms_up, near))
            higher = max(evidence, key=lambda which: evidence[which][0])
            if higher == best:
                return evidence
            best = higher
