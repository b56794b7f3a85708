"""What a map has learned of its robot, with standard deviations: time offset, lever arm, the part that turns with it.

At the mode of the exact log evidence over up to 8 disjoint neighbourhoods of the remembered samples, hyper-parameters
held, the curvature over (δ, along, across) plus the priors' is the inverse covariance (Laplace). The neighbourhoods'
own scores are compared with it: where they scatter more than a model with white noise would have it, the covariance
grows by as much. What turns with the robot is estimated in the same way, at the mode of the offset; a fifth of it is
taken to differ from place to place, which is a systematic error of the shift: that much over the field's rms slope.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch

from gp_mapping.analysis.robot_evidence import LEAST, given_held, laplace, neighbourhoods, turning
from gp_mapping.core.field_map import FieldMap

__all__ = ["Calibration", "calibration_report"]

_APART = 0.9  # |correlation| beyond which only a sum is known
_STEADY = 0.1  # a speed that varies by less than this share tells a delay from an arm hardly
_SEEN = 3.0  # standard deviations
_UNEVEN = 0.2  # share of what turns with the robot that differs from place to place: of hard iron, what |B| shows of it
# follows the direction of the field, and that mimics a shift of the positions
_TURNS = (
    18.0  # chi-square of 2: the same odds where the covariance is itself estimated from 8 blocks
)


@dataclass(frozen=True)
class Calibration:
    """SI units; standard deviations with _stddev. `samples` remembered ones are behind it.

    offset: δ, how much later the sensor's stamps are than the pose's, as all remembered samples have it;
        offset_in_use: what the map applies now.
    offset_stddev, …: given what is assumed; offset_stddev_free: were the lever arm free too (with its prior).
    along, across: lever arm, forward and to the left.  *_assumed: held by the settings, not learned.
    correlation: of δ and along, both free.  separable: whether the two can be told apart.
    lag: δ·speed − along, metres behind on the way, known in any case.  speed: the samples' mean; steadiness: sd/mean.
    turning: amplitude of what turns with the robot; direction: heading (rad, map frame) in which it reads most too much
    inflation: factor on the standard deviations of δ and arm for noise that is not white.
    """

    samples: int
    offset: float
    offset_in_use: float
    offset_stddev: float
    offset_stddev_free: float
    offset_assumed: bool
    along: float
    along_stddev: float
    across: float
    across_stddev: float
    lever_assumed: bool
    correlation: float
    separable: bool
    lag: float
    lag_stddev: float
    speed: float
    steadiness: float
    inflation: float
    turning: float
    turning_stddev: float
    direction: float
    direction_stddev: float
    turning_assumed: bool
    turning_chi_square: float
    hyperparameters: dict[str, float]
    noise_stddev: float
    scale: float

    @property
    def offset_seen(self) -> bool:
        """δ differs from 0 by three standard deviations."""
        return abs(self.offset) > _SEEN * self.offset_stddev

    @property
    def lever_seen(self) -> bool:
        """A learned lever arm differs from 0 by three standard deviations, in one direction or the other."""
        return not self.lever_assumed and (
            abs(self.along) > _SEEN * self.along_stddev
            or abs(self.across) > _SEEN * self.across_stddev
        )

    @property
    def turning_seen(self) -> bool:
        """What turns with the robot differs from 0 at the level of three standard deviations ."""
        return not self.turning_assumed and self.turning_chi_square > _TURNS

    def as_dict(self) -> dict:
        """Plain numbers, and the three judgements."""
        return asdict(self) | {
            "offset_seen": self.offset_seen,
            "lever_seen": self.lever_seen,
            "turning_seen": self.turning_seen,
        }

    def plain(self, sensor: str = "magnetometer", unit: str = "µT") -> list[str]:
        """Sentences for a person; values in the map's inner unit, which is called `unit`."""
        return [
            self._offset_text(sensor),
            *self._arm_text(),
            self._turning_text(unit),
            f"two passes of one place differ by {self.hyperparameters['noise_stddev'] / self.scale:.2g} {unit}; a "
            f"new measurement scatters by {self.noise_stddev / self.scale:.2g} {unit} about the map where it knows "
            "the field",
        ]

    def _offset_text(self, sensor: str) -> str:
        if self.offset_assumed:
            how = _seconds(self.offset, self.offset_stddev)
            return f"a time offset of {self.offset_in_use:.2f} s is assumed, not learned; the data would have it {how}"
        how = _seconds(abs(self.offset), self.offset_stddev)
        if not self.offset_seen:
            return f"no offset is seen between pose and {sensor} ({_seconds(self.offset, self.offset_stddev)})"
        return f"the {sensor} {'lags' if self.offset > 0 else 'is ahead of'} the pose by {how}"

    def _arm_text(self) -> list[str]:
        sign = "behind" if self.lag > 0 else "ahead"
        together = (
            f"time offset and a lever arm along the way cannot be told apart (correlation "
            f"{self.correlation:.2f}, the speed varies by {100 * self.steadiness:.0f} %): only their sum, "
            f"{100 * abs(self.lag):.1f} ± {100 * self.lag_stddev:.1f} cm {sign} at {self.speed:.2f} m/s, is "
            "known"
        )
        if self.lever_assumed:
            text = (
                f"the sensor is assumed {100 * self.along:.1f} cm ahead and {100 * self.across:.1f} cm to the left "
                f"of where the pose says (learned, these would be known to ± {100 * self.along_stddev:.1f} and "
                f"± {100 * self.across_stddev:.1f} cm)"
            )
        else:
            text = (
                f"the sensor sits {100 * self.along:.1f} ± {100 * self.along_stddev:.1f} cm ahead and "
                f"{100 * self.across:.1f} ± {100 * self.across_stddev:.1f} cm to the left of where the pose says"
            )
        return [text] if self.separable else [text, together]

    def _turning_text(self, unit: str) -> str:
        if self.turning_assumed:
            return "a part that turns with the robot is assumed absent (heading_stddev is 0)"
        how = f"{self.turning / self.scale:.2g} ± {self.turning_stddev / self.scale:.1g} {unit}"
        if not self.turning_seen:
            return f"nothing is seen that turns with the robot ({how})"
        degrees = f"{math.degrees(self.direction):.0f} ± {math.degrees(self.direction_stddev):.0f}°"
        return (
            f"a part of {how} turns with the robot, most when it heads towards {degrees} of the map"
        )


