"""Hyper-parameters of a vector field.

They are those of a scalar field, those of its potential, and a noise that differs by component.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.curl_free import COMPONENTS, CurlFreeKernel, HarmonicKernel
from gp_mapping.core.kernels.stationary import Kernel

__all__ = ["VectorTheta"]


@dataclass(frozen=True)
class VectorTheta(Theta):
    """Theta of rows, each a place and a component.

    The field has a constant for each component, and a body-fixed vector (p, q, w) that turns with
    the heading ĥ = (cos ψ, sin ψ):

        x: p ĥ_x − q ĥ_y,   y: p ĥ_y + q ĥ_x,   z: w |ĥ|

    Attributes:
        vertical: the noise's standard deviation of the vertical component over that of the
            horizontal ones, which an error of the heading perturbs.
        coherence: γ of a harmonic potential.
        potential: harmonic or free.
    """

    vertical: float = 1.0
    coherence: float = 0.0
    potential: str = "harmonic"

    @staticmethod
    def from_theta(theta: Theta, **others) -> "VectorTheta":
        """A VectorTheta with the numbers of a Theta, and those given."""
        return VectorTheta(**{f.name: getattr(theta, f.name) for f in fields(theta)} | others)

    def kernel(self) -> Kernel:
        """The kernel of a component at a place: curl-free, or harmonic."""
        if self.potential == "harmonic":
            return HarmonicKernel(self.signal_stddev**2, self.lengthscale, self.coherence)
        return CurlFreeKernel(self.signal_stddev**2, self.lengthscale, self.kernel_name)

    @property
    def shape(self):
        """As Theta.shape, and the potential."""
        return (*super().shape, f"{self.potential} potential")

    def vector(self):
        """Theta's seven numbers, log of the square of `vertical`, and artanh γ: (9,)."""
        more = [2 * math.log(self.vertical), math.atanh(self.coherence)]
        return torch.cat([super().vector(), torch.tensor(more, dtype=torch.float64)])

    def with_vector(self, vector):
        """As Theta.with_vector, of nine numbers."""
        vertical, coherence = vector[7:].tolist()
        return replace(
            super().with_vector(vector[:7]),
            vertical=math.exp(vertical / 2),
            coherence=math.tanh(coherence),
        )

    def distance(self, other):
        """Theta's distance; a tenth of log vertical², or of γ, counts as a tenth."""
        more = max(
            abs(2 * math.log(self.vertical / other.vertical)), abs(self.coherence - other.coherence)
        )
        return max(theta_distance(self, other), more)

    def row_noise(self, component: torch.Tensor) -> torch.Tensor:
        """s_p² of each row, given its component (n,): (n,)."""
        return self.noise_stddev**2 * torch.where(component.round() == 2, self.vertical**2, 1.0).to(
            torch.float64
        )

    def feature_names(self):
        """As Theta.feature_names: a constant and a body-fixed field for each component."""
        heading = (
            [("heading_stddev", c) for c in range(COMPONENTS)] if self.heading_stddev > 0 else []
        )
        return [("constant_stddev", c) for c in range(COMPONENTS)] * (
            self.constant_stddev > 0
        ) + heading

    def feature_rows(self, x, heading):
        """As Theta.feature_rows, of rows.

        Args:
            x: rows (N, D + 1), the component last.
            heading: ĥ (N, 2); None: no body-fixed field.
        """
        indicators = (
            torch.nn.functional.one_hot(x[:, -1].detach().round().long(), COMPONENTS).to(x.dtype).mT
        )  # (3, N)

        rows = [self.constant_stddev * indicators] if self.constant_stddev > 0 else []
        if self.heading_stddev > 0 and heading is None:
            rows.append(torch.zeros_like(indicators))
        elif self.heading_stddev > 0:
            # how the body-fixed vector (p, q, w) enters each row
            cos, sin = heading.to(x.dtype).mT
            body_fixed = [
                indicators[0] * cos + indicators[1] * sin,
                indicators[1] * cos - indicators[0] * sin,
                indicators[2] * heading.norm(dim=1),
            ]
            rows.append(self.heading_stddev * torch.stack(body_fixed))

        return torch.cat(rows) if rows else x.new_empty((0, len(x)))


def theta_distance(first: VectorTheta, second: VectorTheta) -> float:
    """Theta.distance of the first seven numbers."""
    plain = [Theta(**{f.name: getattr(t, f.name) for f in fields(Theta)}) for t in (first, second)]
    return plain[0].distance(plain[1])
