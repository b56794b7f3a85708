"""Settings of robots that make one map together: what is sent and merged, in which frames."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gp_mapping.errors import named
from gp_mapping.settings.fields import FULL_TURN, setting

__all__ = ["SUM_BUDGETS", "TEAM_INDUCING_INFORMATION", "TeamSettings", "robots_of", "transforms_of"]

TEAM_INDUCING_INFORMATION = 0.1
"""bits; `inducing_information` of robots whose maps are summed.

Of cells that a robot no longer remembers one by one (`memory_size`) a sum knows only what this
robot's own inputs keep. With b bits, what is lost with an input is at most 2^2b − 1 of the
posterior variance: three times all of it with the 1 bit that suits one map, 15 % with 0.1. Of cells
that are remembered the sum loses nothing: it chooses its inputs from them.
"""

SUM_BUDGETS = 4
"""A sum of several maps, and each of its tiles, may have this many times the budget of one."""

_NAME = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")


def robots_of(text: str) -> list[str]:
    """Parse merge_from.

    Args:
        text: namespaces separated by commas.

    Returns:
        The names without slashes around them; empty for an empty text.

    Raises:
        ValueError: one is no namespace, or stands there twice.
    """
    names = [part.strip().strip("/") for part in text.split(",") if part.strip().strip("/")]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"merge_from: {named(name)} is not a robot's namespace; expected names separated by commas, "
                "for example robot1,robot2"
            )
        if names.count(name) > 1:
            raise ValueError(f"merge_from: {name!r} stands there twice")
    return names


def transforms_of(text: str) -> dict[str, tuple[float, float, float]]:
    """Parse merge_transforms.

    Args:
        text: robot=x y yaw (m, rad), separated by commas.

    Returns:
        Robot -> (x, y, yaw) of the origin of its frame in this map's.

    Raises:
        ValueError: a part is no such transform.
    """
    transforms: dict[str, tuple[float, float, float]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, numbers = part.partition("=")

        try:
            x, y, yaw = map(float, numbers.split())
        except ValueError:  # not three numbers: reported below, as what is not finite is
            x = y = yaw = math.nan
        usable = math.isfinite(x) and math.isfinite(y) and abs(yaw) <= FULL_TURN
        if not equals or not usable:
            raise ValueError(
                f"merge_transforms: {named(part)} is no robot with x, y and yaw; expected for example "
                "'robot2=1.5 -2.0 0.79' (metres, radians: 45° are 0.785)"
            )
        transforms[name.strip().strip("/")] = (x, y, yaw)
    return transforms


@dataclass(frozen=True)
class TeamSettings:
    """Settings of ~/tiles and of the map of a team, which docs/teams.md explains."""

    publish_tiles: bool = setting(
        False, "send the totals of this robot's map on ~/tiles, for others that merge them"
    )
    tiles_period: float = setting(
        2.0, "shortest time between two messages of the same tile", "s", 0.1, 1e5, live=True
    )
    tiles_bandwidth: float = setting(
        200e3,
        "what ~/tiles may send in a second, in the long run; a message goes out as a whole",
        "B/s",
        1e3,
        1e10,
        live=True,
    )
    tiles_round: float = setting(
        20.0,
        "how often a tile that has not changed is sent again, where the bandwidth lets "
        "it: what was lost on the way heals by that",
        "s",
        1.0,
        1e6,
        live=True,
    )

    # what is merged
    merge_from: str = setting(
        "",
        "robots whose totals are merged into what is shown, namespaces separated by commas; "
        "this robot's own may stand among them; empty: none",
    )
    merge_transforms: str = setting(
        "",
        "where the origin of another robot's frame lies in this map's, as robot=x y "
        "yaw (metres, radians), separated by commas; without it frames have to be the same",
    )
    merge_period: float = setting(
        2.0,
        "shortest time between two sums of all robots' totals; longer where a sum takes "
        "more than a quarter of it",
        "s",
        0.1,
        1e5,
        live=True,
    )
    merge_memory: float = setting(
        512.0,
        "what is kept of the other robots' totals at most; more is dropped, and counted",
        "MB",
        1.0,
        1e6,
    )
