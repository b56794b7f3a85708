"""Maps that are carried to another θ, or to other inducing inputs, at once or a slice with each update (rebuild.py)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.memory_sites import RebuiltParts
from gp_mapping.core.models.dual_svgp.rebuild import SLICE, Rebuild
from gp_mapping.core.sparse.sparse_map import SparseMap
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.errors import NumericalError

__all__ = ["Rebuilding"]


class Rebuilding(SparseMap):
    """A sparse map with `basis`, `max_inducing`, `information`, and what a Rebuild asks.

    While a rebuild is under way the map answers, and takes in, as it is. forget_near and merge finish it first.
    """

    may_slice = True  # a subclass that keeps more than `take` replaces has False
    sliced = False  # whether large work is done in slices
    driven = False  # whether somebody else calls go_on
    rebuild: Rebuild | None = None  # what is under way

    def adopt(self, theta: Theta, budget: int | None = None) -> bool:
        """Carry the map to θ, z chosen again within the budget; False, the map as it was, if that does not factor."""
        return self.begin_rebuild(theta, budget, at_once=True)

    def adopt_in_slices(self, theta: Theta) -> bool:
        return self.rebuild is None and self.begin_rebuild(theta)

    def begin_rebuild(
        self, theta: Theta, budget: int | None = None, full: bool = False, at_once: bool = False
    ) -> bool:
        """Begin to carry the map to θ; whether it is there. The map as it was where that does not factor.

        Args:
            theta: hyper-parameters.
            budget: inducing inputs that it may have there; `max_inducing` if None.
            full: because its budget was full.
            at_once: not in slices.
        """
        rebuild = Rebuild(self, theta, budget or self.max_inducing, full)
        try:
            rebuild.advance(SLICE if self.sliced and not at_once else math.inf)
        except NumericalError:
            self._rejected()
            return False
        if rebuild.todo:
            rebuild.freeze()
            self.rebuild = rebuild
            return False
        self.rebuild = None
        self.take(theta, rebuild.result(), full)
        return True

    def _rejected(self) -> None:
        if self.learner is not None:
            self.learner.rejected += 1

    def take(self, theta: Theta, converted: RebuiltParts, full: bool) -> None:
        """These parts at θ take the place of the map's own. full: because the budget was."""
        self.basis, self.sites = converted.basis, converted.sites
        converted.memory_sites.write(self.memory)
        self.theta, self.floor, self.thinned = theta, converted.floor, len(self.basis)
        if full:
            self.moves += 1
            if self.information <= 0:
                self.floor = 2.0 * float(self.basis.L.diagonal().min()) ** 2
        self.changed()

    def in_slices(self, on: bool, driven: bool = False) -> None:
        """Whether θ is adopted, and inputs are chosen again, in slices. Off: what is under way is finished.

        driven: who owns the map calls go_on; else each update does.
        """
        self.sliced, self.driven = on and self.may_slice and self.likelihood.conjugate, driven
        if not self.sliced:
            self.finish()

    def go_on(self) -> None:
        """One slice of the rebuild that is under way, if one is."""
        if self.rebuild is None:
            return
        try:
            done = self.rebuild.slice()
        except (NumericalError, torch.linalg.LinAlgError):
            self.rebuild = None
            self._rejected()
            return
        if done:
            self._give_way_to(self.rebuild.source)

    def finish(self) -> None:
        """All of the rebuild that is under way, at once."""
        while self.rebuild is not None:
            self.go_on()

    def _give_way_to(self, new: Rebuilding) -> None:
        """That one has seen all that this one has, and is where this one is to go: it takes its place."""
        own = ("learner", "generator", "epoch", "newest_pass", "sliced", "driven", "rebuild")
        self.__dict__.update(
            {name: value for name, value in new.__dict__.items() if name not in own}
        )
        self.rebuild = None
        if self.learner is not None:  # s_b is not among what that learns
            self.learner.theta = replace(self.learner.theta, bias_stddev=self.theta.bias_stddev)
        self.changed()

    # --- what else changes the map --------------------------------------------------------------------------------
    def update(self, batch: Samples) -> UpdateReport:
        if not self.driven and len(batch):
            self.go_on()
        return super().update(batch)

    def _scale(self, factor: float) -> None:
        super()._scale(factor)
        if self.rebuild is not None:
            self.rebuild.note("forget", factor)

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        self.finish()
        return super().forget_near(x, radius, newest)

    def _merge(self, other: Rebuilding, renumber: float) -> None:
        self.finish()
        sliced, self.sliced = self.sliced, False  # it may need room on the way
        try:
            super()._merge(other, renumber)
        finally:
            self.sliced = sliced

    def shell(self) -> Rebuilding:
        new = super().shell()
        new.rebuild, new.sliced = None, False
        return new

    # --- files ----------------------------------------------------------------------------------------------------
    def saved_rebuild(self) -> dict:
        """What is under way, as a checkpoint keeps it; empty where nothing is."""
        return {} if self.rebuild is None else {"rebuild": self.rebuild.state_dict()}

    def restored_rebuild(self, state: dict) -> Rebuild | None:
        """What was under way when that state was taken; none in files of versions that did all at once."""
        kept = state.get("rebuild")
        if kept is None:
            return None
        source = self.shell()
        source.learner = None
        return Rebuild.restored(kept, source)
