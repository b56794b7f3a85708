"""A batch of places to measure next, chosen one after another by fantasies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap, Planned
from gp_mapping.core.types import Prediction
from gp_mapping.planning.acquisition import ACQUISITIONS, integrated_variance_reduction
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.others import NOBODY, Others, points_along

if TYPE_CHECKING:
    from gp_mapping.mapping.drawing.grid import FieldGrid

__all__ = ["Suggestion", "Suggestions", "suggest", "thin"]

_ALONG = 100  # places of all plans of other robots that are taken as measured, at most


@dataclass(frozen=True)
class Suggestion:
    """A place in the map frame, and what it was worth when it was chosen.

    Attributes:
        x: metres.
        y: metres.
        score: SI² (kind 'variance'; of a probability or rate its own unit squared), or SI² m² (kind
            'integrated_variance': variance that a measurement takes off the map).
    """

    x: float
    y: float
    score: float


@dataclass(frozen=True)
class Suggestions:
    """Places in the order of choice.

    Attributes:
        kind: the rule by which they were chosen.
        items: the places.
        reason: in plain words, why there are fewer than were requested.
        measured: of each place where the robot measures on its way there, (m, 2) metres, the place
            itself last; empty: at the places alone.
    """

    kind: str
    items: tuple[Suggestion, ...] = ()
    reason: str = ""
    measured: tuple[np.ndarray, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __getitem__(self, index: int) -> Suggestion:
        return self.items[index]

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """Of each place where it is measured, its way included: `measured`, or the place alone."""
        return self.measured or tuple(np.array([[s.x, s.y]]) for s in self.items)

    @property
    def positions(self) -> Tensor:
        """Positions (k, 2), metres."""
        return torch.tensor([[s.x, s.y] for s in self.items], dtype=torch.float64).reshape(-1, 2)


def thin(mask: Tensor, limit: int, score: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Select at most `limit` cells that represent all cells of a mask.

    The grid is cut into square blocks, just large enough; each block that holds any cell of the
    mask sends one: the cell of highest score, or the one nearest to the block's centre. So a narrow
    passage is thinned, never lost.

    Args:
        mask: (H, W) bool.
        limit: bound K.
        score: (H, W); None: by distance to the block's centre.

    Returns:
        Flat indices (K,) of the cells, and the number of cells (K,) that each represents.
    """
    height, width = mask.shape

    rows, columns = mask.nonzero(as_tuple=True)
    # Blocks of one cell are as many as cells.
    side = 1 if len(rows) <= limit else max(2, int(math.sqrt(len(rows) / limit)))
    while True:
        across = -(-width // side)
        block = (rows // side) * across + columns // side
        count = torch.bincount(block)
        taken = count > 0
        rank = taken.cumsum(0) - 1  # of each block among those that hold a cell
        blocks = int(taken.sum())
        if blocks <= limit:
            break
        # The next side by the number of blocks that are too many, at least one more.
        side = max(side + 1, int(side * math.sqrt(blocks / limit)))

    if score is None:
        middle = (side - 1) / 2
        merit = -((rows % side - middle) ** 2 + (columns % side - middle) ** 2)
    else:
        merit = score[rows, columns]

    owner = rank[block]

    # Of cells with the best score of their block the first one is taken.
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
    """Return the acquisition (K,) at places (K, 2); ValueError where it is not finite."""
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
    others: Others = NOBODY,
) -> Suggestions:
    """Return the k places over the grid that are worth most, one after another.

        x_i = argmax acquisition

    The choice goes on with a copy of the map conditioned on its own mean at x_i; the map itself
    stays as it is. With M inducing inputs the cost is of order k (K + G) M² + k K G M operations
    and G × 512 numbers held, whatever the size of the grid.

    Args:
        field: the map.
        grid: the drawn grid whose cells are compared.
        k: how many.
        kind: 'variance', of what is observed (of the probability with class labels, of the rate
            with counts), or 'integrated_variance' of the latent field, over every cell of the grid.
        free: where the robot may be; None is everywhere.
        position: (x, y) of the robot in metres; with free, only what is connected to it counts.
        min_distance: metres between two suggestions of the batch.
        max_candidates: bound K of the candidates; larger grids are thinned by blocks.
        max_targets: bound G of the targets, likewise.
        others: what other robots will measure; min_distance is kept from their places, too.

    Raises:
        ValueError: an unknown kind or a k, distance or bound out of range.

    Reference:
        Chang et al., 2023, Alg. 2.
    """
    if kind not in ACQUISITIONS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(map(repr, ACQUISITIONS))}")
    if k < 1 or max_candidates < 1 or max_targets < 1 or not min_distance >= 0:
        raise ValueError(
            f"k={k}, max_candidates={max_candidates}, max_targets={max_targets}, "
            f"min_distance={min_distance}: expected counts of 1 or more and a distance of 0 or more"
        )

    # Of classes and counts the probability or the rate is of interest, not the latent field.
    observed = field.observed
    # Planning needs the current variance only: no mean is solved for.
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

    # Of 'variance' a block is represented by its most uncertain cell, otherwise by its middle.
    chosen, _ = thin(
        mask, max_candidates, grid.stddev.cpu().double() if kind == "variance" else None
    )
    target, count = thin(torch.ones_like(mask), max_targets)

    places, targets, areas = centres[chosen], centres[target], count.double() * grid.resolution**2

    if others.lines:
        step = 0.5 * field.hyperparameters()["lengthscale"]
        if len(driven := points_along(others.lines, step, _ALONG)):
            field = field.fantasize(torch.from_numpy(driven))

    open_places, items = torch.ones(len(places), dtype=torch.bool), []
    while len(items) < k:
        for x in map(torch.from_numpy, others.before(len(items))):
            field = field.fantasize(x)
            open_places &= torch.linalg.vector_norm(places - x[-1], dim=1) >= min_distance
        if not open_places.any():
            break
        candidates = open_places.nonzero()[:, 0]
        value = _values(kind, field, observed, places[candidates], targets, areas)
        best = int(value.argmax())
        place = places[candidates[best]]
        items.append(Suggestion(float(place[0]), float(place[1]), float(value[best])))
        # With a min_distance of 0 the place itself is excluded all the same.
        open_places &= torch.linalg.vector_norm(places - place, dim=1) >= min_distance
        open_places[candidates[best]] = False
        if len(items) < k:
            # The next place is chosen as if this one had been measured.
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
