"""Where a map lies on the earth: as it was written, or from a bag that holds NavSatFix beside the map's poses.

    (e, n)_i = t + R(h) (x, y)_i + noise        least squares over fixes i; t: east and north of the map's origin, m

One fix knows no direction: the heading comes from fixes at several places, and how well it is known is said. The
antenna counts as if it were where the poses are: an antenna beside them by a lever arm turns h by that arm at most,
over the distance driven, and a symmetric drive by nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from gp_mapping.errors import UsageError
from gp_mapping.intake.messages import frame_of, stamp_ns
from gp_mapping.intake.poses.messages import POSE_MESSAGES, read_pose
from gp_mapping.recording.bag import bag_topics, choose_topic, read_messages
from gp_mapping.store.geotiff import Datum

__all__ = ["datum_of", "fitted"]

FIX = "sensor_msgs/msg/NavSatFix"
_NO_FIX = -1
_GAP = 1.0  # s between poses at most about a fix
_LEAST, _SURE = 3, 0.1  # fixes; rad: standard deviation of the heading at most
_AXIS, _FLATTENING = 6378137.0, 1.0 / 298.257223563  # WGS 84
_ECCENTRICITY = _FLATTENING * (2.0 - _FLATTENING)  # squared


def datum_of(text: str, about: dict, fix_topic: str | None) -> tuple[Datum, str]:
    """From latitude,longitude,heading, or from a bag; and one line of where it comes from.

    about: of the map: its frame and pose_source.  UsageError where it is neither, or tells too little.
    """
    if "," in text or not Path(text).exists():
        return Datum.parse(text), ""
    bag = Path(text)
    source = about.get("pose_source", "odometry")
    if source not in POSE_MESSAGES:
        raise UsageError(f"{bag}: the map's poses came from {source}, a datum from a bag needs pose messages; write "
                         "--datum LAT,LON,HEADING")
    there = bag_topics(bag)
    topics = [choose_topic(bag, there, (FIX,), fix_topic), choose_topic(bag, there, (POSE_MESSAGES[source],))]
    fixes, poses = [], []
    for topic, _, message in read_messages([bag], topics):
        if topic == topics[0]:
            good = message.status.status > _NO_FIX and abs(message.latitude) <= 90.0 and abs(message.longitude) <= 180.0
            if good:
                fixes.append((stamp_ns(message), message.latitude, message.longitude))
        elif not about.get("frame") or frame_of(message) == about["frame"]:
            poses.append((stamp_ns(message), *read_pose(message, source).position[:2]))
    if not poses:
        raise UsageError(f"{bag}: no pose on {topics[1]} is in the map's frame {about.get('frame')!r}")
    places, earth = _paired(fixes, poses)
    if len(places) < _LEAST:
        raise UsageError(f"{bag}: {len(fixes)} fixes on {topics[0]} of which {len(places)} have a pose at their stamp, "
                         f"expected {_LEAST} at least; write --datum LAT,LON,HEADING")
    datum, spread, error = fitted(places, earth)
    if not error <= _SURE:
        raise UsageError(f"{bag}: the fixes tell the heading to ±{error:.2g} rad only (they lie {spread:.2g} m about "
                         f"their middle), expected ±{_SURE:g}: one place knows no direction; take a bag of a longer "
                         "drive, or write --datum LAT,LON,HEADING")
    return datum, (f"datum {datum.latitude:.7f},{datum.longitude:.7f},{datum.heading:.4f} from {len(places)} fixes of "
                   f"{bag}, heading ±{error:.2g} rad; the antenna counts as where the poses are")


def _paired(fixes: list[tuple], poses: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
    """Where the poses were at the fixes' stamps (N, 2) m, and latitude, longitude of these (N, 2) degrees."""
    told = np.array(sorted(poses), dtype=object)
    stamps = told[:, 0].astype(np.int64)
    keep = np.concatenate([[True], np.diff(stamps) > 0])
    stamps, xy = stamps[keep], told[keep, 1:].astype(float)
    good = np.isfinite(xy).all(1)
    stamps, xy = stamps[good], xy[good]
    at = np.array([f[0] for f in fixes], np.int64)
    earth = np.array([f[1:] for f in fixes], float).reshape(-1, 2)
    if len(stamps) < 2 or not len(at):
        return np.empty((0, 2)), np.empty((0, 2))
    after = np.searchsorted(stamps, at)
    near = (after > 0) & (after < len(stamps))
    gaps = np.diff(stamps)[np.clip(after - 1, 0, len(stamps) - 2)]
    near &= gaps <= _GAP * 1e9
    start = stamps[0]
    x, y = (np.interp((at - start) * 1e-9, (stamps - start) * 1e-9, column) for column in xy.T)
    return np.stack([x, y], 1)[near], earth[near]


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
