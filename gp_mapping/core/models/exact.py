"""The exact GP: the reference in other models' tests, and a model for a few thousand samples."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import CalibrationData, PassBias
from gp_mapping.core.hyper.bias import bias_correlation
from gp_mapping.core.hyper.evidence import pass_membership
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.inner_snapshot import InnerSnapshot
from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.places import need_radius
from gp_mapping.core.scaled_map import ScaledMap, check_factor
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.standardised import Standardised, average_noise, excess_variance
from gp_mapping.core.transaction import require_finite
from gp_mapping.core.types import Prediction, UpdateReport
from gp_mapping.errors import MapFullError

__all__ = ["ExactGP"]

_CHUNK = 2048  # places that are predicted together: time and memory alone


@dataclass(frozen=True)
class ExactPosterior(InnerSnapshot):
    """The posterior of the exact GP.

        mean = k*ᵀ(K + Σ)⁻¹y,   variance = k** − |C⁻¹k*|²,   C = chol(K + Σ)

    Attributes:
        theta: hyper-parameters, inner units.
        x: places of the samples (n, D), standardised.
        heading: of the samples (n, 2).
        factor: C (n, n).
        weights: (K + Σ)⁻¹y (n, channels).
        noise_variance: of one new measurement, squared inner units.
        scaling: to SI.
        pass_number: of the samples (n,), negative where a sample has no pass.

    Reference:
        Rasmussen and Williams 2006, eqs. 2.23–24.
    """

    theta: Theta
    x: Tensor
    heading: Tensor
    factor: Tensor
    weights: Tensor
    noise_variance: float
    scaling: Scaling
    pass_number: Tensor

    def cross(self, a: Tensor, b: Tensor) -> Tensor:
        """Prior covariance of the field between standardised places, k(a, b) + s_c²: (N, K).

        Args:
            a: (N, D), standardised.
            b: (K, D), standardised.
        """
        return self.theta.kernel()(a, b) + self.theta.constant_stddev**2

    def predict_inner(self, x: Tensor, heading: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As InnerSnapshot.predict_inner: kᵀC⁻¹y and k** − kᵀC⁻¹k."""
        means, variances = [x.new_empty((0, self.weights.shape[1]))], [x.new_empty(0)]

        for i in range(0, len(x), _CHUNK):
            cross = self.cross(self.x, x[i : i + _CHUNK])
            prior = self.theta.signal_stddev**2 + self.theta.constant_stddev**2
            if heading is not None and self.theta.heading_stddev > 0:
                part_heading = heading[i : i + _CHUNK]
                cross = cross + self.theta.heading_stddev**2 * self.heading @ part_heading.mT
                prior = prior + self.theta.heading_stddev**2 * part_heading.square().sum(1)

            means.append(cross.mT @ self.weights)
            variances.append(
                (prior - solve_lower(self.factor, cross).square().sum(0)).clamp_min(0.0)
            )

        return torch.cat(means), torch.cat(variances)

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """Predict f(x) + b, b the constant of a pass: with k* + s_b² δ and k** + s_b².

        Args:
            x: places (N, D), m.
            number: of the pass.
            velocity: of the robot (N, D), m/s; None: of the field alone.
            heading: (N, 2); the direction of travel if None.
        """
        x, heading = self.theta.prediction_inputs(self.scaling.inner_x(x), velocity, heading)

        mean, variance = self.predict_inner(x, heading)
        bias, bias_variance, solved = self._bias(number)

        cross = self.cross(self.x, x)
        if heading is not None:
            cross = cross + self.theta.heading_stddev**2 * self.heading @ heading.mT
        shared = solve_lower(self.factor, cross).mT @ solved

        # var(f + b) = var f + var b + 2 cov(f, b), which is −shared
        return self.scaling.outer(
            mean + bias,
            (variance + bias_variance - 2.0 * shared).clamp_min(0.0),
            self.noise_variance,
        )

    def _bias(self, number: float) -> tuple[Tensor, Tensor, Tensor]:
        """Mean (C,), variance () and C⁻¹k(X, b) (n,) of the constant of a pass, inner units."""
        cross = self._shared_with(self.pass_number.new_tensor([number]))[:, 0]
        solved = solve_lower(self.factor, cross[:, None])[:, 0]
        return cross @ self.weights, self.theta.bias_stddev**2 - solved.square().sum(), solved

    def _shared_with(self, numbers: Tensor) -> Tensor:
        """Covariance of the samples' constants (n) with those of other passes (K,): (n, K)."""
        known = (self.pass_number >= 0)[:, None]
        shared = bias_correlation(self.pass_number, numbers, self.theta.bias_correlation)
        return self.theta.bias_stddev**2 * torch.where(known, shared, 0.0)

    def bias_evidence(self) -> PassEvidence | None:
        """N = ZᵀA⁻¹Z and v = ZᵀA⁻¹y of A = K + Σ − s_b² ZCZᵀ; None below two passes.

        A is the covariance of the data without the passes' constants, C their correlation, and Z
        that of `pass_membership`.
        """
        together = pass_membership(self.pass_number)
        if together.shape[1] < 2:
            return None

        solved = solve_lower(self.factor, together)
        shared = solved.mT @ solved

        numbers = torch.unique(self.pass_number[self.pass_number >= 0])
        alike = bias_correlation(numbers, numbers, self.theta.bias_correlation)

        # A⁻¹ from (K + Σ)⁻¹ by Woodbury's identity
        correction = (
            torch.eye(len(shared), dtype=shared.dtype, device=shared.device)
            - self.theta.bias_stddev**2 * shared @ alike
        )
        return PassEvidence(
            tuple(numbers.tolist()),
            torch.linalg.solve(correction, shared),
            torch.linalg.solve(correction, together.mT @ self.weights),
        )

    def biases(self) -> list[PassBias]:
        """The constant of every pass, SI."""
        passes = self.pass_number[self.pass_number >= 0].unique()
        numbers = passes.tolist()
        if not numbers:
            return []

        biases, scale = [self._bias(number) for number in numbers], self.scaling.scale
        solved, theta = torch.stack([solved for _, _, solved in biases]), self.theta
        alike = bias_correlation(passes, passes, theta.bias_correlation)
        covariance = theta.bias_stddev**2 * alike - solved @ solved.mT

        return PassBias.of(
            numbers, torch.stack([mean for mean, _, _ in biases]) * scale, covariance * scale**2
        )

    def mean(self, x: Tensor) -> Tensor:
        """Mean (N, C) at standardised x (N, D), without the robot's field; differentiable."""
        return self.cross(x, self.x) @ self.weights

    def prior_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.prior_covariance: k(a, b) + s_c²."""
        return self.cross(self.scaling.inner_x(a), self.scaling.inner_x(b)) * self.scaling.scale**2

    def explained(self, x: Tensor) -> Tensor:
        """C⁻¹k(X, x) (n, N), SI: covariance(a, b) = prior_covariance(a, b) − b_aᵀ b_b."""
        return (
            solve_lower(self.factor, self.cross(self.x, self.scaling.inner_x(x)))
            * self.scaling.scale
        )

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance: k(a, b) + s_c² − k(a, x) C⁻¹ k(x, b)."""
        a, b = self.scaling.inner_x(a), self.scaling.inner_x(b)
        solved_a, solved_b = (solve_lower(self.factor, self.cross(self.x, c)) for c in (a, b))
        return (self.cross(a, b) - solved_a.mT @ solved_b) * self.scaling.scale**2


