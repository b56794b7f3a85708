"""The posterior of a sparse map at one moment: frozen, so that a score may keep it while the map goes on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import Covariances, Increments, PassBias
from gp_mapping.core.hyper.bias import BiasEvidence
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.inner_snapshot import InnerSnapshot
from gp_mapping.core.linalg import solve_lower
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.basis import whiten
from gp_mapping.core.sparse.increment import increment_between
from gp_mapping.core.sparse.passes import PassSums
from gp_mapping.core.types import Prediction

__all__ = ["Posterior"]

_CHUNK = {
    "cpu": 512
}  # positions at a time: (M, chunk) stays in a CPU's cache, and out of malloc's slow large blocks
_CHUNK_ELSEWHERE = 16384
_KINDS: dict[str, type] = {}  # posteriors with more than this one has


@dataclass(frozen=True, eq=False)
class Posterior(InnerSnapshot):
    """mean = a*ᵀ D⁻¹ r, variance = k** − |a*|² + |R⁻¹a*|², with D = R Rᵀ (Chang et al. 2023, eqs. 13–14, whitened).

    z (M, D), L (M, M), R (F + M, F + M), weights D⁻¹r (F + M, C): standardised. noise_variance: of a new measurement.
    orthogonal: where R is of the first rows only, the factor of a second, independent block (SOLVE-GP); rows that have
    neither keep their prior (ODVGP).  passes: what each open pass said, where passes have a constant.
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
    _biases: dict = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # of passes that were asked for

    def __init_subclass__(cls, kind: str, **rest):
        super().__init_subclass__(**rest)
        _KINDS[kind] = cls

    def kept(self) -> Posterior:
        """A copy laid out as one that is loaded from a file will be; L is never written into, and is shared."""
        return replace(
            self,
            **{
                name: getattr(self, name).clone(memory_format=torch.contiguous_format)
                for name in ("R", "weights")
            },
        )

    def solve_root(self, whitened: Tensor) -> Tensor:
        """R⁻¹a: its squares sum to what the data left of |a|². white: (F + M, N), in whose precision it is done."""
        split = len(self.R)
        first = solve_lower(self.R.to(whitened.dtype), whitened[:split])
        if split == len(whitened):
            return first
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
        """a(x) at standardised x (N, D), heading (N, 2) or None: (F + M, N)."""
        return whiten(self.theta, self.z, self.L, x, heading)

    def inner(self, x: Tensor, heading: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean (N, C), latent variance (N,) at standardised x (N, D); with a heading, of field and robot together."""
        means, variances = [x.new_empty((0, self.weights.shape[1]))], [x.new_empty(0)]
        chunk = _CHUNK.get(x.device.type, _CHUNK_ELSEWHERE)
        for i in range(0, len(x), chunk):
            mean, variance, _ = self.inner_and_solved(
                x[i : i + chunk], None if heading is None else heading[i : i + chunk]
            )
            means.append(mean)
            variances.append(variance)
        return torch.cat(means), torch.cat(variances)

    @property
    def followed(self) -> bool:
        """Whether what has changed since another one can be told: it is one block of features."""
        return type(self) is Posterior and self.orthogonal is None

    def since(self, before: object) -> Increments | None:
        """What has changed since another posterior of the same map (increment.py); None: ask this one."""
        if not isinstance(before, Posterior) or not before.followed or not self.followed:
            return None
        channels, scale = self.weights.shape[1], self.scaling.scale

        def everywhere(x: Tensor) -> Tensor:
            return torch.ones(len(x), dtype=torch.bool, device=self.z.device)

        if before is self:
            return lambda x: (*self.weights.new_zeros((2, len(x), channels)), everywhere(x))
        found = increment_between(before, self)
        if found is None:
            return None

        def at(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            means, variances = [self.weights[:0]], [self.weights.new_empty(0)]
            for part in self.scaling.inner_x(x).split(
                _CHUNK.get(self.z.device.type, _CHUNK_ELSEWHERE)
            ):
                mean, variance = found.inner(part)
                means.append(mean)
                variances.append(variance)
            mean, variance = torch.cat(means) * scale, torch.cat(variances)[:, None] * scale**2
            return mean, variance.expand(-1, channels), everywhere(x)

        return at

    def inner_and_solved(
        self, x: Tensor, heading: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As inner, of a few places, and R⁻¹a (F + M, N), by which x shares what the data said of anything else."""
        theta = self.theta
        turned = None if heading is None or theta.heading_stddev <= 0 else heading
        a = self.whitened(x, turned)
        solved = self.solve_root(a)
        spent = a.square().sum(0) - solved.square().sum(0)

        prior = theta.kernel().diag(x) + theta.constant_stddev**2
        if turned is not None:
            prior = prior + theta.heading_stddev**2 * turned.square().sum(1)
        mean = (a.mT @ self.weights.to(self.L.dtype)).double()
        return mean, (prior - spent.double()).clamp_min(0.0), solved.double()

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """Of f(x) + b, b the constant of a pass; see `_bias`. SI."""
        x, heading = self.theta.passing(self.scaling.inner_x(x), velocity, heading)
        mean, variance, told = self.inner_and_solved(x, heading)
        if self.theta.bias_stddev > 0:
            bias, left, solved = self._bias(number)
            shared = told.mT @ solved
            mean, variance = mean + bias, (variance + left - 2.0 * shared).clamp_min(0.0)
        return self.scaling.outer(mean, variance, self.noise_variance)

    def _bias(self, number: float) -> tuple[Tensor, Tensor, Tensor]:
        """Of the constant b of a pass: mean (C,), variance (), and R⁻¹ w g (R,), so that cov(f(x), b) = −(R⁻¹a)ᵀ R⁻¹wg.

        E b = w (l − gᵀD⁻¹r),   var b = w + w² |R⁻¹g|²,   w = s_b²/(1 + s_b² n)
        """
        if number not in self._biases:
            self._biases[number] = self._bias_now(number)
        return self._biases[number]

    def _bias_now(self, number: float) -> tuple[Tensor, Tensor, Tensor]:
        passes, prior = self.passes, self.theta.bias_stddev**2
        if passes is None or number not in passes.numbers:  # nothing is known of it
            nothing = self.weights.new_zeros(len(self.weights))
            return self.weights.new_zeros(self.weights.shape[1]), nothing.new_tensor(prior), nothing
        i = passes.numbers.index(number)
        left = passes.left(prior)[i]
        solved = self.solve_root(left * passes.whitened[i][:, None])[:, 0]
        return (
            left * (passes.linear[i] - passes.whitened[i] @ self.weights),
            left + solved.square().sum(),
            solved,
        )

    def bias_evidence(self) -> BiasEvidence | None:
        passes = self.passes
        if passes is None or len(passes) < 2:
            return None
        solved = self.solve_root(passes.whitened.mT)
        return BiasEvidence.given(
            passes.precision,
            passes.linear,
            passes.left(self.theta.bias_stddev**2),
            solved.mT @ solved,
            passes.whitened @ self.weights,
        )

    def biases(self) -> list[PassBias]:
        """Of each open pass, SI."""
        if self.passes is None or not len(self.passes):
            return []
        told = [self._bias(number) for number in self.passes.numbers]
        solved, scale = torch.stack([solved for _, _, solved in told]), self.scaling.scale
        covariance = self.passes.left(self.theta.bias_stddev**2).diag() + solved @ solved.mT
        return PassBias.of(
            self.passes.numbers,
            torch.stack([mean for mean, _, _ in told]) * scale,
            covariance * scale**2,
        )

    def mean(self, x: Tensor) -> Tensor:
        """(N, C) at standardised x (N, D), without the robot's own field; differentiable in x."""
        return self.whitened(x).double().mT @ self.weights

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """k(a, b) + s_c² − a(a)ᵀ(I − D⁻¹)a(b): (N, K), squared SI."""
        return self.covariance_with(b)(a)[0]

    def covariance_with(self, b: Tensor) -> Covariances:
        """As `covariance`, of parts of a that fit into a cache; a(b) and R⁻¹a(b) are kept."""
        kernel, constant, scale = (
            self.theta.kernel(),
            self.theta.constant_stddev**2,
            self.scaling.scale**2,
        )
        inner = self.scaling.inner_x(b)
        right = self.whitened(inner)
        solved = self.solve_root(right)

        def part(x: Tensor) -> tuple[Tensor, Tensor]:
            left = self.whitened(x)
            told = self.solve_root(left)
            shared = kernel(x, inner) + constant - (left.mT @ right - told.mT @ solved).double()
            spent = left.square().sum(0) - told.square().sum(0)
            return shared * scale, (kernel.diag(x) + constant - spent.double()).clamp_min(
                0.0
            ) * scale

        def at(a: Tensor) -> tuple[Tensor, Tensor]:
            parts = self.scaling.inner_x(a).split(_CHUNK.get(self.z.device.type, _CHUNK_ELSEWHERE))
            shared, variance = zip(*map(part, parts))
            return torch.cat(shared), torch.cat(variance)

        return at

    def prior_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """k(a, b) + s_c² before anything was measured: (N, K), squared SI; depends on a − b alone."""
        a, b = self.scaling.inner_x(a), self.scaling.inner_x(b)
        return (self.theta.kernel()(a, b) + self.theta.constant_stddev**2) * self.scaling.scale**2

    def explained(self, x: Tensor) -> Tensor | None:
        """b(x) (F + M, N), SI: what was measured, as features. covariance(a, b) = prior_covariance(a, b) − b_aᵀ b_b.

        b = W ᵀa with WWᵀ = I − D⁻¹, block by block where D has blocks. None where there is no such form.
        """
        whitened = self.whitened(self.scaling.inner_x(x))
        split = len(self.R)
        parts = [_without_prior(self.R).to(whitened.dtype).mT @ whitened[:split]]
        if self.orthogonal is not None and split < len(whitened):
            parts.append(_without_prior(self.orthogonal).to(whitened.dtype).mT @ whitened[split:])
        return torch.cat(parts).double() * self.scaling.scale

    def state_dict(self) -> dict:
        """Everything that from_state_dict needs; its own tensors, for what is kept never changes."""
        second = {} if self.orthogonal is None else {"orthogonal": self.orthogonal}
        if self.passes is not None:
            second["passes"] = self.passes.state_dict()
        return {
            "theta": asdict(self.theta),
            "z": self.z,
            "L": self.L,
            "R": self.R,
            "weights": self.weights,
            "noise_variance": self.noise_variance,
            **self.scaling.state_dict(),
        } | second

    @staticmethod
    def from_state_dict(state: dict, device) -> "Posterior":
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


def _without_prior(R: Tensor) -> Tensor:
    """W with WWᵀ = I − (RRᵀ)⁻¹, which is positive semidefinite: the data's precision only adds to I."""
    values, vectors = torch.linalg.eigh(R.double() @ R.double().mT)
    return vectors * (1.0 - 1.0 / values.clamp_min(1.0)).sqrt()
