"""Where a map lies on the earth: its datum, estimated from the fixes of a satellite receiver.

    (e, n)_i = t + R(h) (x, y)_i + noise        least squares over fixes i

t: east and north of the map's origin, m; h: direction of its x axis from east, rad.

Fixes that lie elsewhere than most of them (a receiver without a sky, a pose that leapt) are left
out: of the t and h that two fixes determine, those with the least median distance of all fixes
decide which (least median of squares, Rousseeuw 1984). One fix knows no direction: the heading
comes from fixes at several places, and its standard deviation is reported. The antenna counts as if
it were where the poses are: an antenna that is a lever arm away from them turns h by that arm at
most, over the distance driven, and a symmetric drive by nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gp_mapping.errors import UsageError
from gp_mapping.settings.fields import FULL_TURN

__all__ = ["Datum", "DatumFit", "Fixes", "fit_datum", "too_few_fixes_note"]

# At least so many fixes, and at most this standard deviation of the heading, rad.
_LEAST, _SURE = 3, 0.1
# So many pairs of fixes are tried, each judged by so many fixes; where half of all fixes are wrong,
# one pair in four is right.
_PAIRS, _JUDGES = 100, 200
_APART = 1.0  # m, side of the squares of which each has one judge
_OFF = 4.0  # standard deviations beyond which a fix lies elsewhere: of normal ones, 3 of 10 000
_EXACT = 0.01  # m; no fix is better
_AXIS, _FLATTENING = 6378137.0, 1.0 / 298.257223563  # WGS 84
_ECCENTRICITY = _FLATTENING * (2.0 - _FLATTENING)  # squared


class Datum(NamedTuple):
    """Where the origin of the map's frame lies, and how it is turned.

    Attributes:
        latitude: degrees, WGS 84.
        longitude: degrees, WGS 84.
        heading: of the x axis, rad counter-clockwise from east.
    """

    latitude: float
    longitude: float
    heading: float

    @staticmethod
    def parse(text: str) -> Datum:
        """Read a datum from "latitude,longitude,heading": degrees, degrees, rad.

        Raises:
            UsageError: it is no place on the earth.
        """
        try:
            datum = Datum(*map(float, text.split(",")))
        except (TypeError, ValueError):
            datum = Datum(math.nan, 0.0, 0.0)  # fails the check below, which has the message
        if not (
            abs(datum.latitude) <= 90.0
            and abs(datum.longitude) <= 180.0
            and abs(datum.heading) <= FULL_TURN
        ):
            raise UsageError(
                f"datum is {text!r}, expected latitude and longitude in degrees and the direction of the "
                "map's x axis in rad (45° are 0.785) from east, as 52.3731,4.8922,0.0"
            )
        return datum


class DatumFit(NamedTuple):
    """A datum fitted to fixes, and how well they agree.

    Attributes:
        datum: where the map lies.
        spread: rms distance of the agreeing fixes from their middle, m.
        error: standard deviation of the heading, rad.
        kept: (N,) bool, which fixes agree.
        beyond: the others lie at least so far off, m.
    """

    datum: Datum
    spread: float
    error: float
    kept: np.ndarray
    beyond: float

    def heading_warning(self) -> str | None:
        """What to say where the heading is hardly known; None where it is."""
        if self.error <= _SURE:
            return None
        return (
            f"the fixes tell the heading to ±{self.error:.2g} rad only (they lie {self.spread:.2g} m about their "
            f"middle), expected ±{_SURE:g}: one place knows no direction"
        )

    def describe(self, which: str) -> str:
        """One line on the datum.

        Args:
            which: in words, the fixes that it is from.
        """
        datum, outliers = self.datum, int((~self.kept).sum())
        without = (
            f" ({outliers} left out, {self.beyond:.2g} m and more from where the others put them)"
            if outliers
            else ""
        )
        return (
            f"datum {datum.latitude:.7f},{datum.longitude:.7f},{datum.heading:.4f} from {which}{without}, heading "
            f"±{self.error:.2g} rad; the antenna counts as where the poses are"
        )


class Fixes:
    """Pairs of a place in the map and a fix on the earth, spread over all that came.

    Beyond `most` every second one is dropped, and of those to come as many are left out.

    Args:
        most: bound of the pairs that are kept.

    Attributes:
        count: of all that came.
    """

    def __init__(self, most: int):
        self.most, self.count = most, 0
        self._every, self._rows = 1, np.empty((0, 4))  # x, y m; latitude, longitude degrees
        # `summary`, with the counts of fixes that it was made from
        self._summary: tuple[tuple[int, int], tuple[Datum | None, str]] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[tuple[float, float, float, float]]) -> None:
        """Add rows of x, y (m, in the map's frame), latitude and longitude (degrees).

        Raises:
            ValueError: a number is not finite; none of the rows is added.
        """
        rows = list(rows)
        for row in rows:
            if not all(map(math.isfinite, row)):
                raise ValueError(f"a fix of x, y, latitude, longitude {row} is not finite")

        for row in rows:
            # the same spacing for all that came, however late
            if self.count % self._every == 0:
                self._rows = np.vstack([self._rows, row])
                self._thin()
            self.count += 1

    def _thin(self) -> None:
        """Drop every second fix until there are no more than `most`."""
        while len(self._rows) > self.most:
            self._rows, self._every = self._rows[::2], 2 * self._every

    def join(self, other: Fixes) -> None:
        """Add the fixes of another map in the same frame."""
        self._rows, self.count = np.vstack([self._rows, other._rows]), self.count + other.count
        self._every = max(self._every, other._every)
        self._thin()

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """Go over to the frame X' = turn X + shift.

        Args:
            turn: rotation (2, 2).
            shift: (2,) m.
        """
        moved = self._rows[:, :2] @ turn.numpy().T + shift.numpy()
        self._rows, self._summary = np.hstack([moved, self._rows[:, 2:]]), None

    def summary(self) -> tuple[Datum | None, str]:
        """The datum, None where fixes are too few or disagree, and a sentence; '' without fixes."""
        now = self.count, len(self._rows)
        if self._summary is None or self._summary[0] != now:
            self._summary = now, self._summarise()
        return self._summary[1]

    def _summarise(self) -> tuple[Datum | None, str]:
        """Compute `summary` anew."""
        if not self.count:
            return None, ""
        which = (
            f"{len(self)} fixes"
            if len(self) == self.count
            else f"{len(self)} of {self.count} fixes (max_fixes)"
        )

        if (why := too_few_fixes_note(len(self))) is not None:
            return None, f"no datum: {which}, {why}"

        fit = fit_datum(self._rows[:, :2], self._rows[:, 2:])
        # one place knows no direction
        if (why := fit.heading_warning()) is not None:
            return None, f"no datum: of {which}, {why}"
        return fit.datum, fit.describe(which)

    def state_dict(self) -> dict:
        """Return the kept fixes (N, 4), how many came, and every which of them is kept."""
        return {
            "rows": torch.from_numpy(self._rows.copy()),
            "count": self.count,
            "every": self._every,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken.

        Raises:
            ValueError: the state is none of fixes.
        """
        rows, count, every = state["rows"], state["count"], state["every"]
        # a state may come from a file: all of it is checked
        rows_fit = (
            isinstance(rows, Tensor)
            and rows.ndim == 2
            and rows.shape[1] == 4
            and bool(rows.isfinite().all())
        )
        if not rows_fit or not (
            isinstance(count, int) and isinstance(every, int) and count >= len(rows) and every >= 1
        ):
            raise ValueError(
                "fixes: expected (N, 4) finite numbers, how many came, and every which of them is kept"
            )

        self._rows, self.count, self._every = rows.double().numpy().copy(), count, every
        self._thin()


def too_few_fixes_note(count: int) -> str | None:
    """What to say of so many fixes; None where they suffice."""
    return None if count >= _LEAST else f"expected {_LEAST} at least"


def fit_datum(places: np.ndarray, earth: np.ndarray) -> DatumFit:
    """Fit the datum to the fixes that agree.

    Args:
        places: (N, 2) m of the map.
        earth: (N, 2) latitude, longitude in degrees, at the same moments.

    Reference:
        Rousseeuw, Least median of squares regression, 1984.
    """
    latitude, longitude = _middle_of(earth)
    kept, beyond = _agreeing(places, _east_north(earth, latitude, longitude))

    p, agreed = places[kept], earth[kept]
    # the tangent plane moves to the map's origin, step by step, since meridians converge
    for _ in range(4):
        shift = PlaneTransform.fit(p, _east_north(agreed, latitude, longitude)).shift
        latitude, longitude = _moved(latitude, longitude, *shift)

    q = _east_north(agreed, latitude, longitude)
    turned = PlaneTransform.fit(p, q)
    residuals, squares = turned.residuals(p, q), ((p - p.mean(0)) ** 2).sum()
    # stddev of h by least squares: residual variance over Σ |p − p̄|²; of 2N numbers 3 unknowns
    error = math.sqrt(
        float((residuals**2).sum()) / max(1, 2 * len(p) - 3) / max(float(squares), 1e-300)
    )

    return DatumFit(
        Datum(latitude, longitude, turned.heading),
        math.sqrt(squares / len(p)),
        error if squares > 0.0 else math.inf,
        kept,
        beyond,
    )


class PlaneTransform(NamedTuple):
    """A plane transform q = shift + R(heading) p.

    Attributes:
        heading: rad.
        shift: (2,) m.
    """

    heading: float
    shift: np.ndarray

    @staticmethod
    def fit(p: np.ndarray, q: np.ndarray) -> PlaneTransform:
        """Fit it by least squares.

            minimise Σᵢ |qᵢ − shift − R(heading) pᵢ|²

        Args:
            p: places (N, 2), m.
            q: their images (N, 2), m.
        """
        a, b = p - p.mean(0), q - q.mean(0)
        heading = math.atan2(
            float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()), float((a * b).sum())
        )
        return PlaneTransform(heading, q.mean(0) - _turned(p.mean(0), heading))

    def residuals(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """Distances |qᵢ − shift − R(heading) pᵢ|.

        Args:
            p: places (N, 2), m.
            q: their measured images (N, 2), m.

        Returns:
            (N,) m.
        """
        return np.hypot(*(q - self.shift - _turned(p, self.heading)).T)


def _turned(p: np.ndarray, heading: float) -> np.ndarray:
    """R(heading) of each row of p (N, 2)."""
    c, s = math.cos(heading), math.sin(heading)
    return p @ np.array([[c, s], [-s, c]])


def _agreeing(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, float]:
    """Find the fixes that lie where most of them put the map.

    Args:
        p: (N, 2) m in the map.
        q: (N, 2) m on the earth, east and north.

    Returns:
        (N,) bool, and the distance that the others lie off at least, m.
    """
    random = np.random.default_rng(0)
    mixed = random.permutation(len(p))
    judges = mixed[np.unique(np.floor(p[mixed] / _APART), axis=0, return_index=True)[1]]
    # one judge in each square: a robot that stood for an hour must not outvote all other places
    judges = judges[:: -(-len(judges) // _JUDGES)]

    first, second = random.choice(judges, (2, _PAIRS))
    # the same fix twice determines no direction
    pairs = [[i, j] for i, j in zip(first.tolist(), second.tolist()) if i != j]
    best = min(
        (PlaneTransform.fit(p[pair], q[pair]) for pair in pairs or [[0, 0]]),
        key=lambda each: float(np.median(each.residuals(p[judges], q[judges]))),
    )

    kept, limit = np.ones(len(p), bool), 0.0
    # refit to those that agree, and look again which do
    for _ in range(3):
        # the median distance of normal errors in the plane is 1.18 standard deviations
        spread = float(np.median(best.residuals(p[judges], q[judges]))) / 1.177
        limit = _OFF * max(_EXACT, spread * (1.0 + 5.0 / len(judges)))
        # never none: at least half of the judges lie within the median distance
        kept = best.residuals(p, q) <= limit
        best = PlaneTransform.fit(p[kept], q[kept])
    return kept, limit


def _middle_of(earth: np.ndarray) -> tuple[float, float]:
    """A place amid most of the fixes, degrees.

    It is the median of where they lie in space, so also on either side of 180°.
    """
    x, y, z = np.median(_cartesian(*np.radians(earth).T), 0)
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def _east_north(earth: np.ndarray, latitude: float, longitude: float) -> np.ndarray:
    """East and north in the tangent plane at a place.

    Args:
        earth: (N, 2) latitudes and longitudes, degrees.
        latitude: of the place, degrees.
        longitude: of the place, degrees.

    Returns:
        (N, 2) m.
    """
    phi, lam, origin = (
        np.radians(earth[:, 0]),
        np.radians(earth[:, 1]),
        (math.radians(latitude), math.radians(longitude)),
    )

    offset = _cartesian(phi, lam) - _cartesian(*map(np.asarray, origin))
    # unit vectors at the place, earth-centred
    east = np.array([-math.sin(origin[1]), math.cos(origin[1]), 0.0])
    north = np.array(
        [
            -math.sin(origin[0]) * math.cos(origin[1]),
            -math.sin(origin[0]) * math.sin(origin[1]),
            math.cos(origin[0]),
        ]
    )
    return np.stack([offset @ east, offset @ north], -1)


def _cartesian(phi: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Earth-centred x, y, z (…, 3) m of latitudes and longitudes (rad) on the ellipsoid."""
    prime_vertical_radius = _AXIS / np.sqrt(1.0 - _ECCENTRICITY * np.sin(phi) ** 2)
    return np.stack(
        [
            prime_vertical_radius * np.cos(phi) * np.cos(lam),
            prime_vertical_radius * np.cos(phi) * np.sin(lam),
            prime_vertical_radius * (1.0 - _ECCENTRICITY) * np.sin(phi),
        ],
        -1,
    )


def _moved(latitude: float, longitude: float, east: float, north: float) -> tuple[float, float]:
    """Latitude and longitude of what lies east and north of a place in its tangent plane.

    Args:
        latitude: of the place, degrees.
        longitude: of the place, degrees.
        east: m.
        north: m.

    Returns:
        Degrees.
    """
    new = np.array([latitude, longitude])
    metre = math.radians(1.0) * _AXIS

    for _ in range(6):
        # Newton's steps with the sphere's metres per degree: each leaves about a percent
        missing = np.array([east, north]) - _east_north(new[None], latitude, longitude)[0]
        step = missing[1] / metre, missing[0] / (metre * max(math.cos(math.radians(new[0])), 1e-6))
        new += np.array(step)

    return float(new[0]), (float(new[1]) + 180.0) % 360.0 - 180.0
