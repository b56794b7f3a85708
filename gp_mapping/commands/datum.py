"""Where a map lies on the earth: the datum of `gp-mapping export`.

It comes from one of three places: the command line (--datum LAT,LON,HEADING), a bag that holds
NavSatFix in addition to the map's poses, or the map's own fixes, which a node with fix_topic has
kept (mapping/earth.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gp_mapping.errors import UsageError
from gp_mapping.intake.fixes import FIX, place_of
from gp_mapping.intake.messages import frame_of, stamp_ns
from gp_mapping.intake.poses.messages import POSE_MESSAGES, read_pose
from gp_mapping.mapping.earth import Datum, Fixes, fit_datum, too_few_fixes_note
from gp_mapping.recording.bag import bag_topics, choose_topic, read_messages

__all__ = ["datum_of"]

NONE = "none"
_GAP = 1.0  # s, the longest gap between the two poses that enclose a fix


def datum_of(
    text: str | None,
    about: dict,
    fix_topic: str | None,
    own: Fixes,
    pose_topic: str | None = None,
) -> tuple[Datum | None, str]:
    """Return the datum that --datum asks for, and one line that says where it comes from.

    Args:
        text: --datum as written: "latitude,longitude,heading" or the path of a bag. None: from the
            map's own fixes, where they determine it. "none": no datum.
        about: the map's `about`, of which its frame and pose_source count.
        fix_topic: topic of the fixes in the bag; None: the only one.
        own: the map's own fixes.
        pose_topic: topic of the poses in the bag; None: the only one.

    Returns:
        The datum, or None where there is none, and the line ("" where there is nothing to say).

    Raises:
        UsageError: the text is neither a datum nor a bag, or the bag's fixes do not determine one.
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
    # a text that names no file is parsed as a datum, whose error says what was expected
    if "," in text or not Path(text).exists():
        return Datum.parse(text), ""

    bag = Path(text)
    source = about.get("pose_source", "odometry")
    if source not in POSE_MESSAGES:
        raise UsageError(
            f"{bag}: the map's poses came from {source}, a datum from a bag needs pose messages; write "
            "--datum LAT,LON,HEADING"
        )

    topics_of_bag = bag_topics(bag)
    topics = [
        choose_topic(bag, topics_of_bag, (FIX,), fix_topic, option="--fix-topic"),
        choose_topic(
            bag, topics_of_bag, (POSE_MESSAGES[source],), pose_topic, option="--odometry-topic"
        ),
    ]
    fixes, poses, losses = [], [], []
    for topic, _, message in read_messages([bag], topics, on_loss=losses.append):
        if topic == topics[0]:
            place = place_of(message)
            if place is not None:
                fixes.append((stamp_ns(message), *place))
        # a bag may hold poses in several frames; only the map's own can be paired
        elif not about.get("frame") or frame_of(message) == about["frame"]:
            poses.append((stamp_ns(message), *read_pose(message, source).position[:2]))

    if not poses:
        raise UsageError(
            f"{bag}: no pose on {topics[1]} is in the map's frame {about.get('frame')!r}"
        )

    places, earth = _paired(fixes, poses)
    if (why := too_few_fixes_note(len(places))) is not None:
        raise UsageError(
            f"{bag}: {len(fixes)} fixes on {topics[0]} of which {len(places)} have a pose at their stamp, "
            f"{why}; write --datum LAT,LON,HEADING"
        )

    fit = fit_datum(places, earth)
    if (why := fit.heading_warning()) is not None:
        raise UsageError(
            f"{bag}: {why}; take a bag of a longer drive, or write --datum LAT,LON,HEADING"
        )
    lost = "".join(f"; {loss.words}" for loss in losses)
    return fit.datum, fit.describe(f"{len(places)} fixes of {bag}") + lost


def _paired(fixes: list[tuple], poses: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate the poses at the stamps of the fixes.

    Args:
        fixes: (stamp ns, latitude, longitude), degrees.
        poses: (stamp ns, x, y), m in the map's frame, in any order.

    Returns:
        Positions (N, 2), m, and latitude and longitude (N, 2), degrees, of those N fixes that lie
        between two poses at most _GAP apart.
    """
    # dtype object: nanoseconds as a float64 would lose the last digits
    rows = np.array(sorted(poses), dtype=object)
    stamps = rows[:, 0].astype(np.int64)
    keep = np.concatenate([[True], np.diff(stamps) > 0])  # np.interp needs increasing stamps
    stamps, xy = stamps[keep], rows[keep, 1:].astype(float)
    finite = np.isfinite(xy).all(1)
    stamps, xy = stamps[finite], xy[finite]

    fix_stamps = np.array([f[0] for f in fixes], np.int64)
    earth = np.array([f[1:] for f in fixes], float).reshape(-1, 2)
    if len(stamps) < 2 or not len(fix_stamps):
        return np.empty((0, 2)), np.empty((0, 2))

    after = np.searchsorted(stamps, fix_stamps)
    near = (after > 0) & (after < len(stamps))
    gaps = np.diff(stamps)[np.clip(after - 1, 0, len(stamps) - 2)]
    near &= gaps <= _GAP * 1e9

    start = stamps[0]  # seconds since the first pose keep their precision in float64
    x, y = (
        np.interp((fix_stamps - start) * 1e-9, (stamps - start) * 1e-9, column) for column in xy.T
    )
    return np.stack([x, y], 1)[near], earth[near]
