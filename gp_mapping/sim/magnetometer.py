"""A three-axis magnetometer with the errors and faults of real ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

import numpy as np

from gp_mapping.settings.fields import check_settings, setting

__all__ = ["Magnetometer", "MagnetometerSettings"]


@dataclass(frozen=True)
class MagnetometerSettings:
    """Errors of the sensor, per axis and in its own frame, and faults as probabilities.

    A probability is that of one measurement.
    """

    noise_stddev: float = setting(
        0.2e-6, "white noise of one measurement, per axis", "T", 0.0, 1e-3
    )
    bias_x: float = setting(0.3e-6, "constant error (hard iron) along x", "T", -1e-3, 1e-3)
    bias_y: float = setting(-0.2e-6, "constant error (hard iron) along y", "T", -1e-3, 1e-3)
    bias_z: float = setting(0.1e-6, "constant error (hard iron) along z", "T", -1e-3, 1e-3)
    correlated_stddev: float = setting(
        0.4e-6, "stationary sd of the Ornstein-Uhlenbeck error, per axis", "T", 0.0, 1e-3
    )
    correlation_time: float = setting(
        0.7, "time constant of the Ornstein-Uhlenbeck error", "s", 1e-3, 1e4
    )
    lag: float = setting(
        0.0, "a measurement reports the field this long before its stamp", "s", 0.0, 2.0
    )
    nan_probability: float = setting(0.0, "share of measurements with a NaN axis", "", 0.0, 1.0)
    spike_probability: float = setting(
        0.0, "share of measurements with a spike on one axis", "", 0.0, 1.0
    )
    spike_size: float = setting(500e-6, "size of a spike", "T", 0.0, 1.0)
    offset_x: float = setting(
        0.0, "position of the sensor ahead of the robot's centre", "m", -10.0, 10.0
    )
    offset_y: float = setting(
        0.0, "position of the sensor to the left of the robot's centre", "m", -10.0, 10.0
    )

    def __post_init__(self):
        check_settings(self)

    @property
    def bias(self) -> np.ndarray:
        """Hard iron of the three axes, (3,) T."""
        return np.array([self.bias_x, self.bias_y, self.bias_z])


class Magnetometer:
    """A magnetometer with bias, white and correlated errors, lag and faults.

        measured = true(t - lag) + bias + OU(t) + white,   then faults

    The Ornstein-Uhlenbeck error e has autocovariance s^2 exp(-|dt| / tau):

        e <- a e + s sqrt(1 - a^2) n,   a = exp(-dt / tau)

    which is exact for any dt and starts in the stationary distribution.

    Args:
        settings: of its errors and faults.
        rng: of all its draws.

    Attributes:
        faults: number of faults so far, by kind.
    """

    def __init__(self, settings: MagnetometerSettings, rng: np.random.Generator):
        self.settings, self.rng = settings, rng
        self.faults = {"nan": 0, "spike": 0}
        self._error = settings.correlated_stddev * rng.normal(size=3)
        self._error_time: float | None = None
        # times and true fields, as far back as the lag reaches
        self._history: deque[tuple[float, np.ndarray]] = deque()

    def observe(self, t: float, field) -> None:
        """Take in the true field; in every step where there is a lag.

        Args:
            t: s.
            field: (3,) T, in the sensor frame.
        """
        self._history.append((t, np.asarray(field, dtype=np.float64)))
        # the newest one before the lag stays, to interpolate from
        while len(self._history) > 2 and self._history[1][0] <= t - self.settings.lag:
            self._history.popleft()

    def measure(self, t: float) -> np.ndarray:
        """Measure the field after `observe` at the same time.

        Args:
            t: stamp, s.

        Returns:
            (3,) T; with NaN where faults are asked for.

        Raises:
            ValueError: no field was observed up to t.
        """
        if not self._history or self._history[-1][0] < t:
            raise ValueError(
                f"no field was observed up to {t} s; call observe(t, field) before measure(t)"
            )

        s = self.settings
        out = (
            self._delayed(t - s.lag)
            + s.bias
            + self._correlated(t)
            + s.noise_stddev * self.rng.normal(size=3)
        )

        # the draws are always made, so that one fault more leaves the stream as it was
        nan, spike, axis, sign = self.rng.random(4)
        axis, sign = int(3 * axis), math.copysign(1.0, sign - 0.5)
        if spike < s.spike_probability:
            out[axis] += sign * s.spike_size
            self.faults["spike"] += 1

        if nan < s.nan_probability:
            out[axis] = math.nan
            self.faults["nan"] += 1
        return out

    def _delayed(self, t: float) -> np.ndarray:
        """The observed field at t, linear between steps; before the first step, the first."""
        times = [h[0] for h in self._history]
        values = [h[1] for h in self._history]
        if t <= times[0] or len(times) == 1:
            return values[0].copy()

        i = min(bisect_left(times, t), len(times) - 1)
        fraction = (t - times[i - 1]) / (times[i] - times[i - 1])
        return (1.0 - fraction) * values[i - 1] + fraction * values[i]

    def _correlated(self, t: float) -> np.ndarray:
        """Ornstein-Uhlenbeck error at t (s), (3,) T; times must grow."""
        s, n = self.settings, self.rng.normal(size=3)
        if self._error_time is not None:
            # exact for any step
            a = math.exp(-(t - self._error_time) / s.correlation_time)
            self._error = a * self._error + s.correlated_stddev * math.sqrt(1.0 - a * a) * n
        self._error_time = t
        return self._error
