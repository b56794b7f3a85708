"""Where a map lies on the earth: as it was written, from a bag that holds NavSatFix beside the map's poses, or as the
map's own fixes tell, which a node with fix_topic has kept (mapping/earth.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gp_mapping.errors import UsageError
from gp_mapping.intake.fixes import FIX, place_of
from gp_mapping.intake.messages import frame_of, stamp_ns
from gp_mapping.intake.poses.messages import POSE_MESSAGES, read_pose
from gp_mapping.mapping.earth import Datum, Fixes, fitted, too_few
from gp_mapping.recording.bag import bag_topics, choose_topic, read_messages

__all__ = ["datum_of"]

NONE = "none"
_GAP = 1.0  # s between poses at most about a fix


def datum_of(
    text: str | None, about: dict, fix_topic: str | None, own: Fixes
) -> tuple[Datum | None, str]:
    """From latitude,longitude,heading, from a bag, or from the map's own fixes; and one line of where it comes from.

    Args:
        text: as --datum was written; None: of the map's own, where they tell it.  "none": there is none.
        about: of the map: its frame and pose_source.
        fix_topic: of fixes in the bag.
        own: the map's fixes.

    Raises:
        UsageError: it is neither, or tells too little.
    """
    if text is None:
        datum, line = own.summary()
        return (
            datum,
            f"{line}; coordinates are metres of the map's frame"
            if line and datum is None
            else line,
        )
    if text == NONE:
        return None, ""
    if "," in text or not Path(text).exists():
        return Datum.parse(text), ""
    bag = Path(text)
    source = about.get("pose_source", "odometry")
    if source not in POSE_MESSAGES:
        raise UsageError(
            f"{bag}: the map's poses came from {source}, a datum from a bag needs pose messages; write "
            "--datum LAT,LON,HEADING"
        )
    there = bag_topics(bag)
    topics = [
        choose_topic(bag, there, (FIX,), fix_topic),
        choose_topic(bag, there, (POSE_MESSAGES[source],)),
    ]
    fixes, poses = [], []
    for topic, _, message in read_messages([bag], topics):
        if topic == topics[0]:
            place = place_of(message)
            if place is not None:
                fixes.append((stamp_ns(message), *place))
        elif not about.get("frame") or frame_of(message) == about["frame"]:
            poses.append((stamp_ns(message), *read_pose(message, source).position[:2]))
    if not poses:
        raise UsageError(
            f"{bag}: no pose on {topics[1]} is in the map's frame {about.get('frame')!r}"
        )
    places, earth = _paired(fixes, poses)
    if (why := too_few(len(places))) is not None:
        raise UsageError(
            f"{bag}: {len(fixes)} fixes on {topics[0]} of which {len(places)} have a pose at their stamp, "
            f"{why}; write --datum LAT,LON,HEADING"
        )
    fit = fitted(places, earth)
    if (why := fit.unsure()) is not None:
        raise UsageError(
            f"{bag}: {why}; take a bag of a longer drive, or write --datum LAT,LON,HEADING"
        )
    return fit.datum, fit.said(f"{len(places)} fixes of {bag}")


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
