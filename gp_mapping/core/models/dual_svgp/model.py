"""Memory-based dual SVGP (Chang et al. 2023), whitened, with inducing inputs added lazily.

The map is a prior plus sites (core/sparse/sites.py). Its operations:

update   adds the batch's sites, D += Σ β a aᵀ and r += Σ a λ. In the λ form this equals batch SGPR
         at fixed z and θ, with the batches in any order.
grow     makes an inducing input of a sample where the data tell enough of what the other inputs
         leave open (growing.py, worth.py). The old sites are padded; the features of the remembered
         samples at the new z are known, so they fill the border. This is exact while all samples
         are remembered.
thin     removes inputs that later ones made dispensable: the robot's newest place always looks new.
adopt    moves the map to another θ, or chooses z again. The remembered samples are taken out of the
         sites, the unremembered sites are transferred as pseudo-data, and the remembered samples
         are put back with fresh features (sparse_map.py); at once or in slices (rebuild.py).
merge    adds another map's unremembered sites and its remembered samples (merging.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import any_positive
from gp_mapping.core.field_map import LIKELIHOODS, Increments
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Gaussian
from gp_mapping.core.linalg import cholesky, factor_upper, solve_lower
from gp_mapping.core.models.dual_svgp.memory_sites import RememberedSites
from gp_mapping.core.models.dual_svgp.merging import MergingMap
from gp_mapping.core.models.dual_svgp.natural_gradient import add_and_refine, refresh
from gp_mapping.core.models.dual_svgp.tempering import likelihood_power
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.sparse.passes import NO_PASS, PassSums
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.standardised import Standardised
from gp_mapping.core.types import UpdateReport

__all__ = ["DualSVGP"]


class DualSVGP(RememberedSites, MergingMap):
    """Online sparse GP of bounded cost: O(M²(M + N)) per batch of N, O(M² + M·memory) numbers kept.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI).
        max_inducing: M at most.
        tolerance: least residual variance at an inducing input, as a fraction of s².
        memory_size: samples remembered at most.
        memory_rule: which samples stay remembered, a name of RULES in core/sparse/memory_rules.py.
        information: bits, at least, that the data tell of what only that input can express; 0: the
            residual variance alone decides.
        inducing_inputs: (M, D) m, fixed where given.
        learner: learns θ; None keeps θ as it is.
        seed: of random choices.
        scale: SI in an inner unit.
        centre: (C,) SI, the prior mean; the median of the first batch if None.
        device: of all tensors.
        dtype: of the kernels; the sums are float64.
        likelihood: Gaussian if None.
        steps: natural-gradient steps per batch for a likelihood that is not Gaussian; the
            likelihood's own number if None.
        max_biases: passes whose constants are kept apart; those of further passes are integrated
            out for good.
        bias_prior: prior median of the constants' standard deviation, inner units; 0: it is not
            learned.

    Reference:
        Chang et al. 2023; with a Gaussian likelihood and fixed z equal to Titsias 2009.
    """

    name = "dual_svgp"
    memory_kind = Memory
    fitting = (*MergingMap.fitting, "max_inducing", "tolerance", "information")
    counted = (*MergingMap.counted, "floor", "thinned", "moves", "closed_passes")
    # a fantasy becomes an inducing input where its residual variance exceeds this fraction of s²
    fantasy_tolerance = 1e-6
    tempers = True  # False where the sites themselves know of what the inputs leave out

    def __init__(
        self,
        theta: Theta,
        *,
        max_inducing: int = 400,
        tolerance: float = 0.02,
        memory_size: int = 2000,
        information: float = 0.0,
        inducing_inputs=None,
        learner: HyperLearner | None = None,
        seed: int = 0,
        scale: float = 1.0,
        centre=None,
        device="cpu",
        dtype=torch.float64,
        likelihood=None,
        steps: int | None = None,
        max_biases: int = 50,
        bias_prior: float = 0.0,
        memory_rule: str = "uniform",
    ):
        super().__init__(
            theta,
            likelihood or Gaussian(),
            learner=learner,
            memory_size=memory_size,
            seed=seed,
            scale=scale,
            centre=centre,
            device=device,
        )

        self.tolerance, self.information, self.dtype = tolerance, information, dtype
        self.fixed = (
            None
            if inducing_inputs is None
            else torch.as_tensor(inducing_inputs, dtype=torch.float64)
        )
        self.max_inducing = max_inducing if self.fixed is None else len(self.fixed)
        # inputs and remembered samples that it may have now: more in a sum of maps
        self.budget, self.memory_budget = self.max_inducing, memory_size
        self.steps, self.memory_rule = steps or self.likelihood.steps, memory_rule

        # once the budget was full: least bits (without `information`: residual) of an input
        self.floor = 0.0
        self.thinned = 0  # inducing inputs that remained after the last thinning
        self.moves = 0  # how often the budget was full
        self.max_biases, self.bias_prior, self.closed_passes = max_biases, bias_prior, 0
        self.basis: Basis | None = None

    def new_basis(self, theta: Theta, dimension: int) -> Basis:
        """An empty basis with this map's budget.

        Args:
            theta: hyper-parameters.
            dimension: D, of places.
        """
        return Basis(theta, dimension, self.budget, self.dtype, self.device)

    def new_memory(self, dimension: int, channels: int, rows: int) -> Memory:
        """As SparseMap.new_memory."""
        return self.memory_kind(
            self.memory_budget, dimension, channels, rows, self.device
        ).set_rule(self.memory_rule)

    def allocate(self, dimension: int, channels: int) -> None:
        """As SparseMap.allocate; the basis is empty, or the fixed inducing inputs."""
        basis = self.new_basis(self.theta, dimension)
        if self.fixed is not None:
            basis = Basis.at(self.scaling.inner_x(self.fixed), basis)

        rows = basis.features + self.budget
        self.sites = Sites(basis.size, channels, rows, self.device)
        self.memory = self.new_memory(dimension, channels, rows)
        self.basis = basis

    @torch.no_grad()
    def absorb(self, batch: Standardised) -> UpdateReport:
        """Absorb a batch in inner units; in halves where it does not fit into the budget.

        Once the budget is full, room is made for each half separately.
        """
        if self.basis is None:
            self.allocate(batch.x.shape[1], batch.y.shape[1])
        elif self.budget > self.max_inducing and self.rebuild is None:
            self.narrow_budget()

        parts, reports = [batch], []
        while parts:
            part = parts.pop()
            if self._fits(part):
                reports.append(self._absorb_part(part))
            else:
                # the first half is popped first: samples stay in their order
                middle = len(part.x) // 2
                parts += [part[middle:], part[:middle]]

        if len(reports) == 1:
            return reports[0]
        return self.report(
            len(batch.x),
            sum(r.added for r in reports),
            sum(r.removed for r in reports),
            any(r.everywhere for r in reports),
        )

    def _absorb_part(self, batch: Standardised) -> UpdateReport:
        """Absorb a part of a batch; the basis grows first."""
        extra, places, noise = self._placed(batch)
        weight = self.likelihood.weight(batch.count)
        whitened, added, removed = self._grow(places, batch.heading, noise, weight)

        pass_number = (
            torch.full_like(noise, NO_PASS) if batch.pass_number is None else batch.pass_number
        )
        lam, beta = self.add_sites(
            whitened, places, batch.y, noise, batch.count, batch.here.pass_number
        )

        values = {
            "x": batch.x,
            "velocity": batch.velocity,
            "heading": batch.heading,
            "y": batch.y,
            "lam": lam,
            "beta": beta,
            "noise": batch.noise,
            "extra": extra,
            "weight": weight,
            "pass_number": pass_number,
            "extent": batch.extents,
        }

        # sites of samples that fell out stay, and cannot be taken out any more
        if self.remember(values, whitened):
            self.unremembered_empty = False
        if any_positive(batch.here.noise):
            self.unremembered_model_noise = False

        self.close_passes()
        count = batch.x.shape[0]
        self.samples += count
        self.learn_bias(count)
        if self.learner is not None:
            self.learner.schedule(count)

        # a rebuild under way works on a copy, which absorbs the same batch later
        if self.rebuild is not None:
            self.rebuild.log_call("absorb", batch)

        removed += self._thin()
        return self.report(count, added, removed, removed > 0)

    def remember(self, values: dict[str, Tensor], whitened: Tensor) -> int:
        """As Memory.offer_batch, for samples that are in the sites."""
        return self.memory.offer_batch(values, whitened, self.leverage, self.generator)

    def close_passes(self) -> None:
        """Close the surplus over max_biases passes: fewest remembered samples, then oldest, first.

        A closed pass keeps what its samples said, with its unknown constant integrated out for
        good. Its samples leave the memory, since none of them could be taken out of the sums alone.
        Of a pass that drifts, neighbouring segments share one constant before that.
        """
        self.join_segments(self.max_biases)
        memory, closing = (
            self.memory,
            self.sites.passes.passes_to_close(self.max_biases, self.memory.pass_number),
        )
        if not closing:
            return

        self.sites.close(closing, self.theta.bias_stddev**2, self.theta.bias_correlation)
        self.closed_passes += len(closing)

        gone = torch.isin(
            memory.pass_number,
            torch.tensor(sorted(closing), dtype=torch.float64, device=self.device),
        )
        memory.keep(~gone)
        self.unremembered_empty = False
        self.discard_posterior()

    def adopt_pass_evidence(self, evidence: PassEvidence) -> None:
        """Take what other maps say of the passes' constants in the place of their prior.

        Args:
            evidence: of all other maps, in inner units; it replaces that of before.
        """
        self.sites.passes = self.sites.passes.with_elsewhere(evidence)
        if self.rebuild is not None:
            self.rebuild.log_call("adopt_pass_evidence", evidence)
        self.mark_changed()

    def power_of_samples(self) -> float:
        """As Rebuilding.power_of_samples: below 1 once the budget was full (tempering.py)."""
        # before, an input was taken wherever it was worth it
        if not self.moves or not self.tempers or not self.likelihood.conjugate:
            return 1.0
        return likelihood_power(self)

    def system(self) -> tuple[Tensor, Tensor]:
        """D (R, R) and r (R, C) of all samples, unknown constants of passes integrated out."""
        theta = self.theta
        return self.sites.integrated(
            theta.bias_stddev**2, theta.bias_correlation, self.likelihood_power
        )

    def factor_system(self) -> tuple[Tensor, float, Tensor]:
        """Factor R of D = R Rᵀ of all samples (R, R), jitter that was added to D, and r (R, C)."""
        theta = self.theta
        upper, linear = self.sites.upper_integrated(
            theta.bias_stddev**2, theta.bias_correlation, self.likelihood_power
        )
        factor = factor_upper(upper)
        return (*(cholesky(self.system()[0]) if factor is None else (factor, 0.0)), linear)

    def leverage(self, whitened: Tensor) -> Tensor:
        """v = aᵀD⁻¹a of features (R, K): (K,); β v is the Bayesian leverage score.

        Reference:
            Chang et al. 2023, sec. 4.2.
        """
        return self.posterior.solve_root(whitened).square().sum(0)

    def marginals(self, whitened: Tensor) -> tuple[Tensor, Tensor]:
        """aᵀD⁻¹r (N, C) and aᵀD⁻¹a (N,): mean and variance of q(f) with the present sites.

        Args:
            whitened: a(x) (R, N).
        """
        factor, _, linear = self.factor_system()
        solved = solve_lower(factor, whitened)
        return solved.mT @ solve_lower(factor, linear), solved.square().sum(0)

    def report(
        self, used: int, added: int = 0, removed: int = 0, everywhere: bool = False
    ) -> UpdateReport:
        """What the map holds after an update.

        Args:
            used: samples of the batch that were absorbed.
            added: inducing inputs that are new.
            removed: inducing inputs that left.
            everywhere: whether all of the map may have changed.
        """
        inducing, memory = (0, 0) if self.basis is None else (len(self.basis), len(self.memory))
        return UpdateReport(
            used, self.samples, inducing, memory, added, removed, self.jitter, everywhere
        )

    def add_sites(
        self,
        whitened: Tensor,
        places: Tensor,
        y: Tensor,
        noise: Tensor,
        count: Tensor,
        pass_numbers: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add a batch's sites to the sums and return them.

        Args:
            whitened: a(x) (R, N) at the places.
            places: (N, D), inner.
            y: targets (N, C).
            noise: noise variance (N,).
            count: raw measurements that each sample averages (N,).
            pass_numbers: passes of the samples (N,), NO_PASS where a sample has none.

        Returns:
            λ (N, C) and β (N,).
        """
        self.discard_posterior()
        if not self.likelihood.conjugate:
            residual = self.basis.residual(places, whitened)
            return add_and_refine(self, whitened, residual, y, noise, self.likelihood.weight(count))

        lam, beta = self.likelihood.sites(y, y, noise, noise)
        self.sites.add(whitened, beta, lam, pass_numbers)
        return lam, beta

    @property
    def posterior(self) -> Posterior:
        """The present posterior, factored when it is first needed after a change."""
        self.need_data()
        if self._posterior is None:
            factor, jitter, linear = self.factor_system()
            weights = solve_lower(factor, solve_lower(factor, linear), transpose=True)
            self.keep_posterior(factor, weights, self.noise_level, jitter)
        return self._posterior

    @property
    def is_factored(self) -> bool:
        """Whether the posterior has been made since the last change."""
        return self._posterior is not None

    def keep_posterior(
        self, factor: Tensor, weights: Tensor, noise_level: float, jitter: float = 0.0
    ) -> None:
        """Keep the present posterior, which has been made from `system`.

        Args:
            factor: R of D = R Rᵀ, (R, R).
            weights: D⁻¹r, (R, C).
            noise_level: as the property.
            jitter: that was added to D.
        """
        self.jitter = jitter
        self._posterior = Posterior(
            self.theta,
            self.basis.z,
            self.basis.L,
            factor,
            weights,
            self.likelihood.noise_variance(noise_level),
            self.scaling,
            passes=self._open_passes(),
        )

    def need_factor(self) -> None:
        """Raise NumericalError where the sums do not factor; else keep the posterior made."""
        self.discard_posterior()
        self.posterior  # noqa: B018 it is computed to see that it factors

    def _open_passes(self) -> PassSums | None:
        """Sums of the open passes, None where passes have no constants."""
        passes, power = self.sites.passes, self.likelihood_power
        if self.theta.bias_stddev <= 0:
            return None
        return passes if power == 1.0 else passes.to_power(power)

    def explained(self, x: Tensor) -> Tensor | None:
        """b(x) (F + M, N), SI; None where the model's test points share no residual (FIC, PIC)."""
        return self.posterior.explained(x)

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> Posterior:
        """As FieldMap.snapshot, of the whole map, in tensors of its own."""
        return self.posterior.own_copy()

    def moment(self) -> Posterior | None:
        """The posterior, where it has been computed, as a mark for `since`."""
        posterior = self._posterior  # replaced, and never written into
        return posterior if posterior is not None and posterior.supports_increments else None

    def since(self, moment: object) -> Increments | None:
        """As FieldMap.since."""
        return self.posterior.increment_since(moment)

    def load_snapshot(self, state: dict) -> Posterior:
        """As FieldMap.load_snapshot."""
        return Posterior.from_state_dict(state, self.device)

    @property
    def capabilities(self) -> frozenset[str]:
        """As ScaledMap.capabilities, and other likelihoods."""
        return super().capabilities | {LIKELIHOODS}

    def counters(self) -> dict[str, int | float]:
        """ScaledMap's counters; how full the budget of inducing inputs is, and what that costs.

        `budget` and `budget_full`: its size and how often it was full. `prior_left`: the largest
        fraction of the field's prior variance that the inputs leave open at a remembered sample.
        `inputs_per_square_lengthscale`: inputs per square that the robot has touched.
        `likelihood_power`: to which samples count because of what is left open (tempering.py).
        """
        counts = super().counters() | {
            "budget": self.budget,
            "budget_full": self.moves,
            "closed_passes": self.closed_passes,
            "likelihood_power": self.likelihood_power,
        }
        if self.basis is None or not len(self.memory):
            return counts

        places = self.memory_places(self.theta)

        # squares of one lengthscale in which samples or inputs lie; a set counts them soonest
        corners = torch.cat([places, self.basis.z]).div(self.theta.lengthscale).floor()
        squares = set(zip(*corners.mT.tolist()))
        return counts | {
            "prior_left": float((self.memory_residual() / self.basis.kernel.diag(places)).max()),
            "inputs_per_square_lengthscale": len(self.basis) / len(squares),
        }

    def inducing_inputs(self) -> Tensor:
        """As FieldMap.inducing_inputs."""
        return self._outer_places(None if self.basis is None else self.basis.z)

    # --- learning, and files ----------------------------------------------------------------------
    def learning_data(self) -> dict:
        """Also the sites, and a function for marginals: what pseudo-data are made from."""
        memory = self.memory

        def marginals(which: Tensor) -> tuple[Tensor, Tensor]:
            """Mean and variance of q(f) at remembered samples."""
            whitened = memory.whitened(self.basis.size)[:, which]
            mean, variance = self.marginals(whitened)
            places = self.memory_places(self.theta)[which]
            return mean, variance + self.basis.residual(places, whitened)

        return super().learning_data() | {
            "lam": memory.lam,
            "beta": memory.beta,
            "weight": memory.weight,
            "marginals": marginals,
            "likelihood": self.likelihood,
        }

    def _adopted(self) -> None:
        """Refine sites that depend on the field, which is another one."""
        refresh(self, self.likelihood.refreshed)

    def _saved_parts(self) -> dict:
        """The basis and the sites, too, for a file."""
        parts = super()._saved_parts() | {"fixed": self.fixed, "basis": None} | self.saved_rebuild()
        parts["budget"] = self.budget
        parts["likelihood_power"] = self.likelihood_power
        if self.basis is not None:
            parts |= {
                "basis": {"z": self.basis.z.clone(), "L": self.basis.L.clone()},
                "sites": self.sites.state_dict(),
            }
        return parts

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """The basis and the sites of a file, too; ValueError where they do not fit each other."""
        parts |= super()._loaded_parts(state, parts) | {
            "basis": None,
            "rebuild": self.restored_rebuild(state),
            # states of versions that counted every sample fully have none
            "likelihood_power": float(state.get("likelihood_power", 1.0)),
            # and those of versions whose sums had the budget of one map none of its own
            "budget": int(state.get("budget", self.max_inducing)),
        }
        if parts["budget"] < self.max_inducing:
            raise ValueError(f"a budget of {parts['budget']} is less than max_inducing")
        if state["basis"] is None:
            return parts | {"memory_budget": self.memory_size}

        z, factor = (state["basis"][name].to(self.device) for name in ("z", "L"))
        basis = Basis.restored(z, factor, self.new_basis(parts["theta"], z.shape[1]))
        basis = basis.copy(max(parts["budget"], len(z)))
        sites = Sites.from_state_dict(state["sites"], self.device)
        if sites.size != basis.size:
            raise ValueError(f"{sites.size} rows of sites do not fit {basis.size} of the basis")
        return parts | {
            "basis": basis,
            "sites": sites,
            "memory_budget": parts["memory"].capacity,
        }
