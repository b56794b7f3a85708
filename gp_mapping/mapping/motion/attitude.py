"""Heading and yaw rate of the robot, and vectors that a late attitude has turned.

A sensor whose stamps lag the pose's by τ is turned by an attitude that is τ too new: with the yaw
rate ω

    y = R(ωτ) B + noise,   to first order B + ωτ ẑ×B

so where the robot turns on the spot the horizontal components err by ωτ of the horizontal field. τ
is learned by the regression of one-step-ahead errors on ω ẑ×B, since what a source calls a heading
may be none: then τ stays at 0.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import numpy as np
import torch

from gp_mapping.core.types import Samples

__all__ = ["AttitudeLag", "HeadingTrack", "rotate_about_vertical", "with_attitude_lag"]

_SPAN = 0.2  # s over which a yaw rate is taken
_FIRST = 0.02  # m of path that a heading from the path needs
_FASTEST = 3.5  # rad/s; beyond it the heading has jumped, and the rate counts as 0
_WEIGHT = 0.2  # of a score: at ten a second their errors are correlated over about half a second
_PRIOR = 0.1  # s, standard deviation of τ about 0
_LATEST = 0.5  # s, most of |τ|
_SURPRISE = 3.0  # standard deviations at which an error is cut


class HeadingTrack:
    """Heading and yaw rate along one pass, sample by sample.

    Wheels do not slip sideways, so a displacement dx of a point that lies `ahead` of the axle turns
    the robot by

        dψ = dx·ĥ⊥/ahead,   ĥ⊥ to the left

    Args:
        ahead: how far in front of the axle the tracked point lies, m; 0: no heading is made from
            the path.
    """

    def __init__(self, ahead: float):
        self.ahead = ahead
        self.begin_pass()

    def begin_pass(self) -> None:
        """Begin a new pass: nothing is known of heading and rate."""
        # where the pass began, and where the last sample was taken, m
        self._first: list[float] | None = None
        self._last: list[float] | None = None

        self._psi: float | None = None
        # stamps (s) and headings (rad) of the last _SPAN
        self._past: deque[tuple[float, float]] = deque()

    def step(
        self, x: list[float], stamp: float, heading: list[float] | None
    ) -> tuple[list[float] | None, float]:
        """Follow one sample.

        Args:
            x: (2,) m.
            stamp: s.
            heading: (2,) of the pose, where known.

        Returns:
            Heading (2,), None where there is none, and yaw rate, rad/s.
        """
        headings, rates = self.steps([x], [stamp], [heading])
        return headings[0], rates[0]

    def steps(
        self, positions: list[list[float]], stamps: list[float], headings: list[list[float] | None]
    ) -> tuple[list[list[float] | None], list[float]]:
        """Follow samples as `step` does each in turn.

        Args:
            positions: (2,) m each.
            stamps: s.
            headings: (2,) each, of the pose, or None.

        Returns:
            Headings, and yaw rates, rad/s.
        """
        if not positions or None in headings:
            return self._steps_with_gaps(positions, stamps, headings)

        # as _steps_with_gaps, which mostly nothing needs: this loop sees every raw sample
        rates, past, psi, remainder = [], self._past, self._psi, math.remainder
        for stamp, heading in zip(stamps, headings):
            angle = math.atan2(heading[1], heading[0])
            psi = angle if psi is None else psi + remainder(angle - psi, math.tau)
            past.append((stamp, psi))
            while len(past) > 2 and past[1][0] <= stamp - _SPAN:
                past.popleft()
            then, before = past[0]
            elapsed = stamp - then
            rate = (psi - before) / elapsed if 0.0 < elapsed < 5 * _SPAN else 0.0
            rates.append(rate if -_FASTEST <= rate <= _FASTEST else 0.0)
        self._psi, self._last = psi, list(positions[-1])
        return headings, rates

    def _steps_with_gaps(
        self, positions: list[list[float]], stamps: list[float], headings: list[list[float] | None]
    ) -> tuple[list[list[float] | None], list[float]]:
        """As `steps`, where some headings are not known."""
        found_headings, rates, past, psi = [], [], self._past, self._psi
        for x, stamp, heading in zip(positions, stamps, headings):
            if heading is not None:
                angle = math.atan2(heading[1], heading[0])
                # unwrapped, so that a rate does not jump at ±π
                psi = angle if psi is None else psi + math.remainder(angle - psi, math.tau)
                # from here the path is followed, should the next sample come without a heading
                self._last = list(x)
            elif self.ahead > 0:
                self._psi = psi
                heading, psi = self._follow(x), self._psi

            rate = 0.0
            if psi is not None:
                past.append((stamp, psi))
                while len(past) > 2 and past[1][0] <= stamp - _SPAN:
                    past.popleft()
                then, before = past[0]
                # after a gap the difference says nothing of the rate
                if 0.0 < stamp - then < 5 * _SPAN:
                    rate = (psi - before) / (stamp - then)

            found_headings.append(heading)
            rates.append(rate if abs(rate) <= _FASTEST else 0.0)
        self._psi = psi
        return found_headings, rates

    def _follow(self, x: list[float]) -> list[float] | None:
        """Follow the path to x (2,) m; the heading (2,), zeros while it is not known."""
        if self._psi is None:
            self._first = self._first or list(x)
            if math.dist(x, self._first) < _FIRST:
                return [0.0, 0.0]  # not known yet
            # the first centimetres show where the robot looks
            self._psi = math.atan2(x[1] - self._first[1], x[0] - self._first[0])
        elif self._last is not None:  # else of an older state that did not keep it
            across = (x[1] - self._last[1]) * math.cos(self._psi) - (
                x[0] - self._last[0]
            ) * math.sin(self._psi)
            # a jump of the position turns it by half a radian at most
            self._psi += max(-0.5, min(0.5, across / self.ahead))

        self._last = list(x)
        return [math.cos(self._psi), math.sin(self._psi)]

    def state_dict(self) -> dict:
        """Return the heading now and those of the last moments, with stamps (s)."""
        return {
            "ahead": self.ahead,
            "first": self._first,
            "last": self._last,
            "psi": self._psi,
            "past": [list(p) for p in self._past],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.ahead, self._first, self._last, self._psi = (
            state[k] for k in ("ahead", "first", "last", "psi")
        )
        self._past = deque(tuple(p) for p in state["past"])


class AttitudeLag:
    """Lag τ of the attitude, regressed from one-step-ahead errors r.

        τ = Σ w F·r / (1/s_τ² + Σ w F·F),   F = ω ẑ×B

    w is an inverse variance.

    Attributes:
        square: 1/s_τ² + Σ w F·F.
        product: Σ w F·r.
    """

    def __init__(self):
        self.square, self.product = _PRIOR**-2, 0.0

    @property
    def seconds(self) -> float:
        """τ now, at most _LATEST in size."""
        return max(-_LATEST, min(_LATEST, self.product / self.square))

    def add(
        self, rate: np.ndarray, error: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> None:
        """Add one-step-ahead errors that remain with τ as it is.

        Args:
            rate: yaw rates (N,), rad/s.
            error: measured − predicted, (N, 3).
            mean: of the predictions, (N, 3), in the same unit.
            variance: of the predictions, (N, 3), its square.
        """
        per_second = rate[:, None] * np.stack([-mean[:, 1], mean[:, 0]], 1)

        sigma = np.sqrt(variance[:, :2])
        # the error as it would be without any correction: τ so far is added back
        uncorrected = (
            np.clip(error[:, :2], -_SURPRISE * sigma, _SURPRISE * sigma) + self.seconds * per_second
        )

        self.square += float(_WEIGHT * (per_second**2 / sigma**2).sum())
        self.product += float(_WEIGHT * (per_second * uncorrected / sigma**2).sum())

    def state_dict(self) -> dict:
        """Return the two sums of the least-squares estimate of τ."""
        return {"square": self.square, "product": self.product}

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self.square, self.product = float(state["square"]), float(state["product"])


def rotate_about_vertical(y: list[float], angle: float) -> list[float]:
    """Rotate a vector about the vertical axis: R(angle) y.

    Args:
        y: (3,).
        angle: rad, counter-clockwise seen from above.
    """
    c, s = math.cos(angle), math.sin(angle)
    return [c * y[0] - s * y[1], s * y[0] + c * y[1], y[2]]


def with_attitude_lag(samples: Samples, ahead: float, lag: float | None) -> Samples:
    """One pass as a map takes it in, with headings of the path and vectors turned back.

    Args:
        samples: of one pass, in order of time.
        ahead: as of HeadingTrack.
        lag: of the attitude, s; None where the samples are no vectors that it turns.
    """
    if lag is None and ahead <= 0:
        return samples

    track = HeadingTrack(ahead)
    # without stamps, as `Gathering` counts them: 50 samples a second
    stamps = torch.arange(len(samples)) * 0.02 if samples.stamp is None else samples.stamp
    given = [None] * len(samples) if samples.heading is None else samples.heading.tolist()
    steps = [track.step(x, t, h) for x, t, h in zip(samples.x.tolist(), stamps.tolist(), given)]

    headings, y = [h for h, _ in steps], samples.y
    if lag is not None:
        y = [rotate_about_vertical(row, -rate * lag) for row, (_, rate) in zip(y.tolist(), steps)]

    return replace(
        samples, y=y, heading=None if not len(samples) or headings[-1] is None else headings
    )
