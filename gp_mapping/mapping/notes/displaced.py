"""Whether poses lie off the map, in a sentence: what looked like a changed field, and is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gp_mapping.mapping.alarms.error_run import Displaced

__all__ = ["displaced_note"]


def displaced_note(found: Sequence[Displaced], count: int) -> list[str]:
    """Say that poses lie off the map.

    Args:
        found: the newest moments at which they did.
        count: number of all such moments.
    """
    if not found:
        return []
    worst = max(found, key=lambda each: (each.sure, math.hypot(each.off_x, each.off_y)))
    times = "once" if count == 1 else f"{count} times"
    unsure = sum(not each.sure for each in found)
    doubt = (
        ""
        if not unsure
        else " (the field may have changed instead)"
        if unsure == len(found)
        else f" ({unsure} of them may be a change of the field instead)"
    )
    often = times + doubt
    return [
        f"poses lie off the map {often}, at worst by ({worst.off_x:.2g}, {worst.off_y:.2g}) m at "
        f"({worst.x:.1f}, {worst.y:.1f}) m, stamp {worst.stamp:.1f}: one displacement explains what the sensor told "
        "there better than a change of the field. Does a localiser leap, do wheels slip? What was measured meanwhile "
        "lies in the wrong place; nothing that was known is forgotten for it. Take the poses of a localiser, or drop "
        "such poses with max_speed"
    ]