def _seconds(value: float, stddev: float) -> str:
    """As many digits as the standard deviation knows, milliseconds at the most."""
    digits = 2 if stddev >= 0.0095 else 3
    return f"{value + 0.0:.{digits}f} ± {max(stddev, 10.0**-digits):.{digits}f} s".replace(
        "-0.000 ", "0.000 "
    )


def _systematic(theta, turning: float) -> float:
    """Metres by which an uneven body-fixed part (inner units) may mimic a shift along the way: over √E[(∂f)²]."""
    kernel = theta.kernel()
    steepest = (
        -2.0 * float(kernel.slope(torch.zeros(1, dtype=torch.float64))) * theta.signal_stddev**2
    )
    return (
        _UNEVEN * turning * theta.lengthscale / math.sqrt(steepest)
        if math.isfinite(steepest)
        else 0.0
    )


def calibration_report(field: FieldMap, noise_variance: float | None = None) -> Calibration:
    """From a map that remembers samples. noise_variance: of a new measurement (SI²), where scores know better.

    RuntimeError where the map remembers fewer than 5 samples, or no samples one by one (model curl_free).
    """
    data = field.calibration_data()
    if data is None and field.started:
        raise RuntimeError(
            "the map does not remember samples of one component with the velocities that a calibration "
            "is made from; map one component, with model dual_svgp, exact or wiski"
        )
    if data is None or len(data) < LEAST:
        raise RuntimeError(
            f"the map remembers {0 if data is None else len(data)} samples; a calibration needs at "
            f"least {LEAST}, so drive on"
        )
    theta, free = data.theta, list(data.learned)
    offset_assumed = not free[0]
    blocks = neighbourhoods(theta.place(data.x, data.velocity, data.heading))
    free[0] = True  # where it is held, the report says what the data would have it
    mode, covariance, inflation = laplace(data, blocks, free)
    given = given_held(covariance, free)
    moving = data.velocity[:, :2].norm(dim=1)
    speed = float(moving.mean())
    steadiness = float(moving.std()) / speed if speed > 0 else 0.0
    correlation = float(covariance[0, 1] / (covariance[0, 0] * covariance[1, 1]).sqrt())
    lag = torch.tensor([speed, -1.0, 0.0], dtype=torch.float64)
    deviations, turns = given.diagonal().sqrt().tolist(), turning(data, blocks, mode)
    shift = _systematic(theta, turns["turning"] / data.scale)
    in_time = shift / speed if speed > 0 else 0.0
    hyper = field.hyperparameters()
    noise = float(field.noise_variance().mean()) if noise_variance is None else noise_variance
    lag_stddev = math.hypot(float((lag @ covariance @ lag).clamp_min(0).sqrt()), shift)
    return Calibration(
        samples=len(data),
        offset=float(mode[0]),
        offset_in_use=theta.time_offset,
        offset_stddev=math.hypot(deviations[0], in_time),
        offset_stddev_free=math.hypot(float(covariance[0, 0].sqrt()), in_time),
        offset_assumed=offset_assumed,
        along=float(mode[1]),
        along_stddev=math.hypot(deviations[1], shift),
        across=float(mode[2]),
        across_stddev=math.hypot(deviations[2], shift),
        lever_assumed=not (free[1] or free[2]),
        correlation=correlation,
        separable=abs(correlation) <= _APART and steadiness >= _STEADY,
        lag=float(lag @ mode),
        lag_stddev=lag_stddev,
        speed=speed,
        steadiness=steadiness,
        inflation=inflation,
        turning_assumed=theta.heading_stddev <= 0,
        hyperparameters=hyper,
        noise_stddev=math.sqrt(noise),
        scale=data.scale,
        **turns,
    )
