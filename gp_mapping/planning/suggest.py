"""A batch of places to measure next, chosen one after another by fantasies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap, Planned
from gp_mapping.core.types import Prediction
from gp_mapping.planning.acquisition import ACQUISITIONS, integrated_variance_reduction
from gp_mapping.planning.free_space import FreeSpace

if TYPE_CHECKING:
    from gp_mapping.mapping.drawing.grid import FieldGrid

__all__ = ["Suggestion", "Suggestions", "suggest", "thin"]


@dataclass(frozen=True)
class Suggestion:
    """A place, x and y in metres in the map frame, and what it was worth when it was chosen.

    score: SI² (kind 'variance'; of a probability or rate its own unit squared), or SI² m² (kind 'integrated_variance':
    variance that a measurement takes off the map).
    """

    x: float
    y: float
    score: float


@dataclass(frozen=True)
class Suggestions:
    """Places in the order of choice; where there are fewer than were asked for, reason says why in plain words."""

    kind: str
    items: tuple[Suggestion, ...] = ()
    reason: str = ""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __getitem__(self, index: int) -> Suggestion:
        return self.items[index]

    @property
    def positions(self) -> Tensor:
        """(k, 2) metres."""
        return torch.tensor([[s.x, s.y] for s in self.items], dtype=torch.float64).reshape(-1, 2)


def thin(mask: Tensor, limit: int, score: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """At most limit cells that stand for all that mask (H, W) allows: flat indices (K,), and the cells of each (K,).

    The grid is cut into square blocks, just large enough; each block that allows any cell sends one: the cell of
    highest score (H, W), or the one nearest to the block's centre. So a narrow passage is thinned, never lost.
    """
    height, width = mask.shape
    rows, columns = mask.nonzero(as_tuple=True)
    side = 1
    while True:
        across = -(-width // side)
        block = (rows // side) * across + columns // side
        count = torch.bincount(block)
        taken = count > 0
        number = taken.cumsum(0) - 1  # of each block among those that allow a cell
        blocks = int(taken.sum())
        if blocks <= limit:
            break
        side = max(side + 1, int(side * math.sqrt(blocks / limit)))
    if score is None:
        middle = (side - 1) / 2
        merit = -((rows % side - middle) ** 2 + (columns % side - middle) ** 2)
    else:
        merit = score[rows, columns]
    owner = number[block]
    best = torch.full((blocks,), -torch.inf, dtype=merit.dtype).scatter_reduce(
        0, owner, merit, "amax"
    )
    flat = rows * width + columns
    first = torch.full((blocks,), height * width).scatter_reduce(
        0, owner, torch.where(merit == best[owner], flat, height * width), "amin"
    )
    return first, count[taken]


def _values(
    kind: str,
    field: Planned,
    observed: Callable[[Prediction], Prediction],
    places: Tensor,
    targets: Tensor,
    areas: Tensor,
) -> Tensor:
    value = (
        observed(field.predict(places)).variance.mean(1).cpu().double()
        if kind == "variance"
        else integrated_variance_reduction(field, places, targets, areas)
    )
    if not torch.isfinite(value).all():
        bad = int((~torch.isfinite(value)).nonzero()[0])
        raise ValueError(
            f"acquisition {kind!r} is {float(value[bad])} at {places[bad].tolist()}: the map's covariance "
            "is broken there"
        )
    return value


def suggest(
    field: FieldMap,
    grid: FieldGrid,
    k: int = 1,
    kind: str = "variance",
    free: FreeSpace | None = None,
    position=None,
    min_distance: float = 0.0,
    max_candidates: int = 1000,
    max_targets: int = 500,
) -> Suggestions:
    """The k places over the grid that are worth most, one after another (Alg. 2, Chang et al. 2023).

    x_i = argmax acquisition, which goes on with a copy of the map conditioned on its own mean at x_i; the map itself
    is untouched.

    kind: 'variance', of what is observed (of the probability with class labels, of the rate with counts), or
        'integrated_variance' of the latent field, over every cell of the grid.
    free: where the robot may be; None is everywhere.
    position: (x, y) of the robot in metres; with free, only what is connected to it counts.
    min_distance: metres between two suggestions of the batch.
    max_candidates, max_targets: bounds K and G; larger grids are thinned by blocks. With M inducing inputs the cost is
        of order k (K + G) M² + k K G M operations and G × 512 numbers held, whatever the size of the grid.
    Raises ValueError for an unknown kind or a k, distance or bound out of range.
    """
    if kind not in ACQUISITIONS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(map(repr, ACQUISITIONS))}")
    if k < 1 or max_candidates < 1 or max_targets < 1 or not min_distance >= 0:
        raise ValueError(
            f"k={k}, max_candidates={max_candidates}, max_targets={max_targets}, "
            f"min_distance={min_distance}: expected counts of 1 or more and a distance of 0 or more"
        )
    observed = (
        field.observed
    )  # of classes and counts: what is wanted is a probability or a rate, not the latent field
    # the field's variance of now: no mean is asked for, so none is solved for
    field = field.for_planning()
    centres = grid.centres().cpu()
    mask = torch.ones(grid.mean.shape, dtype=torch.bool)
    if mask.numel() == 0:
        return Suggestions(kind, reason="the map is empty: nothing has been measured yet")
    if free is not None:
        if position is not None:
            free = free.reachable_from(position)
            if not free.open.any():
                return Suggestions(
                    kind,
                    reason=f"the robot at ({float(position[0]):.2f}, {float(position[1]):.2f}) m "
                    "stands where the occupancy grid leaves it no room",
                )
        mask = free.allows(centres).reshape(mask.shape)
        if not mask.any():
            return Suggestions(
                kind, reason="the occupancy grid leaves no cell of the map that the robot may enter"
            )
    chosen, _ = thin(
        mask, max_candidates, grid.stddev.cpu().double() if kind == "variance" else None
    )
    target, count = thin(torch.ones_like(mask), max_targets)
    places, targets, areas = centres[chosen], centres[target], count.double() * grid.resolution**2
    open_still, items = torch.ones(len(places), dtype=torch.bool), []
    while len(items) < k and bool(open_still.any()):
        left = open_still.nonzero()[:, 0]
        value = _values(kind, field, observed, places[left], targets, areas)
        best = int(value.argmax())
        place = places[left[best]]
        items.append(Suggestion(float(place[0]), float(place[1]), float(value[best])))
        open_still &= torch.linalg.vector_norm(places - place, dim=1) >= min_distance
        open_still[left[best]] = False
        if len(items) < k:
            field = field.fantasize(place[None])
    reason = (
        ""
        if len(items) == k
        else (
            f"{len(items)} of {k}: every other cell that the robot may enter is nearer "
            f"than {min_distance} m to one already chosen"
        )
    )
    return Suggestions(kind, tuple(items), reason)
