"""A map in another frame: X' = R(yaw) X + (x, y), with all that it knows.

The map itself moves as its model says. With it go the path, the scores of places, and the first
cells, of which a map that has only begun is made again. Scores of samples to come begin anew, since
the predictions that they would be compared with are in the old frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.scoring.response_slopes import SQUARES_IN_A_LENGTHSCALE
from gp_mapping.mapping.session import MapSession
from gp_mapping.mapping.tables import rows_of

__all__ = ["move_session", "rotation"]


def rotation(yaw: float) -> Tensor:
    """R(yaw): (2, 2)."""
    c, s = math.cos(yaw), math.sin(yaw)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


@torch.no_grad()
def move_session(session: MapSession, x: float, y: float, yaw: float) -> MapSession:
    """The same map in a frame where the old frame's origin lies at (x, y), turned by yaw.

    Args:
        session: used up: its map has moved.
        x: m.
        y: m.
        yaw: rad, counter-clockwise.

    Raises:
        ValueError: its model, or what it measures, cannot be turned exactly, or the transform is
            not finite.
    """
    session.break_pass()
    session.finish_starts()

    turn, shift = rotation(yaw), torch.tensor([x, y], dtype=torch.float64)
    if not math.isfinite(x + y + yaw):
        raise ValueError(f"a transform of ({x}, {y}) m and {yaw} rad")
    if (x, y, yaw) == (0.0, 0.0, 0.0):
        return session

    session.map.move(turn, shift)
    session.fixes.move(turn, shift)
    state = session.state_dict()

    # what refers to places of the old frame begins anew; noise, lag and counts stay
    scores = state["scores"] | {"snapshots": [], "picked": [], "last": None, "changes": []}
    new_session = MapSession(session.settings).state_dict()
    for name in ("detector", "run"):
        scores[name] = new_session["scores"][name]
    local = scores["local"]
    scores["local"] = local | {
        "bins": _moved_bins(local["bins"], float(local["width"]), turn, shift)
    }

    own, joined = state["slow"]["own"], state["slow"]["joined"]
    slow = {
        "own": _moved_slopes(own, turn, shift),
        "joined": [_moved_slopes(each, turn, shift) for each in joined],
    }

    path = _moved_path(session, turn, shift)
    beginning = _Beginning(turn, shift, session.channels == 3)
    return MapSession.from_state_dict(
        state
        | {
            "scores": scores,
            "slow": slow,
            "path": path.state_dict(),
            "track": new_session["track"],
            # its cells are in the old frame; the time constant stays
            "response": state["response"] | {"kept": None, "last": None},
            "drift": state["drift"] | {"kept": None},
            "frames": state["frames"] | {"kept": None},
            "first_values": beginning.first_values(state["first_values"]),
            "start": beginning.start(state["start"]),
        }
    )


@dataclass(frozen=True)
class _Beginning:
    """Moves what is kept of a map's first cells, as if they had been measured in the new frame.

    Attributes:
        turn: rotation (2, 2).
        shift: (2,) m.
        vectors: whether values are vectors, whose first two components turn with the frame.
    """

    turn: Tensor
    shift: Tensor
    vectors: bool

    def start(self, state: dict) -> dict:
        """State of beginning.start.Start."""
        return state | {
            "cells": [self._cells(columns) for columns in state["cells"]],
            "centre": self._value(state["centre"]),
            "found_centre": self._value(state["found_centre"]),
        }

    def first_values(self, state: dict) -> dict:
        """State of beginning.first_values.FirstValues, in which no cell waits: the pass is over."""
        early, reference = state["early"], state["reference"]
        return state | {
            "first": [self._cells(columns) for columns in state["first"]],
            "early": None if early is None else [self._cells(columns) for columns in early],
            "recent": [self._value(y) for y in state["recent"]],
            "last": self._value(state["last"]),
            "reference": None
            if reference is None
            else [self._value(reference[0]), self._spread(reference[1])],
        }

    def _cells(self, columns: dict) -> dict:
        """Columns of cells, by their names in Samples."""
        x, y, velocity, heading = (columns[name] for name in ("x", "y", "velocity", "heading"))
        if self.vectors:
            y = torch.cat([y[:, :2] @ self.turn.mT, y[:, 2:]], 1)
        return columns | {
            "x": x @ self.turn.mT + self.shift,
            "y": y,
            "velocity": None if velocity is None else velocity @ self.turn.mT,
            "heading": None if heading is None else heading @ self.turn.mT,
        }

    def _value(self, y: list[float] | None) -> list[float] | None:
        """A value (C,), SI."""
        if y is None or not self.vectors:
            return y
        return [*(self.turn @ torch.tensor(y[:2], dtype=torch.float64)).tolist(), y[2]]

    def _spread(self, stddev: list[float]) -> list[float]:
        """Standard deviations (C,), SI, of components that are independent."""
        if not self.vectors:
            return stddev
        variance = self.turn.square() @ torch.tensor(stddev[:2], dtype=torch.float64).square()
        return [*variance.sqrt().tolist(), stddev[2]]


def _moved_path(session: MapSession, turn: Tensor, shift: Tensor) -> Path:
    """The path's points in the new frame, with its length."""
    old = session.path_trace
    points, starts = old.points() @ turn.mT + shift, old.starts().tolist()
    # turned, two points a step apart may by rounding lie a little nearer
    new = Path(old.step * (1 - 1e-9))

    first = 0
    # line by line, each lifted at its start
    for i in range(1, len(points) + 1):
        if i == len(points) or starts[i]:
            new.begin_pass()
            if first < i:
                new.extend(points[first:i].tolist())
            first = i

    new.step, new.length = old.step, old.length
    return new


def _moved_slopes(state: dict, turn: Tensor, shift: Tensor) -> dict:
    """State of ResponseSlopes, each square where its mean place lies now."""
    side = float(state["lengthscale"]) / SQUARES_IN_A_LENGTHSCALE
    rows = _moved_bins(state["squares"], side, turn, shift)
    return state | {"squares": torch.tensor(rows, dtype=torch.float64).reshape(-1, 6)}


def _moved_bins(table, width: float, turn: Tensor, shift: Tensor) -> list[list[float]]:
    """Bins of LocalScale (W, Z, Σ W x, Σ W y), each where its mean place lies now."""
    out: dict[tuple[int, int], list[float]] = {}
    for _, (weight, score, *sums) in rows_of(table):
        place = turn @ (torch.tensor(sums, dtype=torch.float64) / weight) + shift
        key = math.floor(float(place[0]) / width), math.floor(float(place[1]) / width)
        fresh = [weight, score, *(weight * place).tolist()]
        # bins that were two may meet in one
        out[key] = [a + b for a, b in zip(out.get(key, [0.0] * 4), fresh)]
    return [[*map(float, key), *row] for key, row in out.items()]
