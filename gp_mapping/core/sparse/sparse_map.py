"""A map as a prior plus additive sites: every operation that all such maps share, once.

    h = Σ φ(x_i) λ_i,  G = Σ φ(x_i) β_i φ(x_i)ᵀ        sites: wherever these sums are kept (SiteStore)

What the memory's samples have in the sums is known exactly, so it is taken out exactly as it stands and put back with
fresh features. The rest, of which no sample is left, is carried as the model says: as pseudo-data K⁻¹GK⁻¹ and K⁻¹h
through another basis, or as weighted samples onto another lattice.
"""

from __future__ import annotations

import copy
from abc import abstractmethod

import torch
from torch import Tensor

from gp_mapping.core.field_map import CalibrationData
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.scaled_map import check_factor, learnable_extra
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.observing import ObservingMap
from gp_mapping.core.sparse.sites import SiteStore

__all__ = ["SparseMap"]


class SparseMap(ObservingMap):
    """Base of the maps with sites and a memory. A model says what differs:

    stand_in    put what the memory has in the sums into a store, or take it out
    without     the sites without some samples of the memory, and with what else was known near a place forgotten
    carried     another map's copy at this one's hyper-parameters (and on its lattice)
    take_over   add another map's rest and its remembered samples, given in this map's coordinates
    adopt       carry this map to other hyper-parameters

    """

    fitting = ("memory_size",)
    counted = ("samples", "unremembered_empty", "unremembered_model_noise")
    closed_passes = 0  # whose constants are not told apart any more

    def __init__(
        self,
        theta: Theta,
        likelihood,
        *,
        learner,
        memory_size: int,
        seed: int,
        scale: float,
        centre,
        device,
    ):
        super().__init__(likelihood, scale=scale, centre=centre, device=device)
        self.theta, self.learner, self.memory_size = theta, learner, memory_size
        self.generator = torch.Generator().manual_seed(seed)
        self.samples, self.jitter = 0, 0.0
        self.epoch = 0  # grows when the whole map has changed, not only near new samples
        self.sites: SiteStore | None = None
        self.memory: Memory | None = None
        # while every sample is remembered, no site is outside the memory; own noise: all β come from θ
        self.unremembered_empty, self.unremembered_model_noise = True, True

    # --- what a model says ----------------------------------------------------------------------------------------
    @abstractmethod
    def stand_in(self, store: SiteStore, sign: float) -> None:
        """Add (sign 1) or take out (−1) what the memory has in the sums, exactly as it stands."""

    @abstractmethod
    def without(self, gone: Tensor, near: Tensor, radius: float) -> None:
        """Make it a map without the memory's samples `gone` (m,), and without what the rest says near (K, D)."""

    @abstractmethod
    def converted(self, other: SparseMap, offset: Tensor) -> SparseMap:
        """A copy of another map at this map's θ. offset (D,): from its origin to this one's.

        ValueError where that cannot be, before anything has changed.
        """

    @abstractmethod
    def take_over(
        self, its: SparseMap, memory: dict[str, Tensor], offset: Tensor, delta: Tensor
    ) -> int:
        """Add a carried map: its rest, moved by offset (D,) and delta (C,), and its remembered samples.

        How many samples, old or new, fell out of the memory.
        """

    @abstractmethod
    def begin(self, dimension: int, channels: int) -> None:
        """Sites and memory of a map that has seen nothing."""

    # --- what is asked of all -------------------------------------------------------------------------------------
    @property
    def empty(self) -> bool:
        return self.samples == 0

    @staticmethod
    def noise(own: Tensor, extra: Tensor, theta: Theta, x: Tensor | None = None) -> Tensor:
        """The sample's own variance where it has one (> 0), else s_p²; and what is beside it. (N,)"""
        return torch.where(own > 0, own, theta.noise_stddev**2) + extra

    def memory_places(self, theta: Theta) -> Tensor:
        """Where the memory's samples were measured, given θ's time offset and lever arm: (m, D)."""
        return theta.place(self.memory.x, self.memory.velocity, self.memory.heading)

    def remembered_places(self) -> Tensor:
        return self._outer_places(None if self.memory is None else self.memory.x)

    def calibration_data(self) -> CalibrationData | None:
        return None if self.memory is None else self._calibration_data(self.memory.values())

    def learning_data(self) -> dict[str, Tensor]:
        memory = self.memory
        return {
            "x": memory.x,
            "velocity": memory.velocity,
            "heading": memory.heading,
            "y": memory.y,
            "extra": learnable_extra(memory.noise, memory.extra, self.theta),
            "order": memory.order,
            "pass_number": memory.pass_number,
        }

    def unremembered(self) -> SiteStore:
        """The sites without the memory's share."""
        if self.unremembered_empty:  # exactly nothing, without rounding
            return self.sites.emptied()
        unremembered = self.sites.clone()
        self.stand_in(unremembered, -1.0)
        return unremembered

    # --- operations -----------------------------------------------------------------------------------------------
    def forget(self, factor: float) -> None:
        """Scale all that the data said by factor in (0, 1]."""
        check_factor(factor)
        if self.sites is not None and factor < 1.0:
            self._scale(factor)

    def _scale(self, factor: float) -> None:
        """What the data said, times the factor."""
        self.sites.scale(factor)
        self.memory.scale(factor)
        self.changed()

    @torch.no_grad()
    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what was known within radius (m) of x (K, D), but for the newest samples; how many went.

        The memory's samples leave exactly; what else is known there is forgotten as the model's pseudo-data.
        """
        if self.empty:
            return 0
        memory, near = self.memory, self.scaling.inner_x(x)
        gone = (torch.cdist(self.memory_places(self.theta), near) <= radius).any(1)
        gone &= memory.order < memory.arrivals - newest
        self.without(gone, near, radius)
        self.changed()
        return int(gone.sum())

    def _union(
        self, other: SparseMap, scaling: Scaling, offset: Tensor, delta: Tensor, renumber: float
    ) -> None:
        its = self.converted(other, offset)
        its.renumber(renumber)
        self.scaling = scaling
        if self.sites is None:
            self.begin(len(scaling.origin), other.sites.channels)
        memory = its.memory.values()
        memory["x"], memory["y"] = memory["x"] + offset, memory["y"] + delta
        memory["lam"] = memory["lam"] + memory["beta"][:, None] * delta
        memory["order"] = memory["order"] + self.memory.arrivals

        fell = self.take_over(its, memory, offset, delta)
        self.unremembered_empty = self.unremembered_empty and other.unremembered_empty and not fell
        self.unremembered_model_noise = (
            self.unremembered_model_noise and other.unremembered_model_noise
        )
        self.samples += other.samples
        self.close_passes()
        self.changed()

    def notes(self) -> list[str]:
        """That passes were closed."""
        if not self.closed_passes:
            return []
        return [
            f"the constants of {self.closed_passes} passes are not told apart any more, and their samples are not "
            "remembered one by one; raise max_biases where that is too early"
        ]

    def close_passes(self) -> None:
        """Keep to the bound of passes whose constants are told apart, where there is one."""

    def duplicate(self) -> SparseMap:
        """An independent copy."""
        new = self.shell()
        if self.sites is not None:
            new.sites, new.memory = self.sites.clone(), self.memory.copy()
        return new

    def shell(self) -> SparseMap:
        """A copy with a generator and a learner of its own, and still this map's sites and memory, to be replaced."""
        new = copy.copy(self)
        new.forget_mark()
        new.outdate()
        new.generator = torch.Generator()
        new.generator.set_state(self.generator.get_state())
        new.learner = copy.deepcopy(self.learner)
        return new

    def renumber(self, by: float) -> None:
        """Every pass gets a number that is larger by that."""
        of = self.memory.pass_number
        of.copy_(torch.where(of >= 0, of + by, of))

    # --- files ----------------------------------------------------------------------------------------------------
    def _saved_parts(self) -> dict:
        return {} if self.memory is None else {"memory": self.memory.state_dict()}

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        memory, scaling = None, parts["scaling"]
        if scaling is not None:
            empty = self.new_memory(len(scaling.origin), len(scaling.centre), 0)
            memory = type(empty).from_state_dict(state["memory"], self.device).follow(empty.rule)
        return {"sites": None, "memory": memory}

    @abstractmethod
    def new_memory(self, dimension: int, channels: int, rows: int) -> Memory:
        """An empty memory for sites of that many rows."""
