"""Memory-based dual SVGP (Chang et al. 2023), whitened, with inducing inputs added lazily.

update   D += Σ β a aᵀ, r += Σ a λ        (λ form: equal to batch SGPR at fixed z and θ, in any order)
grow     a sample becomes an inducing input where the data tell enough of what the others leave open (worth.py);
         old sites are padded, and the memory, whose features at the new z are known, fills the border: exact while
         all samples are remembered
thin     inputs that later ones made dispensable go: a robot's newest place always looks new
adopt    θ moved, or z are thinned: the memory is taken out, the rest is carried by its pseudo-data, the memory is
         put back with fresh features (sparse_map.py); at once or in slices (rebuild.py)
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.field_map import LIKELIHOODS, Increments
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Gaussian
from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.models.dual_svgp.memory_sites import MemorySites
from gp_mapping.core.models.dual_svgp.natural_gradient import add_and_refine, refresh
from gp_mapping.core.models.dual_svgp.sending import SendableMap
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.passes import NO_PASS, PassSums
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.sparse.worth import ratio_of
from gp_mapping.core.standardised import Standardised
from gp_mapping.core.types import UpdateReport

__all__ = ["DualSVGP"]

_CHUNK = 500  # candidates for inducing inputs looked at together
_SLICE = 25  # samples of another map that come in together
_GIVEN_UP = 20  # a full budget gives up one of so many inputs, when room is made
_SURE = 1e300  # β of an input that pays whatever it tells


class DualSVGP(SendableMap):
    """Online sparse GP with bounded cost: O(M² (M + N)) a batch of N, O(M² + M·memory) numbers kept.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI).
        max_inducing: M at most.
        tolerance: share of s² that the residual at an inducing input has at least.
        memory_size: samples remembered at most.
        memory_rule: which of them stay, a name of RULES in core/sparse/remembering.py.
        information: bits that the data tell at least of what only that input can express; 0: the residual alone
            decides.
        inducing_inputs: (M, D) m, fixed where given.
        learner: what learns θ; None keeps it as it is.
        seed: of random choices.
        scale: SI in an inner unit.
        centre: (C,) SI, the prior mean; the median of the first batch if None.
        dtype: of the kernels; the sums are float64.
        likelihood: Gaussian if None.
        steps: natural-gradient steps a batch, of another likelihood; its own if None.
        max_biases: passes whose constants are kept apart; of those beyond, they are integrated out for good.
        bias_prior: prior median of the constants' standard deviation, inner units; 0: it is not learned.

    Reference:
        Chang et al. 2023; with a Gaussian likelihood and fixed z equal to Titsias 2009.
    """

    name = "dual_svgp"
    memory_kind = Memory
    fitting = (*SendableMap.fitting, "max_inducing", "tolerance", "information")
    counted = (*SendableMap.counted, "floor", "thinned", "moves", "closed_passes")
    fantasy_tolerance = 1e-6  # share of s² that makes the residual at a fantasy an inducing input

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
        self.steps, self.memory_rule = steps or self.likelihood.steps, memory_rule
        self.floor = 0.0  # bits (without `information`: variance) below which nothing pays since the budget was full
        self.thinned = 0  # inducing inputs that the last thinning left
        self.moves = 0  # how often the budget was full
        self.max_biases, self.bias_prior, self.closed_passes = max_biases, bias_prior, 0
        self.basis: Basis | None = None

    def new_basis(self, theta: Theta, dimension: int) -> Basis:
        """An empty basis at θ with this map's budget."""
        return Basis(theta, dimension, self.max_inducing, self.dtype, self.device)

    def new_memory(self, dimension: int, channels: int, rows: int) -> Memory:
        """An empty memory for sites of that many rows."""
        return self.memory_kind(self.memory_size, dimension, channels, rows, self.device).follow(
            self.memory_rule
        )

    def begin(self, dimension: int, channels: int) -> None:
        basis = self.new_basis(self.theta, dimension)
        if self.fixed is not None:
            basis = Basis.at(self.scaling.inner_x(self.fixed), basis)
        rows = basis.features + self.max_inducing
        self.sites = Sites(basis.size, channels, rows, self.device)
        self.memory = self.new_memory(dimension, channels, rows)
        self.basis = basis

    @torch.no_grad()
    def absorb(self, batch: Standardised) -> UpdateReport:
        """A batch; one that does not fit into the budget in halves, for each of which room is made once it is full."""
        if self.basis is None:
            self.begin(batch.x.shape[1], batch.y.shape[1])
        parts, reports = [batch], []
        while parts:
            part = parts.pop()
            if self._fits(part):
                reports.append(self._absorb_part(part))
            else:
                half = len(part.x) // 2
                parts += [part[half:], part[:half]]
        if len(reports) == 1:
            return reports[0]
        return self.report(
            len(batch.x),
            sum(r.added for r in reports),
            sum(r.removed for r in reports),
            any(r.everywhere for r in reports),
        )

    def _fits(self, batch: Standardised) -> bool:
        """Whether there is room for its inducing inputs, or as much will be made as it takes."""
        count, held = len(batch.x), len(self.basis)
        if (
            self.fixed is not None
            or not held
            or held + count <= self.max_inducing
            or count <= self.given_up
        ):
            return True
        _, places, noise = self._placed(batch)
        whitened = self.basis.whitened(places, batch.heading)
        precision = self._precision(whitened, places, noise, self.likelihood.weight(batch.count))
        return not self._wanted(
            places, whitened, precision, (self.max_inducing - held) or self.given_up
        )

    def _placed(self, batch: Standardised) -> tuple[Tensor, Tensor, Tensor]:
        """What is beside a sample's own noise, where θ says that it was measured, and its noise in all."""
        extra = batch.extra + self._pose_noise(batch)
        places = self.theta.place(batch.x, batch.velocity, batch.heading)
        return extra, places, self.noise(batch.noise, extra, self.theta, batch.x)

    def _absorb_part(self, batch: Standardised) -> UpdateReport:
        extra, places, noise = self._placed(batch)
        whitened, added, removed = self._grow(
            places, batch.heading, noise, self.likelihood.weight(batch.count)
        )
        of = torch.full_like(noise, NO_PASS) if batch.pass_number is None else batch.pass_number
        lam, beta = self.add_sites(whitened, places, batch.y, noise, batch.count, of)
        values = {
            "x": batch.x,
            "velocity": batch.velocity,
            "heading": batch.heading,
            "y": batch.y,
            "lam": lam,
            "beta": beta,
            "noise": batch.noise,
            "extra": extra,
            "weight": self.likelihood.weight(batch.count),
            "pass_number": of,
        }
        if self.remember(values, whitened):
            self.unremembered_empty = False
        if bool((batch.noise > 0).any()):
            self.unremembered_model_noise = False
        self.close_passes()
        self.samples += len(batch.x)
        self.learn_bias(len(batch.x))
        if self.learner is not None:
            self.learner.schedule(len(batch.x))
        if self.rebuild is not None:
            self.rebuild.note("absorb", batch)
        removed += self._thin()
        return self.report(len(batch.x), added, removed, removed > 0)

    def remember(self, values: dict[str, Tensor], whitened: Tensor) -> int:
        """Offer to the memory what is in the sites; how many samples, old or new, fell out."""
        return self.memory.insert(values, whitened, self.leverage, self.generator)

    def take_in(self, values: dict[str, Tensor], whitened: Tensor, arrivals: int) -> int:
        """Add another map's remembered samples, all columns given; how many, old or new, fell out."""
        self.sites.add(whitened, values["beta"], values["lam"], values["pass_number"])
        self.outdate()
        return self.memory.offer(values, whitened, self.leverage, arrivals)

    def close_passes(self) -> None:
        """Of more than max_biases passes, close those of which the fewest samples are remembered, the oldest first.

        A closed pass keeps its say, with its unknown constant integrated out; its samples leave the memory, since none
        of them could be taken out of the sums alone.
        """
        memory, closing = (
            self.memory,
            self.sites.passes.surplus(self.max_biases, self.memory.pass_number),
        )
        if not closing:
            return
        self.sites.close(closing, self.theta.bias_stddev**2)
        self.closed_passes += len(closing)
        gone = torch.isin(
            memory.pass_number,
            torch.tensor(sorted(closing), dtype=torch.float64, device=self.device),
        )
        memory.keep(~gone)
        self.unremembered_empty = False
        self.outdate()

    def system(self) -> tuple[Tensor, Tensor]:
        """D (R, R) and r (R, C) of what all samples said, the unknown constants of passes integrated out."""
        return self.sites.integrated(self.theta.bias_stddev**2)

    def leverage(self, whitened: Tensor) -> Tensor:
        """v = a D⁻¹ a; β v is the Bayesian leverage score (Chang et al. 2023, sec. 4.2). (K,)"""
        return self.posterior.solve_root(whitened).square().sum(0)

    def marginals(self, whitened: Tensor) -> tuple[Tensor, Tensor]:
        """aᵀD⁻¹r (N, C) and aᵀD⁻¹a (N,): q(f) as the sites are now. white: a(x) (R, N)."""
        precision, linear = self.system()
        factor, _ = cholesky(precision)
        half = solve_lower(factor, whitened)
        return half.mT @ solve_lower(factor, linear), half.square().sum(0)

    def report(
        self, used: int, added: int = 0, removed: int = 0, everywhere: bool = False
    ) -> UpdateReport:
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
        of: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add the batch's sites (λ, β); returns them.

        white: a(x) (R, N) at the places (N, D).  of (N,): passes of the samples.
        """
        self.outdate()
        if not self.likelihood.conjugate:
            residual = self.basis.residual(places, whitened)
            return add_and_refine(self, whitened, residual, y, noise, self.likelihood.weight(count))
        lam, beta = self.likelihood.sites(y, y, noise, noise)
        self.sites.add(whitened, beta, lam, of)
        return lam, beta

    @property
    def worth(self) -> float:
        """Least w of an inducing input (worth.py); 0 where the residual alone decides."""
        return ratio_of(max(self.information, self.floor)) if self.information > 0 else 0.0

    @property
    def given_up(self) -> int:
        """Inducing inputs that a full budget gives up to make room."""
        return max(1, self.max_inducing // _GIVEN_UP)

    @property
    def worth_decides(self) -> bool:
        """Whether an input must tell something, beside leaving enough open."""
        return self.information > 0

    @property
    def least_residual(self) -> float:
        """Least residual variance at an inducing input, inner units."""
        return max(
            self.tolerance * self.theta.signal_stddev**2,
            0.0 if self.information > 0 else self.floor,
        )

    def _grow(
        self, x: Tensor, heading: Tensor, noise: Tensor, weight: Tensor
    ) -> tuple[Tensor, int, int]:
        """Make inducing inputs of the samples that are worth it: a(x) afterwards, how many were added, and removed."""
        whitened = self.basis.whitened(x, heading)
        if self.fixed is not None:
            return whitened, 0, 0
        return self.grow(x, heading, whitened, self._precision(whitened, x, noise, weight))

    def grow(
        self, x: Tensor, heading: Tensor, whitened: Tensor, precision: Tensor
    ) -> tuple[Tensor, int, int]:
        """As _grow, of samples whose a(x) (R, N) and β (N,) are known; where the budget is full, room is made."""
        removed = 0
        if (
            self.rebuild is None
            and len(self.basis) == self.max_inducing
            and self._wanted(x, whitened, precision)
        ):
            removed = self._move()
            whitened = self.basis.whitened(x, heading) if removed else whitened
        whitened, added = self.append(x, whitened, precision)
        return whitened, added, removed

    def _precision(self, whitened: Tensor, x: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
        """β that samples about to come will have, as far as it is known before: (N,)."""
        if self.likelihood.conjugate:
            return weight / noise
        mean, variance = (
            (
                torch.zeros((len(x), self.sites.channels), dtype=torch.float64, device=x.device),
                torch.zeros_like(noise),
            )
            if self.empty
            else self.marginals(whitened)
        )
        return weight * self.likelihood.information(
            mean, variance + self.basis.residual(x, whitened), noise
        )

    def remembered_precision(self, theta: Theta) -> Tensor:
        """β of the memory's samples at θ, each by itself: (m,)."""
        memory = self.memory
        if not self.likelihood.conjugate:
            return memory.beta
        return memory.weight / self.noise(memory.noise, memory.extra, theta, memory.x)

    def _wanted(self, x: Tensor, whitened: Tensor, precision: Tensor, most: int = 0) -> bool:
        """Whether more than `most` of x would become inducing inputs if there were room."""
        if int((self.basis.residual(x, whitened) > self.least_residual).sum()) <= most:
            return False
        if not self.worth and not most:
            return True
        wider = self.basis.copy(len(self.basis) + most + 1)
        return len(self._grown(wider, x, whitened, precision, most + 1)) > most

    def _move(self) -> int:
        """The budget is full: give up the twentieth of z that is worth least. How many left.

        From then on only samples pay that are worth twice as much as what was given up.
        """
        before = len(self.basis)
        self.begin_rebuild(self.theta, before - self.given_up, full=True)
        return before - len(self.basis)

    def _thin(self) -> int:
        """Let go of inputs that are not worth theirs any more, when there are a sixth more of them. How many went."""
        few = len(self.basis) < self.thinned + max(
            16, self.thinned // 6
        )  # as with most samples, and the least to ask
        if few or self.fixed is not None or not self.worth:
            return 0
        before = len(self.basis)
        self.adopt_in_slices(self.theta)
        return before - len(self.basis)

    def _grown(
        self, basis: Basis, x: Tensor, whitened: Tensor, precision: Tensor, room: int | None = None
    ) -> Tensor:
        """That basis grows by x: the new rows of a(x), and of those of the memory behind them."""
        worth = self.worth
        if worth:
            precision = torch.cat([precision, self.remembered_precision(self.theta)])
        behind = self.memory_places(self.theta), self.remembered_features(self.basis.size)
        return basis.grow(
            x,
            whitened,
            slice(0, len(x)),
            self.least_residual,
            room,
            precision if worth else None,
            worth,
            behind,
        )

    def append(self, x: Tensor, whitened: Tensor, precision: Tensor) -> tuple[Tensor, int]:
        """Grow the basis by x; pad the sites, and border them with the memory, whose features are extended."""
        old = self.basis.size
        full = old == self.basis.features + self.max_inducing
        wanting = None if full else self.basis.residual(x, whitened) > self.least_residual
        if wanting is None or not bool(wanting.any()):
            return whitened, 0
        remembered = self.remembered_features(old)
        rows = self._grown(self.basis, x, whitened, precision)
        if not len(rows):
            return whitened, 0
        fresh, recalled = rows[:, : len(x)], rows[:, len(x) :]
        self.sites.pad(len(rows))
        self._recall(old, remembered, recalled)
        return torch.cat([whitened, fresh]), len(rows)

    def remembered_features(self, rows: int) -> Tensor:
        """a(x) of the memory's samples: (rows, m)."""
        return self.memory.whitened(rows)

    def _recall(self, old: int, remembered: Tensor, recalled: Tensor) -> None:
        """New rows `recalled` of a(x), from row `old` on, for the memory and its share of the sites."""
        self.sites.border(
            recalled, remembered, self.memory.beta, self.memory.lam, self.memory.pass_number
        )
        self.memory.extend_whitened(old, recalled)

    @property
    def posterior(self) -> Posterior:
        """The posterior now, factored when it is first asked for after a change."""
        self.need_data()
        if self._posterior is None:
            precision, linear = self.system()
            factor, self.jitter = cholesky(precision)
            weights = solve_lower(factor, solve_lower(factor, linear), transpose=True)
            noise = self.likelihood.noise_variance(self.noise_level)
            self._posterior = Posterior(
                self.theta,
                self.basis.z,
                self.basis.L,
                factor,
                weights,
                noise,
                self.scaling,
                passes=self._open_passes(),
            )
        return self._posterior

    def need_factor(self) -> None:
        """NumericalError where the sums do not factor; where they do, the next question finds the posterior made."""
        self.outdate()
        self.posterior  # noqa: B018 that it can be made is what is asked

    def _open_passes(self) -> PassSums | None:
        return self.sites.passes if self.theta.bias_stddev > 0 else None

    def explained(self, x: Tensor) -> Tensor | None:
        """b(x) (F + M, N), SI; None where the model's test points share no residual (FIC, PIC)."""
        return self.posterior.explained(x)

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> Posterior:
        """The posterior now, in tensors of its own."""
        return self.posterior.kept()

    def moment(self) -> Posterior | None:
        posterior = self._posterior  # replaced, and never written into
        return posterior if posterior is not None and posterior.followed else None

    def since(self, moment: object) -> Increments | None:
        return self.posterior.since(moment)

    def load_snapshot(self, state: dict) -> Posterior:
        return Posterior.from_state_dict(state, self.device)

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | {LIKELIHOODS}

    def counters(self) -> dict[str, int | float]:
        """ScaledMap's; how full the budget of inducing inputs is, and what a full one costs.

        `budget`, and `budget_full`: how often it was. `prior_left`: the largest share of the field's prior variance
        that the inputs leave open at a remembered sample. `inputs_per_square_lengthscale`: of those that the robot has
        touched.
        """
        told = super().counters() | {
            "budget": self.max_inducing,
            "budget_full": self.moves,
            "closed_passes": self.closed_passes,
        }
        if self.basis is None or not len(self.memory):
            return told
        places = self.memory_places(self.theta)
        squares = (
            torch.cat([places, self.basis.z]).div(self.theta.lengthscale).floor().unique(dim=0)
        )
        return told | {
            "prior_left": float((self.left_open() / self.basis.kernel.diag(places)).max()),
            "inputs_per_square_lengthscale": len(self.basis) / len(squares),
        }

    def left_open(self) -> Tensor:
        """k − q, the prior variance that the inducing inputs do not reach, at each remembered sample: (m,), inner."""
        return self.basis.residual(
            self.memory_places(self.theta), self.remembered_features(self.basis.size)
        )

    def inducing_inputs(self) -> Tensor:
        return self._outer_places(None if self.basis is None else self.basis.z)

    # --- another θ, other inducing inputs -------------------------------------------------------------------------
    def memory_sites_at(self, theta: Theta, basis: Basis, whitened: Tensor) -> MemorySites:
        """The memory's share of the sites at θ, in a basis where its features are `white`."""
        memory = self.memory
        if not self.likelihood.conjugate:
            return MemorySites(
                whitened,
                {"beta": memory.beta.clone(), "lam": memory.lam.clone()},
                memory.pass_number,
            )
        beta = memory.weight / self.noise(memory.noise, memory.extra, theta, memory.x)
        return MemorySites(
            whitened, {"beta": beta, "lam": beta[:, None] * memory.y}, memory.pass_number
        )

    def memory_sites_of(self, kept: Tensor) -> MemorySites:
        """The share of the sites that the samples kept (m,) have, as it is, where the others leave."""
        memory = self.memory
        return MemorySites(
            memory.whitened(self.basis.size)[:, kept],
            {"beta": memory.beta[kept], "lam": memory.lam[kept]},
            memory.pass_number[kept],
        )

    def learning_data(self) -> dict:
        """Also the sites, and marginals when they are asked for: what pseudo-data are made from."""
        memory = self.memory

        def marginals(which: Tensor) -> tuple[Tensor, Tensor]:
            whitened = memory.whitened(self.basis.size)[:, which]
            mean, variance = self.marginals(whitened)
            return mean, variance + self.basis.residual(memory.x[which], whitened)

        return super().learning_data() | {
            "lam": memory.lam,
            "beta": memory.beta,
            "weight": memory.weight,
            "marginals": marginals,
        }

    def _adopted(self) -> None:
        refresh(self, self.likelihood.refreshed)

    # --- what the operations of sparse_map.py ask -----------------------------------------------------------------
    def stand_in(self, store: Sites, sign: float, among: slice = slice(None)) -> None:
        memory, whitened = self.memory, self.memory.whitened(self.basis.size)[:, among]
        store.add(
            whitened, sign * memory.beta[among], sign * memory.lam[among], memory.pass_number[among]
        )

    def without(self, gone: Tensor, near: Tensor, radius: float) -> None:
        """Of the rest, the pseudo-data on u near x: Λ ← SΛS, S_jj ∈ {0, 1}; whitened, that is T = LᵀSL⁻ᵀ.

        The passes' constants are integrated out of the rest before: what is forgotten must not pass for one.
        """
        if self.unremembered_empty:
            sites = self.sites.emptied()
        else:
            rest = self.unremembered()
            rest.close(set(rest.passes.numbers), self.theta.bias_stddev**2)
            sites = rest.project(self._kept_away(near, radius), self.sites.capacity)
        memory_sites = self.memory_sites_of(~gone)
        memory_sites.add_to(sites)
        cholesky(sites.precision)
        self.sites = sites
        self.memory.keep(~gone)
        memory_sites.write(self.memory)

    def _kept_away(self, near: Tensor, radius: float) -> Tensor:
        """T that leaves nothing of the pseudo-data on inducing inputs within radius of places (K, D)."""
        factor = self.basis.L.double()
        keep = (~(torch.cdist(self.basis.z, near) <= radius).any(1)).double()
        inducing = torch.linalg.solve_triangular(factor, keep[:, None] * factor, upper=False).mT
        return torch.block_diag(
            torch.eye(self.basis.features, dtype=torch.float64, device=self.device), inducing
        )

    def duplicate(self, rows: int = 0) -> DualSVGP:
        """An independent copy with room for some more inducing inputs."""
        new = self.shell()
        new.max_inducing = self.max_inducing + rows
        if self.basis is not None:
            capacity = self.basis.features + new.max_inducing
            new.basis, new.sites = self.basis.copy(new.max_inducing), self.sites.clone(capacity)
            new.memory = self.memory.copy(capacity)
        return new

    @torch.no_grad()
    def fantasize(self, x: Tensor) -> DualSVGP:
        """A copy conditioned on its own mean at x (K, D): the target a(x)ᵀD⁻¹r lets D grow and keeps the mean, exactly.

        Reference: Chang et al. 2023, Alg. 2.
        """
        self.need_data()
        inner, before = self.scaling.inner_x(x), self.posterior
        new = self.duplicate(len(inner))
        mean, variance = before.inner(inner)
        whitened = new.basis.whitened(inner)
        rows = new.basis.grow(
            inner,
            whitened,
            slice(0, len(inner)),
            self.fantasy_tolerance * self.theta.signal_stddev**2,
        )
        new.sites.pad(len(rows))  # no border by the memory: it would move the mean

        beta = self.likelihood.information(
            mean, variance, torch.full_like(variance, self.noise_level)
        )
        new.sites.add(torch.cat([whitened, rows]), beta, beta[:, None] * mean)
        new.unremembered_empty = False  # no sample stands for it
        return new

    def converted(self, other: DualSVGP, offset: Tensor) -> DualSVGP:
        its = other.duplicate(2)  # room for features that only this map has
        if its.theta != self.theta and not its.adopt(self.theta):
            raise ValueError(
                "the other map cannot be carried to this one's hyper-parameters; nothing was merged"
            )
        return its

    def renumber(self, by: float) -> None:
        super().renumber(by)
        self.sites.passes = self.sites.passes.renumber(by)

    def take_over(
        self, its: DualSVGP, memory: dict[str, Tensor], offset: Tensor, delta: Tensor
    ) -> int:
        """The rest projected into the joint basis, the memory with fresh features."""
        z = its.basis.z + offset
        places = self.theta.place(memory["x"], memory["velocity"], memory["heading"])
        if self.fixed is None:
            self._welcome(z if self.worth else torch.cat([z, places]))
        if not its.unremembered_empty:
            rest = its.unremembered()
            rest.shift_centre(delta)
            transfer = self.basis.transfer_from(z, its.basis.L, its.theta)
            self.sites.merge(rest.project(transfer, self.sites.capacity))
        if self.fixed is not None or not self.worth:
            return self.take_in(
                memory, self.basis.whitened(places, memory["heading"]), its.memory.arrivals
            )

        # where worth decides, a sample comes with its site: without it nothing would tell what its input is worth;
        # oldest first, as blocks of samples grow
        fell, arrivals, precision = 0, its.memory.arrivals, its.remembered_precision(self.theta)
        for part in memory["order"].argsort().split(min(_SLICE, self.given_up)):
            x, heading = places[part], memory["heading"][part]
            whitened, _, _ = self.grow(x, heading, self.basis.whitened(x, heading), precision[part])
            fell += self.take_in(
                {name: column[part] for name, column in memory.items()}, whitened, arrivals
            )
            arrivals = 0
        return fell

    def _welcome(self, places: Tensor) -> None:
        """Inducing inputs at places (K, D) that another map's z had, whatever they tell here.

        Its z were worth theirs there; what is not here any more goes when z are next thinned.
        """
        for part in places.split(_CHUNK):
            sure = torch.full((len(part),), _SURE, dtype=torch.float64, device=self.device)
            self.append(part, self.basis.whitened(part), sure)

    @torch.no_grad()
    def excerpt(self, which: Tensor, theta: Theta | None = None) -> DualSVGP:
        """A map that has seen some of the remembered samples and nothing else, without z: to be merged into another.

        Args:
            which: indices of remembered samples (k,).
            theta: its hyper-parameters; this map's if None.
        """
        new, state = (
            self.shell(),
            self.memory.values(),
        )  # not its features: they are most of it, and of this basis
        new.theta, new.basis = (
            theta or self.theta,
            self.new_basis(theta or self.theta, self.memory.x.shape[1]),
        )
        new.sites = Sites(
            new.basis.size, self.sites.channels, new.basis.features + self.max_inducing, self.device
        )
        if self.likelihood.conjugate:
            beta = self.remembered_precision(new.theta)
            state |= {"beta": beta, "lam": beta[:, None] * self.memory.y}

        kept = {name: state[name][which] for name in type(self.memory).COLUMNS}
        # numbered anew: passed on from tile to tile, arrival numbers would grow like a power
        kept["order"] = kept["order"].argsort().argsort().double()
        kept |= {
            "arrivals": len(which),
            "white": self.memory.x.new_zeros((len(which), new.basis.size)),
            "capacity": len(which),
            "rows": new.basis.size,
            "protect": self.memory.protect,
            "rule": self.memory_rule,
        }
        new.memory = type(self.memory).from_state_dict(state | kept, self.device)
        new.samples, new.unremembered_empty, new.learner = len(which), True, None
        new.generator = torch.Generator().manual_seed(0)
        return new

    def _saved_parts(self) -> dict:
        parts = super()._saved_parts() | {"fixed": self.fixed, "basis": None} | self.saved_rebuild()
        if self.basis is not None:
            parts |= {
                "basis": {"z": self.basis.z.clone(), "L": self.basis.L.clone()},
                "sites": self.sites.state_dict(),
            }
        return parts

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        parts |= super()._loaded_parts(state, parts) | {
            "basis": None,
            "rebuild": self.restored_rebuild(state),
        }
        if state["basis"] is None:
            return parts
        z, factor = (state["basis"][name].to(self.device) for name in ("z", "L"))
        basis = Basis.restored(z, factor, self.new_basis(parts["theta"], z.shape[1]))
        sites = Sites.from_state_dict(state["sites"], self.device)
        if sites.size != basis.size:
            raise ValueError(f"{sites.size} rows of sites do not fit {basis.size} of the basis")
        return parts | {"basis": basis, "sites": sites}
