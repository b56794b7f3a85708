"""What data say of the passes' constants, and of their spread s_b.

Data, their field integrated out, are a Gaussian likelihood of the constants b,

    p(y | b) ∝ exp(vᵀb − ½ bᵀNb)

which does not depend on s_b. Likelihoods of several maps multiply: N and v add. With the prior
b ~ N(0, s_b² I), what is known of b before a map's own data come is

    Σ = (N + I/s_b²)⁻¹,   μ = Σ v

and of the spread, with N = Σ λ_k q_k q_kᵀ and v_k = q_kᵀv,

    log p(y | s_b) = −½ Σ_k log(1 + s_b² λ_k) + ½ Σ_k s_b² v_k²/(1 + s_b² λ_k)

It is a function of one number, so it is evaluated on a grid over the whole range, and no start can
be so far off that the slope is lost. From a posterior whose constants are integrated out
(passes.py), G D⁻¹Gᵀ and G D⁻¹r give N and v without another factor. Of ρ, by which neighbouring
segments of a pass are alike, there are a few values, and the one of the greatest evidence is taken.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.bias import BiasSpread, bias_correlation

__all__ = ["PassEvidence"]

# ρ of neighbouring segments; 0: each has a constant of its own
_CORRELATIONS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)

_SCALE, _DEGREES = 3.0, 4.0  # of the Student-t prior of log s_b², as those of the other logarithms
_REACH = 6.0  # half the width of the grid about the prior's median, in scales
_POINTS = 400  # of the grid
# passes whose beginnings tell how they differ, and by how much more than all segments
_BEGINNINGS, _CLEARLY = 3, 1.5


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
        """Evidence of no pass.

        Args:
            channels: C, of values.
            device: of all tensors.
        """
        kind = {"dtype": torch.float64, "device": device}
        return PassEvidence((), torch.zeros((0, 0), **kind), torch.zeros((0, channels), **kind))

    @staticmethod
    def from_pass_sums(
        numbers: tuple[float, ...],
        counts: Tensor,
        targets: Tensor,
        constants: tuple[Tensor, Tensor],
        shared: Tensor,
        solved_linear: Tensor,
    ) -> PassEvidence:
        """From sums over passes, and a posterior from which their constants are integrated out.

        Args:
            numbers: of the P passes.
            counts: n of PassSums (P,).
            targets: l of PassSums (P, C).
            constants: W (P, P) and m (P, C) of PassSums.constants.
            shared: G D⁻¹Gᵀ (P, P), with D after the constants are integrated out.
            solved_linear: G D⁻¹r (P, C), of the same D.
        """
        # (D + Gᵀ W G)⁻¹ by Woodbury's identity: as if there were no constants
        left, mean = constants
        correction = torch.eye(len(left), dtype=shared.dtype, device=shared.device) + shared @ left
        linear = solved_linear + shared @ (left @ targets + mean)
        # one factorisation for both
        solved = torch.linalg.solve(correction, torch.cat([shared, linear], 1))
        field_precision, field_linear = solved[:, : len(left)], solved[:, len(left) :]

        precision = torch.diag(counts) - 0.5 * (field_precision + field_precision.mT)
        return PassEvidence(numbers, precision, targets - field_linear)

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

    def without(self, other: PassEvidence, variance: float) -> PassEvidence:
        """This likelihood without another that is part of it, which stays a likelihood.

        Where rounding, or passes that were integrated out, left a negative curvature, it is taken
        as none.

        Args:
            other: the part; of passes that are no longer here it says nothing more.
            variance: s_b², of the constants of these.
        """
        other = other.integrated_out(set(other.numbers) - set(self.numbers), variance)
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

    def of_newest(self, most: int, variance: float, keep: Collection[float] = ()) -> PassEvidence:
        """Evidence of at most so many passes: the oldest of more are integrated out.

        Args:
            most: number of passes that stay.
            variance: s_b², of the others' constants.
            keep: numbers of passes that stay in any case.
        """
        more = len(self) - most
        if more <= 0:
            return self
        oldest = [number for number in sorted(self.numbers) if number not in keep]
        return self.integrated_out(set(oldest[:more]), variance)

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
        self,
        before: PassEvidence,
        numbers: tuple[float, ...],
        variance: float,
        correlation: float = 0.0,
    ) -> float:
        """Kullback-Leibler divergence of what is known here of some constants from what was known.

            ½ (tr(Σ₀⁻¹Σ) − K + log |Σ₀|/|Σ|) + ½ (μ − μ₀)ᵀΣ₀⁻¹(μ − μ₀), the mean over channels

        Args:
            before: what was known, μ₀ and Σ₀.
            numbers: of K passes.
            variance: s_b².
            correlation: ρ of neighbouring segments of a pass.

        Returns:
            In nats.
        """
        old_mean, old = before.prior_of(numbers, variance, correlation)
        mean, new = self.prior_of(numbers, variance, correlation)
        if not len(numbers):
            return 0.0
        factor = torch.linalg.cholesky(old)
        solved = torch.cholesky_solve(torch.cat([new, mean - old_mean], 1), factor)
        size = len(numbers)
        spread = float(solved[:, :size].trace()) - size
        spread += float(torch.logdet(old) - torch.logdet(new))
        return 0.5 * spread + 0.5 * float((solved[:, size:] * (mean - old_mean)).sum(0).mean())

    def log_likelihood(self, variance: Tensor, correlation: float = 0.0) -> Tensor:
        """log p(y | s_b) minus its value at s_b = 0, mean over channels: (K,).

        Args:
            variance: s_b² (K,).
            correlation: ρ.
        """
        values, pulls = self._spectrum(correlation)
        variance = variance[:, None]
        shrunk = variance / (1.0 + variance * values)
        return 0.5 * (shrunk * pulls - (variance * values).log1p()).sum(1)

    def _spectrum(self, correlation: float) -> tuple[Tensor, Tensor]:
        """λ_k (P,), and v_k² as a mean over channels (P,), of LᵀNL and Lᵀv, LLᵀ the correlation."""
        precision, linear = self.precision, self.linear
        if correlation > 0:
            numbers = linear.new_tensor(self.numbers)
            root = torch.linalg.cholesky(bias_correlation(numbers, numbers, correlation))
            precision, linear = root.mT @ precision @ root, root.mT @ linear
        values, vectors = torch.linalg.eigh(precision)
        return values.clamp_min(0.0), (vectors.mT @ linear).square().mean(1)

    @property
    def has_segments(self) -> bool:
        """Whether a pass has several constants."""
        return len({math.floor(number) for number in self.numbers}) < len(self)

    def spread(self, prior: float, segments: bool = False) -> BiasSpread:
        """s_b at the median of its posterior.

        Args:
            prior: median of its prior.
            segments: whether to look for a ρ, too, where a pass has segments.
        """
        if self.linear.device.type != "cpu":  # small, and full of decisions
            return self.on_processor().spread(prior, segments)

        tried = _CORRELATIONS if segments and self.has_segments else (0.0,)
        found = max((self._spread(prior, rho) for rho in tried), key=lambda found: found[0])[1]
        return self._with_beginning(found, prior) if len(tried) > 1 else found

    def _with_beginning(self, found: BiasSpread, prior: float) -> BiasSpread:
        """The spread, also of the first segments of passes, where it is clearly more.

        Args:
            found: of all segments.
            prior: median of s_b's prior.
        """
        # the numbers of a pass begin with a whole one, or with the newest that shares its constant
        first: dict[int, float] = {}
        for number in sorted(self.numbers):
            first.setdefault(math.floor(number), number)
        if len(first) < _BEGINNINGS:
            return found

        others = set(self.numbers) - set(first.values())
        alone = self.integrated_out(others, found.stddev**2).spread(prior)
        if alone.stddev < _CLEARLY * found.stddev:
            return found
        return replace(found, beginning=alone.future_pass_variance)

    def _spread(self, prior: float, correlation: float) -> tuple[float, BiasSpread]:
        """Log evidence of ρ, s_b integrated out, and the spread at it."""
        values, pulls = self._spectrum(correlation)

        # the grid reaches beyond the largest constant that the data show
        fixed = values > 1e-9 * values.max()
        largest = (
            (pulls[fixed] / values[fixed].square()).max()
            if bool(fixed.any())
            else pulls.new_zeros(())
        )
        centre = 2.0 * math.log(prior)
        top = max(centre + _REACH * _SCALE, math.log(max(float(largest), 1e-300)) + 4.0)

        logs = torch.linspace(
            centre - _REACH * _SCALE, top, _POINTS, dtype=torch.float64, device=values.device
        )

        # log posterior on the grid, with the Student-t prior of log s_b²
        density = self.log_likelihood(logs.exp(), correlation)
        density = (
            density
            - 0.5 * (_DEGREES + 1.0) * (((logs - centre) / _SCALE).square() / _DEGREES).log1p()
        )

        # its median
        cumulative = torch.softmax(density, 0).cumsum(0)
        variance = float(logs[int((cumulative < 0.5).sum().clamp(max=_POINTS - 1))].exp())
        determined = float((variance * values / (1.0 + variance * values)).sum())
        evidence = float(density.logsumexp(0)) + math.log(float(logs[1] - logs[0]))
        return evidence, BiasSpread(math.sqrt(variance), determined, correlation)

    def on_processor(self) -> PassEvidence:
        """The same on the processor, by one copy."""
        size = len(self.precision)
        both = torch.cat([self.precision, self.linear], 1).cpu()
        return replace(self, precision=both[:, :size], linear=both[:, size:])

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
        """The evidence of a state, on a device."""
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
