"""Where the field has changed since the map was made, by a copy that goes on through a test."""

from __future__ import annotations

import numpy as np

from gp_mapping.analysis.digits import decimals
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession

__all__ = [
    "APART",
    "ChangeFollower",
    "at_changes",
    "change_as_dict",
    "changes_since",
    "list_changes",
]

# Scores that are reported separately: key in reports, and words.
APART = {"changed": "changed places", "unchanged": "all others"}
_MOST = 12  # places in a line of text


class ChangeFollower:
    """A copy of a map that goes on through test passes and is dropped afterwards.

    It finds nothing where changes are not followed. It looks for no fault of the sensor, with which
    it would begin again.
    """

    def __init__(self, session: MapSession):
        # Classes have no error in a unit.
        follows = session.settings.follow_changes and session.settings.metric
        self._map = MapSession.from_state_dict(session.state_dict()) if follows else None
        if self._map is not None:
            self._map.gathered.stop_looking()
        self._before = session.scores.change_count
        self._known = session.map.hyperparameters()["lengthscale"]

    def add(self, samples: Samples, new_pass: bool = False) -> None:
        """Take in the next samples of the test.

        Args:
            samples: of the pass at hand, in the order of their stamps.
            new_pass: whether they begin another pass; path and changes do not go on across it.
        """
        if self._map is None:
            return
        if new_pass:
            self._map.break_pass()
        self._map.ingest(samples)

    def changes(self) -> list[dict]:
        """Return the changes found since the copy was made.

        Keys are x, y (m), stamp (s), error (display unit), sure, and radius (m), within which the
        map forgets.
        """
        if self._map is None:
            return []
        self._map.flush()

        # The copy has inherited earlier changes: only those of the test are new.
        return [
            change | {"radius": self._known} for change in changes_since(self._map, self._before)
        ]


def changes_since(session: MapSession, before: int) -> list[dict]:
    """Return the newest changes that a map has found, as `change_as_dict`.

    Args:
        session: of the map.
        before: how many had been found before those that are asked for (`scores.change_count`).
    """
    count = session.scores.change_count - before
    newest = session.changes[-count:] if count > 0 else []
    return [change_as_dict(change, session.settings.field_scale) for change in newest]


def change_as_dict(change, scale: float) -> dict:
    """Return a change as numbers for a report; error in units of scale.

    It is sure where poses that lie off the map are no explanation.
    """
    return {
        "x": change.x,
        "y": change.y,
        "stamp": change.stamp,
        "error": change.error / scale,
        "sure": change.sure,
    }


def at_changes(x: np.ndarray, changes: list[dict]) -> np.ndarray:
    """Return which places lie within the radius of a change: (N,) bool.

    Args:
        x: (N, 2) m.
        changes: of `ChangeFollower.changes`.
    """
    inside = np.zeros(len(x), dtype=bool)
    for change in changes:
        inside |= np.hypot(x[:, 0] - change["x"], x[:, 1] - change["y"]) <= change["radius"]
    return inside


def list_changes(changes: list[dict], unit: str) -> str:
    """Return how often and where the field changed, for a line of text.

    Args:
        changes: of `ChangeFollower.changes`.
        unit: of their errors, the display unit.
    """
    if not changes:
        return "nowhere"
    places = [
        f"({c['x']:.1f}, {c['y']:.1f}) {decimals(c['error'], 1, '+')} {unit}"
        + ("" if c.get("sure", True) else " (or the poses lie off there)")
        for c in changes
    ]
    return (
        f"{len(places)} times, at "
        + "; ".join(places[:_MOST])
        + (" …" if len(places) > _MOST else "")
    )
