"""Where a map lies on the earth: its datum, and the fixes of a satellite receiver that tell it.

    (e, n)_i = t + R(h) (x, y)_i + noise        least squares over fixes i; t: east and north of the map's origin, m

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

__all__ = ["Datum", "Fixes", "fitted", "said", "too_few", "unsure"]

_LEAST, _SURE = 3, 0.1  # fixes; rad: standard deviation of the heading at most
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
        if not (abs(datum.latitude) <= 90.0 and abs(datum.longitude) <= 180.0 and math.isfinite(datum.heading)):
            raise UsageError(f"datum is {text!r}, expected latitude and longitude in degrees and the direction of the "
                             "map's x axis in rad from east, as 52.3731,4.8922,0.0")
        return datum


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

    def told(self) -> tuple[Datum | None, str]:
        """The datum, None where they tell too little, and one sentence of it; '' where none came."""
        now = self.count, len(self._rows)
        if self._told is None or self._told[0] != now:
            self._told = now, self._tell()
        return self._told[1]

    def _tell(self) -> tuple[Datum | None, str]:
        if not self.count:
            return None, ""
        which = f"{len(self)} fixes" if len(self) == self.count else f"{len(self)} of {self.count} fixes (max_fixes)"
        if (why := too_few(len(self))) is not None:
            return None, f"no datum: {which}, {why}"
        datum, spread, error = fitted(self._rows[:, :2], self._rows[:, 2:])
        if (why := unsure(spread, error)) is not None:
            return None, f"no datum: of {which}, {why}"
        return datum, said(datum, which, error)

    def state_dict(self) -> dict:
        return {"rows": torch.from_numpy(self._rows.copy()), "count": self.count, "every": self._every}

    def load_state_dict(self, state: dict) -> None:
        """Go on with those. ValueError where that is no such state."""
        rows, count, every = state["rows"], state["count"], state["every"]
        fits = isinstance(rows, Tensor) and rows.ndim == 2 and rows.shape[1] == 4 and bool(rows.isfinite().all())
        if not fits or not (isinstance(count, int) and isinstance(every, int) and count >= len(rows) and every >= 1):
            raise ValueError("fixes: expected (N, 4) finite numbers, how many came, and every which of them is kept")
        self._rows, self.count, self._every = rows.double().numpy().copy(), count, every
        self._thin()


def too_few(count: int) -> str | None:
    """What to say of so many fixes; None where they suffice."""
    return None if count >= _LEAST else f"expected {_LEAST} at least"


def unsure(spread: float, error: float) -> str | None:
    """What to say of a fit with that spread (m) and standard deviation of its heading (rad); None where it is good."""
    if error <= _SURE:
        return None
    return (f"the fixes tell the heading to ±{error:.2g} rad only (they lie {spread:.2g} m about their middle), "
            f"expected ±{_SURE:g}: one place knows no direction")


def said(datum: Datum, which: str, error: float) -> str:
    """One line. which: fixes that it is from.  error: standard deviation of its heading, rad."""
    return (f"datum {datum.latitude:.7f},{datum.longitude:.7f},{datum.heading:.4f} from {which}, heading ±{error:.2g} "
            "rad; the antenna counts as where the poses are")


def fitted(places: np.ndarray, earth: np.ndarray) -> tuple[Datum, float, float]:
    """The datum, how far the places lie about their middle (rms, m), and the standard deviation of its heading, rad.

    places (N, 2): m of the map.  earth (N, 2): latitude, longitude in degrees, at the same moments.
    """
    latitude, longitude = earth.mean(0) if np.ptp(earth[:, 1]) < 180.0 else earth[0]
    heading = 0.0
    for _ in range(4):  # about the map's origin at last: meridians converge
        flat = _east_north(earth, latitude, longitude)
        middle, centre = places.mean(0), flat.mean(0)
        p, q = places - middle, flat - centre
        heading = math.atan2(float((p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]).sum()), float((p * q).sum()))
        turn = np.array([[math.cos(heading), -math.sin(heading)], [math.sin(heading), math.cos(heading)]])
        left = q - p @ turn.T
        latitude, longitude = _moved(latitude, longitude, *(centre - turn @ middle))
    spread = float(np.sqrt((p**2).sum(1).mean()))
    variance = float((left**2).sum()) / max(1, 2 * len(p) - 3)
    error = math.sqrt(variance / max(float((p**2).sum()), 1e-300))
    return Datum(latitude, longitude, heading), spread, error if spread > 0.0 else math.inf


def _east_north(earth: np.ndarray, latitude: float, longitude: float) -> np.ndarray:
    """East and north (N, 2) m in the tangent plane at a place of latitudes and longitudes (N, 2), degrees."""
    phi, lam, at = np.radians(earth[:, 0]), np.radians(earth[:, 1]), (math.radians(latitude), math.radians(longitude))
    offset = _cartesian(phi, lam) - _cartesian(*map(np.asarray, at))
    east = np.array([-math.sin(at[1]), math.cos(at[1]), 0.0])
    north = np.array([-math.sin(at[0]) * math.cos(at[1]), -math.sin(at[0]) * math.sin(at[1]), math.cos(at[0])])
    return np.stack([offset @ east, offset @ north], -1)


def _cartesian(phi: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Earth-centred x, y, z (…, 3) m on the ellipsoid."""
    across = _AXIS / np.sqrt(1.0 - _ECCENTRICITY * np.sin(phi) ** 2)
    return np.stack([across * np.cos(phi) * np.cos(lam), across * np.cos(phi) * np.sin(lam),
                     across * (1.0 - _ECCENTRICITY) * np.sin(phi)], -1)


def _moved(latitude: float, longitude: float, east: float, north: float) -> tuple[float, float]:
    """Latitude and longitude, degrees, of what lies so far east and north (m) in the tangent plane of a place."""
    new = np.array([latitude, longitude])
    metre = math.radians(1.0) * _AXIS
    for _ in range(6):
        missing = np.array([east, north]) - _east_north(new[None], latitude, longitude)[0]
        step = missing[1] / metre, missing[0] / (metre * max(math.cos(math.radians(new[0])), 1e-6))
        new += np.array(step)
    return float(new[0]), (float(new[1]) + 180.0) % 360.0 - 180.0
