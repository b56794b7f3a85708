"""Where a map lies on the earth: its datum, and the fixes of a satellite receiver that tell it.

    (e, n)_i = t + R(h) (x, y)_i + noise        least squares over fixes i; t: east and north of the map's origin, m

Fixes that lie elsewhere than most of them (a receiver without a sky, a pose that leapt) are left out: of the t and h
that two fixes tell, those with the least median distance of all say which (least median of squares, Rousseeuw 1984).
One fix knows no direction: the heading comes from fixes at several places, and how well it is known is said. The
antenna counts as if it were where the poses are: an antenna beside them by a lever arm turns h by that arm at most,
over the distance driven, and a symmetric drive by nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gp_mapping.errors import UsageError

__all__ = ["Datum", "Fit", "Fixes", "fitted", "too_few"]

_LEAST, _SURE = 3, 0.1  # fixes; rad: standard deviation of the heading at most
_PAIRS, _JUDGES = (
    100,
    200,
)  # of fixes that are tried, by so many; where half of all are wrong, one pair in four tells
_APART = 1.0  # m between places that judge
_OFF = 4.0  # standard deviations beyond which a fix lies elsewhere: of normal ones, 3 of 10 000
_EXACT = 0.01  # m; no fix is better
_AXIS, _FLATTENING = 6378137.0, 1.0 / 298.257223563  # WGS 84
_ECCENTRICITY = _FLATTENING * (2.0 - _FLATTENING)  # squared


class Datum(NamedTuple):
    """Where the origin of the map's frame lies, and how it is turned.

    latitude, longitude: degrees, WGS 84.  heading: of the x axis, rad counter-clockwise from east.
    """

    latitude: float
    longitude: float
    heading: float

    @staticmethod
    def parse(text: str) -> Datum:
        """From "latitude,longitude,heading"; UsageError where that is no place."""
        try:
            datum = Datum(*map(float, text.split(",")))
        except (TypeError, ValueError):
            datum = Datum(math.nan, 0.0, 0.0)
        if not (
            abs(datum.latitude) <= 90.0
            and abs(datum.longitude) <= 180.0
            and math.isfinite(datum.heading)
        ):
            raise UsageError(
                f"datum is {text!r}, expected latitude and longitude in degrees and the direction of the "
                "map's x axis in rad from east, as 52.3731,4.8922,0.0"
            )
        return datum


class Fit(NamedTuple):
    """What fixes tell.

    datum: where the map lies.  spread: how far those that agree lie about their middle (rms), m.  error: standard
    deviation of the heading, rad.  kept: (N,) bool, which fixes agree.  beyond: m, what the others lie off at least.
    """

    datum: Datum
    spread: float
    error: float
    kept: np.ndarray
    beyond: float

    def unsure(self) -> str | None:
        """What to say where the heading is hardly known; None where it is."""
        if self.error <= _SURE:
            return None
        return (
            f"the fixes tell the heading to ±{self.error:.2g} rad only (they lie {self.spread:.2g} m about their "
            f"middle), expected ±{_SURE:g}: one place knows no direction"
        )

    def said(self, which: str) -> str:
        """One line. which: fixes that it is from."""
        d, gone = self.datum, int((~self.kept).sum())
        without = (
            f" ({gone} left out, {self.beyond:.2g} m and more from where the others put them)"
            if gone
            else ""
        )
        return (
            f"datum {d.latitude:.7f},{d.longitude:.7f},{d.heading:.4f} from {which}{without}, heading "
            f"±{self.error:.2g} rad; the antenna counts as where the poses are"
        )


class Fixes:
    """Pairs of where the robot was in the map and where on the earth; at most `most`, spread over all that came.

    Beyond that every second one goes, and of those to come as many are left out.  count: of all that came.
    """

    def __init__(self, most: int):
        self.most, self.count = most, 0
        self._every, self._rows = 1, np.empty((0, 4))  # x, y m; latitude, longitude degrees
        self._told: tuple[tuple[int, int], tuple[Datum | None, str]] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[tuple[float, float, float, float]]) -> None:
        """More of them: x, y m in the map's frame, latitude, longitude in degrees."""
        for row in rows:
            if self.count % self._every == 0:
                self._rows = np.vstack([self._rows, row])
                self._thin()
            self.count += 1

    def _thin(self) -> None:
        while len(self._rows) > self.most:
            self._rows, self._every = self._rows[::2], 2 * self._every

    def join(self, other: Fixes) -> None:
        """Those of another map in the same frame, too."""
        self._rows, self.count = np.vstack([self._rows, other._rows]), self.count + other.count
        self._every = max(self._every, other._every)
        self._thin()

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """To the frame X' = turn X + shift."""
        moved = self._rows[:, :2] @ turn.numpy().T + shift.numpy()
        self._rows, self._told = np.hstack([moved, self._rows[:, 2:]]), None

    def summary(self) -> tuple[Datum | None, str]:
        """The datum, None where they tell too little, and one sentence of it; '' where none came."""
        now = self.count, len(self._rows)
        if self._told is None or self._told[0] != now:
            self._told = now, self._tell()
        return self._told[1]

    def _tell(self) -> tuple[Datum | None, str]:
        if not self.count:
            return None, ""
        which = (
            f"{len(self)} fixes"
            if len(self) == self.count
            else f"{len(self)} of {self.count} fixes (max_fixes)"
        )
        if (why := too_few(len(self))) is not None:
            return None, f"no datum: {which}, {why}"
        fit = fitted(self._rows[:, :2], self._rows[:, 2:])
        if (why := fit.unsure()) is not None:
            return None, f"no datum: of {which}, {why}"
        return fit.datum, fit.said(which)

    def state_dict(self) -> dict:
        return {
            "rows": torch.from_numpy(self._rows.copy()),
            "count": self.count,
            "every": self._every,
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on with those. ValueError where that is no such state."""
        rows, count, every = state["rows"], state["count"], state["every"]
        fits = (
            isinstance(rows, Tensor)
            and rows.ndim == 2
            and rows.shape[1] == 4
            and bool(rows.isfinite().all())
        )
        if not fits or not (
            isinstance(count, int) and isinstance(every, int) and count >= len(rows) and every >= 1
        ):
            raise ValueError(
                "fixes: expected (N, 4) finite numbers, how many came, and every which of them is kept"
            )
        self._rows, self.count, self._every = rows.double().numpy().copy(), count, every
        self._thin()


def too_few(count: int) -> str | None:
    """What to say of so many fixes; None where they suffice."""
    return None if count >= _LEAST else f"expected {_LEAST} at least"


def fitted(places: np.ndarray, earth: np.ndarray) -> Fit:
    """The datum by the fixes that agree.

    Args:
        places: (N, 2) m of the map.
        earth: (N, 2) latitude, longitude in degrees, at the same moments.

    Reference:
        Rousseeuw, Least median of squares regression, 1984.
    """
    latitude, longitude = _amid(earth)
    kept, beyond = _agreeing(places, _east_north(earth, latitude, longitude))
    p, agreed = places[kept], earth[kept]
    for _ in range(4):  # about the map's origin at last: meridians converge
        shift = Turned.between(p, _east_north(agreed, latitude, longitude)).shift
        latitude, longitude = _moved(latitude, longitude, *shift)
    q = _east_north(agreed, latitude, longitude)
    turned = Turned.between(p, q)
    left, squares = turned.off(p, q), ((p - p.mean(0)) ** 2).sum()
    error = math.sqrt(float((left**2).sum()) / max(1, 2 * len(p) - 3) / max(float(squares), 1e-300))
    return Fit(
        Datum(latitude, longitude, turned.heading),
        math.sqrt(squares / len(p)),
        error if squares > 0.0 else math.inf,
        kept,
        beyond,
    )


class Turned(NamedTuple):
    """q = shift + R(heading) p."""

    heading: float
    shift: np.ndarray

    @staticmethod
    def between(p: np.ndarray, q: np.ndarray) -> Turned:
        """By least squares; p, q: (N, 2)."""
        a, b = p - p.mean(0), q - q.mean(0)
        heading = math.atan2(
            float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()), float((a * b).sum())
        )
        return Turned(heading, q.mean(0) - _turned(p.mean(0), heading))

    def off(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """How far each q (N, 2) lies from where p (N, 2) puts it: (N,)."""
        return np.hypot(*(q - self.shift - _turned(p, self.heading)).T)


def _turned(p: np.ndarray, heading: float) -> np.ndarray:
    c, s = math.cos(heading), math.sin(heading)
    return p @ np.array([[c, s], [-s, c]])


def _agreeing(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, float]:
    """Which fixes lie where most put them (N,) bool, and what others lie off at least, m."""
    random = np.random.default_rng(0)
    mixed = random.permutation(len(p))
    judges = mixed[np.unique(np.floor(p[mixed] / _APART), axis=0, return_index=True)[1]]
    judges = judges[
        :: -(-len(judges) // _JUDGES)
    ]  # a robot that stood for an hour is one voice, not most of them
    first, second = random.choice(judges, (2, _PAIRS))
    pairs = [[i, j] for i, j in zip(first.tolist(), second.tolist()) if i != j]
    best = min(
        (Turned.between(p[pair], q[pair]) for pair in pairs or [[0, 0]]),
        key=lambda each: float(np.median(each.off(p[judges], q[judges]))),
    )
    kept, limit = np.ones(len(p), bool), 0.0
    for _ in range(3):
        # of normal errors the distance has the median 1.18 s
        spread = float(np.median(best.off(p[judges], q[judges]))) / 1.177
        limit = _OFF * max(_EXACT, spread * (1.0 + 5.0 / len(judges)))
        kept = best.off(p, q) <= limit
        if not kept.any():
            return np.ones(len(p), bool), math.inf
        best = Turned.between(p[kept], q[kept])
    return kept, limit


def _amid(earth: np.ndarray) -> tuple[float, float]:
    """A place amid most of the fixes, degrees: the median of where they lie in space, so on either side of 180°."""
    x, y, z = np.median(_cartesian(*np.radians(earth).T), 0)
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def _east_north(earth: np.ndarray, latitude: float, longitude: float) -> np.ndarray:
    """East and north (N, 2) m in the tangent plane at a place of latitudes and longitudes (N, 2), degrees."""
    phi, lam, at = (
        np.radians(earth[:, 0]),
        np.radians(earth[:, 1]),
        (math.radians(latitude), math.radians(longitude)),
    )
    offset = _cartesian(phi, lam) - _cartesian(*map(np.asarray, at))
    east = np.array([-math.sin(at[1]), math.cos(at[1]), 0.0])
    north = np.array(
        [-math.sin(at[0]) * math.cos(at[1]), -math.sin(at[0]) * math.sin(at[1]), math.cos(at[0])]
    )
    return np.stack([offset @ east, offset @ north], -1)


def _cartesian(phi: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Earth-centred x, y, z (…, 3) m on the ellipsoid."""
    across = _AXIS / np.sqrt(1.0 - _ECCENTRICITY * np.sin(phi) ** 2)
    return np.stack(
        [
            across * np.cos(phi) * np.cos(lam),
            across * np.cos(phi) * np.sin(lam),
            across * (1.0 - _ECCENTRICITY) * np.sin(phi),
        ],
        -1,
    )


def _moved(latitude: float, longitude: float, east: float, north: float) -> tuple[float, float]:
    """Latitude and longitude, degrees, of what lies so far east and north (m) in the tangent plane of a place."""
    new = np.array([latitude, longitude])
    metre = math.radians(1.0) * _AXIS
    for _ in range(6):
        missing = np.array([east, north]) - _east_north(new[None], latitude, longitude)[0]
        step = missing[1] / metre, missing[0] / (metre * max(math.cos(math.radians(new[0])), 1e-6))
        new += np.array(step)
    return float(new[0]), (float(new[1]) + 180.0) % 360.0 - 180.0
