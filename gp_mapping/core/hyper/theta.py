"""Hyper-parameters with names, the vector that is learned, and the sensor's place that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import as_dtype
from gp_mapping.core.kernels.stationary import TwoScales, make_kernel
from gp_mapping.core.places import motion_of

__all__ = ["SLOWEST", "Theta", "heading_from_velocity", "sensor_place"]

_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 5.0, 10.0, 10.0)  # of the learned numbers, in `distance`
SLOWEST = 0.03  # m/s below which a velocity does not determine the heading


@dataclass(frozen=True)
class Theta:
    """Hyper-parameters θ in inner units; the symbols are those of the formulas.

    Attributes:
        lengthscale: ℓ, m.
        signal_stddev: s, of the field.
        noise_stddev: s_p, of the difference between two passes.
        constant_stddev: s_c, of the field's mean.
        heading_stddev: s_h, of the body-fixed field; 0 leaves it out.
        bias_stddev: s_b, of the constant of each pass; 0 leaves it out. Learned separately
            (hyper/bias.py).
        bias_correlation: ρ, of the constants of neighbouring segments of a pass; learned with s_b.
        time_offset: δ, s, by which a measurement is older than its stamp.
        lever_arm_along: the sensor's place, m, forward.
        lever_arm_across: the sensor's place, m, to the left.
        kernel_name: of KERNELS; like all below it is not learned.
        anisotropy: ℓ_y/ℓ_x.
        long_share: w, fraction of the variance that has the long lengthscale.
        long_ratio: q, long over short lengthscale.
    """

    lengthscale: float
    signal_stddev: float
    noise_stddev: float
    constant_stddev: float
    heading_stddev: float = 0.0
    time_offset: float = 0.0
    lever_arm_along: float = 0.0
    lever_arm_across: float = 0.0
    bias_stddev: float = 0.0
    bias_correlation: float = 0.0
    kernel_name: str = "matern52"
    anisotropy: float = 1.0
    long_share: float = 0.0
    long_ratio: float = 1.0

    def kernel(self):
        """k(x, x'), without constant, robot and noise."""
        return self._kernel

    @cached_property
    def _kernel(self):
        """The kernel of the field, made once."""
        if self.anisotropy == 1.0 and self.long_share == 0.0:
            return make_kernel(self.kernel_name, self.signal_stddev**2, self.lengthscale)

        shape = make_kernel(
            self.kernel_name, self.signal_stddev**2, self.lengthscales(self.lengthscale)
        )
        if self.long_share == 0.0:
            return shape
        return TwoScales(shape.variance, shape.lengthscale, shape, self.long_ratio, self.long_share)

    def lengthscales(self, length):
        """ℓ along x and along y, (2,); ℓ itself where both are equal.

        Args:
            length: ℓ, the shorter of the two, a number or a 0-D tensor.
        """
        if self.anisotropy == 1.0:
            return length
        axes = torch.tensor(
            [max(1.0, 1.0 / self.anisotropy), max(1.0, self.anisotropy)], dtype=torch.float64
        )
        return axes * length if not torch.is_tensor(length) else axes.to(length.device) * length

    def need_dimensions(self, dimensions: int) -> None:
        """Check that the kernel is one of places of so many coordinates.

        Raises:
            ValueError: it is anisotropic, and the places are not in a plane.
        """
        if self.anisotropy != 1.0 and dimensions != 2:
            raise ValueError(
                f"anisotropy: {self.anisotropy} stretches the y axis of a plane, and the samples are "
                f"{dimensions}-D; write anisotropy: 1.0"
            )

    @property
    def shape(self) -> tuple:
        """What of the kernel is never learned."""
        return self.kernel_name, self.anisotropy, self.long_share, self.long_ratio

    def vector(self) -> Tensor:
        """[log ℓ, log s², log s_p², log s_h², δ, along, across]: what may be learned, (7,)."""
        return torch.tensor(self.numbers(), dtype=torch.float64)

    def numbers(self) -> list[float]:
        """The entries of `vector` as plain numbers."""
        heading = 2 * math.log(self.heading_stddev) if self.heading_stddev > 0 else 0.0
        return [
            math.log(self.lengthscale),
            2 * math.log(self.signal_stddev),
            2 * math.log(self.noise_stddev),
            heading,
            self.time_offset,
            self.lever_arm_along,
            self.lever_arm_across,
        ]

    def with_vector(self, vector: Tensor) -> "Theta":
        """θ with the entries of `vector` (7,)."""
        length, signal, noise, heading, offset, along, across = vector.tolist()
        return replace(
            self,
            lengthscale=math.exp(length),
            signal_stddev=math.exp(signal / 2),
            noise_stddev=math.exp(noise / 2),
            heading_stddev=math.exp(heading / 2) if self.heading_stddev > 0 else 0.0,
            time_offset=offset,
            lever_arm_along=along,
            lever_arm_across=across,
        )

    def with_biases_of(self, other: Theta) -> Theta:
        """θ with s_b and ρ of another one."""
        return replace(self, bias_stddev=other.bias_stddev, bias_correlation=other.bias_correlation)

    def distance(self, other: "Theta") -> float:
        """The largest change of a learned logarithm.

        20 ms of time offset, or 1 cm of lever arm, count as much as a tenth.
        """
        changes = [a - b for a, b in zip(self.numbers(), other.numbers())]
        return max(abs(weight * change) for weight, change in zip(_WEIGHTS, changes))

    def feature_names(self) -> list[tuple[str, int]]:
        """Features before those of the inducing inputs: a standard deviation, and a number."""
        constant, heading = [("constant_stddev", 0)], [("heading_stddev", 0), ("heading_stddev", 1)]
        return constant * (self.constant_stddev > 0) + heading * (self.heading_stddev > 0)

    def feature_rows(self, x: Tensor, heading: Tensor | None) -> Tensor:
        """s_c and s_h ĥ at x: (F, N).

        Args:
            x: places (N, D).
            heading: (N, 2), None where the robot is left out.
        """
        rows = (
            [x.new_full((1, x.shape[0]), self.constant_stddev)] if self.constant_stddev > 0 else []
        )
        if self.heading_stddev > 0:
            rows.append(
                x.new_zeros((2, x.shape[0]))
                if heading is None
                else self.heading_stddev * as_dtype(heading, x.dtype).mT
            )
        return (
            (rows[0] if len(rows) == 1 else torch.cat(rows))
            if rows
            else x.new_empty((0, x.shape[0]))
        )

    def same_features(self, other: Theta) -> bool:
        """Whether kernel and explicit features are those of another θ."""
        return self is other or (
            self.shape == other.shape
            and self.lengthscale == other.lengthscale
            and self.signal_stddev == other.signal_stddev
            and self.constant_stddev == other.constant_stddev
            and self.heading_stddev == other.heading_stddev
        )

    def sensor_place(self, x: Tensor, velocity: Tensor, heading: Tensor) -> Tensor:
        """Where the sensor was when it measured: x − δ v + along ĥ + across ĥ⊥, (N, D).

        Args:
            x: positions of the robot (N, D), m.
            velocity: (N, D), m/s.
            heading: ĥ (N, 2).
        """
        if not (self.time_offset or self.lever_arm_along or self.lever_arm_across):
            return x
        return sensor_place(
            x, velocity, heading, self.time_offset, self.lever_arm_along, self.lever_arm_across
        )

    def prediction_inputs(
        self, x: Tensor, velocity, heading: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The places and headings that give the prediction at x.

        Without a velocity that is the field at x. With one it is what the robot measures when it
        passes x.

        Args:
            x: places (N, D).
            velocity: of the robot (N, D), m/s, or None.
            heading: (N, 2); the direction of travel if None.

        Returns:
            Places (N, D), and headings (N, 2) or None.
        """
        if velocity is None:
            return x, None
        velocity, heading = motion_of(x, velocity, heading)
        velocity = velocity.to(x.device)
        heading = heading_from_velocity(velocity) if heading is None else heading.to(x.device)
        return self.sensor_place(x, velocity, heading), heading


def sensor_place(x: Tensor, velocity: Tensor, heading: Tensor, offset, along, across) -> Tensor:
    """Where the sensor was when it measured.

        x − δ v + along ĥ + across ĥ⊥,   ĥ⊥ to the left of ĥ

    Args:
        x: positions of the robot (N, D), m.
        velocity: (N, D), m/s.
        heading: ĥ (N, 2).
        offset: δ, s.
        along: lever arm forward, m.
        across: lever arm to the left, m.

    Returns:
        (N, D), m.
    """
    if not (torch.is_tensor(along) or torch.is_tensor(across) or along or across):
        return x - offset * velocity  # the usual case
    left = torch.stack([-heading[:, 1], heading[:, 0]], 1)
    arm = (along * heading + across * left)[:, : x.shape[1]]
    if x.shape[1] > 2:
        arm = torch.cat([arm, torch.zeros_like(x[:, 2:])], 1)
    return x - offset * velocity + arm


def heading_from_velocity(velocity: Tensor) -> Tensor:
    """ĥ = v / max(|v|, 0.03 m/s): (N, 2), shorter than 1 where the robot hardly moves."""
    plane = velocity[:, :2]
    if velocity.shape[1] == 1:
        plane = torch.cat([plane, torch.zeros_like(plane)], 1)
    return plane / torch.linalg.vector_norm(plane, dim=1, keepdim=True).clamp_min(SLOWEST)
