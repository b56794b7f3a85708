"""Where the robot looks, how fast it turns, and vectors that were turned into the map's frame too late.

A sensor whose stamps lag the pose's by τ is turned by an attitude that is τ too new: with the yaw rate ω

    y = R(ωτ) B + noise,   to first order B + ωτ ẑ×B

so where the robot turns on the spot the horizontal components err by ωτ of the horizontal field. τ is learned by the
regression of one-step-ahead errors on ω ẑ×B, since what a source calls a heading may be none: then τ stays at 0.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

__all__ = ["AttitudeLag", "HeadingTrack", "turned"]

_SPAN = 0.2  # s over which the yaw rate is taken
_FIRST = 0.02  # m of path that a heading from the path needs
_FASTEST = 3.5  # rad/s: beyond, the heading has jumped
_WEIGHT = 0.2  # of a score: at ten a second their errors are correlated over about half a second
_PRIOR = 0.1  # s, standard deviation of τ about 0
_LATEST = 0.5  # s, most of |τ|
_SURPRISE = 3.0  # standard deviations at which an error is cut


class HeadingTrack:
    """Heading and yaw rate along one pass, sample by sample.

    ahead: how far in front of the axle the tracked point lies, m; wheels do not slip sideways, so its displacement dx
    turns the robot by dψ = dx·ĥ⊥/ahead, ĥ⊥ to the left. 0: no heading is made of the path.
    """

    def __init__(self, ahead: float):
        self.ahead = ahead
        self.lift()

    def lift(self) -> None:
        """A new pass."""
        self._first: list[float] | None = None
        self._last: list[float] | None = None
        self._psi: float | None = None
        self._past: deque[tuple[float, float]] = deque()

    def step(
        self, x: list[float], stamp: float, heading: list[float] | None
    ) -> tuple[list[float] | None, float]:
        """Heading (2,), None where there is none, and yaw rate (rad/s) at x (2,) m; heading: of the pose, where known."""
        headings, rates = self.steps([x], [stamp], [heading])
        return headings[0], rates[0]

    def steps(
        self, positions: list[list[float]], stamps: list[float], headings: list[list[float] | None]
    ) -> tuple[list[list[float] | None], list[float]]:
        """As `step` of each in turn: headings, and yaw rates (rad/s)."""
        found, rates, past, psi = [], [], self._past, self._psi
        for x, stamp, heading in zip(positions, stamps, headings):
            if heading is not None:
                angle = math.atan2(heading[1], heading[0])
                psi = angle if psi is None else psi + math.remainder(angle - psi, math.tau)
            elif self.ahead > 0:
                self._psi = psi
                heading, psi = self._follow(x), self._psi
            rate = 0.0
            if psi is not None:
                past.append((stamp, psi))
                while len(past) > 2 and past[1][0] <= stamp - _SPAN:
                    past.popleft()
                then, before = past[0]
                if 0.0 < stamp - then < 5 * _SPAN:
                    rate = (psi - before) / (stamp - then)
            found.append(heading)
            rates.append(rate if abs(rate) <= _FASTEST else 0.0)
        self._psi = psi
        return found, rates

    def _follow(self, x: list[float]) -> list[float] | None:
        if self._psi is None:
            self._first = self._first or list(x)
            if math.dist(x, self._first) < _FIRST:
                return [0.0, 0.0]  # not known yet
            self._psi = math.atan2(x[1] - self._first[1], x[0] - self._first[0])
        else:
            across = (x[1] - self._last[1]) * math.cos(self._psi) - (
                x[0] - self._last[0]
            ) * math.sin(self._psi)
            self._psi += max(-0.5, min(0.5, across / self.ahead))
        self._last = list(x)
        return [math.cos(self._psi), math.sin(self._psi)]

    def state_dict(self) -> dict:
        return {
            "ahead": self.ahead,
            "first": self._first,
            "last": self._last,
            "psi": self._psi,
            "past": [list(p) for p in self._past],
        }

    def load_state_dict(self, state: dict) -> None:
        self.ahead, self._first, self._last, self._psi = (
            state[k] for k in ("ahead", "first", "last", "psi")
        )
        self._past = deque(tuple(p) for p in state["past"])


class AttitudeLag:
    """τ = Σ w F·r / (1/s_τ² + Σ w F·F), F = ω ẑ×B, over one-step-ahead errors r; w: an inverse variance."""

    def __init__(self):
        self.square, self.product = _PRIOR**-2, 0.0

    @property
    def seconds(self) -> float:
        """τ now."""
        return max(-_LATEST, min(_LATEST, self.product / self.square))

    def add(
        self, rate: np.ndarray, error: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> None:
        """Errors (N, 3) that are left with τ as it is, of predictions with mean and variance (N, 3); yaw rates (N,)."""
        pulls = rate[:, None] * np.stack([-mean[:, 1], mean[:, 0]], 1)
        sigma = np.sqrt(variance[:, :2])
        whole = np.clip(error[:, :2], -_SURPRISE * sigma, _SURPRISE * sigma) + self.seconds * pulls
        self.square += float(_WEIGHT * (pulls**2 / sigma**2).sum())
        self.product += float(_WEIGHT * (pulls * whole / sigma**2).sum())

    def state_dict(self) -> dict:
        return {"square": self.square, "product": self.product}

    def load_state_dict(self, state: dict) -> None:
        self.square, self.product = float(state["square"]), float(state["product"])


def turned(y: list[float], angle: float) -> list[float]:
    """R(angle) y about the vertical: (3,)."""
    c, s = math.cos(angle), math.sin(angle)
    return [c * y[0] - s * y[1], s * y[0] + c * y[1], y[2]]
