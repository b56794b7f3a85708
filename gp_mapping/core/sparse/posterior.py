"""The posterior of a sparse map at one moment: frozen, so it stays valid while the map goes on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import as_dtype, is_synchronous
from gp_mapping.core.field_map import Covariances, Increments, PassBias, Unchanged
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.inner_snapshot import InnerSnapshot
from gp_mapping.core.kernels.stationary import (
    Stationary,
    as_like,
    prior_variance,
    scaled_square_distance,
)
from gp_mapping.core.linalg import InverseFactor, chunk_size, column_squares, solve_lower
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.basis import Basis, whiten
from gp_mapping.core.sparse.increment import increment_between
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.sparse.passes import PassSums
from gp_mapping.core.types import Prediction

__all__ = ["Posterior"]

# Places from which on a card inverts its factors: a solve is four times a product (InverseFactor).
_MANY = 4  # times the rows of the factors

# Subclasses by the `kind` that their saved state names; each has a static method `restore`.
_KINDS: dict[str, type] = {}


@dataclass(frozen=True, eq=False)
class Posterior(InnerSnapshot):
    """Predicts mean, variance and covariance from whitened features a(x) = [features; L⁻¹k(z, x)].

        mean = a(x)ᵀ D⁻¹ r,   variance = k(x, x) − |a(x)|² + |R⁻¹a(x)|²,   D = R Rᵀ

    |a|² − |R⁻¹a|² is the explained variance: by how much the data reduced the prior variance.
    F features (a constant, a heading) stand before the M inducing inputs.

    Attributes:
        theta: hyper-parameters, in inner units.
        z: inducing inputs (M, D), standardised.
        L: lower Cholesky factor of k(z, z), (M, M).
        R: lower Cholesky factor of the sites' precision D, (F + M, F + M), or of its first rows.
        weights: D⁻¹r, (F + M, C).
        noise_variance: of one new measurement, in inner units.
        scaling: from SI to standardised values and back.
        orthogonal: where R covers the first rows only, the factor of a second, independent block
            (SOLVE-GP); rows that have neither keep their prior (ODVGP).
        passes: sums over the samples of each open pass, where passes have a constant.

    Reference:
        Chang et al. 2023, eqs. 13–14, whitened.
    """

    theta: Theta
    z: Tensor
    L: Tensor
    R: Tensor
    weights: Tensor
    noise_variance: float
    scaling: Scaling
    orthogonal: Tensor | None = None
    passes: PassSums | None = None
    # results of `bias` so far, by the number of the pass
    _biases: dict = field(default_factory=dict, init=False, repr=False, compare=False)
    # the single place that was asked for last: x, ĥ and a(x), for `features_of`
    _newest: dict = field(default_factory=dict, init=False, repr=False, compare=False)
    # inverses of factors, by name and precision, where very many places were asked for on a card
    _inverses: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __init_subclass__(cls, kind: str, **rest):
        super().__init_subclass__(**rest)
        _KINDS[kind] = cls

    def own_copy(self) -> Posterior:
        """A copy with its own R and weights, laid out in memory as one that is loaded from a file.

        L is shared: nothing ever writes into it.
        """
        return replace(
            self,
            **{
                name: getattr(self, name).clone(memory_format=torch.contiguous_format)
                for name in ("R", "weights")
            },
        )

    def solve_root(self, whitened: Tensor) -> Tensor:
        """R⁻¹a, whose squares sum to what remains of |a|² after the data.

        Args:
            whitened: a(x), (F + M, N); the solve runs in its precision.

        Returns:
            R⁻¹a, (F + M, N).
        """
        split = self.R.shape[0]
        if self._by_products(whitened.shape[1]):
            solved = torch.empty_like(whitened)
            solved[split:] = whitened[split:]
            dtype = whitened.dtype
            self._inverse("R", dtype).solve(whitened[:split], solved[:split])
            if self.orthogonal is not None and split < len(whitened):
                self._inverse("orthogonal", dtype).solve(whitened[split:], solved[split:])
            return solved

        root = as_dtype(self.R, whitened.dtype)
        if split == whitened.shape[0]:
            return solve_lower(root, whitened)
        first = solve_lower(root, whitened[:split])

        # rows beyond R: a second block of its own, or the prior, whose precision is the identity
        rest = whitened[split:]
        return torch.cat(
            [
                first,
                rest
                if self.orthogonal is None
                else solve_lower(self.orthogonal.to(whitened.dtype), rest),
            ]
        )

    def whitened(self, x: Tensor, heading: Tensor | None = None) -> Tensor:
        """Whitened features a(x), (F + M, N).

        Args:
            x: (N, D), standardised.
            heading: ĥ (N, 2), or None.
        """
        inverse = self._inverse("L", self.L.dtype) if self._by_products(x.shape[0]) else None
        return whiten(self.theta, self.z, self.L, x, heading, inverse)

    def features_of(self, basis: Basis, x: Tensor, heading: Tensor) -> Tensor | None:
        """Whitened features at the place that was asked for last, if x is it: (F + M, 1).

        A map is asked what it predicts of each cell before it takes the cell in.

        Args:
            basis: in which they are wanted; None is returned if it is not the one of here.
            x: (N, D), standardised.
            heading: ĥ (N, 2).
        """
        newest = self._newest.get("place")
        if newest is None or basis.L is not self.L or basis.z is not self.z:
            return None
        place, its_heading, a = newest
        same = self.theta.same_features(basis.theta) and torch.equal(place, x)
        return a if same and (its_heading is None or torch.equal(its_heading, heading)) else None

    def _by_products(self, places: int) -> bool:
        """Whether solves for so many places take less time by products with inverses."""
        return not is_synchronous(self.z.device) and places >= _MANY * len(self.R)

    def _inverse(self, name: str, dtype: torch.dtype) -> InverseFactor:
        """The inverse of a factor, made when it is first asked for.

        Args:
            name: of the factor's attribute.
            dtype: of what it is to be multiplied by.
        """
        key = name, dtype
        if key not in self._inverses:
            self._inverses[key] = InverseFactor(getattr(self, name), dtype)
        return self._inverses[key]

    def predict_inner(self, x: Tensor, heading: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and latent variance in inner units.

        Args:
            x: (N, D), standardised.
            heading: ĥ (N, 2); with it the body-fixed field is included.

        Returns:
            Mean (N, C) and variance (N,).
        """
        # the empty first parts make an empty x work
        means, variances = [x.new_empty((0, self.weights.shape[1]))], [x.new_empty(0)]
        chunk = chunk_size(x.device, len(self.R))

        for i in range(0, len(x), chunk):
            mean, variance, _ = self._solved(
                x[i : i + chunk], None if heading is None else heading[i : i + chunk]
            )
            means.append(mean)
            variances.append(variance)

        return torch.cat(means), torch.cat(variances)

    @property
    def supports_increments(self) -> bool:
        """Whether `increment_since` works: a plain posterior with one block of features."""
        return type(self) is Posterior and self.orthogonal is None

    def increment_since(self, before: object) -> Increments | None:
        """What has changed since an earlier posterior of the same map.

        Args:
            before: the earlier posterior.

        Returns:
            The changes (increment.py); None where predicting anew is cheaper, or the only way.
        """
        if (
            not isinstance(before, Posterior)
            or not before.supports_increments
            or not self.supports_increments
        ):
            return None
        if before is self:
            return Unchanged(self.weights.new_zeros((1, self.weights.shape[1])))
        return increment_between(before, self)

    def predict_inner_solved(
        self, x: Tensor, heading: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `predict_inner`, for few places at once, with the solved features.

        Args:
            x: (N, D), standardised.
            heading: ĥ (N, 2); with it the body-fixed field is included.

        Returns:
            Mean (N, C), variance (N,), and R⁻¹a (F + M, N), from which posterior covariances with x
            follow.
        """
        mean, variance, solved = self._solved(x, heading)
        return mean, variance, solved.double()

    def _solved(self, x: Tensor, heading: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """As `predict_inner_solved`, with R⁻¹a in the precision of L."""
        theta = self.theta
        # without a body-fixed field the heading has no rows among the features
        used_heading = None if heading is None or theta.heading_stddev <= 0 else heading
        a = self.whitened(x, used_heading)
        if x.shape[0] == 1:
            self._newest["place"] = x, used_heading, a
        solved = self.solve_root(a)
        explained = column_squares(a) - column_squares(solved)

        prior = prior_variance(theta.kernel(), x) + theta.constant_stddev**2
        if used_heading is not None:
            prior = prior + theta.heading_stddev**2 * used_heading.square().sum(1)

        mean = (a.mT @ as_dtype(self.weights, self.L.dtype)).double()
        return mean, (prior - explained.double()).clamp_min(0.0), solved

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """Predict f(x) + b, where b is the unknown constant of one pass.

        Args:
            x: (N, D) metres.
            number: of the pass, as in Samples.pass_number; an unknown one has the prior constant.
            velocity: (N, D) m/s of the robot.
            heading: ĥ (N, 2); the direction of travel if None.

        Returns:
            The prediction in SI. Field and constant are correlated; `bias` has their covariance.
        """
        x, heading = self.theta.prediction_inputs(self.scaling.inner_x(x), velocity, heading)
        mean, variance, solved_x = self.predict_inner_solved(x, heading)

        if self.theta.bias_stddev > 0:
            bias, bias_variance, solved_bias = self.bias(number)
            negative_covariance = solved_x.mT @ solved_bias
            mean, variance = (
                mean + bias,
                (variance + bias_variance - 2.0 * negative_covariance).clamp_min(0.0),
            )
        return self.scaling.outer(mean, variance, self.noise_variance)

    def bias(self, number: float) -> tuple[Tensor, Tensor, Tensor]:
        """Posterior of the constant b of a pass in inner units, computed once per pass.

            E b = W (l − G D⁻¹r) + m,   cov b = W + W G D⁻¹Gᵀ W
            cov(f(x), b) = −(R⁻¹a)ᵀ R⁻¹Gᵀ W

        with W and m of PassSums.constants; without other data W is diagonal.

        Args:
            number: of the pass; one that is not known has the prior constant.

        Returns:
            Mean (C,), variance (), and the pass's column of R⁻¹GᵀW (R,).
        """
        if number not in self._biases:
            self._biases[number] = self._bias_now(number)
        return self._biases[number]

    def _bias_now(self, number: float) -> tuple[Tensor, Tensor, Tensor]:
        """As `bias`, computed anew."""
        passes, prior, rho = self.passes, self.theta.bias_stddev**2, self.theta.bias_correlation
        elsewhere = None if passes is None else passes.elsewhere
        # a segment that has no samples yet is known from its neighbours
        if passes is None or not (
            number in (*passes.numbers, *(() if elsewhere is None else elsewhere.numbers))
            or (rho > 0 and passes.has_segments_of(number))
        ):  # the prior of b, independent of f
            zero = self.weights.new_zeros(len(self.weights))
            return self.weights.new_zeros(self.weights.shape[1]), zero.new_tensor(prior), zero

        passes = passes.with_pass(number)
        i = passes.numbers.index(number)
        left, mean = passes.constants(prior, rho)
        solved = self.solve_root((left[i] @ passes.whitened)[:, None])[:, 0]
        return (
            left[i] @ (passes.linear - passes.whitened @ self.weights) + mean[i],
            left[i, i] + solved.square().sum(),
            solved,
        )

    def pass_evidence(self) -> PassEvidence | None:
        """What the samples here say of the passes' constants; None where no pass has one."""
        passes = self.passes
        if passes is None or not len(passes):
            return None

        solved = self.solve_root(passes.whitened.mT)
        return PassEvidence.from_pass_sums(
            passes.numbers,
            passes.precision,
            passes.linear,
            passes.constants(self.theta.bias_stddev**2, self.theta.bias_correlation),
            solved.mT @ solved,
            passes.whitened @ self.weights,
        )

    def bias_evidence(self) -> PassEvidence | None:
        """Evidence for s_b, the spread of the passes' constants; None of fewer than two passes."""
        evidence = self.pass_evidence()
        if evidence is not None and self.passes.elsewhere is not None:
            evidence = evidence.plus(self.passes.elsewhere)
        return None if evidence is None or len(evidence) < 2 else evidence

    def bias_posterior(self) -> tuple[tuple[float, ...], Tensor, Tensor]:
        """Joint posterior of the constants of the open passes, also of those known elsewhere.

        Returns:
            Numbers of the P passes, mean (P, C) and covariance (P, P), in inner units.
        """
        passes = PassSums.empty(0, 0, self.R.device) if self.passes is None else self.passes
        elsewhere = () if passes.elsewhere is None else passes.elsewhere.numbers
        for number in elsewhere:
            passes = passes.with_pass(number)
        if not len(passes):
            return (), self.weights.new_zeros((0, self.weights.shape[1])), self.R.new_zeros((0, 0))

        posteriors = [self.bias(number) for number in passes.numbers]
        solved = torch.stack([solved for _, _, solved in posteriors])
        left, _ = passes.constants(self.theta.bias_stddev**2, self.theta.bias_correlation)
        mean = torch.stack([mean for mean, _, _ in posteriors])
        return passes.numbers, mean, left + solved @ solved.mT

    def biases(self) -> list[PassBias]:
        """Constants of the open passes, oldest first, SI; also of those known elsewhere."""
        numbers, mean, covariance = self.bias_posterior()
        if not numbers:
            return []
        scale = self.scaling.scale
        listed = PassBias.of(numbers, mean * scale, covariance * scale**2)
        return sorted(listed, key=lambda bias: bias.number)

    def mean(self, x: Tensor) -> Tensor:
        """Mean (N, C) at standardised x (N, D), no body-fixed field; differentiable in x."""
        return self.whitened(x).double().mT @ self.weights

    def gradient(self, x: Tensor) -> Tensor:
        """Gradient of the mean, (N, C, D), at standardised x (N, D), no body-fixed field.

            ∂/∂x_d Σ_j k(x, z_j) α_j = Σ_j 2 s² ∂ρ/∂r² (x_d − z_jd)/ℓ_d² α_j,   α = L⁻ᵀ D⁻¹r

        with r² = Σ_d (x_d − z_jd)²/ℓ_d²; features are the same everywhere.
        """
        kernel = self.theta.kernel()
        if not isinstance(kernel, Stationary) or not len(self.z):
            return super().gradient(x)

        lengthscale = as_like(kernel.lengthscale, x)
        lengthscale = lengthscale.expand(x.shape[1])
        slope = kernel.slope(scaled_square_distance(x, self.z, lengthscale)) * kernel.variance
        # Σ_j slope_j α_j (x − z_j): the sums of both terms are over inducing inputs alone
        inducing = self.weights[len(self.weights) - len(self.z) :]
        alpha = solve_lower(self.L.double(), inducing, transpose=True)  # (M, C)
        return torch.stack(
            [
                (slope * (x[:, d, None] - self.z[:, d])) @ alpha * (2.0 / lengthscale[d] ** 2)
                for d in range(x.shape[1])
            ],
            2,
        )

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance: k(a, b) + s_c² − a(a)ᵀ (I − D⁻¹) a(b)."""
        return self.covariance_with(b)(a)[0]

    def covariance_with(self, b: Tensor) -> Covariances:
        """As `covariance` for many a and the same b (K, D).

        The features of b are computed once; a is computed in parts that fit into a cache.
        """
        kernel, constant, scale = (
            self.theta.kernel(),
            self.theta.constant_stddev**2,
            self.scaling.scale**2,
        )
        inner_b = self.scaling.inner_x(b)
        whitened_b = self.whitened(inner_b)
        solved_b = self.solve_root(whitened_b)

        def part(x: Tensor) -> tuple[Tensor, Tensor]:
            """Covariance with b (n, K), and variance (n,), at standardised x (n, D); squared SI."""
            whitened_x = self.whitened(x)
            solved_x = self.solve_root(whitened_x)
            covariance = (
                kernel(x, inner_b)
                + constant
                - (whitened_x.mT @ whitened_b - solved_x.mT @ solved_b).double()
            )

            explained = column_squares(whitened_x) - column_squares(solved_x)
            return covariance * scale, (kernel.diag(x) + constant - explained.double()).clamp_min(
                0.0
            ) * scale

        def at(a: Tensor) -> tuple[Tensor, Tensor]:
            """Covariances (N, K) and variances (N,) at a, in parts that bound the memory."""
            parts = self.scaling.inner_x(a).split(chunk_size(self.z.device, len(self.R)))
            covariances, variances = zip(*map(part, parts))
            return torch.cat(covariances), torch.cat(variances)

        return at

    def prior_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.prior_covariance: k(a, b) + s_c², which depends on a − b alone."""
        a, b = self.scaling.inner_x(a), self.scaling.inner_x(b)
        return (self.theta.kernel()(a, b) + self.theta.constant_stddev**2) * self.scaling.scale**2

    def explained(self, x: Tensor) -> Tensor | None:
        """Features b(x) of the data's explained covariance.

            covariance(x, x') = prior_covariance(x, x') − b(x)ᵀ b(x'),   b = Wᵀa,   WWᵀ = I − D⁻¹

        W is made block by block where D has blocks.

        Args:
            x: (N, D) metres.

        Returns:
            b(x), (F + M, N), SI. None (in subclasses) where there is no such form.
        """
        whitened = self.whitened(self.scaling.inner_x(x))
        split = self.R.shape[0]
        parts = [_excess_root(self.R).to(whitened.dtype).mT @ whitened[:split]]
        if self.orthogonal is not None and split < len(whitened):
            parts.append(_excess_root(self.orthogonal).to(whitened.dtype).mT @ whitened[split:])
        return torch.cat(parts).double() * self.scaling.scale

    def state_dict(self) -> dict:
        """Everything that from_state_dict needs; tensors are not copied, they never change."""
        optional = {} if self.orthogonal is None else {"orthogonal": self.orthogonal}
        if self.passes is not None:
            optional["passes"] = self.passes.state_dict()

        return {
            "theta": asdict(self.theta),
            "z": self.z,
            "L": self.L,
            "R": self.R,
            "weights": self.weights,
            "noise_variance": self.noise_variance,
            **self.scaling.state_dict(),
        } | optional

    @staticmethod
    def from_state_dict(state: dict, device) -> "Posterior":
        """The posterior of a state, of the subclass that its `kind` names where it has one."""
        orthogonal = state.get("orthogonal")
        z, factor, root, weights = (state[k].to(device) for k in ("z", "L", "R", "weights"))
        plain = Posterior(
            Theta(**state["theta"]),
            z,
            factor,
            root,
            weights,
            state["noise_variance"],
            Scaling.from_state_dict(state, device),
            None if orthogonal is None else orthogonal.to(device),
            PassSums.from_state_dict(state["passes"], device) if "passes" in state else None,
        )

        return _KINDS[state["kind"]].restore(state, plain, device) if "kind" in state else plain


def _excess_root(R: Tensor) -> Tensor:
    """W with WWᵀ = I − D⁻¹, D = RRᵀ: positive semidefinite, since D ≥ I."""
    values, vectors = torch.linalg.eigh(R.double() @ R.double().mT)
    return vectors * (1.0 - 1.0 / values.clamp_min(1.0)).sqrt()
