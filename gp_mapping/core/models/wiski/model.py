"""Matrix-free WISKI (Stanton et al. 2021): structured kernel interpolation, sums of bounded size.

    update    sums on a lattice, see lattice_map.py
    refresh   the mean on the lattice by conjugate gradients, warm-started, FFT for K_uu (solver.py)
    variance  small dense GPs on the aggregates within two lengthscales (lattice/windows.py)

A refresh is solved step by step in `refine`, within the work budget that samples add to, and in
`drawable`, for drawings; at once where `posterior` is asked for.

A refresh is of the sums and of θ as they were when it began, and keeps its conjugate gradients from
step to step. So nothing waits for it: updates change the grid meanwhile, and drawings show the
newest refresh that is finished.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from time import perf_counter

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.wiski.lattice.features import FEATURES
from gp_mapping.core.models.wiski.lattice_map import LatticeMap
from gp_mapping.core.models.wiski.local import WiskiLocal
from gp_mapping.core.models.wiski.posterior import WiskiPosterior
from gp_mapping.core.models.wiski.refresh import Refresh

__all__ = ["Wiski"]

# added to the work budget for each √samples of an update: points of the FFT times iterations
_WORK_PER_ROOT_SAMPLE = 25_000
_MOST_PAYMENTS = 100  # bound of the work budget, in updates of one sample each
_START = 5  # cost of copying the sums, in iterations


class Wiski(LatticeMap):
    """LatticeMap whose mean is solved for by conjugate gradients.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI).
        refresh_samples: the posterior may lag by as many samples, at most by one in 50 of all.
        tolerance: of the mean, in posterior standard deviations.
        settings: LatticeMap's.

    Attributes:
        start_f: (3 + P, C) features' weights of the last refresh, where the next solve starts.
        base: the posterior of the last refresh.
        base_epoch: epoch of the map when that refresh began.
        lag: samples since that refresh began.
        work_budget: points of the torus times iterations: work that samples have added, and
            that is not done yet.
        ahead: the refresh that this budget is spent on, if one is under way.
        iterations: of the last solve.
        residual: of the last solve.
    """

    fitting = (*LatticeMap.fitting, "refresh_samples", "tolerance")
    counted = (*LatticeMap.counted, "lag", "work_budget")

    def __init__(
        self, theta: Theta, *, refresh_samples: int = 10, tolerance: float = 0.05, **settings
    ):
        super().__init__(theta, **settings)
        self.refresh_samples, self.tolerance = refresh_samples, tolerance

        self.start_f: Tensor | None = None
        self.base: WiskiPosterior | None = None
        self.base_epoch = 0
        self.lag = 0
        self.work_budget = 0.0
        self.ahead: Refresh | None = None
        self.iterations, self.residual = 0, 0.0

        # as `ahead`, for drawings: nothing that is saved depends on it
        self._drawing: Refresh | None = None
        # the newest posterior that a drawing has shown, its samples and epoch
        self._shown: tuple | None = None

    def allocate(self, dimension: int, channels: int) -> None:
        """As SparseMap.allocate; the solve starts from zero."""
        super().allocate(dimension, channels)
        self.start_f = torch.zeros((FEATURES, channels), dtype=torch.float64, device=self.device)

    def mark_changed(self, features: bool = True) -> None:
        """Note that all may have changed; unless `features`, the features' weights stay."""
        super().mark_changed(features)
        if features:  # a refresh that is under way would be of no use
            self.ahead, self._drawing = None, None

    def _add_work_budget(self, count: int) -> None:
        """Count samples, and add to the work budget."""
        self.lag += count
        # bounded, but never below the next step, or a large map would not be refreshed at all
        most = max(_WORK_PER_ROOT_SAMPLE * _MOST_PAYMENTS, self._step_cost())
        self.work_budget = min(self.work_budget + _WORK_PER_ROOT_SAMPLE * count**0.5, most)

    # --- posterior --------------------------------------------------------------------------------
    @property
    def is_refresh_due(self) -> bool:
        """Whether the last refresh is too old to be used."""
        behind = self.lag > min(self.refresh_samples, self.samples // 50)
        return self.base is None or self.base_epoch != self.epoch or behind

    @property
    def posterior(self) -> WiskiPosterior:
        """The posterior of the last refresh where it is recent enough, else a fresh one.

        Asking changes nothing that is saved.
        """
        self.need_data()

        if self.is_refresh_due and self._posterior is None:
            self._posterior = self.solve_refresh().result()[0]
        return self._posterior if self.is_refresh_due else self.base

    def snapshot(
        self, near: Tensor | None = None, reach: float = 0.0
    ) -> WiskiLocal | WiskiPosterior:
        """As FieldMap.snapshot: the neighbourhood of `near` now, without a solve; else all."""
        return self.posterior if near is None else self.local_posterior(near, reach)

    def load_snapshot(self, state: dict) -> WiskiLocal | WiskiPosterior:
        """A snapshot from the `state_dict` of either kind."""
        return (WiskiLocal if "local_x" in state else WiskiPosterior).from_state_dict(
            state, self.device
        )

    def for_planning(self) -> WiskiPosterior:
        """The variance given all samples so far, with the mean of the newest refresh: no solve."""
        self.need_data()
        new = WiskiPosterior.from_sums(
            self.theta, self.scaling, self.noise_level, self.grid, self.points
        )

        return new if self.base is None else new.with_mean_of(self.base)

    @torch.no_grad()
    def solve_refresh(self, iterations: int = 3000) -> Refresh:
        """A refresh that is solved at once, with at most so many iterations a channel."""
        refresh = Refresh.start(self, iterations)
        solution = refresh.solve.run()
        self.iterations, self.residual = solution.iterations, solution.residual
        return refresh

    def refresh(self) -> None:
        """Solve now; later solves start from here."""
        self._take(self.solve_refresh())

    def _take(self, refresh: Refresh) -> None:
        """Take a finished refresh as the posterior, and as the start of later ones."""
        posterior, solution = refresh.result()
        sums, theta = refresh.solve.sums, refresh.posterior.theta

        # the box may have grown since the refresh began, and s may have changed: p ∝ 1/s² where u
        # stays
        start = torch.zeros_like(self.grid.start)
        start[sums.numbers_in(self.grid)] = (
            solution.p * (theta.signal_stddev / self.theta.signal_stddev) ** 2
        )

        self.grid.start, self.start_f = start, solution.f
        self.base, self.base_epoch, self.lag = (
            posterior,
            refresh.epoch,
            self.samples - refresh.samples,
        )

        self._posterior, self.ahead = None, None
        self.iterations, self.residual = solution.iterations, solution.residual
        self.keep_weights(solution.f, posterior.covariance_f, refresh.samples, sums.features)

    def column_left(self, column: int) -> None:
        """As FeatureWeights.column_left; the weight leaves the start of the solve, too."""
        kept = [row for row in range(len(self.start_f)) if row != column]
        self.start_f = self.start_f[kept]
        super().column_left(column)

    # --- work ahead -------------------------------------------------------------------------------
    @torch.no_grad()
    def refine(self, budget_s: float = math.inf) -> bool:
        """Do pending hyper-parameter steps, adopt their result, and refresh within the work budget.

        A refresh takes many calls, each of which goes on where the last one stopped.

        Args:
            budget_s: time after which no further step begins, s.

        Returns:
            Whether there is more to do within the work budget.
        """
        end = perf_counter() + budget_s
        if super().refine(budget_s):
            return True

        while (
            self.samples and self.is_refresh_due and self.work_budget >= (cost := self._step_cost())
        ):
            if perf_counter() >= end:
                return True
            self.work_budget -= cost
            if self.ahead is None:
                self.ahead = Refresh.start(self)
            elif not self.ahead.solve.finished:
                self.ahead.solve.step()
            if self.ahead.solve.finished:
                self._take(self.ahead)
        return False

    def _step_cost(self) -> float:
        """Cost of the next step of `ahead`: points of the torus times iterations.

        Before a refresh has begun, the torus is taken for the box and about ten lengthscales.
        """
        if self.ahead is not None:
            return self.ahead.solve.step_cost
        reach = 10.0 * self.theta.lengthscale / self.grid.spacing
        return _START * (self.grid.shape[0] + reach) * (self.grid.shape[1] + reach)

    def drawable(self, budget_s: float) -> tuple[WiskiPosterior, int, int]:
        """The newest posterior that is available without waiting.

        Goes on with a refresh in addition to the work budget: nothing that is saved changes. Only
        a map that has never been refreshed is solved, whatever it takes.

        Args:
            budget_s: about the time that this may take, s; at most one iteration more.

        Returns:
            The posterior, the number of samples in it, and the epoch of the map then.
        """
        self.need_data()
        if not self.is_refresh_due:
            return self.base, self.samples, self.epoch

        end, longest = perf_counter() + budget_s, 0.0

        if self._posterior is not None:
            return self._show(self._posterior, self.samples, self.epoch)
        if self.base is not None:
            self._show(self.base, self.samples - self.lag, self.base_epoch)

        now = (self.samples, self.epoch)
        if self._shown is not None and self._shown[1:] == now:
            return self._shown  # nothing is new: a refresh would end where the last one did

        while (start := perf_counter()) + longest < end:
            work, ahead = self._drawing, self.ahead
            if work is not None and not self._newer(work):
                work = None  # what is shown is newer by now
            # go on from `ahead` where it is further, from the own refresh, or begin one
            if (
                ahead is not None
                and self._newer(ahead)
                and (work is None or ahead.solve.steps > work.solve.steps)
            ):
                self._drawing = work = ahead.fork()
            elif work is None:
                self._drawing = work = Refresh.start(self)
            else:
                work.solve.step()

            if work.solve.finished:
                self._show(work.result()[0], work.samples, work.epoch)
                self._drawing = None
                if (work.samples, work.epoch) == now:
                    break
            longest = max(longest, perf_counter() - start)

        if self._shown is None:
            return self._show(self.posterior, self.samples, self.epoch)
        return self._shown

    def _newer(self, refresh: Refresh) -> bool:
        """Whether a refresh is of newer data than what drawings have shown."""
        return self._shown is None or (refresh.epoch, refresh.samples) > (
            self._shown[2],
            self._shown[1],
        )

    def _show(
        self, posterior: WiskiPosterior, samples: int, epoch: int
    ) -> tuple[WiskiPosterior, int, int]:
        """Remember the newer one of this posterior and of what was shown last, and return it."""
        if self._shown is None or (epoch, samples) >= (self._shown[2], self._shown[1]):
            self._shown = posterior, samples, epoch
        return self._shown

    # --- another frame, copies and files ----------------------------------------------------------
    def move(self, turn: Tensor, shift: Tensor) -> None:
        """As FieldMap.move; the last refresh goes along, and drawings begin with it.

        Raises:
            ValueError: the frame is turned, whose axes the lattice lies along.
        """
        super().move(turn, shift)
        if self.base is not None:
            self.base = replace(self.base, scaling=self.scaling)
        self._shown = None

    def duplicate(self) -> Wiski:
        """An independent copy, without the refreshes that are under way."""
        new: Wiski = super().duplicate()
        new.ahead, new._drawing, new._shown = None, None, None
        return new

    @torch.no_grad()
    def fantasize(self, x: Tensor) -> Wiski:
        """A copy conditioned on its own mean at x (K, 2): the mean stays, to the last digits.

        Sites with the target wᵀu + f_c at x are added: G grows, and u = K p still solves the
        system.
        """
        before, inner = self.posterior, self.scaling.inner_x(x)
        new = self.duplicate()
        new.base = None

        if self.base is before and not len(inner):
            return new
        # the last refresh may lag behind the samples
        if before is self.base and self.lag:
            before = self.solve_refresh().result()[0]  # a fantasy extends what is known now

            # the solution of that posterior is where the copy's solver starts, and ends
        new.grid.start.zero_()
        new.grid.start[before.held] = before.p
        new.start_f = before.f.clone()

        if len(inner):
            self._fantasy(before, new, inner)
        return new

    def _saved_parts(self) -> dict:
        """The last refresh, too, and the one under way, for a file."""
        parts = super()._saved_parts()
        if self.sites is None:
            return parts
        return parts | {
            "start_f": self.start_f.clone(),
            "base": None if self.base is None else self.base.state_dict(),
            "base_is_new": self.base_epoch == self.epoch,
            "ahead": None if self.ahead is None else self.ahead.state_dict(),
            "ahead_is_new": self.ahead is not None and self.ahead.epoch == self.epoch,
        }

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """The last refresh of a file, too, and the one that was under way."""
        own = {
            "start_f": None,
            "base": None,
            "base_epoch": 0,
            "ahead": None,
            "_drawing": None,
            "_shown": None,
        }
        parts = super()._loaded_parts(state, parts) | own
        if state["grid"] is None:
            return parts
        if state["base"] is not None:
            parts["base"] = WiskiPosterior.from_state_dict(
                copy.deepcopy(state["base"]), self.device
            )
        parts["base_epoch"] = self.epoch + bool(state["base_is_new"])
        if state["ahead"] is not None:
            epoch = self.epoch + bool(state["ahead_is_new"])
            parts["ahead"] = Refresh.from_state_dict(state["ahead"], epoch, self.device)
        return parts | {"start_f": state["start_f"].to(self.device, copy=True)}
