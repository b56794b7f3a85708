"""Matrix-free WISKI (Stanton et al. 2021): structured kernel interpolation with sums that never grow with n.

    update    a few hundred additions a sample: G += β w wᵀ as a stencil, b += w λᵀ; no solve, at any n
    refresh   the mean on the lattice by conjugate gradients, warm-started, FFT for K_uu (solver.py): step by step
              in `refine`, as samples have paid for, and in `shown`, for drawings; at once where `posterior` is asked
    variance  small dense GPs on the lumps within two lengthscales (lattice/windows.py)
    around    mean and variance from such a GP, for who asks for one place a cell: no solve (local.py)
    adopt     ℓ, s and s_h are in no sum: they may move freely. Where δ, the lever arm or s_p move, the memory is taken
              out as it stands and put back; the rest keeps its places, its weights follow s_p² (carry.py)

The spacing is a power of two of a metre near ℓ/8, so that the lattices of all robots coincide; it stays while
ℓ/spacing is within a factor of 1.7 of the setting.
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter

import torch
from torch import Tensor

import gp_mapping.core.models.wiski.carry as wiski_carry
from gp_mapping.core.field_map import CalibrationData
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.scaled import ScaledMap, Standardised, average_noise, learnable_extra
from gp_mapping.core.models.wiski.lattice.packed import PackedMemory
from gp_mapping.core.models.wiski.lattice.sites import FEATURES, GridSites
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid
from gp_mapping.core.models.wiski.local import WiskiLocal, around, map_features
from gp_mapping.core.models.wiski.posterior import WiskiPosterior
from gp_mapping.core.models.wiski.refresh import Refresh, ahead, price, shown, take
from gp_mapping.core.types import Prediction, UpdateReport

__all__ = ["Wiski"]

_PAID = 25_000  # points of the torus times iterations, for each √samples of an update
_SAVINGS = 100  # such payments kept, at most
_KEEP = 1.7  # factor by which ℓ/spacing may differ from the setting before the lattice is made anew


class Wiski(ScaledMap):
    """Online map of the plane; memory grows with its area, an update's time with nothing.

    theta: hyper-parameters in inner units (of `scale` SI).  density: nodes in a lengthscale.  max_nodes: of the box;
    beyond, the spacing doubles (`coarsened`), and where that would pass ℓ/2, samples are refused (`refused`).
    refresh_samples: the posterior may be as many samples behind, at most one in 50 of all.  tolerance: of the mean, in
    posterior standard deviations.  learner: None keeps θ as it is.
    """

    def __init__(self, theta: Theta, *, density: float = 8.0, max_nodes: int = 500_000, refresh_samples: int = 10,
                 tolerance: float = 0.05, memory_size: int = 2000, learner: HyperLearner | None = None, seed: int = 0,
                 scale: float = 1.0, centre=None, device="cpu"):
        super().__init__(scale=scale, centre=centre, device=device)
        self.theta, self.learner, self.memory_size = theta, learner, memory_size
        self.density, self.max_nodes, self.refresh_samples = density, max_nodes, refresh_samples
        self.tolerance = tolerance
        self.generator = torch.Generator().manual_seed(seed)
        self.samples, self.refused, self.coarsened, self.jitter = 0, 0, 0, 0.0
        self.epoch = 0  # grows when the whole map has changed, not only near new samples
        self.grid: GridSites | None = None
        self.memory: PackedMemory | None = None
        self.start_f: Tensor | None = None
        self.points: dict[str, Tensor] = {}  # of fantasies: in the sums, not in the lumps, so that each counts exactly
        self.rest_empty, self.rest_own_noise = True, True  # as in DualSVGP
        self.base: WiskiPosterior | None = None  # of the last refresh
        self.base_epoch = 0  # of the map when that began
        self.lag = 0  # samples since
        self.credit = 0.0  # of steps ahead
        self.ahead: Refresh | None = None  # on its way, paid by samples
        self.features: tuple | None = None  # f, Σ and the number of samples that they are from
        self.iterations, self.residual = 0, 0.0  # of the last solve
        self._posterior: WiskiPosterior | None = None  # of now, where it was asked for since the last change
        self._drawing: Refresh | None = None  # as `ahead`, for drawings: nothing saved depends on it
        self._shown: tuple | None = None  # the newest posterior that a drawing has seen, its samples and epoch
        self._kernel: tuple | None = None

    @property
    def empty(self) -> bool:
        return self.samples == 0

    def spacing_for(self, theta: Theta) -> float:
        """The power of two (m) nearest to ℓ/density, on a logarithmic scale."""
        return 2.0 ** round(math.log2(theta.lengthscale / self.density))

    @staticmethod
    def noise(own: Tensor, extra: Tensor, theta: Theta) -> Tensor:
        """The sample's own variance where it has one (> 0), else s_p²; and what is beside it. (N,)"""
        return torch.where(own > 0, own, theta.noise**2) + extra

    def _pose_noise(self, batch: Standardised) -> Tensor:
        if self.empty or not bool((batch.position_variance > 0).any()):
            return torch.zeros_like(batch.noise)
        self._learn_features()
        places = self.theta.place(batch.x, batch.velocity, batch.heading)
        return around(self, places).gradient(places).square().sum(2).mean(1) * batch.position_variance

    def begin(self, channels: int) -> None:
        """An empty lattice."""
        self.grid = GridSites(self.spacing_for(self.theta), self.scaling.origin, channels, self.device)
        self.memory = PackedMemory(self.memory_size, 2, channels, 0, self.device)
        kind = {"dtype": torch.float64, "device": self.device}
        self.start_f = torch.zeros((FEATURES, channels), **kind)
        self.points = {"x": torch.zeros((0, 2), **kind), "beta": torch.zeros(0, **kind),
                       "lam": torch.zeros((0, channels), **kind)}

    # --- data in --------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def _update(self, batch: Standardised) -> UpdateReport:
        if batch.x.shape[1] != 2:
            raise ValueError(f"model wiski maps the plane; samples are {batch.x.shape[1]}-D: use dual_svgp, or "
                             "core.models.wiski_dense with a projection")
        if self.grid is None:
            self.begin(batch.y.shape[1])
        extra = batch.extra + self._pose_noise(batch)
        places = self.theta.place(batch.x, batch.velocity, batch.heading)
        epoch, use = self.epoch, self.make_room(places)
        values = {"x": batch.x, "velocity": batch.velocity, "heading": batch.heading, "y": batch.y,
                  "noise": batch.noise, "extra": extra}
        if use is not None:
            self.refused += int((~use).sum())
            places, values = places[use], {k: v[use] for k, v in values.items()}
        count = len(places)
        if not count:
            return self._report(0)
        beta = 1.0 / self.noise(values["noise"], values["extra"], self.theta)
        lam = beta[:, None] * values["y"]
        self.grid.add(places, values["heading"], beta, lam)
        self._added(places, values["heading"], beta)
        values |= {"lam": lam, "beta": beta, "weight": torch.ones_like(beta)}
        if self.memory.insert(values, beta.new_empty((0, count)), self.leverage, self.generator):
            self.rest_empty = False
        if self.rest_own_noise and bool((values["noise"] > 0).any()):
            self.rest_own_noise = False
        self.samples, self.lag, self._posterior = self.samples + count, self.lag + count, None
        self.credit = min(self.credit + _PAID * count**0.5, max(_PAID * _SAVINGS, price(self)))
        if self.learner is not None:
            self.learner.owe(count)
        return self._report(count, self.epoch != epoch)

    def _added(self, places: Tensor, heading: Tensor, beta: Tensor) -> None:
        """For another form of the same map (published.py)."""

    def leverage(self, white: Tensor) -> Tensor:
        """All alike, so that the memory draws by β: a variance for each would be a solve. (K,)"""
        return white.new_ones(white.shape[1])

    def make_room(self, places: Tensor) -> Tensor | None:
        """Widen the box for places (N, 2); which of them may stay (N,), None for all."""
        kept = self._within_reach(places)
        if not bool(kept.any()):
            return kept
        low, shape = self.grid.box_for(places[kept])
        while shape[0] * shape[1] > self.max_nodes:
            self.coarsened += 1
            wiski_carry.respace(self, 2.0 * self.grid.spacing)
            low, shape = self.grid.box_for(places[kept])
        self.grid.grow(low, shape)
        return None if bool(kept.all()) else kept

    def _within_reach(self, places: Tensor) -> Tensor:
        """Which places (N, 2) a box that holds what is known may hold, too; the farthest are left out: (N,)."""
        most = 0.25 * self.theta.lengthscale / self.grid.spacing  # doubled for the last time at or below
        largest = 2.0 ** (math.floor(math.log2(most)) + 1) if most >= 1.0 else 1.0
        kept = torch.ones(len(places), dtype=torch.bool, device=self.device)
        away = (places - places.median(0).values).square().sum(1)
        while bool(kept.any()):
            _, shape = self.grid.box_for(places[kept])
            fits = shape[0] * shape[1] <= self.max_nodes
            if fits or math.prod(n / largest for n in shape) <= self.max_nodes:
                break
            kept[away.masked_fill(~kept, -1.0).argmax()] = False
        return kept

    def _report(self, used: int, everywhere: bool = False) -> UpdateReport:
        size = (0, 0) if self.grid is None else (self.grid.nodes, len(self.memory))
        return UpdateReport(used, self.samples, *size, jitter=self.jitter, everywhere=everywhere)

    # --- posterior ------------------------------------------------------------------------------------------------
    @property
    def due(self) -> bool:
        """Whether the last refresh is too old to be asked."""
        behind = self.lag > min(self.refresh_samples, self.samples // 50)
        return self.base is None or self.base_epoch != self.epoch or behind

    @property
    def posterior(self) -> WiskiPosterior:
        """Of the last refresh, where it is recent enough; else a fresh one. Asking changes nothing that is saved."""
        self.need_data()
        if self.due and self._posterior is None:
            self._posterior = self._solution().result()[0]
        return self._posterior if self.due else self.base

    def drawable(self, budget_s: float) -> tuple[WiskiPosterior, int, int]:
        """For a live drawing: the newest posterior without waiting, see refresh.py."""
        return shown(self, budget_s)

    def for_planning(self) -> WiskiPosterior:
        """Of now, with the mean of the newest refresh: no solve."""
        self.need_data()
        new = WiskiPosterior.of(self.theta, self.scaling, self.noise_level, self.grid, self.points)
        old = self.base
        mean = ("spacing", "shift", "low", "u", "held", "p", "f")
        return new if old is None else replace(new, **{name: getattr(old, name) for name in mean})

    def kernel_grid(self) -> KernelGrid:
        """K_uu on the present box."""
        grid, t = self.grid, self.theta
        key = (t.shape, t.lengthscale, t.signal, grid.spacing, grid.shape)
        if self._kernel is None or self._kernel[0] != key:
            self._kernel = key, KernelGrid(t.kernel(), grid.spacing, grid.shape, self.device)
        return self._kernel[1]

    @torch.no_grad()
    def _solution(self, iterations: int = 3000) -> Refresh:
        """Solved at once."""
        refresh = Refresh.of(self, iterations)
        solution = refresh.solve.run()
        self.iterations, self.residual = solution.iterations, solution.residual
        return refresh

    @property
    def noise_level(self) -> float:
        """σ² of one measurement, inner units."""
        return average_noise(self.theta, self.memory.extra) if self.memory is not None else self.theta.noise**2

    def refresh(self) -> None:
        """Solve now; later solves start from here."""
        take(self, self._solution())

    def changed(self, features: bool = True) -> None:
        """All of the map may have: the last refresh says too little, unless features, no more do their weights."""
        self._posterior, self.epoch = None, self.epoch + 1
        if features:  # what is on its way would not help either
            self.features, self.ahead, self._drawing = None, None, None

    # --- one neighbourhood, without a solve -----------------------------------------------------------------------
    @torch.no_grad()
    def around(self, x: Tensor, reach: float = 0.0) -> WiskiLocal:
        """What is known now within `reach` (m) of x (N, 2), frozen: the exact GP on lumps, no solve."""
        self.need_data()
        return around(self, self.scaling.inner_x(x), reach)

    def predict_now(self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None) -> Prediction:
        """As predict, of every sample so far, from the neighbourhood of x alone: no solve."""
        return self.around(x).predict(x, velocity, heading)

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> WiskiLocal | WiskiPosterior:
        """The neighbourhood of `near` as it is now, without a solve; of the whole map its posterior."""
        return self.posterior if near is None else self.around(near, reach)

    def load_snapshot(self, state: dict) -> WiskiLocal | WiskiPosterior:
        return (WiskiLocal if "local_x" in state else WiskiPosterior).from_state_dict(state, self.device)

    def inducing_inputs(self) -> Tensor:
        """None: the lattice's nodes are everywhere."""
        return self._no_places()

    def remembered_places(self) -> Tensor:
        return self._outer_places(None if self.memory is None else self.memory.x)

    def calibration_data(self) -> CalibrationData | None:
        return None if self.memory is None else self._calibration_data(self.memory.values())

    def counters(self) -> dict[str, int | float]:
        """Also `coarsened`: how often the lattice became coarser; `refused`: samples beyond where it may reach."""
        return super().counters() | {"coarsened": self.coarsened, "refused": self.refused}

    def _learn_features(self) -> None:
        """The features' weights anew, where a twentieth more samples have come: they belong to all of the map."""
        if self.samples and (self.features is None or self.samples > 1.05 * self.features[2]):
            self.features = *map_features(self.theta, self.grid), self.samples

    # --- work ahead -----------------------------------------------------------------------------------------------
    @torch.no_grad()
    def refine(self, budget_s: float = float("inf")) -> bool:
        """Hyper-parameter steps that are owed, their adoption, steps of a refresh that samples have paid for.

        True: there is more that is paid for. A refresh takes many calls, each going on where the last one stopped.
        """
        if self.grid is None:
            return False
        end, learner = perf_counter() + budget_s, self.learner
        while learner is not None and learner.owed >= 1.0 and perf_counter() < end:
            self._learn(self._step)
        if learner is not None and learner.owed >= 1.0:
            return True
        self._learn_features()
        return ahead(self, end - perf_counter())

    def _step(self) -> None:
        memory, learner = self.memory, self.learner
        learner.step({"x": memory.x, "velocity": memory.velocity, "heading": memory.heading, "y": memory.y,
                      "extra": learnable_extra(memory.noise, memory.extra, self.theta),
                      "order": memory.order}, self.generator)
        if learner.left(self.theta):
            self.adopt(learner.theta)

    @torch.no_grad()
    def adopt(self, theta: Theta) -> bool:
        """Carry the map to θ."""
        wiski_carry.to_theta(self, theta)
        ratio = theta.lengthscale / (self.grid.spacing * self.density)
        if not 1.0 / _KEEP < ratio < _KEEP:
            wiski_carry.respace(self, self.spacing_for(theta))
        self.changed(features=False)  # a step of θ is small; they come anew with a twentieth more samples
        return True

    # --- operations -----------------------------------------------------------------------------------------------
    def forget(self, factor: float) -> None:
        """Scale all that the data said by factor in (0, 1]."""
        if not 0.0 < factor <= 1.0:
            raise ValueError(f"a forgetting factor lies in (0, 1], not {factor}")
        if self.grid is not None and factor < 1.0:
            self.grid.scale(factor)
            self.memory.scale(factor)
            self.points = {k: v if k == "x" else v * factor for k, v in self.points.items()}
            self.changed(features=False)

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what was known within radius (m) of x (K, 2), but for the newest samples; how many went."""
        return 0 if self.empty else wiski_carry.forget_near(self, x, radius, newest)

    def fantasize(self, x: Tensor) -> "Wiski":
        """A copy conditioned on its own mean at x (K, 2): the mean stays, to the last digits."""
        return wiski_carry.fantasize(self, x)

    def merge(self, other: "Wiski") -> None:
        """Add another map's sums, on the common lattice; equal to the union of the data where θ is the same."""
        wiski_carry.merge(self, other)

    def state_dict(self) -> dict:
        return wiski_carry.save(self)

    def load_state_dict(self, state: dict) -> None:
        wiski_carry.load(self, state)