class ExactGP(ScaledMap):
    """The GP of all samples, O(n³) at the first prediction after a change.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI).
        max_samples: n at most; an update beyond raises MapFullError.
        learner: as of DualSVGP, and so are those below.
        seed: of random choices.
        scale: SI in an inner unit.
        centre: (C,) SI; the median of the first batch if None.
        device: of all tensors.
        bias_prior: inner units; 0: s_b is not learned.

    Reference:
        Rasmussen and Williams 2006, ch. 2.
    """

    name = "exact"

    def __init__(
        self,
        theta: Theta,
        *,
        max_samples: int = 5000,
        learner: HyperLearner | None = None,
        seed: int = 0,
        scale: float = 1.0,
        centre=None,
        device="cpu",
        bias_prior: float = 0.0,
    ):
        super().__init__(scale=scale, centre=centre, device=device)
        self.bias_prior = bias_prior
        self.theta, self.learner, self.max_samples = theta, learner, max_samples
        self.generator = torch.Generator().manual_seed(seed)
        self.data: dict[str, Tensor] | None = None
        self.jitter, self.epoch = 0.0, 0

    @property
    def empty(self) -> bool:
        """Whether no sample has been absorbed."""
        return self.data is None

    def explained(self, x: Tensor) -> Tensor | None:
        """b(x) (n, N), SI, with covariance(a, b) = prior_covariance(a, b) − b_aᵀ b_b."""
        return self.posterior.explained(x)

    @property
    def samples(self) -> int:
        """Number of samples, all of which it holds."""
        return 0 if self.data is None else len(self.data["x"])

    def report(self, used: int) -> UpdateReport:
        """What the map holds after an update that absorbed `used` samples."""
        return UpdateReport(
            used, self.samples, self.samples, self.samples, added=used, jitter=self.jitter
        )

    def absorb(self, batch: Standardised) -> UpdateReport:
        """Append a batch in inner units.

        Raises:
            MapFullError: more than max_samples.
        """
        if self.samples + len(batch.x) > self.max_samples:
            raise MapFullError(
                f"the exact model holds {self.samples} samples and may hold {self.max_samples}; raise "
                "max_exact_samples (cost grows with its cube) or use model dual_svgp"
            )

        fresh = {
            "x": batch.x,
            "velocity": batch.velocity,
            "heading": batch.heading,
            "y": batch.y,
            "noise": batch.noise,
            "extra": self._extra(batch),
            "weight": torch.ones_like(batch.noise),
            "pass_number": batch.pass_number,
            "extent": batch.extents,
        }

        require_finite("the samples", *fresh.values())
        self.data = (
            fresh
            if self.data is None
            else {k: torch.cat([v, fresh[k]]) for k, v in self.data.items()}
        )

        self.discard_posterior()
        self.learn_bias(len(batch.x))
        if self.learner is not None:
            self.learner.schedule(len(batch.x))
        return self.report(len(batch.x))

    def _noise(self) -> Tensor:
        """Noise variance of each sample (n,), grown by what was forgotten."""
        d = self.data
        return (
            torch.where(d["noise"] > 0, d["noise"], self.theta.noise_stddev**2) + d["extra"]
        ) / d["weight"]

    @property
    @torch.no_grad()
    def posterior(self) -> ExactPosterior:
        """The present posterior, factored when it is first needed after a change."""
        self.need_data()
        if self._posterior is None:
            theta, heading = self.theta, self.data["heading"]
            x = theta.sensor_place(self.data["x"], self.data["velocity"], heading)

            # K + Σ: field and mean, body-fixed field, passes' constants
            covariance = theta.kernel()(x, x) + theta.constant_stddev**2 + torch.diag(self._noise())
            covariance = covariance + theta.heading_stddev**2 * heading @ heading.mT
            together = pass_membership(self.data["pass_number"], theta.bias_correlation)
            covariance = covariance + theta.bias_stddev**2 * together @ together.mT

            factor, self.jitter = cholesky(covariance)
            weights = torch.cholesky_solve(self.data["y"], factor)
            self._posterior = ExactPosterior(
                theta,
                x,
                heading,
                factor,
                weights,
                self.noise_level,
                self.scaling,
                self.data["pass_number"],
            )
        return self._posterior

    @property
    def noise_level(self) -> float:
        """σ² of one measurement, squared inner units."""
        return average_noise(self.theta, self.data["extra"])

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> ExactPosterior:
        """As FieldMap.snapshot: the present posterior itself, of the whole map.

        Its factor, n × n, is too large for a file: scores pause after a resume.
        """
        return self.posterior

    def remembered_places(self) -> Tensor:
        """As FieldMap.remembered_places: of all samples."""
        return self._outer_places(None if self.data is None else self.data["x"])

    def remembered_motion(self) -> tuple[Tensor, Tensor]:
        """As FieldMap.remembered_motion: of all samples."""
        places = self.remembered_places()
        return places, places if self.data is None else self.data["velocity"]

    def calibration_data(self) -> CalibrationData | None:
        """As FieldMap.calibration_data, of all samples."""
        if self.data is None:
            return None
        return self._calibration_data({name: column.clone() for name, column in self.data.items()})

    def learning_data(self) -> dict[str, Tensor]:
        """As ScaledMap.learning_data, of all samples."""
        order = torch.arange(self.samples, dtype=torch.float64, device=self.device)
        extra = excess_variance(self.data["noise"], self.data["extra"], self.theta)
        return self.data | {"extra": extra, "order": order}

    def adopt(self, theta: Theta) -> bool:
        """Take over θ; nothing else depends on it."""
        self.theta = theta
        self.mark_changed()
        return True

    @torch.no_grad()
    def move(self, turn: Tensor, shift: Tensor) -> None:
        """Rotate and shift the map's frame.

        Args:
            turn: rotation (2, 2).
            shift: (2,) m.

        Raises:
            ValueError: a rotation of a map with an anisotropic kernel, or with several channels.
        """
        if torch.equal(turn, torch.eye(2, dtype=torch.float64)):
            return super().move(turn, shift)
        if self.theta.anisotropy != 1.0 or (
            self.scaling is not None
            and (len(self.scaling.origin) != 2 or len(self.scaling.centre) != 1)
        ):
            raise ValueError(
                "an exact map with an anisotropic kernel, or of more than one number at a place of the "
                "plane, can be shifted, not turned"
            )

        if self.scaling is None:
            return None

        turn = turn.to(self.device)
        self.scaling = replace(
            self.scaling, origin=turn @ self.scaling.origin + shift.to(self.device)
        )

        self.data = self.data | {
            name: self.data[name] @ turn.mT for name in ("x", "velocity", "heading")
        }
        self.mark_changed()
        return None

    def fantasize(self, x: Tensor) -> ExactGP:
        """A copy with its own mean at x (K, D) as additional data."""
        posterior = self.posterior
        inner = self.scaling.inner_x(x)
        mean = posterior.mean(inner)

        new: ExactGP = copy.copy(self)
        new.forget_mark()
        noise = torch.full(
            (len(inner),), posterior.noise_variance, dtype=torch.float64, device=self.device
        )
        ones = torch.ones_like(noise)

        fresh = {
            "x": inner,
            "velocity": torch.zeros_like(inner),
            "heading": inner.new_zeros((len(inner), 2)),
            "y": mean,
            "noise": noise,
            "extra": 0 * ones,
            "weight": ones,
            "pass_number": NO_PASS * ones,
            "extent": 0 * ones,
        }

        new.data = {k: torch.cat([v, fresh[k]]) for k, v in self.data.items()}
        new.learner = None
        new.discard_posterior()
        return new

    def forget(self, factor: float) -> None:
        """Let every noise variance grow by 1/factor."""
        check_factor(factor)
        if self.data is not None and factor < 1.0:
            self.data = self.data | {"weight": self.data["weight"] * factor}
            self.mark_changed()

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """As FieldMap.forget_near: the samples there leave, and nothing else.

        Raises:
            ValueError: radius is negative or NaN, or a place is not finite.
        """
        need_radius(radius)
        if self.data is None:
            return 0

        places = self.theta.sensor_place(
            self.data["x"], self.data["velocity"], self.data["heading"]
        )
        gone = (torch.cdist(places, self.scaling.inner_x(x)) <= radius).any(1)
        # rows are in their order of arrival
        gone[max(0, self.samples - newest) :] = False

        if bool(gone.any()):
            self.data = {k: v[~gone] for k, v in self.data.items()}
            self.mark_changed()
        return int(gone.sum())

    def _union(
        self, other: ExactGP, scaling: Scaling, offset: Tensor, delta: Tensor, renumber: float
    ) -> None:
        """Take the union of both maps' data."""
        if self.samples + other.samples > self.max_samples:
            raise ValueError(
                f"{self.samples} + {other.samples} samples exceed max_exact_samples {self.max_samples}"
            )

        self.scaling = scaling
        pass_number = other.data["pass_number"]
        moved = other.data | {
            "x": other.data["x"] + offset,
            "y": other.data["y"] + delta,
            "pass_number": torch.where(pass_number >= 0, pass_number + renumber, pass_number),
        }

        self.data = (
            moved
            if self.data is None
            else {k: torch.cat([v, moved[k]]) for k, v in self.data.items()}
        )
        self.mark_changed()

    def _saved_parts(self) -> dict:
        """The samples, for a file."""
        return {"data": None if self.data is None else {k: v.clone() for k, v in self.data.items()}}

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """The samples of a file."""
        data = state["data"]
        return {
            "data": None
            if data is None
            else {k: v.to(self.device, copy=True) for k, v in data.items()}
        }
