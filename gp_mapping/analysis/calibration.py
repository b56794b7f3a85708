"""What a map has learned of its robot, with standard deviations.

That is time offset, lever arm and body-fixed field.

At the mode of the exact log evidence over up to 8 disjoint neighbourhoods of the remembered
samples, hyper-parameters held, the curvature over (δ, along, across) plus the priors' is the
inverse covariance (Laplace). The scatter of the neighbourhoods' scores is compared with it: where
they scatter more than a model with white noise would have it, the covariance grows by as much. The
body-fixed field is estimated in the same way, at the mode of the offset. A fifth of it is assumed
to differ from place to place, which is a systematic error of the shift: that much over the field's
rms slope.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from gp_mapping.analysis.robot_evidence import (
    LEAST,
    estimate_body_field,
    given_held,
    laplace,
    neighbourhoods,
)
from gp_mapping.core.field_map import FieldMap
from gp_mapping.mapping.session import MapSession

__all__ = ["Calibration", "calibration_report", "turning_part"]

_APART = 0.9  # |correlation| of offset and arm beyond which only a sum is known
_STEADY = 0.1  # sd/mean of the speed below which a delay cannot be told from an arm
_SEEN = 3.0  # standard deviations from 0 that count as seen
# Fraction of the body-fixed field that differs from place to place: what |B| shows of hard iron
# follows the direction of the field, and that mimics a shift of the positions.
_UNEVEN = 0.2
# Chi-square of 2 at the same odds, where the covariance is itself estimated from 8 blocks.
_TURNS = 18.0


@dataclass(frozen=True)
class Calibration:
    """Estimates in SI units; standard deviations have _stddev in their names.

    Attributes:
        samples: number of remembered samples that it is made from.
        offset: δ, s, how much later the sensor's stamps are than the pose's, by all remembered
            samples.
        offset_in_use: s, what the map applies now.
        offset_stddev: s, given what is held by the settings.
        offset_stddev_free: s, with a free lever arm (with its prior).
        offset_assumed: held by the settings, not learned.
        along: m, lever arm, forward.
        along_stddev: m.
        across: m, lever arm, to the left.
        across_stddev: m.
        lever_assumed: held by the settings, not learned.
        correlation: of δ and along, both free.
        separable: whether δ and along can be told apart.
        lag: δ·speed − along, m behind on the way, known in any case.
        lag_stddev: m.
        speed: m/s, the mean of the samples.
        steadiness: standard deviation of the speed / its mean.
        inflation: factor on the standard deviations of δ and arm for noise that is not white.
        turning: amplitude of the body-fixed field.
        turning_stddev: of that amplitude.
        direction: radians, map frame, heading at which the sensor reads most too much.
        direction_stddev: radians.
        turning_assumed: assumed absent by the settings.
        turning_chi_square: of the body-fixed field against 0, two degrees of freedom.
        hyperparameters: of the map.
        noise_stddev: of one new measurement.
        scale: one display unit in SI.
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
    def has_offset(self) -> bool:
        """Whether δ differs from 0 by three standard deviations."""
        return abs(self.offset) > _SEEN * self.offset_stddev

    @property
    def has_lever_arm(self) -> bool:
        """Whether a learned lever arm differs from 0 by three sd, along or across."""
        return not self.lever_assumed and (
            abs(self.along) > _SEEN * self.along_stddev
            or abs(self.across) > _SEEN * self.across_stddev
        )

    @property
    def has_body_field(self) -> bool:
        """Whether the body-fixed field differs from 0 at the level of three standard deviations."""
        return not self.turning_assumed and self.turning_chi_square > _TURNS

    def as_dict(self) -> dict:
        """Return plain numbers, and the three judgements."""
        return asdict(self) | {
            "offset_seen": self.has_offset,
            "lever_seen": self.has_lever_arm,
            "turning_seen": self.has_body_field,
        }

    def sentences(self, sensor: str = "magnetometer", unit: str = "µT") -> list[str]:
        """Return sentences for a person.

        Args:
            sensor: its name.
            unit: name of the map's display unit.
        """
        return [
            self._offset_text(sensor),
            *self._arm_text(),
            self._turning_text(unit),
            f"two passes of one place differ by {self.hyperparameters['noise_stddev'] / self.scale:.2g} {unit}; a "
            f"new measurement scatters by {self.noise_stddev / self.scale:.2g} {unit} about the map where it knows "
            "the field",
        ]

    def _offset_text(self, sensor: str) -> str:
        """Say how pose and sensor differ in time."""
        if self.offset_assumed:
            how = _seconds(self.offset, self.offset_stddev)
            return f"a time offset of {self.offset_in_use:.2f} s is assumed, not learned; the data would have it {how}"

        how = _seconds(abs(self.offset), self.offset_stddev)
        if not self.has_offset:
            return f"no offset is seen between pose and {sensor} ({_seconds(self.offset, self.offset_stddev)})"
        return f"the {sensor} {'lags' if self.offset > 0 else 'is ahead of'} the pose by {how}"

    def _arm_text(self) -> list[str]:
        """Say where the sensor sits, and what is known where arm and offset are not separable."""
        sign = "behind" if self.lag > 0 else "ahead"
        sum_text = (
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
        return [text] if self.separable else [text, sum_text]

    def _turning_text(self, unit: str) -> str:
        """Say how large the body-fixed field is."""
        if self.turning_assumed:
            return "a part that turns with the robot is assumed absent (heading_stddev is 0)"

        how = f"{self.turning / self.scale:.2g} ± {self.turning_stddev / self.scale:.1g} {unit}"
        if not self.has_body_field:
            return f"nothing is seen that turns with the robot ({how})"

        degrees = f"{math.degrees(self.direction):.0f} ± {math.degrees(self.direction_stddev):.0f}°"
        return (
            f"a part of {how} turns with the robot, most when it heads towards {degrees} of the map"
        )


def _seconds(value: float, stddev: float) -> str:
    """Format a time ± its standard deviation, with the known digits, milliseconds at most."""
    digits = 2 if stddev >= 0.0095 else 3
    return f"{value + 0.0:.{digits}f} ± {max(stddev, 10.0**-digits):.{digits}f} s".replace(
        "-0.000 ", "0.000 "
    )


def _systematic(theta, turning: float) -> float:
    """Return the shift along the way, m, that an uneven body-fixed field may mimic.

        0.2 · turning / √E[(∂f)²]

    Args:
        theta: hyper-parameters.
        turning: amplitude of the body-fixed field, inner units.
    """
    kernel = theta.kernel()

    # ℓ² E[(∂f)²]: the kernel's slope at 0 is by the scaled squared distance.
    steepest = (
        -2.0 * float(kernel.slope(torch.zeros(1, dtype=torch.float64))) * theta.signal_stddev**2
    )
    return (
        _UNEVEN * turning * theta.lengthscale / math.sqrt(steepest)
        if math.isfinite(steepest)
        else 0.0
    )


def calibration_report(field: FieldMap, noise_variance: float | None = None) -> Calibration:
    """Return the calibration by a map that remembers samples.

    Args:
        field: the map.
        noise_variance: of a new measurement (SI²), where scores know better; None: the map's.

    Raises:
        RuntimeError: the map remembers fewer than 5 samples, or no samples one by one (model
            curl_free).
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

    blocks = neighbourhoods(theta.sensor_place(data.x, data.velocity, data.heading))
    free[0] = True  # where it is held, the report says what the data would have it
    mode, covariance, inflation = laplace(data, blocks, free)
    conditional = given_held(covariance, free)

    # Speed over ground, without a vertical part.
    moving = data.velocity[:, :2].norm(dim=1)
    speed = float(moving.mean())
    steadiness = float(moving.std()) / speed if speed > 0 else 0.0

    correlation = float(covariance[0, 1] / (covariance[0, 0] * covariance[1, 1]).sqrt())
    # The lag is this combination of (δ, along, across).
    lag = torch.tensor([speed, -1.0, 0.0], dtype=torch.float64)

    deviations = conditional.diagonal().sqrt().tolist()
    turns = estimate_body_field(data, blocks, mode)
    # An uneven body-fixed field mimics a shift, or the time in which the robot drives it.
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


@torch.no_grad()
def turning_part(session: MapSession) -> Tensor | None:
    """What a map adds at one place where the robot looks along x, along y: w of w·ĥ.

    Args:
        session: a map that has begun.

    Returns:
        (2, C), SI; None where the map has no such part.
    """
    if session.settings.heading_stddev <= 0 or not len(session.path):
        return None

    # a prediction without a heading is the field alone
    place, still = session.path[-1:], torch.zeros((1, 2), dtype=torch.float64)
    plain = session.map.predict(place).mean
    axes = torch.eye(2, dtype=torch.float64)
    parts = [session.map.predict(place, still, axis[None]).mean - plain for axis in axes]
    return torch.cat(parts).cpu()
