"""Refreshes of a WISKI map in small steps: those that samples have paid for, and those that a drawing goes on with.

A refresh is of the sums and of θ as they were when it began, and keeps its conjugate gradients from step to step. So
nobody waits for it: updates change the grid meanwhile, drawings show the newest refresh that is finished.
"""

from __future__ import annotations

from time import perf_counter

import torch

from gp_mapping.core.models.wiski.lattice.frozen import Frozen
from gp_mapping.core.models.wiski.lattice.solver import MeanSolve, Solution
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid
from gp_mapping.core.models.wiski.posterior import WiskiPosterior, feature_prior

__all__ = ["Refresh", "ahead", "price", "shown", "take"]

_START = 5  # what copying the sums costs, in iterations


class Refresh:
    """One solve of the mean on its way.

    posterior: of that moment, without its mean.  samples, epoch: of the map then.  kernel: K_uu, made where None.
    """

    def __init__(self, posterior: WiskiPosterior, sums: Frozen, tolerance: float, samples: int, epoch: int,
                 kernel: KernelGrid | None = None, iterations: int = 3000):
        self.posterior, self.samples, self.epoch, self.tolerance = posterior, samples, epoch, tolerance
        theta, device = posterior.theta, sums.held.device
        if kernel is None:
            kernel = KernelGrid(theta.kernel(), posterior.spacing, sums.shape, device)
        first = (torch.tensor(sums.low, device=device) - posterior.shift) * posterior.spacing
        self.solve = MeanSolve(sums, first, posterior.spacing, posterior.lumps, theta.kernel(), kernel,
                               feature_prior(theta, device), tolerance, iterations)

    @staticmethod
    def of(model, iterations: int = 3000) -> "Refresh":
        """Of a map as it is now."""
        posterior = WiskiPosterior.of(model.theta, model.scaling, model.noise_level, model.grid, model.points)
        return Refresh(posterior, Frozen.of(model.grid, model.start_f), model.tolerance, model.samples, model.epoch,
                       model.kernel_grid(), iterations)

    def fork(self) -> "Refresh":
        """Another that goes on from here."""
        new = object.__new__(Refresh)
        new.__dict__.update(self.__dict__)
        new.solve = self.solve.fork()
        return new

    def result(self) -> tuple[WiskiPosterior, Solution]:
        """Of a finished one."""
        solution = self.solve.solution()
        return self.posterior.solved(solution, self.solve.sums.held), solution

    def state_dict(self) -> dict:
        """What it began with, and how far it is: `from_state_dict` does the steps again, to the same digits."""
        return {"posterior": self.posterior.state_dict(), "sums": self.solve.sums.state_dict(),
                "tolerance": self.tolerance, "samples": self.samples, "steps": self.solve.steps,
                "iterations": self.solve.iterations}

    @staticmethod
    def from_state_dict(state: dict, epoch: int, device) -> "Refresh":
        new = Refresh(WiskiPosterior.from_state_dict(state["posterior"], device),
                      Frozen.from_state_dict(state["sums"], device), state["tolerance"], state["samples"], epoch,
                      iterations=state["iterations"])
        while new.solve.steps < state["steps"] and not new.solve.finished:
            new.solve.step()
        return new


def price(model) -> float:
    """Of the next step ahead: points of the torus (the box and about ten lengthscales), times iterations."""
    if model.ahead is not None:
        return model.ahead.solve.price
    reach = 10.0 * model.theta.lengthscale / model.grid.spacing
    return _START * (model.grid.shape[0] + reach) * (model.grid.shape[1] + reach)


def ahead(model, budget_s: float) -> bool:
    """Steps that samples have paid for, for about budget_s; True: there are more."""
    end = perf_counter() + budget_s
    while model.samples and model.due and model.credit >= (cost := price(model)):
        if perf_counter() >= end:
            return True
        model.credit -= cost
        if model.ahead is None:
            model.ahead = Refresh.of(model)
        elif not model.ahead.solve.finished:
            model.ahead.solve.step()
        if model.ahead.solve.finished:
            take(model, model.ahead)
    return False


def take(model, refresh: Refresh) -> None:
    """What is finished is what the map says, and where later refreshes start from."""
    posterior, solution = refresh.result()
    sums, theta = refresh.solve.sums, refresh.posterior.theta
    model.grid.start.zero_()
    model.grid.start[sums.numbers_in(model.grid)] = solution.p * (theta.signal / model.theta.signal) ** 2
    model.start_f, model.features = solution.f, (solution.f, posterior.covariance_f, refresh.samples)
    model.base, model.lag, model._posterior = posterior, model.samples - refresh.samples, None
    model.base_epoch, model.ahead = refresh.epoch, None
    model.iterations, model.residual = solution.iterations, solution.residual


def shown(model, budget_s: float) -> tuple[WiskiPosterior, int, int]:
    """The newest posterior that there is without waiting, of how many samples, and the epoch of the map then.

    Goes on with a refresh for about budget_s (s), an iteration more at most, beside what samples pay for: nothing that
    is saved changes. Only a map that has never been refreshed is solved, whatever it takes.
    """
    model.need_data()
    if not model.due:
        return model.base, model.samples, model.epoch
    end, longest = perf_counter() + budget_s, 0.0
    if model._posterior is not None:
        return _keep(model, model._posterior, model.samples, model.epoch)
    if model.base is not None:
        _keep(model, model.base, model.samples - model.lag, model.base_epoch)
    while (start := perf_counter()) + longest < end:
        work, paid = model._drawing, model.ahead
        if work is not None and not _newer(work, model._shown):
            work = None  # overtaken
        if paid is not None and _newer(paid, model._shown) and (work is None or paid.solve.steps > work.solve.steps):
            model._drawing = work = paid.fork()
        elif work is None:
            model._drawing = work = Refresh.of(model)
        else:
            work.solve.step()
        if work.solve.finished:
            _keep(model, work.result()[0], work.samples, work.epoch)
            model._drawing = None
            if (work.samples, work.epoch) == (model.samples, model.epoch):
                break
        longest = max(longest, perf_counter() - start)
    if model._shown is None:
        return _keep(model, model.posterior, model.samples, model.epoch)
    return model._shown


def _newer(refresh: Refresh, kept: tuple | None) -> bool:
    """Whether it would show what `kept` (posterior, samples, epoch) does not."""
    return kept is None or (refresh.epoch, refresh.samples) > (kept[2], kept[1])


def _keep(model, posterior: WiskiPosterior, samples: int, epoch: int) -> tuple[WiskiPosterior, int, int]:
    if model._shown is None or (epoch, samples) >= (model._shown[2], model._shown[1]):
        model._shown = posterior, samples, epoch
    return model._shown

