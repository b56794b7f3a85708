"""The posterior of a vector field at one moment: components, their covariances, and the norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.field_map import PassBias, Snapshot
from gp_mapping.core.kernels.curl_free import COMPONENTS, by_component, to_rows
from gp_mapping.core.models.curl_free.row_passes import pass_of, row_number
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.types import Prediction

__all__ = ["CurlFreePosterior"]

_CHUNK = 85  # places at a time, as rows in core/sparse/posterior.py: time and memory alone


@dataclass(frozen=True)
class CurlFreePosterior(Snapshot):
    """The posterior of a field of three components.

    Attributes:
        rows: the posterior of rows, inner units.
        scaling: of places and components.
    """

    rows: Posterior
    scaling: Scaling

    @property
    def component_noise(self) -> Tensor:
        """Variance of a new measurement of each component, inner units: (3,)."""
        theta, device = self.rows.theta, self.rows.z.device
        own = theta.row_noise(torch.arange(COMPONENTS, dtype=torch.float64, device=device))
        return own + (self.rows.noise_variance - theta.noise_stddev**2)

    @property
    def noise_variance(self) -> float:
        """Variance of a new measurement, mean over the components, inner units."""
        return float(self.component_noise.mean())

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """Components at places, with their covariance, SI.

        Args:
            x: (N, D) m.
            velocity: (N, D) m/s; given, the prediction is of what the robot measures there.
            heading: (N, 2) ĥ, or the direction of travel.
        """
        mean, covariance = self._joint(
            *self.rows.theta.prediction_inputs(self.scaling.inner_x(x), velocity, heading)
        )
        return Prediction(
            mean,
            covariance.diagonal(dim1=1, dim2=2).clamp_min(0.0),
            self.component_noise * self.scaling.scale**2,
            covariance,
        )

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """Predict f(x) + b, where b (3,) is the sensor's unknown constant in one pass.

            cov(f_c(x) + b_c, f_d(x) + b_d) = cov(f_c, f_d) − a_cᵀs_d − a_dᵀs_c + cov(b_c, b_d)

        with R⁻¹a for a, and s of Posterior.bias.

        Args:
            x: (N, D) m.
            number: of the pass, as in Samples.pass_number; an unknown one has the prior constant.
            velocity: (N, D) m/s of the robot.
            heading: ĥ (N, 2); the direction of travel if None.
        """
        field = self.predict(x, velocity, heading)
        if self.rows.theta.bias_stddev <= 0:
            return field

        constants = [self.rows.bias(row_number(number, c)) for c in range(COMPONENTS)]
        solved = torch.stack([s for _, _, s in constants], 1)  # (F + M, 3)
        own = solved.mT @ solved
        own.diagonal().copy_(torch.stack([variance for _, variance, _ in constants]))

        inner, heading = self.rows.theta.prediction_inputs(
            self.scaling.inner_x(x), velocity, heading
        )
        with_robot = heading is not None and self.rows.theta.heading_stddev > 0
        cross = [own.new_empty((0, COMPONENTS, COMPONENTS))]
        for i in range(0, len(inner), _CHUNK):
            h = (
                heading[i : i + _CHUNK].repeat_interleave(COMPONENTS, 0)
                if heading is not None and with_robot
                else None
            )
            whitened = self.rows.whitened(to_rows(inner[i : i + _CHUNK]), h)
            cross.append(_each(self.rows.solve_root(whitened).double()) @ solved)

        shared, scale = torch.cat(cross), self.scaling.scale
        joint = field.covariance + (own - shared - shared.mT) * scale**2
        return Prediction(
            field.mean + torch.cat([mean for mean, _, _ in constants]) * scale,
            joint.diagonal(dim1=1, dim2=2).clamp_min(0.0),
            field.noise_variance,
            joint,
        )

    def biases(self) -> list[PassBias]:
        """Constants of the open passes, oldest first, SI: (3,) each.

        A component whose constant in a pass is not open any more has the prior there.
        """
        numbers, mean, covariance = self.rows.bias_posterior()
        found = sorted({pass_of(number) for number in numbers})
        if not found:
            return []

        prior, listed = self.rows.theta.bias_stddev**2, []
        for c in range(COMPONENTS):
            centre = mean.new_zeros((len(found), 1))
            spread = prior * torch.eye(len(found), dtype=mean.dtype, device=mean.device)
            here = [i for i, number in enumerate(found) if row_number(number, c) in numbers]
            there = [numbers.index(row_number(found[i], c)) for i in here]
            at = torch.tensor(here, dtype=torch.long, device=mean.device)
            centre[at] = mean[there]
            spread[at[:, None], at] = covariance[there][:, there]
            scale = self.scaling.scale
            listed.append(PassBias.of(found, centre * scale, spread * scale**2))

        return [
            PassBias(
                number,
                *(
                    torch.cat([getattr(component[i], part) for component in listed])
                    for part in ("mean", "stddev", "stddev_apart")
                ),
            )
            for i, number in enumerate(found)
        ]

    def gradient(self, x: Tensor) -> Tensor:
        """Slope ∂_d of the mean of each component at standardised x (N, D): (N, 3, D)."""
        return by_component(self.rows.gradient(to_rows(x))[:, 0, :-1])

    def cross_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance between components.

        Args:
            a: (N, D) metres.
            b: (K, D) metres.

        Returns:
            (N, 3, K, 3), squared SI.
        """
        a, b = self.scaling.inner_x(a), self.scaling.inner_x(b)
        joint = self.rows.covariance(to_rows(a), to_rows(b))

        # `Posterior` adds the constant's variance to all pairs of rows; each component has its own
        constant = self.rows.theta.constant_stddev**2
        kind = torch.arange(COMPONENTS, device=a.device)
        joint = joint.reshape(len(a), COMPONENTS, len(b), COMPONENTS) * self.scaling.scale**2
        return joint - constant * self.scaling.scale**2 * (kind[:, None, None] != kind).to(
            joint.dtype
        )

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance: of a component with itself, mean over components."""
        return self.cross_covariance(a, b).diagonal(dim1=1, dim2=3).mean(-1)

    def local(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (N, 3) and covariance (N, 3, 3) of the three components at each x (N, D), SI."""
        return self._joint(self.scaling.inner_x(x), None)

    def _joint(self, x: Tensor, heading: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean (N, 3) and covariance (N, 3, 3) at standardised x, SI.

        With a heading (N, 2), of field and robot together.
        """
        means, covariances = (
            [x.new_empty((0, COMPONENTS))],
            [x.new_empty((0, COMPONENTS, COMPONENTS))],
        )
        p, kernel = self.rows, self.rows.theta.kernel()
        with_robot = heading is not None and p.theta.heading_stddev > 0

        for i in range(0, len(x), _CHUNK):
            rows = to_rows(x[i : i + _CHUNK])
            h = heading[i : i + _CHUNK].repeat_interleave(COMPONENTS, 0) if with_robot else None
            # prior of field and features, less what the sites explain
            features = _each(p.theta.feature_rows(rows, h))
            whitened = p.whitened(rows, h)
            solved = p.solve_root(whitened)
            explained = _gram(_each(whitened)) - _gram(_each(solved))

            covariances.append(
                torch.diag_embed(by_component(kernel.diag(rows)))
                + _gram(features)
                - explained.double()
            )
            means.append(by_component((whitened.mT @ p.weights.to(whitened.dtype)).double()[:, 0]))

        scale = self.scaling.scale
        return torch.cat(means) * scale + self.scaling.centre, torch.cat(covariances) * scale**2

    def body(self) -> tuple[Tensor, Tensor] | None:
        """The body-fixed field, forward, left, up.

        Returns:
            Mean and standard deviation (3,), SI; None where it is left out.
        """
        names, theta = self.rows.theta.feature_names(), self.rows.theta
        indices = [i for i, (name, _) in enumerate(names) if name == "heading_stddev"]
        if not indices:
            return None

        unit = self.rows.R.new_zeros((len(self.rows.R), len(indices)))
        unit[indices, range(len(indices))] = 1.0

        size = theta.heading_stddev * self.scaling.scale
        return size * self.rows.weights[indices, 0], size * self.rows.solve_root(unit).square().sum(
            0
        ).sqrt()

    def norm(self, x: Tensor) -> Prediction:
        """Norm |B| at x (N, D) by the delta method: mean and variance (N, 1).

        mean = |μ| + tr[(I − ûûᵀ)Σ]/(2|μ|),   variance = ûᵀΣû,   û = μ/|μ|
        """
        mean, covariance = self.local(torch.as_tensor(x, dtype=torch.float64))

        length = mean.norm(dim=1)
        # |μ| may be 0, where the direction is arbitrary
        unit = mean / length.clamp_min(1e-300)[:, None]
        along = (unit[:, None] @ covariance @ unit[:, :, None])[:, 0, 0]
        trace = covariance.diagonal(dim1=1, dim2=2).sum(1)

        # second order; where Σ is not small compared with |μ|² the series means nothing, so at most
        # √(|μ|² + tr Σ)
        corrected = (length + (trace - along) / (2 * length.clamp_min(1e-300))).minimum(
            (length.square() + trace).sqrt()
        )

        noise = (unit.square() @ self.component_noise).mean().reshape(1) * self.scaling.scale**2
        return Prediction(corrected[:, None], along.clamp_min(0.0)[:, None], noise)


def _each(features: Tensor) -> Tensor:
    """Features of rows (F, 3N) by place and component: (N, 3, F)."""
    return features.mT.reshape(-1, COMPONENTS, len(features))


def _gram(features: Tensor) -> Tensor:
    """Products of the features (N, 3, F) of each place: (N, 3, 3)."""
    return features @ features.mT
