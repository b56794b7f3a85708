"""The part of a plan right ahead of a robot: its lead, its next pose, its room. No rclpy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gp_mapping.planning.free_space import FreeSpace, along
from gp_mapping.planning.plan import Plan

__all__ = ["has_room_ahead", "lead_of", "loses_room", "next_pose_of", "until"]

_SLACK = 0.05  # m of its radius that a robot may lack: poses and maps tremble
_TOUCH = 1e-6  # m, room of a place that is just not occupied


def lead_of(plan: Plan, driven: float, position, metres: float, free: FreeSpace) -> np.ndarray:
    """Return the line that a robot drives next along its plan.

    Args:
        plan: not empty.
        driven: metres of the plan that are behind the robot.
        position: (2,) m, of the robot, where the line begins.
        metres: length of the line.
        free: where the robot may be.

    Returns:
        (K, 2) m; (0, 2) where the line leaves the free space.
    """
    rest = plan.line_ahead(driven)
    whole = replace(plan, line=np.vstack([np.asarray(position)[None], rest])) if len(rest) else plan
    lead = until(whole.line, metres)
    if len(lead) > 1 and not free.sees(lead[:-1], lead[1:]).all():
        return np.empty((0, 2))
    return lead


def next_pose_of(plan: Plan, driven: float, least: float) -> tuple[float, float, float]:
    """Return where a plan goes next: its next corner or stop.

    Args:
        plan: not empty.
        driven: metres of the plan that are behind the robot.
        least: m from there, at least.

    Returns:
        x and y, m, and heading, radians.
    """
    rest = plan.line_ahead(driven)

    if len(rest) < 2:
        end, before = plan.line[-1], plan.line[-2]
        return float(end[0]), float(end[1]), math.atan2(*(end - before)[::-1])

    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(rest, axis=0).T))])
    metres = min(max(least, 0.0), float(ends[-1]))
    corner = int(np.searchsorted(ends, metres - 1e-9))
    corner = max(1, min(corner, len(rest) - 1))

    x, piece = rest[corner], rest[corner] - rest[corner - 1]
    return float(x[0]), float(x[1]), math.atan2(piece[1], piece[0])


def has_room_ahead(
    free: FreeSpace, position, poses: np.ndarray, metres: float, straight: bool = True
) -> bool:
    """Return whether a robot has room on the straight lines through the poses ahead of it.

    A robot that stands too near to an obstacle may leave it: on the way to the first pose it has
    as much room as where it stands.

    Args:
        free: where the robot has how much room; radius is the robot's.
        position: (2,) m, of the robot.
        poses: (K, 2) m, that it drives to in this order.
        metres: from the robot on, how far it looks.
        straight: whether it drives straight to the first pose; else only what comes then is looked
            at.
    """
    line = until(np.vstack([np.asarray(position, dtype=np.float64)[None], poses]), metres)
    if len(line) < 2:
        return True

    pieces = np.hypot(*np.diff(line, axis=0).T)
    count = np.maximum(2, np.ceil(pieces / (0.5 * free.resolution)).astype(int) + 1)
    x, piece = along(line[:-1], line[1:], count)

    need = max(free.radius - _SLACK, _TOUCH)
    room = free.room(x, need + free.resolution)
    enough, first = np.full(len(x), need), piece == 0
    if math.dist(line[1], poses[0]) < _TOUCH:
        first[count[0] - 1] = False  # the first pose itself
    enough[first] = min(need, max(room[0] - _SLACK, min(room[0], _TOUCH))) if straight else 0.0
    return bool((room >= enough).all())


def loses_room(line: np.ndarray, free: FreeSpace, before: FreeSpace | None) -> bool:
    """Return whether a robot lacks room on a line where it had room before.

    Where it lacked room already, as where it stands too near to an obstacle, nothing is lost.

    Args:
        line: (K, 2) m.
        free: where the robot has how much room now; radius is the robot's.
        before: the same before; None: nothing was known of obstacles.
    """
    if len(line) < 2 or free is before:
        return False
    count = np.ceil(np.hypot(*np.diff(line, axis=0).T) / (0.5 * free.resolution)).astype(int) + 1
    x = along(line[:-1], line[1:], np.maximum(2, count))[0]

    need = max(free.radius - _SLACK, _TOUCH)
    x = x[free.room(x, need + free.resolution) < need]
    return bool(len(x)) and (
        before is None or bool((before.room(x, need + before.resolution) >= need).any())
    )


def until(line: np.ndarray, metres: float) -> np.ndarray:
    """Return the first metres of a line (K, 2)."""
    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    if metres <= 0.0 or len(line) < 2:
        return line[:1]
    metres = min(metres, float(ends[-1]))
    last = [[np.interp(metres, ends, line[:, i]) for i in (0, 1)]]
    return np.vstack([line[ends < metres - 1e-9], last])
