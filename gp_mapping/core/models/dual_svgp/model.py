"""Memory-based dual SVGP (Chang et al. 2023), whitened, with inducing inputs added lazily.

    update   D += Σ β a aᵀ, r += Σ a λ        (λ form: equal to batch SGPR at fixed z and θ, in any order)
    grow     a sample becomes an inducing input where the data tell enough of what the others leave open (worth.py);
             old sites are padded, and the memory, whose features at the new z are known, fills the border: exact while
             all samples are remembered
    thin     inputs that later ones made dispensable go: a robot's newest place always looks new
    adopt    θ moved, or z are thinned: the memory is taken out, the rest is carried by its pseudo-data, the memory is
             put back with fresh features (carry.py)
"""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from gp_mapping.core.field_map import LIKELIHOODS, CalibrationData
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Gaussian
from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.models import carry
from gp_mapping.core.models.dual_svgp.natural_gradient import absorb, refresh
from gp_mapping.core.models.observing import ObservingMap
from gp_mapping.core.models.scaled import Standardised
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.sparse.worth import ratio_of
from gp_mapping.core.types import UpdateReport
from gp_mapping.errors import NumericalError

__all__ = ["DualSVGP"]


class DualSVGP(ObservingMap):
    """Online sparse GP with bounded cost: O(M² (M + N)) a batch of N, O(M² + M·memory) numbers kept.

    theta: hyper-parameters in inner units (of `scale` SI).  inducing_inputs: (M, D) m, fixed where given.
    tolerance: share of s² that the residual at an inducing input has at least.  information: bits that the data tell
    at least of what only that input can express; 0: the residual alone decides.  learner: None keeps θ as it is.
    likelihood: Gaussian if None.  steps: natural-gradient steps a batch, of another likelihood; its own if None.
    """

    name = "dual_svgp"
    memory_kind = Memory
    fantasy_tolerance = 1e-6  # share of s² that makes the residual at a fantasy an inducing input

    def __init__(self, theta: Theta, *, max_inducing: int = 400, tolerance: float = 0.02, memory_size: int = 2000,
                 information: float = 0.0, inducing_inputs=None, learner: HyperLearner | None = None, seed: int = 0,
                 scale: float = 1.0, centre=None, device="cpu", dtype=torch.float64, likelihood=None,
                 steps: int | None = None):
        super().__init__(likelihood or Gaussian(), scale=scale, centre=centre, device=device)
        self.theta, self.learner = theta, learner
        self.tolerance, self.information = tolerance, information
        self.memory_size = memory_size
        self.fixed = None if inducing_inputs is None else torch.as_tensor(inducing_inputs, dtype=torch.float64)
        self.max_inducing = max_inducing if self.fixed is None else len(self.fixed)
        self.dtype = dtype
        self.steps = steps or self.likelihood.steps
        self.generator = torch.Generator().manual_seed(seed)
        self.samples, self.jitter = 0, 0.0
        self.floor = 0.0  # bits (without `information`: variance) below which nothing pays since the budget was full
        self.thinned = 0  # inducing inputs that the last thinning left
        self.moves = 0  # how often the budget was full
        self.epoch = 0  # grows when the whole map has changed, not only near new samples
        self.basis = self.sites = self.memory = None
        # while every sample is remembered, nothing but the memory is in the sites; own noise: all β come from θ
        self.rest_empty, self.rest_own_noise = True, True
        self._posterior: Posterior | None = None

    def new_basis(self, theta: Theta, dimension: int) -> Basis:
        """An empty basis at θ with this map's budget."""
        return Basis(theta, dimension, self.max_inducing, self.dtype, self.device)

    def new_memory(self, dimension: int, channels: int, rows: int) -> Memory:
        """An empty memory for sites of that many rows."""
        return self.memory_kind(self.memory_size, dimension, channels, rows, self.device)

    def _begin(self, dimension: int, channels: int) -> None:
        basis = self.new_basis(self.theta, dimension)
        if self.fixed is not None:
            basis = Basis.at(self.scaling.inner_x(self.fixed), basis)
        rows = basis.features + self.max_inducing
        self.sites = Sites(basis.size, channels, rows, self.device)
        self.memory = self.new_memory(dimension, channels, rows)
        self.basis = basis

    @property
    def empty(self) -> bool:
        return self.samples == 0

    @staticmethod
    def noise(own: Tensor, extra: Tensor, theta: Theta, x: Tensor | None = None) -> Tensor:
        """The sample's own variance where it has one (> 0), else s_p²; and what is beside it. (N,)"""
        return torch.where(own > 0, own, theta.noise**2) + extra

    def memory_places(self, theta: Theta) -> Tensor:
        """Where the memory's samples were measured, given θ's time offset: (m, D)."""
        return theta.place(self.memory.x, self.memory.velocity, self.memory.heading)

    @torch.no_grad()
    def _update(self, batch: Standardised) -> UpdateReport:
        if self.basis is None:
            self._begin(batch.x.shape[1], batch.y.shape[1])
        extra = batch.extra + self._pose_noise(batch)
        places = self.theta.place(batch.x, batch.velocity, batch.heading)
        noise = self.noise(batch.noise, extra, self.theta, batch.x)
        white, added, removed = self._grow(places, batch.heading, noise, self.likelihood.weight(batch.count))
        residual = self.basis.residual(places, white)
        lam, beta = self._natural_gradient(white, residual, batch.y, noise, batch.count)
        values = {"x": batch.x, "velocity": batch.velocity, "heading": batch.heading, "y": batch.y, "lam": lam,
                  "beta": beta, "noise": batch.noise, "extra": extra, "weight": self.likelihood.weight(batch.count)}
        if self._remember(values, white):
            self.rest_empty = False
        if bool((batch.noise > 0).any()):
            self.rest_own_noise = False
        self.samples += len(batch.x)
        if self.learner is not None:
            self.learner.owe(len(batch.x))
        removed += self._thin()
        return self._report(len(batch.x), added, removed, removed > 0)

    def _remember(self, values: dict[str, Tensor], white: Tensor) -> int:
        """Offer to the memory what is in the sites; how many samples, old or new, fell out."""
        return self.memory.insert(values, white, self.leverage, self.generator)

    def take_in(self, values: dict[str, Tensor], white: Tensor, arrivals: int) -> int:
        """Add another map's remembered samples, all columns given; how many, old or new, fell out."""
        self.sites.add(white, values["beta"], values["lam"])
        self._posterior = None
        return self.memory.offer(values, white, self.leverage, arrivals)

    def leverage(self, white: Tensor) -> Tensor:
        """v = a D⁻¹ a; β v is the Bayesian leverage score (Chang et al. 2023, sec. 4.2). (K,)"""
        return self.posterior.half(white).square().sum(0)

    def marginals(self, white: Tensor) -> tuple[Tensor, Tensor]:
        """aᵀD⁻¹r (N, C) and aᵀD⁻¹a (N,): q(f) as the sites are now. white: a(x) (R, N)."""
        factor, _ = cholesky(self.sites.precision)
        half = solve_lower(factor, white)
        return half.mT @ solve_lower(factor, self.sites.linear), half.square().sum(0)

    def _report(self, used: int, added: int = 0, removed: int = 0, everywhere: bool = False) -> UpdateReport:
        inducing, memory = (0, 0) if self.basis is None else (len(self.basis), len(self.memory))
        return UpdateReport(used, self.samples, inducing, memory, added, removed, self.jitter, everywhere)

    def _natural_gradient(self, white: Tensor, residual: Tensor, y: Tensor, noise: Tensor,
                          count: Tensor) -> tuple[Tensor, Tensor]:
        """Add the batch's sites (λ, β); returns them. residual (N,): prior variance that the basis does not reach."""
        self._posterior = None
        if not self.likelihood.conjugate:
            return absorb(self, white, residual, y, noise, self.likelihood.weight(count))
        lam, beta = self.likelihood.sites(y, y, noise, noise)
        self.sites.add(white, beta, lam)
        return lam, beta

    @property
    def worth(self) -> float:
        """Least w of an inducing input (worth.py); 0 where the residual alone decides."""
        return ratio_of(max(self.information, self.floor)) if self.information > 0 else 0.0

    @property
    def least_residual(self) -> float:
        """Least residual variance at an inducing input, inner units."""
        return max(self.tolerance * self.theta.signal**2, 0.0 if self.information > 0 else self.floor)

    def _grow(self, x: Tensor, heading: Tensor, noise: Tensor, weight: Tensor) -> tuple[Tensor, int, int]:
        """Make inducing inputs of the samples that are worth it: a(x) afterwards, how many were added, and removed."""
        white = self.basis.white(x, heading)
        if self.fixed is not None:
            return white, 0, 0
        return self.grow(x, heading, white, self._precision(white, x, noise, weight))

    def grow(self, x: Tensor, heading: Tensor, white: Tensor, precision: Tensor) -> tuple[Tensor, int, int]:
        """As _grow, of samples whose a(x) (R, N) and β (N,) are known; where the budget is full, room is made."""
        removed = 0
        if len(self.basis) == self.max_inducing and self._wanted(x, white, precision):
            removed = self._move()
            white = self.basis.white(x, heading) if removed else white
        white, added = self.append(x, white, precision)
        return white, added, removed

    def _precision(self, white: Tensor, x: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
        """β that samples about to come will have, as far as it is known before: (N,)."""
        if self.likelihood.conjugate:
            return weight / noise
        mean, variance = (torch.zeros((len(x), self.sites.channels), dtype=torch.float64, device=x.device),
                          torch.zeros_like(noise)) if self.empty else self.marginals(white)
        return weight * self.likelihood.information(mean, variance + self.basis.residual(x, white), noise)

    def remembered_precision(self, theta: Theta) -> Tensor:
        """β of the memory's samples at θ, each by itself: (m,)."""
        memory = self.memory
        if not self.likelihood.conjugate:
            return memory.beta
        return memory.weight / self.noise(memory.noise, memory.extra, theta, memory.x)

    def _wanted(self, x: Tensor, white: Tensor, precision: Tensor) -> bool:
        """Whether one of x would become an inducing input if there were room."""
        if not bool((self.basis.residual(x, white) > self.least_residual).any()):
            return False
        if not self.worth:
            return True
        joint = self._with_memory(x, white, precision)
        return len(self.basis.copy(len(self.basis) + 1).grow(*joint[:2], slice(0, len(x)), self.least_residual, 1,
                                                             *joint[2:], self.worth)) > 0

    def _move(self) -> int:
        """The budget is full: give up the twentieth of z that is worth least. How many left.

        From then on only samples pay that are worth twice as much as what was given up.
        """
        before = len(self.basis)
        if not self.adopt(self.theta, before - max(1, before // 20)):
            return 0
        self.moves += 1
        if self.information <= 0:
            self.floor = 2.0 * float(self.basis.L.diagonal().min()) ** 2
        return before - len(self.basis)

    def _thin(self) -> int:
        """Let go of inputs that are not worth theirs any more, when there are a sixth more of them. How many went."""
        if self.fixed is not None or not self.worth or len(self.basis) < self.thinned + max(16, self.thinned // 6):
            return 0
        before = len(self.basis)
        return before - len(self.basis) if self.adopt(self.theta) else 0

    def _with_memory(self, x: Tensor, white: Tensor, precision: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Places, features and β of x and of the memory behind it."""
        return (torch.cat([x, self.memory_places(self.theta)]),
                torch.cat([white, self.remembered_features(self.basis.size)], 1),
                torch.cat([precision, self.remembered_precision(self.theta)]))

    def append(self, x: Tensor, white: Tensor, precision: Tensor) -> tuple[Tensor, int]:
        """Grow the basis by x; pad the sites, and border them with the memory, whose features are extended."""
        old = self.basis.size
        full = old == self.basis.features + self.max_inducing
        if full or not bool((self.basis.residual(x, white) > self.least_residual).any()):
            return white, 0
        places, joint, precision = self._with_memory(x, white, precision)
        rows = self.basis.grow(places, joint, slice(0, len(x)), self.least_residual, None,
                               precision if self.worth else None, self.worth)
        if not len(rows):
            return white, 0
        fresh, recalled = rows[:, : len(x)], rows[:, len(x):]
        self.sites.pad(len(rows))
        self._recall(old, joint[:, len(x):], recalled)
        return torch.cat([white, fresh]), len(rows)

    def remembered_features(self, rows: int) -> Tensor:
        """a(x) of the memory's samples: (rows, m)."""
        return self.memory.white(rows)

    def _recall(self, old: int, remembered: Tensor, recalled: Tensor) -> None:
        """New rows `recalled` of a(x), from row `old` on, for the memory and its share of the sites."""
        self.sites.border(recalled, remembered, self.memory.beta, self.memory.lam)
        self.memory.extend_white(old, recalled)

    @property
    def posterior(self) -> Posterior:
        """The posterior now, factored when it is first asked for after a change."""
        self.need_data()
        if self._posterior is None:
            factor, self.jitter = cholesky(self.sites.precision)
            weights = torch.cholesky_solve(self.sites.linear, factor)
            noise = self.likelihood.noise_variance(self.noise_level)
            self._posterior = Posterior(self.theta, self.basis.z, self.basis.L, factor, weights, noise, self.scaling)
        return self._posterior

    def explained(self, x: Tensor) -> Tensor | None:
        """b(x) (F + M, N), SI; None where the model's test points share no residual (FIC, PIC)."""
        return self.posterior.explained(x)

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> Posterior:
        """The posterior now, in tensors of its own."""
        return self.posterior.kept()

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
        told = super().counters() | {"budget": self.max_inducing, "budget_full": self.moves}
        if self.basis is None or not len(self.memory):
            return told
        places = self.memory_places(self.theta)
        residual = self.basis.residual(places, self.remembered_features(self.basis.size))
        squares = torch.cat([places, self.basis.z]).div(self.theta.lengthscale).floor().unique(dim=0)
        return told | {"prior_left": float((residual / self.basis.kernel.diag(places)).max()),
                       "inputs_per_square_lengthscale": len(self.basis) / len(squares)}

    def inducing_inputs(self) -> Tensor:
        return self._outer_places(None if self.basis is None else self.basis.z)

    def remembered_places(self) -> Tensor:
        return self._outer_places(None if self.memory is None else self.memory.x)

    def calibration_data(self) -> CalibrationData | None:
        return None if self.memory is None else self._calibration_data(self.memory.values())

    @torch.no_grad()
    def refine(self, budget_s: float = float("inf")) -> bool:
        """Hyper-parameter steps that are owed, about 4 ms each, and their adoption; True: more are owed."""
        if self.learner is None or self.basis is None:
            return False
        end = perf_counter() + budget_s
        while self.learner.owed >= 1.0 and perf_counter() < end:
            self._learn(self._step)
        return self.learner.owed >= 1.0

    def _step(self) -> None:
        self.learner.step(self.learning_data(), self.generator)
        if self.learner.left(self.theta) and self.adopt(self.learner.theta):
            refresh(self, self.likelihood.refreshed)

    def adopt(self, theta: Theta, budget: int | None = None) -> bool:
        """Carry the map to θ, z chosen again within the budget; False, the map as it was, if that does not factor."""
        try:
            carried = carry.to_theta(self, theta, budget or self.max_inducing)
        except NumericalError:
            if self.learner is not None:
                self.learner.rejected += 1
            return False
        self.basis, self.sites = carried.basis, carried.sites
        carried.share.write(self.memory)
        self.theta, self.floor, self._posterior = theta, carried.floor, None
        self.thinned = len(self.basis)
        self.epoch += 1
        return True

    def share_at(self, theta: Theta, basis: Basis, white: Tensor) -> carry.Share:
        """The memory's share of the sites at θ, in a basis where its features are `white`."""
        memory = self.memory
        if not self.likelihood.conjugate:
            return carry.Share(white, {"beta": memory.beta.clone(), "lam": memory.lam.clone()})
        beta = memory.weight / self.noise(memory.noise, memory.extra, theta, memory.x)
        return carry.Share(white, {"beta": beta, "lam": beta[:, None] * memory.y})

    def share_of(self, kept: Tensor) -> carry.Share:
        """The share of the sites that the samples kept (m,) have, as it is, where the others leave."""
        memory = self.memory
        return carry.Share(memory.white(self.basis.size)[:, kept], {"beta": memory.beta[kept], "lam": memory.lam[kept]})

    def forget(self, factor: float) -> None:
        """Scale all that the data said by factor in (0, 1]."""
        if not 0.0 < factor <= 1.0:
            raise ValueError(f"a forgetting factor lies in (0, 1], not {factor}")
        if self.basis is not None and factor < 1.0:
            self.sites.scale(factor)
            self.memory.scale(factor)
            self._posterior, self.epoch = None, self.epoch + 1

    def excerpt(self, which: Tensor, theta: Theta | None = None) -> "DualSVGP":
        """A map of some of the remembered samples alone, at θ: to be merged into another. which: indices (k,)."""
        return carry.excerpt(self, which, theta or self.theta)

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what was known within radius (m) of x (K, D), but for the newest samples; how many went."""
        return 0 if self.empty else carry.forget_near(self, x, radius, newest)

    def fantasize(self, x: Tensor) -> "DualSVGP":
        """A copy conditioned on its own mean at x (K, D): D grows, r keeps the mean exactly."""
        return carry.fantasize(self, x)

    def merge(self, other: "DualSVGP") -> None:
        """Add another map's sites; equal to the union of the data while both remember all of theirs."""
        carry.merge(self, other)

    def state_dict(self) -> dict:
        return carry.save(self)

    def load_state_dict(self, state: dict) -> None:
        carry.load(self, state)
