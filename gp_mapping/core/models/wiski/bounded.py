"""How fine the lattice of a map is, and where it lies: it keeps to its bound of nodes.

The spacing is a power of two of a metre near ℓ/density. Where the box would have more nodes than
`max_nodes`, it doubles, and stays so until a finer lattice fits; samples that even the coarsest
one allowed does not reach are left out. Onto another lattice the memory is transferred exactly,
the unremembered sites as their aggregates. A map that goes over to another frame takes its lattice
along as it is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.wiski.lattice.sites import GridSites
from gp_mapping.core.sparse.sparse_map import SparseMap

__all__ = ["BoundedLattice"]


class BoundedLattice(SparseMap):
    """The part of a LatticeMap that chooses its lattice.

    Attributes:
        density: nodes in a lengthscale.
        max_nodes: of the box.
        coarsened: how often the spacing doubled.
        points: x (K, 2), beta (K,), lam (K, C) of fantasies.
    """

    density: float
    max_nodes: int
    coarsened: int
    points: dict[str, Tensor]

    @property
    def grid(self) -> GridSites | None:
        """The sites, which are sums on a lattice."""
        return self.sites

    def spacing_for(self, theta: Theta) -> float:
        """The power of two (m) nearest to ℓ/density, on a logarithmic scale."""
        return 2.0 ** round(math.log2(theta.lengthscale / self.density))

    def spacing_within(self) -> float:
        """`spacing_for` the present θ, doubled until what the map holds fits into `max_nodes`."""
        spacing = self.spacing_for(self.theta)
        held = torch.cat([self.unremembered_sites().samples()[0], self._exact_places()])
        if not len(held):
            return spacing

        while True:
            # the lattice that `respace` would make, but for its sums
            shape = GridSites(spacing, self.scaling.origin, 1, self.device).box_for(held)[1]
            if shape[0] * shape[1] <= self.max_nodes or spacing >= self.grid.spacing:
                return spacing
            spacing *= 2.0

    def make_room(self, places: Tensor) -> Tensor | None:
        """Widen the box for places (N, 2), on the processor; a coarser lattice if it is too large.

        Returns:
            Which of the places may stay (N,); None for all.
        """
        kept = self._within_reach(places)
        if not bool(kept.any()):
            return kept

        low, shape = self.grid.box_for(places[kept])
        while shape[0] * shape[1] > self.max_nodes:
            self.coarsened += 1
            self.respace(2.0 * self.grid.spacing)
            low, shape = self.grid.box_for(places[kept])
        self.grid.grow(low, shape)
        return None if bool(kept.all()) else kept

    def _within_reach(self, places: Tensor) -> Tensor:
        """Which places fit into a box together with what is known, on the coarsest lattice allowed.

        Args:
            places: (N, 2), on the processor; the farthest from their median are left out first.

        Returns:
            (N,) of bool.
        """
        # the last doubling begins at or below ℓ/4
        last_doubling = 0.25 * self.theta.lengthscale / self.grid.spacing
        coarsening = (
            2.0 ** (math.floor(math.log2(last_doubling)) + 1) if last_doubling >= 1.0 else 1.0
        )

        kept = torch.ones(len(places), dtype=torch.bool, device=places.device)
        # one place after the other is left out until the box fits
        away = (places - places.median(0).values).square().sum(1)

        while bool(kept.any()):
            _, shape = self.grid.box_for(places[kept])
            fits = shape[0] * shape[1] <= self.max_nodes
            if fits or math.prod(n / coarsening for n in shape) <= self.max_nodes:
                break
            kept[away.masked_fill(~kept, -1.0).argmax()] = False
        return kept

    # --- another lattice, another frame -----------------------------------------------------------
    @torch.no_grad()
    def respace(self, spacing: float, anchor: Tensor | None = None) -> None:
        """Transfer to another lattice: memory and fantasies exactly, all else as aggregates.

        Args:
            spacing: of the new lattice, m.
            anchor: (2,) m, of its node 0; None: at 0 of the map's frame.
        """
        old = self.grid
        x, covariates, beta, lam = self.unremembered_sites().samples()

        new = GridSites(spacing, self.scaling.origin, old.channels, self.device, anchor)
        new.open_passes(old.numbers)
        everything = torch.cat([x, self._exact_places()])
        if len(everything):
            new.grow(*new.box_for(everything))
            new.add(x, covariates, beta, lam)
            self.add_memory_sites(new, 1.0)

            # sums without w depend on no lattice
            new.features.copy_(old.features)
            new.linear.copy_(old.linear)

        self.sites = new
        self.mark_changed()

    def _exact_places(self) -> Tensor:
        """Places of remembered samples and of fantasies (K, 2), which are known one by one."""
        return torch.cat([self.memory_places(self.theta), self.points["x"]])

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """As FieldMap.move; the lattice moves along with the samples.

        Raises:
            ValueError: the frame is turned, whose axes the lattice lies along.
        """
        super().move(turn, shift)
        if self.sites is not None:
            self.grid.move(shift)
