"""Parts of a map that its mapper does not draw now, asked for by points: a bounded question at a time."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from gp_mapping.ros.clients.map_watcher import cloud_columns
from gp_mapping.ros.wire.outbound import cloud

__all__ = ["MOST_POINTS", "Window", "WindowAsker"]

MOST_POINTS = 4000  # of a question: while it is answered the mapper takes in nothing
_LEAST_CELL = 0.05  # m
_KEPT, _FRESH, _PATIENCE = (
    12,
    10.0,
    5.0,
)  # answers; s for which one is shown; s that a question waits
_MOST_PATH = 20_000  # points of the path that are looked at


@dataclass(frozen=True)
class Window:
    """An answer. columns: x, y (m), mean, stddev (SI) of the cells that are known."""

    number: int
    columns: dict[str, np.ndarray]


class WindowAsker:
    """Asks on ~/query, one question at a time. `attend` belongs to the thread that spins; `window` to any."""

    def __init__(self, node: Node, mapper: str):
        self._node, self._lock, self._number = node, threading.Lock(), 0
        self._kept: dict[tuple, tuple[float, Window]] = {}  # by its corners, when it was answered
        self._wanted: tuple[tuple, np.ndarray, str] | None = (
            None  # the newest that nobody has asked for yet
        )
        self._asked: tuple[int, tuple, float] | None = None  # number, corners, when
        self._publisher = node.create_publisher(PointCloud2, f"{mapper}/query", 10)
        node.create_subscription(PointCloud2, f"{mapper}/query_result", self._on_answer, 10)

    def window(
        self,
        low: tuple[float, float],
        high: tuple[float, float],
        path: np.ndarray,
        reach: float,
        frame: str,
    ) -> Window | None:
        """What is known between the corners (m) within reach of a path (K, 2); None while it is not answered.

        Where it is asked for again after _FRESH, the old answer is given until the new one is there.
        """
        corners = tuple(round(v, 3) for v in (*low, *high))
        now = time.monotonic()
        with self._lock:
            when, kept = self._kept.get(corners, (-math.inf, None))
            if now - when > _FRESH and (self._asked is None or self._asked[1] != corners):
                self._wanted = corners, places(low, high, path, reach), frame
            return kept

    def attend(self) -> None:
        """Ask what is wanted, when the question before is answered or given up."""
        now = time.monotonic()
        with self._lock:
            if self._wanted is None or (
                self._asked is not None and now - self._asked[2] < _PATIENCE
            ):
                return
            (corners, xy, frame), self._wanted = self._wanted, None
            self._number += 1
            if not len(xy):  # nothing is known there: nobody need be asked
                self._keep(corners, {name: np.empty(0) for name in ("x", "y", "mean", "stddev")})
                return
            self._asked = self._number, corners, now
        points = np.column_stack([xy, np.zeros(len(xy))])
        header = Header(frame_id=frame, stamp=self._stamp(self._number))
        self._publisher.publish(cloud(points.astype(np.float32), ("x", "y", "z"), header))

    @staticmethod
    def _stamp(number: int) -> Time:
        return Time(
            sec=number // 1_000_000, nanosec=number % 1_000_000
        )  # no time: which question it is

    def _on_answer(self, message: PointCloud2) -> None:
        with self._lock:
            if self._asked is None or message.header.stamp != self._stamp(self._asked[0]):
                return
            corners, self._asked = self._asked[1], None
            if not message.width * message.height:
                return  # refused: its diagnostics say why
            columns = cloud_columns(message)
            columns = {name: columns[name] for name in ("x", "y", "mean", "stddev")}
            good = np.isfinite(np.array(list(columns.values()))).all(0)
            self._keep(corners, {name: column[good] for name, column in columns.items()})

    def _keep(self, corners: tuple, columns: dict[str, np.ndarray]) -> None:
        self._kept.pop(corners, None)
        while len(self._kept) >= _KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[corners] = time.monotonic(), Window(self._number, columns)


def places(
    low: tuple[float, float], high: tuple[float, float], path: np.ndarray, reach: float
) -> np.ndarray:
    """Centres (N, 2) m of cells between the corners that lie within reach of the path, row by row, MOST_POINTS at most.

    The side of a cell is 0.05 m, doubled until they are few enough; cells lie on multiples of it.
    """
    low, high = np.asarray(low, float), np.asarray(high, float)
    near = path[((path > low - reach) & (path < high + reach)).all(1)]
    near = near[:: 1 + len(near) // _MOST_PATH]
    side = _LEAST_CELL
    while True:
        found = _near_cells(low, high, near, reach, side)
        if len(found) <= MOST_POINTS:
            return (found + 0.5) * side
        side *= 2.0


def _near_cells(
    low: np.ndarray, high: np.ndarray, path: np.ndarray, reach: float, side: float
) -> np.ndarray:
    """Columns and rows (N, 2) of such cells, in row order; where there would be far too many, only their number."""
    steps = math.ceil(reach / side)
    first, last = np.floor(low / side), np.floor(high / side)
    if not len(path):
        return np.empty((0, 2))
    own = np.unique(np.floor(path / side), axis=0)
    if len(own) > MOST_POINTS + steps * 1000 or (2 * steps + 1) ** 2 > 100 * MOST_POINTS:
        return np.empty((MOST_POINTS + 1, 2))
    offsets = np.arange(-steps, steps + 1)
    around = np.stack(np.meshgrid(offsets, offsets), -1).reshape(-1, 2)
    around = around[(around**2).sum(1) <= (reach / side) ** 2 + 1.0]
    if len(own) * len(around) > 5_000_000:
        own = own[:: 1 + len(own) * len(around) // 5_000_000]
    cells = np.unique((own[:, None] + around).reshape(-1, 2)[:, ::-1], axis=0)[:, ::-1]
    return cells[((cells >= first) & (cells <= last)).all(1)]
