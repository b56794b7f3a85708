"""Copies of a dual SVGP, and merging one map into another.

A copy may be conditioned on fantasies, or hold some of the remembered samples only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.growing import GrowingMap
from gp_mapping.core.models.dual_svgp.natural_gradient import settle
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.sparse.worth import bits_of, least_fraction
from gp_mapping.errors import NumericalError

__all__ = ["MergingMap"]

_SLICE = 25  # samples of another map that are merged together

# What an input that is left out moves the mean by, at most, in standard deviations: the variance
# that is lost, w times that of the posterior (worth.py), is the mean square of that.
_MOVED = 0.1
# the largest values of max_inducing and memory_size, which bound a sum, too
_MOST_INPUTS, _MOST_REMEMBERED = 5000, 100_000
_USED = 0.8  # fraction of the budget that may be used: a map that is fuller is divided into tiles


class MergingMap(GrowingMap):
    """Base of the maps that can be copied, conditioned on fantasies, split and merged.

    A subclass has `new_basis`.

    Attributes:
        fantasy_tolerance: a fantasy becomes an inducing input where its residual variance exceeds
            this fraction of s².
        memory_rule: which samples stay remembered.
    """

    def duplicate(self, rows: int = 0) -> MergingMap:
        """An independent copy with room for `rows` more inducing inputs."""
        new = self.shallow_copy()
        # a fantasy's rows are its own for good: no sum returns from them
        new.max_inducing, new.budget = self.max_inducing + rows, self.budget + rows
        if self.basis is not None:
            capacity = self.basis.features + new.budget
            new.basis, new.sites = self.basis.copy(new.budget), self.sites.clone(capacity)
            new.memory = self.memory.copy(capacity)
        return new

    @torch.no_grad()
    def fantasize(self, x: Tensor) -> MergingMap:
        """A copy conditioned on its own mean at x (K, D): D grows, and the mean stays exactly.

        The target of each fantasy is the mean a(x)ᵀD⁻¹r.

        Reference:
            Chang et al. 2023, Alg. 2.
        """
        self.need_data()
        inner, before = self.scaling.inner_x(x), self.posterior
        new = self.duplicate(len(inner))

        mean, variance = before.predict_inner(inner)
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

    @torch.no_grad()
    def excerpt(self, which: Tensor, theta: Theta | None = None) -> MergingMap:
        """A map of some remembered samples and nothing else, without z, for another to merge.

        Args:
            which: indices of remembered samples (k,).
            theta: its hyper-parameters; this map's if None.
        """
        # the columns without the features, which are most of the memory and belong to this basis
        new, state = self.shallow_copy(), self.memory.copy_columns()
        new.theta, new.basis = (
            theta or self.theta,
            self.new_basis(theta or self.theta, self.memory.x.shape[1]),
        )
        new.sites = Sites(
            new.basis.size, self.sites.channels, new.basis.features + self.budget, self.device
        )

        # sites at the θ of the excerpt
        if self.likelihood.conjugate:
            beta = self.remembered_precision(new.theta)
            state |= {"beta": beta, "lam": beta[:, None] * self.memory.y}

        kept = {name: state[name][which] for name in type(self.memory).COLUMNS}
        # renumbered from 0: passed on from tile to tile, arrival numbers would grow exponentially
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

    def converted_copy(self, other: MergingMap, offset: Tensor) -> MergingMap:
        """As SparseMap.converted_copy, with room for features that only this map has.

        Raises:
            ValueError: the other map does not factor at this map's θ.
        """
        duplicate = other.duplicate(2)  # room for features that only this map has
        if duplicate.theta != self.theta and not duplicate.adopt(self.theta):
            raise ValueError(
                "the other map cannot be carried to this one's hyper-parameters; nothing was merged"
            )
        return duplicate

    def merge_converted(
        self, converted: MergingMap, memory: dict[str, Tensor], offset: Tensor, delta: Tensor
    ) -> int:
        """Merge a converted map: unremembered sites by projection, samples with fresh features.

        Args:
            converted: the other map, at this map's θ.
            memory: all columns of its remembered samples, in this map's coordinates.
            offset: its origin minus this one's, (D,) m.
            delta: its centre minus this one's, (C,), inner units.

        Returns:
            How many samples, old or new, fell out of the memory.
        """
        z, budget = converted.basis.z + offset, self.budget
        places = self.theta.sensor_place(memory["x"], memory["velocity"], memory["heading"])

        # inputs first: on the inputs of both maps the projection below loses nothing
        if self.fixed is None:
            # not where samples share blocks, whose memory has a fixed width
            if self.worth and self.sums_follow and len(z):
                self._grow_budget(len(z))
            self._welcome(z if self.worth else torch.cat([z, places]))

        if not converted.unremembered_empty:
            unremembered = converted.unremembered_sites()
            unremembered.shift_centre(delta)
            transfer = self.basis.transfer_from(z, converted.basis.L, converted.theta)
            self.sites.merge(unremembered.project(transfer, self.sites.capacity))

        if self.fixed is not None or not self.worth:
            return self.merge_memory(
                memory, self.basis.whitened(places, memory["heading"]), converted.memory.arrivals
            )

        # where worth decides, samples are added with their sites, in small parts: an input has no
        # worth without the sites around it; oldest first, as blocks of samples grow
        fell, arrivals, precision = (
            0,
            converted.memory.arrivals,
            converted.remembered_precision(self.theta),
        )
        for part in memory["order"].argsort().split(min(_SLICE, self.inputs_to_free)):
            x, heading = places[part], memory["heading"][part]
            whitened, _, _ = self.grow(x, heading, self.basis.whitened(x, heading), precision[part])
            fell += self.merge_memory(
                {name: column[part] for name, column in memory.items()}, whitened, arrivals
            )
            arrivals = 0  # counted once, with the first part

        self._keep_within(budget)
        return fell

    @torch.no_grad()
    def widen_budget(self, times: int) -> None:
        """As FieldMap.widen_budget; not of given inputs, nor where samples share blocks."""
        if self.fixed is not None or not self.sums_follow:
            return
        inputs = max(self.budget, min(times * self.max_inducing, _MOST_INPUTS))
        remembered = max(self.memory_budget, min(times * self.memory_size, _MOST_REMEMBERED))
        if (inputs, remembered) == (self.budget, self.memory_budget):
            return

        self.finish_rebuild()
        self.budget, self.memory_budget = inputs, remembered
        if self.basis is not None:
            self._resize()

    def narrow_budget(self) -> None:
        """Begin to return from the budget of a sum to that of a map that samples come to.

        Its own rules decide which inputs stay, in slices where the map is sliced.
        """
        if self.promises(self.theta):
            self.begin_rebuild(self.theta, self.max_inducing)

    def fit_budget(self, budget: int) -> None:
        """As Rebuilding.fit_budget."""
        if budget == self.max_inducing < self.budget:
            self.budget, self.memory_budget = budget, self.memory_size
            self._keep_remembered(self.memory_size)
            self._resize(self.memory_size)

    @property
    def usable_budget(self) -> int:
        """Inducing inputs that `use_budget` may use."""
        return round(_USED * self.budget)

    def _grow_budget(self, rows: int) -> None:
        """Let the budget grow by `rows` inducing inputs, for as long as two maps are joined."""
        self.budget += rows
        self._resize()

    def _keep_within(self, budget: int) -> None:
        """Return to a budget: of the inputs beyond it, those go of which the data tell least.

        Raises:
            NumericalError: the map does not factor with fewer inputs.
        """
        if self.budget == budget:
            return
        if len(self.basis) > budget and not self._choose_finely(budget, full=True):
            raise NumericalError("the map of both does not factor within the budget of inputs")
        self.budget = budget
        self._resize()

    def _keep_remembered(self, most: int) -> None:
        """Remember no more samples than `most`: those that the memory's rule would keep."""
        memory = self.memory
        if len(memory) <= most:
            return
        every = torch.arange(len(memory), device=self.device)
        key = memory.draw_keys(every, self.basis.size, self.leverage)
        newest = memory.order >= memory.arrivals - min(memory.protect, most // 4)
        kept = key.masked_fill(newest, 0.0).topk(most).indices
        memory.keep(torch.isin(every, kept))
        self.unremembered_empty = False  # what they said stays in the sums

    def _resize(self, remembered: int | None = None) -> None:
        """Give basis, sites and memory room for the budgets.

        Args:
            remembered: samples that the memory has room for; None: as many as it may and has.
        """
        rows = self.basis.features + self.budget
        self.basis, self.sites = self.basis.copy(self.budget), self.sites.clone(rows)
        capacity = max(self.memory_budget, self.memory.capacity)
        self.memory = self.memory.copy(
            rows, capacity=capacity if remembered is None else remembered
        )

    @torch.no_grad()
    def use_budget(self) -> None:
        """Choose more inducing inputs among the remembered samples, within the budget.

        A growing map makes an input where `information` bits depend on it, which keeps its updates
        cheap. A map that is read, and not updated at once, may have those, too, of which the data
        tell less, as long as they move the mean. Sites that depend on the field are brought to that
        of all samples.
        """
        if self.basis is None:
            return

        self.finish_rebuild()
        if self.fixed is None and self.uses_worth:
            self._choose_finely(max(len(self.basis), self.usable_budget))
            self.thinned = 0  # the first update thins again
        settle(self)

    def _choose_finely(self, budget: int, full: bool = False) -> bool:
        """Choose inputs again, down to those of which the data tell little; whether that succeeded.

        Args:
            budget: inputs that the map may have.
            full: whether the reason is that it has more.
        """
        kept = self.information, self.tolerance
        self.information = min(self.information, bits_of(_MOVED**2))
        # an input of the residual variance d at one sample has w = β d
        precision = self.remembered_precision(self.theta)
        if len(precision):
            negligible = _MOVED**2 / float(precision.max()) / self.theta.signal_stddev**2
            self.tolerance = min(self.tolerance, max(negligible, least_fraction(self.dtype)))
        try:
            return self.begin_rebuild(self.theta, budget, full=full, at_once=True)
        finally:
            self.information, self.tolerance = kept

    def merge_memory(self, values: dict[str, Tensor], whitened: Tensor, arrivals: int) -> int:
        """Add another map's remembered samples to sites and memory; how many, old or new, fell out.

        Args:
            values: all columns of the samples.
            whitened: a(x) in this map's basis (R, N).
            arrivals: by how much the memory's count of arrivals grows.
        """
        self.sites.add(whitened, values["beta"], values["lam"], values["pass_number"])
        self.discard_posterior()
        return self.memory.insert_all(values, whitened, self.leverage, arrivals)

    def renumber(self, by: float) -> None:
        """Add `by` to every pass's number, also in the sums."""
        super().renumber(by)
        self.sites.passes = self.sites.passes.renumber(by)
