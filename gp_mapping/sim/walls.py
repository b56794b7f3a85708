"""Walls that stop a simulated robot: the room's own, and boxes in it."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Walls", "parse_walls"]


def parse_walls(text: str) -> list[list[float]]:
    """Read boxes 'x0 y0 x1 y1', separated by commas, m.

    '1 0 1.1 2, 3 3 4 4' gives [[1.0, 0.0, 1.1, 2.0], [3.0, 3.0, 4.0, 4.0]].

    Raises:
        ValueError: with the box that is wrong.
    """
    out = []
    for box in filter(None, (part.strip() for part in text.split(","))):
        try:
            x0, y0, x1, y1 = map(float, box.split())
        except ValueError:
            x0 = x1 = y0 = y1 = math.nan
        if not (x0 < x1 and y0 < y1):
            raise ValueError(
                f"walls: {box!r} is not 'x0 y0 x1 y1' with x0 < x1 and y0 < y1; expected for example "
                "'2 0 2.1 3'"
            )
        out.append([x0, y0, x1, y1])
    return out


class Walls:
    """A room from (0, 0) to (width, depth), with boxes in it that the robot cannot enter.

    Args:
        width: along x, m.
        depth: along y, m.
        boxes: (K, 4), x0, y0, x1, y1, m.
    """

    def __init__(self, width: float, depth: float, boxes=()):
        self.width, self.depth = width, depth
        self.boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)

    def clearance(self, x: float, y: float) -> float:
        """Distance from a place to the nearest wall; negative outside the room, 0 in a box.

        Args:
            x: m.
            y: m.

        Returns:
            m.
        """
        room = min(x, y, self.width - x, self.depth - y)
        if not len(self.boxes):
            return room

        low, high = self.boxes[:, :2], self.boxes[:, 2:]
        offset = np.maximum(np.maximum(low - (x, y), (x, y) - high), 0.0)
        return min(room, float(np.hypot(*offset.T).min()))
