"""What the data said, on a lattice: WᵀD⁻¹W as a stencil, WᵀD⁻¹y, the features' borders, and lumps for the variance.

    G = Σ β w wᵀ     on 2-D cubic weights a 7 × 7 stencil: by symmetry 25 numbers a node
    b = Σ w λᵀ       λ = β y            B = Σ β w φᵀ,  φ = [1, ĥ]        and the same sums without w

Everything is a sum over samples: it adds, subtracts, scales, and two grids on one lattice merge. Lumps are the same
sums on squares of half a spacing: mass, first moment, heading and λ, that is, the data as few weighted samples.
Lattices are global: node k lies at k·spacing metres of the map's frame, and the box grows by tiles of 32 × 32 nodes.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from gp_mapping.core.models.wiski.lattice.features import FEATURES, feature_rows
from gp_mapping.core.models.wiski.lattice.interpolation import stencil_nodes
from gp_mapping.core.transaction import Revertible, require_finite

__all__ = ["OFFSETS", "TILE", "GridSites"]

TILE = 32
OFFSETS = [(0, j) for j in range(4)] + [(i, j) for i in range(1, 4) for j in range(-3, 4)]
_MARGIN = 16  # nodes, at least, between a sample and the box's edge
_NUMBER = {o: k for k, o in enumerate(OFFSETS)}
_PAIRS = [
    (a, b, _NUMBER[(b // 4 - a // 4, b % 4 - a % 4)]) for a in range(16) for b in range(a, 16)
]
_TENSORS = {
    "stencil": "stencil",
    "sides": "sides",
    "start": "start",
    "aggregates": "lumps",
    "features": "features",
    "linear": "linear",
}  # attributes, and their names in files
# columns of a lump: mass, first and second moments about the square's centre (2, 3; in spacings), heading (2), then λ
_AGGREGATE = 8


class GridSites(Revertible):
    """G (H·W, 25), b (H·W, C), B (H·W, 3), lumps (2H·2W, 5 + C) on a box of a global lattice.

    origin: (2,) m, of the coordinates that samples come in.  low: first node of the box, global.  start: (H·W, C), the
    representer weights of the last solution, kept here because they grow with the box.
    """

    def __init__(self, spacing: float, origin: Tensor, channels: int, device):
        self.spacing, self.channels, self.device = float(spacing), channels, torch.device(device)
        whole = torch.floor(origin / self.spacing)
        self.shift = (
            origin - whole * self.spacing
        ) / self.spacing  # of local coordinates, in spacings
        self.first = tuple(
            int(v) for v in whole
        )  # global number of the node at or below the origin
        self.low, self.shape = (0, 0), (0, 0)
        self.features = torch.zeros((FEATURES, FEATURES), dtype=torch.float64, device=device)
        self.linear = torch.zeros((FEATURES, channels), dtype=torch.float64, device=device)
        self._written: list[
            tuple[Tensor, Tensor, Tensor]
        ] = []  # since `mark`: an array, where, and what was there
        self._allocate()

    def _allocate(self) -> None:
        m, width, kind = self.nodes, self.shape[1], {"dtype": torch.float64, "device": self.device}
        self.stencil = torch.zeros((m, len(OFFSETS)), **kind)
        self.sides = torch.zeros((m, FEATURES + self.channels), **kind)
        self.start = torch.zeros((m, self.channels), **kind)
        self.aggregates = torch.zeros((4 * m, _AGGREGATE + self.channels), **kind)
        # from a place's first node: its sixteen nodes, and the 136 numbers of the stencil that they share
        pairs = torch.tensor(_PAIRS, device=self.device)
        self._pairs = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
        steps = torch.arange(16, device=self.device)
        self.stencil_steps = steps // 4 * width + steps % 4
        self._numbers = self.stencil_steps[pairs[:, 0]] * len(OFFSETS) + pairs[:, 2]
        self._low = torch.tensor(self.low, dtype=torch.float64, device=self.device)

    @property
    def border(self) -> Tensor:
        """B (H·W, 3), a view."""
        return self.sides[:, :FEATURES]

    @property
    def rhs(self) -> Tensor:
        """b (H·W, C), a view."""
        return self.sides[:, FEATURES:]

    @property
    def nodes(self) -> int:
        return self.shape[0] * self.shape[1]

    def units(self, x: Tensor) -> Tensor:
        """Local metres (N, 2) → spacings from the global node `first`; exact differences, whatever the map's frame."""
        return x / self.spacing + self.shift

    def places(self, numbers: Tensor) -> Tensor:
        """Local metres of units (N, 2)."""
        return (numbers.double() - self.shift) * self.spacing

    # --- the box --------------------------------------------------------------------------------------------------
    def box_for(self, x: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
        """(low, shape) of the least box of whole tiles that holds this one, and x (N, 2) with a margin."""
        units = self.units(x)
        bounds = [
            [math.floor(v) for v in row]
            for row in torch.stack(torch.aminmax(units, dim=0)).tolist()
        ]
        low, high = [], []
        for d in range(2):
            first = self.first[d]
            lowest, highest = bounds[0][d] + first - _MARGIN, bounds[1][d] + first + _MARGIN + 1
            if self.shape[0]:
                lowest = min(lowest, self.low[d] + first)
                highest = max(highest, self.low[d] + first + self.shape[d])
            low.append(lowest // TILE * TILE - first)
            high.append(-(-highest // TILE) * TILE - first)
        return tuple(low), tuple(h - k for h, k in zip(high, low))

    def grow(self, low: tuple[int, int], shape: tuple[int, int]) -> None:
        """Widen the box; what is known keeps its place."""
        if (low, shape) == (self.low, self.shape):
            return
        old, old_low, old_shape = (
            (self.stencil, self.sides, self.start, self.aggregates),
            self.low,
            self.shape,
        )
        self.low, self.shape = low, shape
        self._allocate()
        if not old_shape[0]:
            return
        i, j = old_low[0] - low[0], old_low[1] - low[1]
        for new, was, f in zip(
            (self.stencil, self.sides, self.start, self.aggregates), old, (1, 1, 1, 2)
        ):
            view = new.view(f * shape[0], f * shape[1], -1)
            view[f * i : f * (i + old_shape[0]), f * j : f * (j + old_shape[1])] = was.view(
                f * old_shape[0], f * old_shape[1], -1
            )

    def inside(self, x: Tensor) -> Tensor:
        """Whether all sixteen nodes of x (N, 2) lie in the box: (N,)."""
        base = self.units(x).floor().long()
        low = torch.tensor(self.low, device=self.device)
        shape = torch.tensor(self.shape, device=self.device)
        return ((base - 1 >= low) & (base + 2 < low + shape)).all(1)

    def weights(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """Flat number of the first of a place's sixteen nodes in the box (N,), and their weights (N, 16)."""
        corner, weights = stencil_nodes(units)
        return (corner[:, 0] - self.low[0]) * self.shape[1] + (corner[:, 1] - self.low[1]), weights

    # --- sums -----------------------------------------------------------------------------------------------------
    def add(
        self, x: Tensor, heading: Tensor, beta: Tensor, lam: Tensor, aggregate: bool = True
    ) -> None:
        """Add samples inside the box: x, heading (N, 2), beta (N,), lam (N, C). Negative beta and lam take away."""
        if not len(x):
            return
        units = self.units(x)
        first, weights = self.weights(units)
        mass, (a, b) = beta[:, None], self._pairs
        across = weights.mT.contiguous()  # whole rows are picked faster than single numbers
        products = (across * beta).index_select(0, a).mul_(across.index_select(0, b))
        numbers = torch.add(self._numbers[:, None], first, alpha=len(OFFSETS)).view(-1)
        self._keep(self.stencil.view(-1), numbers)
        self.stencil.view(-1).scatter_add_(0, numbers, products.view(-1))
        turned = heading * mass
        sides = torch.cat([mass, turned, lam], 1)  # β φ, λ
        nodes = (first[:, None] + self.stencil_steps).view(-1)
        self._keep(self.sides, nodes)
        self.sides.index_add_(0, nodes, (weights[:, :, None] * sides[:, None, :]).flatten(0, 1))
        total = feature_rows(heading).mT @ sides
        self.features, self.linear = (
            self.features + total[:, :FEATURES],
            self.linear + total[:, FEATURES:],
        )
        if aggregate:
            half = 2.0 * (units - self._low)
            square = half.floor()
            off = 0.5 * (half - square - 0.5)
            moment = off * mass
            second = torch.cat([moment * off, moment[:, :1] * off[:, 1:]], 1)
            number = torch.add(square[:, 1], square[:, 0], alpha=2 * self.shape[1]).long()
            self._keep(self.aggregates, number)
            self.aggregates.index_add_(0, number, torch.cat([mass, moment, second, turned, lam], 1))

    def _keep(self, array: Tensor, where: Tensor) -> None:
        """In a transaction: what stands there, before it is written."""
        if self._before is not None:
            self._written.append((array, where, array.index_select(0, where)))

    def _put_back(self) -> None:
        for array, where, what in reversed(self._written):
            array.index_copy_(0, where, what)
        self._written.clear()

    def release(self) -> None:
        super().release()
        self._written.clear()

    def check(self) -> None:
        """The features' sums have a share of every sample: where one is not finite, neither are they."""
        require_finite("the sums on the lattice", self.features, self.linear)

    def scale(self, factor: float) -> None:
        """Forget: all sums times the factor."""
        for part in (self.stencil, self.sides, self.aggregates, self.features, self.linear):
            part.mul_(factor)

    def merge(self, other: "GridSites", sign: float = 1.0) -> None:
        """Add another grid on the same lattice; the box must already hold it (see `place_of`)."""
        i, j = self.place_of(other)
        for mine, its, f in (
            (self.stencil, other.stencil, 1),
            (self.sides, other.sides, 1),
            (self.aggregates, other.aggregates, 2),
        ):
            view = mine.view(f * self.shape[0], f * self.shape[1], -1)
            rows, columns = (
                slice(f * i, f * (i + other.shape[0])),
                slice(f * j, f * (j + other.shape[1])),
            )
            view[rows, columns].add_(
                its.view(f * other.shape[0], f * other.shape[1], -1), alpha=sign
            )
        self.features.add_(other.features, alpha=sign)
        self.linear.add_(other.linear, alpha=sign)

    def place_of(self, other: "GridSites") -> tuple[int, int]:
        """Row and column of another grid's first node in this box. Raises ValueError where the lattices differ."""
        if other.spacing != self.spacing:
            raise ValueError(
                f"grids of spacing {self.spacing:g} m and {other.spacing:g} m do not add"
            )
        return tuple(other.first[d] + other.low[d] - self.first[d] - self.low[d] for d in range(2))

    def shift_centre(self, delta: Tensor) -> None:
        """Every target grows by delta (C,)."""
        self.rhs.addmm_(self.border[:, :1], delta[None])
        self.linear.addmm_(self.features[:, :1], delta[None])
        self.aggregates[:, _AGGREGATE:].addmm_(self.aggregates[:, :1], delta[None])

    def samples(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The lumps as weighted samples: x, mean heading (K, 2), beta (K,), lam (K, C)."""
        return self._moments()[:4]

    def split(self, worth: float) -> tuple[Tensor, Tensor, Tensor]:
        """The same without λ; a lump whose β·(spread along its longer axis, m²) exceeds `worth` becomes two samples.

        Four where that along its shorter axis does: what its samples say of the field's slope is kept.

        x, heading (K', 2), beta (K',).
        """
        x, heading, beta, _, second = self._moments()
        a, b, c = second[:, 0], second[:, 1], second[:, 2]
        gap = (0.25 * (a - b).square() + c.square()).sqrt()
        middle, angle = 0.5 * (a + b), 0.5 * torch.atan2(2 * c, a - b)
        axis = torch.stack([angle.cos(), angle.sin()], 1)
        across = torch.stack([-axis[:, 1], axis[:, 0]], 1)
        long, short = (
            axis * (middle + gap).clamp_min(0.0).sqrt()[:, None],
            across * (middle - gap).clamp_min(0.0).sqrt()[:, None],
        )
        two, four = beta * (middle + gap) > worth, beta * (middle - gap) > worth
        one, two = ~two, two & ~four
        steps = torch.cat([long[four], -long[four], short[four], -short[four]]) * 2**0.5
        return (
            torch.cat(
                [x[one], x[two] + long[two], x[two] - long[two], x[four].repeat(4, 1) + steps]
            ),
            torch.cat([heading[one], heading[two].repeat(2, 1), heading[four].repeat(4, 1)]),
            torch.cat([beta[one], 0.5 * beta[two].repeat(2), 0.25 * beta[four].repeat(4)]),
        )

    def around(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`samples` of the lumps whose squares meet the box low … high (2,), metres; in a time of its area alone."""
        ends = 2.0 * (self.units(torch.stack([low, high])) - self._low)
        (i0, j0), (i1, j1) = ends.floor().long().tolist()
        height, width = (2 * n for n in self.shape)
        box = zip((i0, i1 + 1, j0, j1 + 1), (height, height, width, width))
        return self._moments(tuple(min(max(k, 0), most) for k, most in box))[:4]

    def _moments(self, box: tuple[int, int, int, int] | None = None):
        """x, heading, beta, lam of the lumps, and their covariance about x (K, 3: xx, yy, xy; m²).

        box: rows and columns of the squares, ends excluded; None for all.
        """
        i0, i1, j0, j1 = box or (0, 2 * self.shape[0], 0, 2 * self.shape[1])
        width = j1 - j0
        mass = (
            self.aggregates[:, 0]
            .view(2 * self.shape[0], 2 * self.shape[1])[i0:i1, j0:j1]
            .reshape(-1)
        )
        # what subtracting has left of nothing is no sample
        held = (
            (mass > 1e-9 * mass.max().clamp_min(1e-300)).nonzero()[:, 0]
            if len(mass)
            else mass.nonzero()[:, 0]
        )
        square = torch.stack([held // max(width, 1) + i0, held % max(width, 1) + j0], 1)
        rows = self.aggregates[square[:, 0] * (2 * self.shape[1]) + square[:, 1]]
        beta = rows[:, 0]
        centre = 0.5 * square.double() + self._low + 0.25
        offset = (rows[:, 1:3] / beta[:, None]).clamp(-0.25, 0.25)
        second = rows[:, 3:6] / beta[:, None] - torch.cat(
            [offset.square(), offset[:, :1] * offset[:, 1:]], 1
        )
        return (
            (centre + offset - self.shift) * self.spacing,
            rows[:, 6:8] / beta[:, None],
            beta,
            rows[:, _AGGREGATE:],
            second * self.spacing**2,
        )

    # --- forgetting a place, joining another ----------------------------------------------------------------------
    def wipe(self, x: Tensor, radius: float) -> None:
        """Leave nothing within radius (m) of places (K, 2): lumps there leave as samples, then G ← SGS, S_jj ∈ {0, 1}.

        The lumps' leaving takes their features along, φφᵀ from F and wφᵀ from B, so that what remains is a sum of
        squares: v vᵀ − m v̄ v̄ᵀ ⪰ 0 for v = [w; φ] and its mean over a lump. What is left of G, B and b on the nodes
        near the places is of samples beyond the radius, and goes by S.
        """
        low, number = (
            torch.tensor(self.low, device=self.device),
            torch.arange(self.nodes, device=self.device),
        )
        units = torch.stack([number // self.shape[1], number % self.shape[1]], 1) + low
        keep = (~self._within(units, x, radius)).double()
        aggregates, width = torch.arange(4 * self.nodes, device=self.device), 2 * self.shape[1]
        squares = (
            torch.stack([aggregates // width, aggregates % width], 1) + 2 * low
        ).double() * 0.5 + 0.25
        gone = self._within(squares, x, radius)

        rest = self.aggregates.clone()
        self.aggregates[~gone] = 0.0
        places, heading, beta, lam = self.samples()
        self.add(places, heading, -beta, -lam, aggregate=False)
        rest[gone] = 0.0
        self.aggregates.copy_(rest)
        for k, (i, j) in enumerate(OFFSETS):
            self.stencil[:, k] *= keep * keep.roll(-(i * self.shape[1] + j))
        self.sides.mul_(keep[:, None])

    def _within(self, units: Tensor, x: Tensor, radius: float) -> Tensor:
        """Which of the units (N, 2) lie within radius (m) of one of x (K, 2): (N,)."""
        near = torch.zeros(len(units), dtype=torch.bool, device=self.device)
        for place in x:
            near |= (self.places(units) - place).norm(dim=1) <= radius
        return near

    def joint_box(self, other: GridSites) -> tuple[tuple[int, int], tuple[int, int]]:
        """(low, shape) of the least box that holds this one and another grid's on the same lattice."""
        its = tuple(other.low[d] + other.first[d] - self.first[d] for d in range(2))
        if not self.nodes:
            return its, other.shape
        low = tuple(min(self.low[d], its[d]) for d in range(2))
        end = (max(self.low[d] + self.shape[d], its[d] + other.shape[d]) for d in range(2))
        return low, tuple(e - k for e, k in zip(end, low))

    # --- copies ---------------------------------------------------------------------------------------------------
    def emptied(self) -> GridSites:
        """An empty grid on the same box."""
        new: GridSites = copy.copy(self)
        new.forget_mark()
        new._written = []
        new.features, new.linear = torch.zeros_like(self.features), torch.zeros_like(self.linear)
        new._allocate()
        return new

    def clone(self) -> "GridSites":
        new = self.emptied()
        for name in _TENSORS:
            getattr(new, name).copy_(getattr(self, name))
        return new

    def state_dict(self) -> dict:
        return {"spacing": self.spacing, "low": list(self.low), "shape": list(self.shape)} | {
            filed: getattr(self, name).clone() for name, filed in _TENSORS.items()
        }

    @staticmethod
    def from_state_dict(state: dict, origin: Tensor, device) -> "GridSites":
        new = GridSites(state["spacing"], origin, state["start"].shape[1], device)
        new.low, new.shape = tuple(state["low"]), tuple(state["shape"])
        new._allocate()
        for name, filed in _TENSORS.items():
            if state[filed].shape != getattr(new, name).shape:
                raise ValueError(
                    f"{name} {tuple(state[filed].shape)} does not fit a box of {new.shape} nodes"
                )
            getattr(new, name).copy_(state[filed])
        return new
