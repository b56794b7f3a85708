"""Additive sums of all samples on a lattice: the sites of WISKI, and aggregates for its variance.

    G = Σ β w wᵀ    (WᵀD⁻¹W) on 2-D cubic weights a 7 × 7 stencil: by symmetry 25 numbers a node
    b = Σ w λᵀ      (WᵀD⁻¹y), λ = β y
    B = Σ β w φᵀ    border of the features φ = [1, ĥ, e_p]
    F = Σ β φ φᵀ, Σ φ λᵀ    the same sums without w

Everything is a sum over samples: it adds, subtracts and scales, and two grids on one lattice merge.

Aggregates are the same sums on squares of half a spacing: mass, first and second moments, heading,
passes and λ, that is, the data as few weighted samples.

Where the nodes lie, and on which box of them the sums are, is in box.py.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import add_rows
from gp_mapping.core.models.wiski.lattice.box import LatticeBox
from gp_mapping.core.models.wiski.lattice.features import feature_rows
from gp_mapping.core.models.wiski.lattice.moments import (
    MOMENTS,
    mean_and_covariance,
    moments_in_squares,
    split_wide,
)
from gp_mapping.core.models.wiski.lattice.pass_columns import PassColumns
from gp_mapping.core.transaction import require_finite

__all__ = ["OFFSETS", "GridSites"]

# the half of the 7 × 7 stencil that symmetry leaves: (row, column) steps from a node
OFFSETS = [(0, j) for j in range(4)] + [(i, j) for i in range(1, 4) for j in range(-3, 4)]
_NUMBER = {o: k for k, o in enumerate(OFFSETS)}
# pairs a ≤ b of a place's sixteen nodes, with the column of their product in the stencil
_PAIRS = [
    (a, b, _NUMBER[(b // 4 - a // 4, b % 4 - a % 4)]) for a in range(16) for b in range(a, 16)
]
# attributes, and their names in files
_TENSORS = {
    "stencil": "stencil",
    "sides": "sides",
    "start": "start",
    "aggregates": "lumps",
    "features": "features",
    "linear": "linear",
}


class GridSites(LatticeBox, PassColumns):
    """G, b, B, F and the aggregates on a box of a global lattice.

    Args:
        spacing: of the nodes, m.
        origin: (2,) m, of the local coordinates that samples come in.
        channels: C.
        device: of all tensors.
        anchor: (2,) m, of node 0 in the map's frame; None: at 0, where it lies in all maps that
            were not moved.

    Attributes:
        stencil: (H·W, 25), G.
        sides: (H·W, 3 + P + C), B and b side by side.
        features: (3 + P, 3 + P), F.
        linear: (3 + P, C), Σ φ λᵀ.
        aggregates: (2H·2W, 8 + P + C): moments, heading, masses of the passes, λ.
        start: (H·W, C), the representer weights of the last solution, kept here because they grow
            with the box.
    """

    def __init__(
        self, spacing: float, origin: Tensor, channels: int, device, anchor: Tensor | None = None
    ):
        super().__init__(spacing, origin, device, anchor)
        self.channels = channels
        self.features = torch.zeros((self.width, self.width), dtype=torch.float64, device=device)
        self.linear = torch.zeros((self.width, channels), dtype=torch.float64, device=device)
        # written since `mark`: an array, the indices, and the values before
        self._written: list[tuple[Tensor, Tensor, Tensor]] = []
        self._allocate()

    def _allocate(self) -> None:
        """Allocate zeros for the present box, and the offsets that depend on its width."""
        m, width, kind = self.nodes, self.shape[1], {"dtype": torch.float64, "device": self.device}
        self.stencil = torch.zeros((m, len(OFFSETS)), **kind)
        self.sides = torch.zeros((m, self.width + self.channels), **kind)
        self.start = torch.zeros((m, self.channels), **kind)
        self.aggregates = torch.zeros((4 * m, self.aggregate_width + self.channels), **kind)

        # flat offsets from a place's first node: to its sixteen nodes, and to the 136 numbers of
        # the stencil that their pairs add to
        pairs = torch.tensor(_PAIRS, device=self.device)
        self._pairs = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
        steps = torch.arange(16, device=self.device)
        self.stencil_steps = steps // 4 * width + steps % 4
        self._numbers = self.stencil_steps[pairs[:, 0]] * len(OFFSETS) + pairs[:, 2]
        self._low = torch.tensor(self.low, dtype=torch.float64, device=self.device)

    @property
    def border(self) -> Tensor:
        """B (H·W, 3 + P), a view."""
        return self.sides[:, : self.width]

    @property
    def rhs(self) -> Tensor:
        """b (H·W, C), a view."""
        return self.sides[:, self.width :]

    # --- the box ----------------------------------------------------------------------------------
    def grow(self, low: tuple[int, int], shape: tuple[int, int]) -> None:
        """Widen the box; all sums stay in place.

        Args:
            low: first node of the new box, which holds the present one.
            shape: (H, W) nodes of it.
        """
        if (low, shape) == (self.low, self.shape):
            return

        old = (self.stencil, self.sides, self.start, self.aggregates)
        old_low, old_shape = self.low, self.shape

        self.low, self.shape = low, shape
        self._allocate()

        if not old_shape[0]:
            return

        row, column = old_low[0] - low[0], old_low[1] - low[1]
        # aggregates lie on squares of half a spacing: twice as many along each axis
        for new, before, factor in zip(
            (self.stencil, self.sides, self.start, self.aggregates), old, (1, 1, 1, 2)
        ):
            view = new.view(factor * shape[0], factor * shape[1], -1)
            view[
                factor * row : factor * (row + old_shape[0]),
                factor * column : factor * (column + old_shape[1]),
            ] = before.view(factor * old_shape[0], factor * old_shape[1], -1)

    # --- sums -------------------------------------------------------------------------------------
    def add(
        self, x: Tensor, covariates: Tensor, beta: Tensor, lam: Tensor, aggregate: bool = True
    ) -> None:
        """Add samples inside the box to all sums; negative beta and lam take them away.

        Args:
            x: (N, 2) local metres.
            covariates: (N, 2 + P) ĥ and passes.
            beta: (N,) precisions β.
            lam: (N, C) targets λ = β y.
            aggregate: whether the samples enter the aggregates, too.
        """
        if not len(x):
            return

        units = self.units(x)
        first, weights = self.weights(units)

        # G: the products of each place's pairs of nodes
        mass, (a, b) = beta[:, None], self._pairs
        across = weights.mT.contiguous()  # whole rows are picked faster than single numbers
        products = (across * beta).index_select(0, a).mul_(across.index_select(0, b))
        numbers = torch.add(self._numbers[:, None], first, alpha=len(OFFSETS)).view(-1)
        self._keep(self.stencil.view(-1), numbers)
        add_rows(self.stencil.view(-1), numbers, products.view(-1))

        # B and b, then F and Σ φ λᵀ, which are new tensors: a transaction keeps the old ones
        weighted_covariates = covariates * mass
        sides = torch.cat([mass, weighted_covariates, lam], 1)  # β φ, λ
        nodes = (first[:, None] + self.stencil_steps).view(-1)
        self._keep(self.sides, nodes)
        add_rows(self.sides, nodes, (weights[:, :, None] * sides[:, None, :]).flatten(0, 1))
        total = feature_rows(covariates).mT @ sides
        self.features, self.linear = (
            self.features + total[:, : self.width],
            self.linear + total[:, self.width :],
        )

        # moments about the centre of the square of half a spacing that holds the sample
        if aggregate:
            doubled = 2.0 * (units - self._low)
            square, moments = moments_in_squares(doubled, mass)
            number = torch.add(square[:, 1], square[:, 0], alpha=2 * self.shape[1]).long()
            self._keep(self.aggregates, number)
            add_rows(self.aggregates, number, torch.cat([moments, weighted_covariates, lam], 1))

    def _keep(self, array: Tensor, where: Tensor) -> None:
        """Record, within a transaction, the values at `where` before they are overwritten."""
        if self._before is not None:
            self._written.append((array, where, array.index_select(0, where)))

    def _put_back(self) -> None:
        """Restore what was written since `mark`."""
        for array, where, values in reversed(self._written):
            array.index_copy_(0, where, values)
        self._written.clear()

    def release(self) -> None:
        """As Revertible.release."""
        super().release()
        self._written.clear()

    def check(self) -> None:
        """Require finite sums.

        Every sample contributes to the features' sums: where one is not finite, neither are they.
        """
        require_finite("the sums on the lattice", self.features, self.linear)

    def scale(self, factor: float) -> None:
        """Forget: scale all sums by the factor."""
        for part in (self.stencil, self.sides, self.aggregates, self.features, self.linear):
            part.mul_(factor)

    def merge(self, other: "GridSites", sign: float = 1.0) -> None:
        """Add another grid on the same lattice, inside this box, or subtract it.

        The sums are new tensors: a transaction keeps the old ones. Passes that only the other one
        has get a column.

        Args:
            other: a grid whose nodes are this one's.
            sign: 1 to add, −1 to subtract.

        Raises:
            ValueError: the nodes of one lattice are not those of the other.
        """
        row, column = self.offset_of(other)
        self.open_passes(tuple(n for n in other.numbers if n not in self.numbers))
        sides, features, linear, aggregates = other.arranged(self.numbers)
        self.stencil, self.sides, self.aggregates = (
            part.clone() for part in (self.stencil, self.sides, self.aggregates)
        )

        # aggregates lie on squares of half a spacing: twice as many along each axis
        for own, added, factor in (
            (self.stencil, other.stencil, 1),
            (self.sides, sides, 1),
            (self.aggregates, aggregates, 2),
        ):
            view = own.view(factor * self.shape[0], factor * self.shape[1], -1)
            rows = slice(factor * row, factor * (row + other.shape[0]))
            columns = slice(factor * column, factor * (column + other.shape[1]))
            view[rows, columns].add_(
                added.view(factor * other.shape[0], factor * other.shape[1], -1), alpha=sign
            )

        self.features = torch.add(self.features, features, alpha=sign)
        self.linear = torch.add(self.linear, linear, alpha=sign)

    def shift_centre(self, delta: Tensor) -> None:
        """Add delta (C,) to the value of every sample: λ grows by β delta."""
        self.rhs.addmm_(self.border[:, :1], delta[None])
        self.linear.addmm_(self.features[:, :1], delta[None])
        self.aggregates[:, self.aggregate_width :].addmm_(self.aggregates[:, :1], delta[None])

    def samples(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The aggregates as weighted samples: x (K, 2), covariates, beta (K,), lam (K, C)."""
        return self._moments()[:4]

    def split(self, worth: float) -> tuple[Tensor, Tensor, Tensor]:
        """The aggregates as weighted samples without λ; wide ones are split to keep their spread.

        Args:
            worth: bound of β·(spread, m²), as of moments.split_wide.

        Returns:
            x (K', 2), covariates (K', 2 + P), beta (K',).
        """
        x, covariates, beta, _, second = self._moments()
        return split_wide(x, covariates, beta, second, worth)

    def around(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The aggregates, as in `samples`, whose squares meet a box of places.

        Takes a time that depends on the area of the box alone.

        Args:
            low: (2,) local metres.
            high: (2,) local metres.

        Returns:
            x (K, 2), mean covariates (K, 2 + P), beta (K,), lam (K, C).
        """
        ends = 2.0 * (self.units(torch.stack([low, high])) - self._low)
        (i0, j0), (i1, j1) = ends.floor().long().tolist()
        height, width = (2 * n for n in self.shape)
        box = zip((i0, i1 + 1, j0, j1 + 1), (height, height, width, width))
        return self._moments(tuple(min(max(k, 0), most) for k, most in box))[:4]

    def _moments(self, box: tuple[int, int, int, int] | None = None):
        """Moments of the aggregates.

        Args:
            box: (first row, end, first column, end) of the squares, ends excluded; None for all.

        Returns:
            x, covariates, beta, lam of `samples`; covariance about x (K, 3: xx, yy, xy; m²).
        """
        i0, i1, j0, j1 = box or (0, 2 * self.shape[0], 0, 2 * self.shape[1])
        width = j1 - j0
        mass = (
            self.aggregates[:, 0]
            .view(2 * self.shape[0], 2 * self.shape[1])[i0:i1, j0:j1]
            .reshape(-1)
        )

        # what a subtraction leaves is rounding, not a sample
        held = (
            (mass > 1e-9 * mass.max().clamp_min(1e-300)).nonzero()[:, 0]
            if len(mass)
            else mass.nonzero()[:, 0]
        )

        square = torch.stack([held // max(width, 1) + i0, held % max(width, 1) + j0], 1)
        rows = self.aggregates[square[:, 0] * (2 * self.shape[1]) + square[:, 1]]

        beta = rows[:, 0]
        centre = 0.5 * square.double() + self._low + 0.25
        offset, second = mean_and_covariance(rows)

        return (
            (centre + offset - self.shift) * self.spacing,
            rows[:, MOMENTS : self.aggregate_width] / beta[:, None],
            beta,
            rows[:, self.aggregate_width :],
            second * self.spacing**2,
        )

    # --- forgetting a place, joining another ------------------------------------------------------
    def wipe(self, x: Tensor, radius: float) -> None:
        """Remove what lies near some places.

        Aggregates there leave as samples; then G ← S G S with a diagonal S, S_jj ∈ {0, 1}.

        The leaving aggregates take their features along, φφᵀ from F and wφᵀ from B, so that what
        remains is a sum of squares: Σ v vᵀ − m v̄ v̄ᵀ ⪰ 0 for v = [w; φ] and its mean v̄ over an
        aggregate of mass m. What then remains of G, B and b on the nodes near the places belongs to
        samples beyond the radius, and is removed by S.

        Args:
            x: places (K, 2), local metres.
            radius: m.
        """
        low = torch.tensor(self.low, device=self.device)
        number = torch.arange(self.nodes, device=self.device)
        units = torch.stack([number // self.shape[1], number % self.shape[1]], 1) + low
        keep = (~self.within(units, x, radius)).double()

        aggregates, width = torch.arange(4 * self.nodes, device=self.device), 2 * self.shape[1]
        squares = (
            torch.stack([aggregates // width, aggregates % width], 1) + 2 * low
        ).double() * 0.5 + 0.25
        gone = self.within(squares, x, radius)

        # only those that leave stay for a moment, so that `samples` returns just them
        kept_aggregates = self.aggregates.clone()
        self.aggregates[~gone] = 0.0
        places, covariates, beta, lam = self.samples()
        self.add(places, covariates, -beta, -lam, aggregate=False)
        kept_aggregates[gone] = 0.0
        self.aggregates.copy_(kept_aggregates)

        for k, (i, j) in enumerate(OFFSETS):
            self.stencil[:, k] *= keep * keep.roll(-(i * self.shape[1] + j))
        self.sides.mul_(keep[:, None])

    # --- copies -----------------------------------------------------------------------------------
    def emptied(self) -> GridSites:
        """An empty grid on the same box."""
        new: GridSites = copy.copy(self)
        new.forget_mark()
        new._written = []
        new.features, new.linear = torch.zeros_like(self.features), torch.zeros_like(self.linear)
        new._allocate()
        return new

    def clone(self) -> "GridSites":
        """An independent copy, with all sums."""
        new = self.emptied()
        for name in _TENSORS:
            getattr(new, name).copy_(getattr(self, name))
        return new

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        box = {"spacing": self.spacing, "low": list(self.low), "shape": list(self.shape)}
        # computed from the origin again, they might by rounding be those of the next node
        lattice = {"first": list(self.first), "shift": self.shift, "anchor": self.anchor}
        lattice["passes"] = torch.tensor(self.numbers, dtype=torch.float64)
        tensors = {filed: getattr(self, name) for name, filed in _TENSORS.items()}
        return box | {
            name: part.clone() if torch.is_tensor(part) else part
            for name, part in (lattice | tensors).items()
        }

    @staticmethod
    def from_state_dict(state: dict, origin: Tensor, device) -> "GridSites":
        """The grid of a state.

        Args:
            state: of `state_dict`.
            origin: (2,) m, of the map's coordinates.
            device: of all tensors.

        Raises:
            ValueError: a tensor does not fit the box.
        """
        new = GridSites(state["spacing"], origin, state["start"].shape[1], device)
        if "anchor" in state:  # files of earlier versions have lattices at 0 alone
            new.first = tuple(state["first"])
            new.shift, new.anchor = (
                state[name].to(device, copy=True) for name in ("shift", "anchor")
            )
        new.low, new.shape = tuple(state["low"]), tuple(state["shape"])
        if "passes" in state:  # lattices of earlier versions know no passes
            new.open_passes(tuple(state["passes"].tolist()))
        new._allocate()
        for name, filed in _TENSORS.items():
            if state[filed].shape != getattr(new, name).shape:
                raise ValueError(
                    f"{name} {tuple(state[filed].shape)} does not fit a box of {new.shape} nodes"
                )
            getattr(new, name).copy_(state[filed])
        return new
