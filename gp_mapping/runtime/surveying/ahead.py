"""The part of a plan right ahead of a robot: its lead and its next pose. No rclpy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan

__all__ = ["lead_of", "next_pose_of"]


def lead_of(plan: Plan, along: float, position, metres: float, free: FreeSpace) -> np.ndarray:
    """Return the line that a robot drives next along its plan.

    Args:
        plan: not empty.
        along: metres of the plan that are behind the robot.
        position: (2,) m, of the robot, where the line begins.
        metres: length of the line.
        free: where the robot may be.

    Returns:
        (K, 2) m; (0, 2) where the line leaves the free space.
    """
    rest = plan.after(along)
    whole = replace(plan, line=np.vstack([np.asarray(position)[None], rest])) if len(rest) else plan
    lead = _until(whole.line, metres)
    if len(lead) > 1 and not free.sees(lead[:-1], lead[1:]).all():
        return np.empty((0, 2))
    return lead


def next_pose_of(plan: Plan, along: float, least: float) -> tuple[float, float, float]:
    """Return where a plan goes next: its next corner or stop.

    Args:
        plan: not empty.
        along: metres of the plan that are behind the robot.
        least: m from there, at least.

    Returns:
        x and y, m, and heading, radians.
    """
    rest = plan.after(along)

    if len(rest) < 2:
        end, before = plan.line[-1], plan.line[-2]
        return float(end[0]), float(end[1]), math.atan2(*(end - before)[::-1])

    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(rest, axis=0).T))])
    metres = min(max(least, 0.0), float(ends[-1]))
    corner = int(np.searchsorted(ends, metres - 1e-9))
    corner = max(1, min(corner, len(rest) - 1))

    x, piece = rest[corner], rest[corner] - rest[corner - 1]
    return float(x[0]), float(x[1]), math.atan2(piece[1], piece[0])


def _until(line: np.ndarray, metres: float) -> np.ndarray:
    """Return the first metres of a line (K, 2)."""
    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    if metres <= 0.0 or len(line) < 2:
        return line[:1]
    metres = min(metres, float(ends[-1]))
    last = [[np.interp(metres, ends, line[:, i]) for i in (0, 1)]]
    return np.vstack([line[ends < metres - 1e-9], last])
