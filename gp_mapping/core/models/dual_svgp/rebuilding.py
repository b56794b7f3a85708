"""Maps that can be transferred to another θ, or to other inducing inputs (rebuild.py).

The transfer is done at once, or in slices, one with each update.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper.adopting import go_on_with_kernel
from gp_mapping.core.hyper.first_guess import SMOOTHNESS
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.smoothness import KernelSearch, Neighbourhoods
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.memory_sites import RebuiltParts
from gp_mapping.core.models.dual_svgp.rebuild import SLICE, Rebuild
from gp_mapping.core.sparse.sparse_map import SparseMap
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.errors import NumericalError

__all__ = ["Rebuilding", "search_among"]


def search_among(parts: list[dict[str, Tensor]], learner: HyperLearner) -> KernelSearch | None:
    """A search for the likeliest kernel; None where the samples are too few to tell one.

    Args:
        parts: columns of samples, as of HyperLearner.step, of one map each.
        learner: of θ.
    """
    data = Neighbourhoods.of(parts, learner.theta)
    if data is None or learner.theta.kernel_name not in SMOOTHNESS:
        return None
    return KernelSearch(learner.theta, data, learner.prior_sd[:3].tolist())


class Rebuilding(SparseMap):
    """A sparse map with `basis`, `budget` and `information` that a Rebuild can transfer.

    While a rebuild is under way, the map answers as before. What changes it meanwhile is noted, and
    done again by the copy that takes its place (update, forget), or finishes the rebuild first
    (forget_near, merge, move, agree_on): the copy replaces all else.
    """

    may_slice = True  # False in a subclass with state that `replace_parts` does not replace
    sliced = False  # whether large work is done in slices
    driven = False  # whether the map's owner calls advance_rebuild, and not each update
    rebuild: Rebuild | None = None  # the one under way
    likelihood_power = 1.0  # to which the samples' likelihood counts

    def adopt(self, theta: Theta, budget: int | None = None) -> bool:
        """Transfer the map to θ, with inputs chosen again; whether it succeeded.

        Args:
            theta: hyper-parameters.
            budget: inducing inputs that it may have there; the map's if None.

        Returns:
            False where the map does not factor at θ; the map is then as it was.
        """
        return self.begin_rebuild(theta, budget, at_once=True)

    def adopt_in_slices(self, theta: Theta) -> bool:
        """Begin the transfer to θ, in slices where the map is sliced; whether it is done.

        Nothing is begun while another transfer is under way, or soon after it has failed.
        """
        return self.rebuild is None and self.promises(theta) and self.begin_rebuild(theta)

    def begin_rebuild(
        self, theta: Theta, budget: int | None = None, full: bool = False, at_once: bool = False
    ) -> bool:
        """Begin to transfer the map to θ; whether the transfer is complete.

        Where the map does not factor at θ it stays as it was.

        Args:
            theta: hyper-parameters.
            budget: inducing inputs that it may have there; the map's if None.
            full: whether the reason is a full budget.
            at_once: not in slices, even where the map is sliced.
        """
        rebuild = Rebuild(self, theta, budget or self.budget, full)
        try:
            rebuild.advance(SLICE if self.sliced and not at_once else math.inf)
        except NumericalError:
            # who asks for it at once gets the result, and decides whether to ask again
            if at_once:
                self.count_rejected()
                return False
            return self.not_adopted(theta)

        # more than a slice: the map goes on, and the other steps follow with later updates
        if rebuild.steps_left:
            rebuild.freeze()
            self.rebuild = rebuild
            return False

        self.rebuild = None
        self.replace_parts(theta, rebuild.result(), full)
        self.fit_budget(rebuild.budget)
        return True

    def fit_budget(self, budget: int) -> None:
        """Have the budget of one map from now on, where a rebuild was made for that.

        Args:
            budget: inducing inputs that the rebuild allowed.
        """

    def replace_parts(self, theta: Theta, converted: RebuiltParts, full: bool) -> None:
        """Replace the map's parts by rebuilt ones at θ.

        Args:
            theta: hyper-parameters of the parts.
            converted: the parts.
            full: whether the rebuild was made because the budget was full.
        """
        converted.sites.passes = converted.sites.passes.with_elsewhere(self.sites.passes.elsewhere)
        theta_before, power_before = self.theta, self.likelihood_power
        self.basis, self.sites = converted.basis, converted.sites
        converted.memory_sites.write(self.memory)
        self.theta, self.floor, self.thinned = theta, converted.floor, len(self.basis)
        self.failed = None

        if full:
            self.moves += 1
            # by residual alone, an input needs twice the least residual variance of the others
            if self.information <= 0:
                self.floor = 2.0 * float(self.basis.L.diagonal().min()) ** 2
        self.likelihood_power = self.power_of_samples()
        # inputs that went are a change of small rank, which increments follow
        if (theta, self.likelihood_power) == (theta_before, power_before):
            self.mark_told_change()
        else:
            self.mark_changed()

    def changed_since(self, epoch: int) -> list | None:
        """As FieldMap.changed_since: None, unless since then inputs went at most."""
        return [] if epoch >= self.untold_epoch else None

    def power_of_samples(self) -> float:
        """To which power the samples' likelihood counts, with the present inputs; 1: as it is."""
        return 1.0

    def in_slices(self, on: bool, driven: bool = False) -> None:
        """Set whether θ is adopted, and inputs are chosen again, in slices.

        Args:
            on: False finishes a rebuild that is under way.
            driven: the owner of the map calls advance_rebuild; else each update does.
        """
        self.sliced, self.driven = on and self.may_slice and self.likelihood.conjugate, driven
        if not self.sliced:
            self.finish_rebuild()

    def advance_rebuild(self) -> None:
        """Do one slice of the rebuild that is under way, if there is one."""
        if self.rebuild is None:
            return
        try:
            done = self.rebuild.run_slice()
        except (NumericalError, torch.linalg.LinAlgError):
            theta, self.rebuild = self.rebuild.theta, None
            self.not_adopted(theta)
            return

        if done:
            self._adopt_copy(self.rebuild.source)

    def finish_rebuild(self) -> None:
        """Complete the rebuild that is under way, at once."""
        while self.rebuild is not None:
            self.advance_rebuild()

    def _adopt_copy(self, new: Rebuilding) -> None:
        """Take over all parts of the rebuilt copy, which has absorbed all that this map has."""
        # these belong to the map and have gone on meanwhile
        own = (
            *("learner", "generator", "epoch", "untold_epoch"),
            *("newest_pass", "sliced", "driven", "rebuild"),
        )
        self.__dict__.update(
            {name: value for name, value in new.__dict__.items() if name not in own}
        )

        self.rebuild = None
        if self.learner is not None:  # the learner does not learn s_b
            self.learner.theta = self.learner.theta.with_biases_of(self.theta)

        self.mark_changed()

    # --- another kernel ---------------------------------------------------------------------------
    @property
    def kernel_name(self) -> str:
        """As FieldMap.kernel_name."""
        return self.theta.kernel_name

    def kernel_search(self) -> KernelSearch | None:
        """As FieldMap.kernel_search."""
        if self.learner is None or not self.remembers_all:
            return None
        return search_among([self.learning_data()], self.learner)

    @property
    def remembers_all(self) -> bool:
        """Whether every sample so far is remembered one by one."""
        return self.memory is not None and self.unremembered_empty

    def use_kernel(self, theta: Theta) -> None:
        """As FieldMap.use_kernel."""
        go_on_with_kernel(self.learner, theta)
        self._adopt_learned()

    # --- what else changes the map ----------------------------------------------------------------
    def update(self, batch: Samples) -> UpdateReport:
        """As FieldMap.update; a rebuild in slices goes on first."""
        if not self.driven and len(batch):
            self.advance_rebuild()
        return super().update(batch)

    def _scale(self, factor: float) -> None:
        """Scale all sums, also those of a rebuild under way."""
        super()._scale(factor)
        if self.rebuild is not None:
            self.rebuild.log_call("forget", factor)

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """As FieldMap.forget_near; a rebuild under way is finished first."""
        self.finish_rebuild()
        return super().forget_near(x, radius, newest)

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """As FieldMap.move; a rebuild under way is finished first."""
        self.finish_rebuild()
        super().move(turn, shift)

    def merge_renumbered(self, other: Rebuilding, renumber: float) -> None:
        """As ScaledMap.merge_renumbered; a rebuild under way is finished first."""
        self.finish_rebuild()
        sliced, self.sliced = self.sliced, False  # room for the other map's inputs is made at once
        try:
            super().merge_renumbered(other, renumber)
        finally:
            self.sliced = sliced

    def shallow_copy(self) -> Rebuilding:
        """A copy without the rebuild, which belongs to the map alone."""
        new = super().shallow_copy()
        new.rebuild, new.sliced = None, False
        return new

    # --- files ------------------------------------------------------------------------------------
    def saved_rebuild(self) -> dict:
        """Entry of a checkpoint: the rebuild that is under way, if there is one."""
        return {} if self.rebuild is None else {"rebuild": self.rebuild.state_dict()}

    def restored_rebuild(self, state: dict) -> Rebuild | None:
        """The rebuild that was under way when the state was taken, or None.

        States of versions that rebuilt at once have none.
        """
        kept = state.get("rebuild")
        if kept is None:
            return None
        source = self.shallow_copy()
        source.learner = None
        return Rebuild.restored(kept, source)
