"""What other data say of the passes' constants, for a map that does not hold these data.

The data of another map, its field integrated out, are a Gaussian likelihood of the constants b,

    p(y | b) ∝ exp(vᵀb − ½ bᵀNb)

which does not depend on the spread s_b. Likelihoods of several maps multiply: N and v add. With the
prior b ~ N(0, s_b² I), what is known of b before a map's own data come is

    Σ = (N + I/s_b²)⁻¹,   μ = Σ v
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.bias import bias_correlation

__all__ = ["PassEvidence"]


@dataclass(frozen=True, eq=False)
class PassEvidence:
    """A likelihood of the constants of P passes. Immutable: every operation returns a new one.

    Attributes:
        numbers: of the passes.
        precision: N, (P, P).
        linear: v, (P, C).
    """

    numbers: tuple[float, ...]
    precision: Tensor
    linear: Tensor
    # (s_b², μ, Σ) of the newest question
    _known: list = field(default_factory=list, init=False, repr=False)

    @staticmethod
    def none(channels: int, device) -> PassEvidence:
        """Evidence of no pass."""
        kind = {"dtype": torch.float64, "device": device}
        return PassEvidence((), torch.zeros((0, 0), **kind), torch.zeros((0, channels), **kind))

    def __len__(self) -> int:
        return len(self.numbers)

    def scale(self, factor: float) -> PassEvidence:
        """The likelihood to a power: N and v times the factor."""
        return replace(self, precision=self.precision * factor, linear=self.linear * factor)

    def plus(self, other: PassEvidence, sign: float = 1.0) -> PassEvidence:
        """Both likelihoods multiplied; with sign −1, this one without the other.

        Args:
            other: of the same or of other passes.
            sign: 1 or −1.
        """
        if not len(other):
            return self
        return _product((self, 1.0), (other, sign))

    @staticmethod
    def product(parts: tuple[PassEvidence, ...]) -> PassEvidence | None:
        """All of some likelihoods multiplied; None of none."""
        return _product(*((part, 1.0) for part in parts)) if parts else None

    def without(self, other: PassEvidence) -> PassEvidence:
        """This likelihood without another that is part of it, which stays a likelihood.

        Where rounding, or passes that were integrated out of one of both, left a negative
        curvature, it is taken as none.
        """
        new = self.plus(other, -1.0)
        values, vectors = torch.linalg.eigh(new.precision)
        if not len(values) or float(values[0]) >= 0.0:
            return new

        kept = (values > 0.0).to(values)
        return PassEvidence(
            new.numbers,
            (vectors * (values * kept)) @ vectors.mT,
            (vectors * kept) @ (vectors.mT @ new.linear),
        )

    def of_differences(self) -> PassEvidence:
        """What it says of the differences between constants alone, not of their common level.

            N ← N − N1 (1ᵀN1)⁻¹ 1ᵀN,   v ← v − N1 (1ᵀN1)⁻¹ 1ᵀv

        as if one more constant, of unknown size, were common to all passes.
        """
        common = self.precision.sum(1, keepdim=True)
        level = float(common.sum())
        if level <= 0.0:
            return self
        return PassEvidence(
            self.numbers,
            self.precision - common @ (common.mT / level),
            self.linear - common @ (self.linear.sum(0, keepdim=True) / level),
        )

    def integrated_out(self, numbers: set[float], variance: float) -> PassEvidence:
        """Evidence of the other passes, with the constants of some integrated out.

        Args:
            numbers: of the passes to integrate out.
            variance: s_b², of their constants.
        """
        gone = [i for i, number in enumerate(self.numbers) if number in numbers]
        kept = [i for i, number in enumerate(self.numbers) if number not in numbers]
        if not gone:
            return self

        theirs = self.precision[gone][:, gone]
        theirs = theirs + torch.eye(len(gone), dtype=theirs.dtype, device=theirs.device) / variance
        cross = self.precision[gone][:, kept]
        solved = torch.linalg.solve(theirs, torch.cat([cross, self.linear[gone]], 1))
        precision = self.precision[kept][:, kept] - cross.mT @ solved[:, : len(kept)]
        return PassEvidence(
            tuple(self.numbers[i] for i in kept),
            0.5 * (precision + precision.mT),
            self.linear[kept] - cross.mT @ solved[:, len(kept) :],
        )

    def prior_of(
        self, numbers: tuple[float, ...], variance: float, correlation: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """What is known of the constants of some passes.

        Args:
            numbers: of K passes; of those that are not here the prior is known.
            variance: s_b².
            correlation: ρ of neighbouring segments of a pass.

        Returns:
            μ (K, C) and Σ (K, K).
        """
        if correlation > 0:
            return self._prior_of_segments(numbers, variance, correlation)
        if not self._known or self._known[0] != variance:
            eye = torch.eye(len(self), dtype=self.precision.dtype, device=self.precision.device)
            # (I + s_b² N)⁻¹ s_b²: no inverse of a small s_b
            covariance = torch.linalg.solve(eye + variance * self.precision, variance * eye)
            covariance = 0.5 * (covariance + covariance.mT)
            self._known[:] = variance, covariance @ self.linear, covariance

        _, all_means, all_covariances = self._known
        here = [i for i, number in enumerate(numbers) if number in self.numbers]
        mine = [self.numbers.index(numbers[i]) for i in here]

        mean = self.linear.new_zeros((len(numbers), self.linear.shape[1]))
        covariance = variance * torch.eye(len(numbers), dtype=mean.dtype, device=mean.device)
        if here:
            mean[here] = all_means[mine]
            at = torch.tensor(here, dtype=torch.long, device=mean.device)
            covariance[at[:, None], at] = all_covariances[mine][:, mine]
        return mean, covariance

    def _prior_of_segments(
        self, numbers: tuple[float, ...], variance: float, correlation: float
    ) -> tuple[Tensor, Tensor]:
        """As `prior_of`: Σ = (N + (s_b² C)⁻¹)⁻¹ over all passes, whose C is not diagonal."""
        known = set(self.numbers)
        every = (*self.numbers, *(number for number in numbers if number not in known))
        own = self.precision.new_tensor(every)
        prior = variance * bias_correlation(own, own, correlation)

        more = len(every) - len(self)
        precision = torch.nn.functional.pad(self.precision, (0, more, 0, more))
        eye = torch.eye(len(every), dtype=prior.dtype, device=prior.device)
        covariance = torch.linalg.solve(eye + prior @ precision, prior)
        covariance = 0.5 * (covariance + covariance.mT)
        mean = covariance[:, : len(self)] @ self.linear

        at = torch.tensor([every.index(number) for number in numbers], dtype=torch.long)
        at = at.to(mean.device)
        return mean[at], covariance[at[:, None], at]

    def divergence(
        self, before: PassEvidence, numbers: tuple[float, ...], variance: float
    ) -> float:
        """Kullback-Leibler divergence of what is known here of some constants from what was known.

            ½ (tr(Σ₀⁻¹Σ) − K + log |Σ₀|/|Σ|) + ½ (μ − μ₀)ᵀΣ₀⁻¹(μ − μ₀), the mean over channels

        Args:
            before: what was known, μ₀ and Σ₀.
            numbers: of K passes.
            variance: s_b².

        Returns:
            In nats.
        """
        old_mean, old = before.prior_of(numbers, variance)
        mean, new = self.prior_of(numbers, variance)
        if not len(numbers):
            return 0.0
        factor = torch.linalg.cholesky(old)
        solved = torch.cholesky_solve(torch.cat([new, mean - old_mean], 1), factor)
        size = len(numbers)
        spread = float(solved[:, :size].trace()) - size
        spread += float(torch.logdet(old) - torch.logdet(new))
        return 0.5 * spread + 0.5 * float((solved[:, size:] * (mean - old_mean)).sum(0).mean())

    def turn(self, columns: Tensor) -> PassEvidence:
        """Rotate the values: v ← v Pᵀ with P = columns (C, C)."""
        return replace(self, linear=self.linear @ columns.mT)

    def renumber(self, by: float) -> PassEvidence:
        """Add `by` to every number."""
        return replace(self, numbers=tuple(number + by for number in self.numbers))

    def state_dict(self) -> dict:
        """Everything that from_state_dict needs; tensors are not copied, they never change."""
        return {
            "numbers": torch.tensor(self.numbers, dtype=torch.float64),
            "precision": self.precision,
            "linear": self.linear,
        }

    @staticmethod
    def from_state_dict(state: dict, device) -> PassEvidence:
        return PassEvidence(
            tuple(state["numbers"].tolist()),
            state["precision"].to(device),
            state["linear"].to(device),
        )


def _product(*parts: tuple[PassEvidence, float]) -> PassEvidence:
    """Likelihoods to powers, multiplied."""
    first = parts[0][0]
    place: dict[float, int] = {}
    for part, _ in parts:
        for number in part.numbers:
            place.setdefault(number, len(place))

    precision = first.precision.new_zeros((len(place), len(place)))
    linear = first.linear.new_zeros((len(place), first.linear.shape[1]))
    for part, power in parts:
        at = torch.tensor([place[n] for n in part.numbers], dtype=torch.long, device=linear.device)
        precision[at[:, None], at] += power * part.precision
        linear[at] += power * part.linear
    return PassEvidence(tuple(place), precision, linear)
