"""The operations that all maps share which consist of a prior and additive sites.

    h = Σ φ(x_i) λ_i,  G = Σ φ(x_i) β_i φ(x_i)ᵀ        sites: these sums, kept in a SiteStore

What the remembered samples contribute to the sums is known exactly, so it can be taken out exactly
and put back with fresh features. The unremembered sites, of which no sample is left, are
transferred as the model defines: as pseudo-data K⁻¹GK⁻¹ and K⁻¹h to another basis, or as weighted
samples to another lattice.
"""

from __future__ import annotations

import copy
from abc import abstractmethod

import torch
from torch import Tensor

from gp_mapping.core.field_map import CalibrationData
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.places import need_radius
from gp_mapping.core.scaled_map import check_factor
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.observing import ObservingMap
from gp_mapping.core.sparse.sites import SiteStore
from gp_mapping.core.standardised import average_noise, excess_variance

__all__ = ["SparseMap"]


class SparseMap(ObservingMap):
    """Base of the maps with sites and a memory. A model defines what differs.

    add_memory_sites  add the remembered samples' sites to a store, or take them out
    remove_samples    drop some remembered samples, and forget what else is known near a place
    converted_copy    a copy of another map at this one's hyper-parameters (and on its lattice)
    merge_converted   add another map's unremembered sites and its remembered samples
    adopt             transfer this map to other hyper-parameters

    Args:
        theta: hyper-parameters, inner units.
        likelihood: p(y | f).
        learner: learns θ; None keeps θ as it is.
        memory_size: samples remembered at most.
        seed: of random choices.
        scale: SI per inner unit.
        centre: (C,) SI, the prior mean; the median of the first batch if None.
        device: of all tensors.

    Attributes:
        theta: hyper-parameters in use, inner units.
        learner: learns them; None where nothing is learned.
        sites: sums over all samples; None before the first.
        memory: the remembered samples; None before the first.
        samples: number of samples absorbed.
        epoch: grows when the whole map has changed, not only near new samples.
        unremembered_empty: every sample so far is remembered, so no site is outside the memory.
        unremembered_model_noise: the unremembered sites' β all come from θ's noise.
    """

    fitting = ("memory_size",)
    counted = ("samples", "unremembered_empty", "unremembered_model_noise")
    closed_passes = 0  # passes whose constants are integrated out for good

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
        self.epoch = 0
        self.sites: SiteStore | None = None
        self.memory: Memory | None = None
        self.unremembered_empty, self.unremembered_model_noise = True, True

    # --- what a model defines ---------------------------------------------------------------------
    @abstractmethod
    def add_memory_sites(self, store: SiteStore, sign: float) -> None:
        """Add the remembered samples' sites to a store, or take them out, as they are.

        Args:
            store: sums in the basis, or on the lattice, of this map.
            sign: 1 to add, −1 to take out.
        """

    @abstractmethod
    def remove_samples(self, gone: Tensor, near: Tensor, radius: float) -> None:
        """Remove samples, and forget what the unremembered sites know near some places.

        Args:
            gone: which remembered samples leave, (m,) bool.
            near: places (K, D), standardised.
            radius: metres.
        """

    @abstractmethod
    def converted_copy(self, other: SparseMap, offset: Tensor) -> SparseMap:
        """A copy of another map at this map's hyper-parameters θ.

        Args:
            other: the map to copy.
            offset: its origin minus this map's, (D,) metres.

        Raises:
            ValueError: that cannot be; nothing has changed yet.
        """

    @abstractmethod
    def merge_converted(
        self, converted: SparseMap, memory: dict[str, Tensor], offset: Tensor, delta: Tensor
    ) -> int:
        """Add a map that `converted_copy` has made.

        Args:
            converted: the converted map, whose unremembered sites are moved by offset and delta.
            memory: its remembered samples, already in this map's coordinates.
            offset: its origin minus this map's, (D,) metres.
            delta: its centre minus this map's, (C,) inner units.

        Returns:
            How many samples, old or new, fell out of the memory.
        """

    @abstractmethod
    def allocate(self, dimension: int, channels: int) -> None:
        """Make the sites and the memory of a map without data.

        Args:
            dimension: D, of places.
            channels: C, of values.
        """

    # --- what all have ----------------------------------------------------------------------------
    @property
    def empty(self) -> bool:
        """Whether no sample has been absorbed."""
        return self.samples == 0

    @staticmethod
    def noise(own: Tensor, extra: Tensor, theta: Theta, x: Tensor | None = None) -> Tensor:
        """Noise variance of samples, (N,): `own` where it is > 0, else s_p²; plus `extra`.

        Args:
            own: stated noise variance of each sample (N,), 0 where it is not known.
            extra: what is added to it (N,), as by an uncertain pose.
            theta: gives s_p².
            x: places (N, D); unused here, for a model whose noise depends on the place.
        """
        return torch.where(own > 0, own, theta.noise_stddev**2) + extra

    def memory_places(self, theta: Theta) -> Tensor:
        """Where the remembered samples were measured, at θ's time offset and lever arm: (m, D)."""
        return theta.sensor_place(self.memory.x, self.memory.velocity, self.memory.heading)

    def remembered_places(self) -> Tensor:
        """As FieldMap.remembered_places."""
        return self._outer_places(None if self.memory is None else self.memory.x)

    def remembered_motion(self) -> tuple[Tensor, Tensor]:
        """As FieldMap.remembered_motion."""
        places = self.remembered_places()
        return places, places if self.memory is None else self.memory.velocity

    def calibration_data(self) -> CalibrationData | None:
        """As FieldMap.calibration_data."""
        return None if self.memory is None else self._calibration_data(self.memory.copy_columns())

    def learning_data(self) -> dict[str, Tensor]:
        """As ScaledMap.learning_data, and the passes."""
        memory = self.memory
        return {
            "x": memory.x,
            "velocity": memory.velocity,
            "heading": memory.heading,
            "y": memory.y,
            "extra": excess_variance(memory.noise, memory.extra, self.theta),
            "order": memory.order,
            "pass_number": memory.pass_number,
            "extent": memory.extent,
        }

    def unremembered_sites(self) -> SiteStore:
        """The sites without those of the remembered samples."""
        if self.unremembered_empty:  # exactly nothing, without rounding
            return self.sites.emptied()
        unremembered = self.sites.clone()
        self.add_memory_sites(unremembered, -1.0)
        return unremembered

    def unremembered_scale(self, theta: Theta) -> float:
        """The factor by which the unremembered sites grow where θ takes the place of the map's.

        Their β = 1/(s_p² + extra) follow s_p², as far as the model gives their noise. Their `extra`
        are not known one by one; those of the remembered samples, a sample of all, give the mean.

        Args:
            theta: the new hyper-parameters.
        """
        if not self.unremembered_model_noise:
            return 1.0
        return self.noise_level / average_noise(theta, self.memory.extra)

    # --- operations -------------------------------------------------------------------------------
    def forget(self, factor: float) -> None:
        """Scale all sites by a factor in (0, 1]: every noise variance grows by 1/factor."""
        check_factor(factor)
        if self.sites is not None and factor < 1.0:
            self._scale(factor)

    def _scale(self, factor: float) -> None:
        """Scale sites and remembered samples without a check of the factor."""
        self.sites.scale(factor)
        self.memory.scale(factor)
        self.mark_changed()

    @torch.no_grad()
    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what is known near some places.

        Remembered samples leave exactly; what else is known there is forgotten as the model's
        pseudo-data.

        Args:
            x: (K, D) metres.
            radius: metres.
            newest: this many of the newest samples stay.

        Returns:
            How many remembered samples were removed.

        Raises:
            ValueError: radius is negative or NaN, or a place is not finite.
        """
        need_radius(radius)
        if self.empty:
            return 0

        memory, near = self.memory, self.scaling.inner_x(x)
        gone = (torch.cdist(self.memory_places(self.theta), near) <= radius).any(1)
        gone &= memory.order < memory.arrivals - newest

        self.remove_samples(gone, near, radius)
        self.mark_changed()
        return int(gone.sum())

    def _union(
        self, other: SparseMap, scaling: Scaling, offset: Tensor, delta: Tensor, renumber: float
    ) -> None:
        """Add the other map, whose origin and centre differ by offset and delta."""
        # may refuse; until here nothing of this map has changed
        converted = self.converted_copy(other, offset)
        converted.renumber(renumber)

        self.scaling = scaling
        if self.sites is None:
            self.allocate(len(scaling.origin), other.sites.channels)

        # remembered samples in this map's coordinates; λ grows by β delta as y by delta
        memory = converted.memory.copy_columns()
        memory["x"], memory["y"] = memory["x"] + offset, memory["y"] + delta
        memory["lam"] = memory["lam"] + memory["beta"][:, None] * delta
        memory["order"] = memory["order"] + self.memory.arrivals

        dropped = self.merge_converted(converted, memory, offset, delta)
        self.unremembered_empty = (
            self.unremembered_empty and other.unremembered_empty and not dropped
        )
        self.unremembered_model_noise = (
            self.unremembered_model_noise and other.unremembered_model_noise
        )
        self.samples += other.samples
        self.close_passes()
        self.mark_changed()

    def notes(self) -> list[str]:
        """A sentence for people where passes were closed."""
        if not self.closed_passes:
            return []
        return [
            f"the constants of {self.closed_passes} passes are not told apart any more, and their samples are not "
            "remembered one by one; raise max_biases where that is too early"
        ]

    def join_segments(self, most: int) -> None:
        """Let neighbouring segments of a pass share one constant, where too many are apart.

        Args:
            most: number of passes and segments that may stay apart.
        """
        while pair := self.sites.passes.segments_to_join(most):
            self.sites.join_segments(*pair)
            self.memory.join_segments(*pair)
            self.discard_posterior()

    def close_passes(self) -> None:
        """Close passes beyond the bound of those whose constants are kept apart, if any."""

    def duplicate(self) -> SparseMap:
        """An independent copy."""
        new = self.shallow_copy()
        if self.sites is not None:
            new.sites, new.memory = self.sites.clone(), self.memory.copy()
        return new

    def shallow_copy(self) -> SparseMap:
        """A copy with its own generator and learner that still shares sites and memory.

        The caller replaces both before it writes into either.
        """
        new = copy.copy(self)
        new.forget_mark()  # the copy is no part of this map's transaction
        new.discard_posterior()
        new.generator = torch.Generator()
        new.generator.set_state(self.generator.get_state())
        new.learner = copy.deepcopy(self.learner)
        return new

    def renumber(self, by: float) -> None:
        """Add `by` to the pass number of every remembered sample that has one."""
        numbers = self.memory.pass_number
        numbers.copy_(torch.where(numbers >= 0, numbers + by, numbers))

    # --- files ------------------------------------------------------------------------------------
    def _saved_parts(self) -> dict:
        """The memory, for a file."""
        return {} if self.memory is None else {"memory": self.memory.state_dict()}

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """The memory of a file."""
        memory, scaling = None, parts["scaling"]
        if scaling is not None:
            empty = self.new_memory(len(scaling.origin), len(scaling.centre), 0)
            memory = type(empty).from_state_dict(state["memory"], self.device).set_rule(empty.rule)
        return {"sites": None, "memory": memory}

    @abstractmethod
    def new_memory(self, dimension: int, channels: int, rows: int) -> Memory:
        """An empty memory for sites of that many rows.

        Args:
            dimension: D, of places.
            channels: C, of values.
            rows: of whitened features that there is room for.
        """
