"""A refresh of a WISKI map, in small steps, of the sums and θ as they were when it began."""

from __future__ import annotations

import copy

import torch

from gp_mapping.core.models.wiski.lattice.features import feature_prior, longer
from gp_mapping.core.models.wiski.lattice.frozen import FrozenSums
from gp_mapping.core.models.wiski.lattice.solver import MeanSolve, Solution
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid
from gp_mapping.core.models.wiski.posterior import WiskiPosterior

__all__ = ["Refresh"]


class Refresh:
    """A solve of the mean that is under way.

    Args:
        posterior: of the moment when it began, without its mean.
        sums: of that moment.
        tolerance: ε of the solve.
        samples: of the map at that moment.
        epoch: of the map at that moment.
        kernel: K_uu on the box; made where None.
        iterations: the most that a channel may take.
    """

    def __init__(
        self,
        posterior: WiskiPosterior,
        sums: FrozenSums,
        tolerance: float,
        samples: int,
        epoch: int,
        kernel: KernelGrid | None = None,
        iterations: int = 3000,
    ):
        self.posterior, self.samples, self.epoch, self.tolerance = (
            posterior,
            samples,
            epoch,
            tolerance,
        )

        theta, device = posterior.theta, sums.held.device
        if kernel is None:
            kernel = KernelGrid(theta.kernel(), posterior.spacing, sums.shape, device)

        first = (torch.tensor(sums.low, device=device) - posterior.shift) * posterior.spacing
        self.solve = MeanSolve(
            sums,
            first,
            posterior.spacing,
            posterior.aggregates,
            theta.kernel(),
            kernel,
            feature_prior(theta, len(posterior.numbers), device),
            tolerance,
            iterations,
        )

    @staticmethod
    def start(model, iterations: int = 3000) -> "Refresh":
        """Begin from the sums and θ that a map has now.

        Args:
            model: a LatticeMap with `tolerance` and `start_f`.
            iterations: the most that a channel may take.
        """
        posterior = WiskiPosterior.from_sums(
            model.theta, model.scaling, model.noise_level, model.grid, model.points
        )
        return Refresh(
            posterior,
            # a pass that has come since then starts at 0
            FrozenSums.from_grid(model.grid, longer(model.start_f, model.grid.width)),
            model.tolerance,
            model.samples,
            model.epoch,
            model.kernel_grid(),
            iterations,
        )

    def fork(self) -> "Refresh":
        """An independent refresh that goes on from here."""
        new = copy.copy(self)
        new.solve = self.solve.fork()
        return new

    def result(self) -> tuple[WiskiPosterior, Solution]:
        """Posterior and solution; valid once `solve.finished`."""
        solution = self.solve.solution()
        return self.posterior.with_mean(solution, self.solve.sums.held), solution

    def state_dict(self) -> dict:
        """What it began with and how many steps were done; `from_state_dict` repeats these steps.

        The repeated steps give the same digits.
        """
        return {
            "posterior": self.posterior.state_dict(),
            "sums": self.solve.sums.state_dict(),
            "tolerance": self.tolerance,
            "samples": self.samples,
            "steps": self.solve.steps,
            "iterations": self.solve.iterations,
        }

    @staticmethod
    def from_state_dict(state: dict, epoch: int, device) -> "Refresh":
        """The refresh of a state, at the same step.

        Args:
            state: of `state_dict`.
            epoch: of the map when it began.
            device: of all tensors.
        """
        new = Refresh(
            WiskiPosterior.from_state_dict(state["posterior"], device),
            FrozenSums.from_state_dict(state["sums"], device),
            state["tolerance"],
            state["samples"],
            epoch,
            iterations=state["iterations"],
        )
        while new.solve.steps < state["steps"] and not new.solve.finished:
            new.solve.step()
        return new
