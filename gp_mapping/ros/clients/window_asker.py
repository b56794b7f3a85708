"""Parts of a map that its mapper does not draw now, asked for as points, in bounded questions."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from gp_mapping.ros.clients.map_watcher import ANSWER_TIMEOUT, cloud_columns, question_stamp
from gp_mapping.ros.wire.outbound import cloud

__all__ = ["MOST_POINTS", "Window", "WindowAsker"]

MOST_POINTS = 4000  # of a question: the mapper takes in no messages while it answers
_LEAST_CELL = 0.05  # m, side of a grid cell
# answers that are kept; s for which one is shown without asking again
_MAX_ANSWERS, _FRESH_FOR = (12, 10.0)
_MAX_PATH = 20_000  # points of the path that are used


@dataclass(frozen=True)
class Window:
    """An answer.

    Attributes:
        number: Of the question.
        columns: x, y (m), mean, stddev (SI) of the known grid cells.
    """

    number: int
    columns: dict[str, np.ndarray]


class WindowAsker:
    """Asks a mapper on ~/query, one question at a time.

    `attend` belongs to the thread that spins; `window` may be called from any.

    Args:
        node: The node that asks.
        mapper: Name of the mapper.
    """

    def __init__(self, node: Node, mapper: str):
        self._node, self._lock, self._number = node, threading.Lock(), 0
        # by the corners of the window: when it was answered (monotonic s), and the answer
        self._answers: dict[tuple, tuple[float, Window]] = {}
        # corners, positions (N, 2) and frame of the newest question, not sent yet
        self._next_question: tuple[tuple, np.ndarray, str] | None = None
        # number, corners and time (monotonic s) of the question that was sent last
        self._open_question: tuple[int, tuple, float] | None = None

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
        """What is known in a window, near a path; asks for it where needed.

        Where the answer is older than _FRESH_FOR, it is returned until a new one has come.

        Args:
            low: Lower corner of the window, m.
            high: Upper corner of the window, m.
            path: (K, 2), m.
            reach: Distance from the path within which something is known, m.
            frame: The map's frame.

        Returns:
            None while it is not answered.
        """
        corners = tuple(round(v, 3) for v in (*low, *high))
        now = time.monotonic()

        with self._lock:
            when, answer = self._answers.get(corners, (-math.inf, None))
            if now - when > _FRESH_FOR and (
                self._open_question is None or self._open_question[1] != corners
            ):
                self._next_question = corners, places(low, high, path, reach), frame
            return answer

    def attend(self) -> None:
        """Send the next question, once the question before is answered or has timed out."""
        now = time.monotonic()
        with self._lock:
            if self._next_question is None or (
                self._open_question is not None and now - self._open_question[2] < ANSWER_TIMEOUT
            ):
                return
            (corners, xy, frame), self._next_question = self._next_question, None
            self._number += 1
            if not len(xy):  # nothing is known there: the answer is empty
                self._keep(corners, {name: np.empty(0) for name in ("x", "y", "mean", "stddev")})
                return
            self._open_question = self._number, corners, now

        points = np.column_stack([xy, np.zeros(len(xy))])
        header = Header(frame_id=frame, stamp=question_stamp(self._number))
        self._publisher.publish(cloud(points.astype(np.float32), ("x", "y", "z"), header))

    def _on_answer(self, message: PointCloud2) -> None:
        """Keep the finite columns of an answer; one to a question given up is ignored."""
        with self._lock:
            if self._open_question is None or message.header.stamp != question_stamp(
                self._open_question[0]
            ):
                return
            corners, self._open_question = self._open_question[1], None
            if not message.width * message.height:
                return  # refused: the mapper's diagnostics say why

            columns = cloud_columns(message)
            columns = {name: columns[name] for name in ("x", "y", "mean", "stddev")}
            finite = np.isfinite(np.array(list(columns.values()))).all(0)
            self._keep(corners, {name: column[finite] for name, column in columns.items()})

    def _keep(self, corners: tuple, columns: dict[str, np.ndarray]) -> None:
        """Keep an answer as the newest, and at most _MAX_ANSWERS of them."""
        self._answers.pop(corners, None)
        while len(self._answers) >= _MAX_ANSWERS:
            self._answers.pop(next(iter(self._answers)))
        self._answers[corners] = time.monotonic(), Window(self._number, columns)


def places(
    low: tuple[float, float], high: tuple[float, float], path: np.ndarray, reach: float
) -> np.ndarray:
    """Centres of grid cells between two corners and near a path, row by row, MOST_POINTS at most.

    The side of a grid cell is 0.05 m, doubled until they are few enough; cells lie on multiples of
    it.

    Args:
        low: Lower corner, m.
        high: Upper corner, m.
        path: (K, 2), m.
        reach: Largest distance from the path, m.

    Returns:
        (N, 2), m.
    """
    low, high = np.asarray(low, float), np.asarray(high, float)
    near_path = path[((path > low - reach) & (path < high + reach)).all(1)]
    near_path = near_path[:: 1 + len(near_path) // _MAX_PATH]

    side = _LEAST_CELL
    while True:
        cells = _near_cells(low, high, near_path, reach, side)
        if len(cells) <= MOST_POINTS:
            return (cells + 0.5) * side
        side *= 2.0


def _near_cells(
    low: np.ndarray, high: np.ndarray, path: np.ndarray, reach: float, side: float
) -> np.ndarray:
    """Columns and rows (N, 2) of grid cells as in `places`, of that side, in row order.

    Where there would be far too many, an array of MOST_POINTS + 1 rows without content.
    """
    steps = math.ceil(reach / side)
    first, last = np.floor(low / side), np.floor(high / side)
    if not len(path):
        return np.empty((0, 2))
    path_cells = _each_once(np.floor(path / side))
    # each of these that lies inside is one of the cells
    if ((path_cells >= first) & (path_cells <= last)).all(1).sum() > MOST_POINTS:
        return np.empty((MOST_POINTS + 1, 2))
    # counting alone would take too long where the path or its surroundings have so many grid cells
    if len(path_cells) > MOST_POINTS + steps * 1000 or (2 * steps + 1) ** 2 > 100 * MOST_POINTS:
        return np.empty((MOST_POINTS + 1, 2))

    offsets = np.arange(-steps, steps + 1)
    around = np.stack(np.meshgrid(offsets, offsets), -1).reshape(-1, 2)
    around = around[(around**2).sum(1) <= (reach / side) ** 2 + 1.0]
    if len(path_cells) * len(around) > 5_000_000:
        path_cells = path_cells[:: 1 + len(path_cells) * len(around) // 5_000_000]

    cells = _each_once((path_cells[:, None] + around).reshape(-1, 2)[:, ::-1])[:, ::-1]
    return cells[((cells >= first) & (cells <= last)).all(1)]


def _each_once(rows: np.ndarray) -> np.ndarray:
    """The different rows of (N, 2), sorted, as np.unique has them along an axis.

    As complex numbers they have the same order, and are sorted in a tenth of the time.
    """
    found = np.unique(rows[:, 0] + 1j * rows[:, 1])
    return np.stack([found.real, found.imag], 1)
