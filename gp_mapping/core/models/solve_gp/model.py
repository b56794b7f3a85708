"""SOLVE-GP (Shi, Titsias and Mnih 2020), streaming: a second, orthogonal set of inducing inputs.

    f = f_∥ + f_⊥,   q(u) q(v_⊥),   S_u = D_u⁻¹, S_v = D_v⁻¹

The second set o stands for what the first set z cannot reach. The means are those of an SVGP on
z ∪ o, from the whole of D.

In the whitened joint basis (basis.py) the rows of o are C^-½ c(o, x), with C = c(o, o) and c the
residual kernel given z: v_⊥ itself, with prior N(0, I). So SOLVE-GP is the dual SVGP on z ∪ o with
a covariance that takes D for block diagonal. Sites, memory and transfers are those of DualSVGP;
only what is factored differs.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky
from gp_mapping.core.models.dual_svgp.memory_sites import RebuiltParts
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.solve_gp.mean import solve_blocks
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.standardised import Standardised
from gp_mapping.core.types import Samples

__all__ = ["SolveGP"]

_DIRECT = 400  # rows up to which factoring all of D costs no more than iterating (docs/models.md)
_STEPS = 20  # conjugate-gradient steps that cost about as much as factoring all of D
# updates that solve directly after one for which _STEPS did not suffice: much that is new came
_DIRECT_UPDATES = 8


class SolveGP(DualSVGP):
    """Online SOLVE-GP: the first max_inducing inputs that the map wants are z, the others are o.

    Both come from pivoted Cholesky on the residual kernel. When the budget is full, all inputs are
    chosen again, and the best pivots are z.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI).
        max_inducing: M at most.
        max_orthogonal: M₂ at most; 0: SVGP.
        inducing_inputs: (M, D) m, fixed where given.
        orthogonal_inputs: (M₂, D) m, fixed where given.
        orthogonal_covariance: False: S_v stays the prior's, ODVGP (Salimbeni et al. 2018).
        solve_tolerance: of the mean, in posterior standard deviations (mean.py).
        direct: rows up to which the mean is solved directly.
        others: DualSVGP's.

    Reference:
        Shi, Titsias and Mnih 2020.
    """

    name = "solve_gp"
    fitting = (*DualSVGP.fitting, "first", "orthogonal_covariance")
    budgets = (*DualSVGP.budgets, "first")

    def __init__(
        self,
        theta: Theta,
        *,
        max_inducing: int = 400,
        max_orthogonal: int = 400,
        inducing_inputs=None,
        orthogonal_inputs=None,
        orthogonal_covariance: bool = True,
        solve_tolerance: float = 1e-3,
        direct: int = _DIRECT,
        **others,
    ):
        if inducing_inputs is None and orthogonal_inputs is not None:
            raise ValueError(
                "orthogonal_inputs without inducing_inputs: give both, or let the map choose both"
            )

        fixed = None
        if inducing_inputs is not None:
            parts = [
                torch.as_tensor(p, dtype=torch.float64)
                for p in (inducing_inputs, orthogonal_inputs)
                if p is not None
            ]
            fixed, max_inducing = torch.cat(parts), len(parts[0])

        super().__init__(
            theta, max_inducing=max_inducing + max_orthogonal, inducing_inputs=fixed, **others
        )
        self.first, self.orthogonal_covariance = max_inducing, orthogonal_covariance
        self.times = 1  # budgets of one map that it may use; a fantasy's own rows do not count
        self.solve_tolerance, self.direct = solve_tolerance, direct
        # steps of the last solution: 0 direct, −1 direct because _STEPS did not suffice
        self.solve_steps = 0

        # where iterations begin, and how many updates until they are tried again; both are set by
        # updates only, so that no query changes what later samples make of the map
        self._start: Tensor | None = None
        self._direct_updates = 0

    def place_inputs(self, z: Tensor, theta: Theta | None = None) -> None:
        """Put the inducing inputs at z, the first max_inducing of them as z and the rest as o.

        Sites keep their whitened numbers.

        Args:
            z: (K, D), standardised.
            theta: hyper-parameters; the present ones if None.

        Raises:
            NumericalError: k(z, z) at θ does not factor; nothing has changed.
        """
        theta = theta or self.theta
        # first, since it may fail
        basis = Basis.at(z, self.new_basis(theta, z.shape[1]))

        if self.sites.size < basis.size:
            self.sites.pad(basis.size - self.sites.size)

        self.theta, self.basis = theta, basis
        self.discard_posterior()

    def prepare(self, data: Samples) -> Standardised:
        """Set up an empty map's units and buffers from its data; the data standardised.

        offline/solve_gp_batch.py trains the map from there.
        """
        if not self.likelihood.metric:
            data = replace(data, y=self.likelihood.encode(data.y))
        self.scaling = self._scaling_for(data)
        self.allocate(data.x.shape[1], data.y.shape[1])

        return Standardised.from_samples(data, self.scaling)

    @property
    def split(self) -> int:
        """Rows of u: features + M."""
        return self.basis.features + min(len(self.basis), self.first * self.times)

    def widen_budget(self, times: int) -> None:
        """As FieldMap.widen_budget, of z and o alike."""
        super().widen_budget(times)
        self.times = self.budget // self.max_inducing

    def fit_budget(self, budget: int) -> None:
        """As Rebuilding.fit_budget, of z and o alike."""
        super().fit_budget(budget)
        self.times = self.budget // self.max_inducing

    def _solution(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Factors and weights for the present sites.

        Returns:
            R_u; R_v, None where there are no such rows or for ODVGP; D⁻¹r (R, C).
        """
        precision, linear = self.system()
        split, rows = self.split, self.sites.size
        start, self.solve_steps = self._start, 0

        second, jitter = None, 0.0
        if rows > split:
            second, jitter = cholesky(precision[split:, split:])

        orthogonal = second if self.orthogonal_covariance else None

        # iterate from the last update's weights, unless that failed lately
        if (
            rows > self.direct
            and second is not None
            and start is not None
            and not self._direct_updates
        ):
            factor, self.jitter = cholesky(precision[:split, :split])
            padded = torch.cat([start, start.new_zeros((rows - len(start), start.shape[1]))])
            weights, self.solve_steps = solve_blocks(
                precision, linear, factor, second, padded, self.solve_tolerance, _STEPS
            )
            if self.solve_steps >= 0:
                return factor, orthogonal, weights

        # directly: all of D is factored
        factor, self.jitter = cholesky(precision)
        self.jitter = max(self.jitter, jitter)
        weights = torch.cholesky_solve(linear, factor)
        if rows > split:
            # a copy of the leading block, by columns as LAPACK leaves a factor
            factor = factor[:split, :split].mT.contiguous().mT
        return factor, orthogonal, weights

    def marginals(self, whitened: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (N, C), and the part of the variance that the basis reaches (N,).

        Args:
            whitened: a(x) (R, N).
        """
        posterior = self._with(*self._solution())
        self._start = posterior.weights
        return whitened.mT @ posterior.weights, posterior.solve_root(whitened).square().sum(0)

    def _with(self, factor: Tensor, second: Tensor | None, weights: Tensor) -> Posterior:
        """The posterior of these factors and weights."""
        noise = self.likelihood.noise_variance(self.noise_level)
        return Posterior(
            self.theta,
            self.basis.z,
            self.basis.L,
            factor,
            weights,
            noise,
            self.scaling,
            second,
            self._open_passes(),
        )

    @property
    def posterior(self) -> Posterior:
        """The present posterior, of two independent blocks, factored when first needed."""
        self.need_data()
        if self._posterior is None:
            self._posterior = self._with(*self._solution())
        return self._posterior

    @property
    def joint_posterior(self) -> Posterior:
        """That of an SVGP on both sets, from one factor of all of D.

        What data say of the passes' constants, n − G D⁻¹Gᵀ (pass_evidence.py), is a small
        difference of large terms. With D taken for block diagonal it need not even be positive.
        """
        if self.sites.size <= self.split:
            return self.posterior

        factor, _, linear = self.factor_system()
        return self._with(factor, None, torch.cholesky_solve(linear, factor))

    @torch.no_grad()
    def absorb(self, batch):
        """Absorb a batch, and keep its weights as the start of later iterations."""
        report = super().absorb(batch)

        # weights that are computed here start the iterations of later updates
        if self.sites.size > self.direct:
            self._start = self.posterior.weights
            self._direct_updates = (
                _DIRECT_UPDATES if self.solve_steps < 0 else max(0, self._direct_updates - 1)
            )
        return report

    def replace_parts(self, theta: Theta, converted: RebuiltParts, full: bool) -> None:
        """As Rebuilding.replace_parts; the block iteration begins anew."""
        super().replace_parts(theta, converted, full)
        self._start = None  # of another basis

    def fantasize(self, x: Tensor) -> SolveGP:
        """A copy conditioned on its own mean at x (K, D), which stays exactly.

        The copy's iterations begin, and end, at this map's weights.
        """
        new: SolveGP = super().fantasize(x)
        new._start = self.posterior.weights
        return new

    def _saved_parts(self) -> dict:
        """Where the block iteration goes on, too, for a file."""
        start = None if self._start is None else self._start.clone()
        return super()._saved_parts() | {"start": start, "rest": self._direct_updates}

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """Where the block iteration of a file goes on, too."""
        start = state["start"]
        loaded = super()._loaded_parts(state, parts)
        return loaded | {
            "times": loaded["budget"] // self.max_inducing,
            "_start": None if start is None else start.to(self.device, copy=True),
            "_direct_updates": int(state["rest"]),
        }
