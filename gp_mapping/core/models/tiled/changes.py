"""What has changed in a map of tiles since a moment: a large map need not be drawn anew for one.

Where a tile has changed as a whole its place is noted; else increments are blended tile by tile, as
predictions are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap, Increments, Unchanged
from gp_mapping.core.models.tiled.blended import KeptWeights
from gp_mapping.core.models.tiled.layout import Key, Layout

__all__ = ["Box", "Changes", "ChangesOfTiles"]

Box = tuple[tuple[float, float], tuple[float, float]]  # lower and upper corner, m

# changes that are kept apart; for a look at an older epoch everything has changed
_MOST = 64
_ALONE = 3.0  # lengthscales beyond its samples in which a map differs from its prior


@dataclass(frozen=True)
class Changes:
    """The newest changes of whole places.

    Attributes:
        whole: epoch at which all may have changed last.
        places: the newest changes, each with the epoch after it and the place.
    """

    whole: int = 0
    places: tuple[tuple[int, Box], ...] = ()

    def with_place(self, epoch: int, where: Box) -> Changes:
        """These changes and one more.

        Args:
            epoch: that the map has after it.
            where: lower and upper corner, m.
        """
        places = (*self.places, (epoch, where))
        if len(places) <= _MOST:
            return Changes(self.whole, places)

        return Changes(places[0][0], places[1:])

    def since(self, epoch: int) -> list[Box] | None:
        """Places that have changed after an epoch; None: everywhere."""
        if epoch < self.whole:
            return None
        return list(dict.fromkeys(where for at, where in self.places if at > epoch))


@dataclass(frozen=True)
class _Moment:
    """Moments of the tiles in memory, and where they lay.

    Attributes:
        layout: None while one map is everything.
        tiles: the moment of each; None while it waits for samples.
        loads: of the map then. While it stays, a tile that was on the shelf and is still there
            predicts what it predicted.
        forgot: of the map then, likewise.
    """

    layout: Layout | None
    tiles: dict[Key, object]
    loads: int = 0
    forgot: float = 0.0

    def __eq__(self, other: object) -> bool:
        """Whether the map predicted the same: not known where a tile has no moment."""
        if not isinstance(other, _Moment) or any(then is None for then in self.tiles.values()):
            return False
        own, others = ((m.layout, m.tiles, m.loads, m.forgot) for m in (self, other))
        return own == others


class TiledIncrements(Increments):
    """Changes of each tile, blended as predictions are.

    Args:
        field: the map of tiles.
        tiles: the changes of each tile that was in memory at either moment; None: not known.
        others_known: whether every other tile predicts what it predicted.
    """

    def __init__(
        self, field: ChangesOfTiles, tiles: dict[Key, Increments | None], others_known: bool
    ):
        self.field, self.tiles, self.others_known = field, tiles, others_known

    def _is_same(self, key: Key | None) -> bool:
        """Whether a tile predicts what it predicted; None: the prior, which does."""
        if key in self.tiles:
            return isinstance(self.tiles[key], Unchanged)
        return key is None or self.others_known  # else one that was on the shelf

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As Increments.__call__, blended."""
        centre = self.field.centre
        mean = torch.zeros((len(x), len(centre)), dtype=torch.float64, device=centre.device)
        variance = torch.zeros_like(mean)
        known = torch.ones(len(x), dtype=torch.bool, device=mean.device)

        for key, indices, weight in self.field.kept_weights.at(
            self.field.layout, self.field.predicts, x
        ):
            if self._is_same(key):
                continue
            increments = self.tiles.get(key)
            places = indices.to(mean.device)
            if increments is None:
                known[places] = False
                continue

            weights, part = weight.to(mean)[:, None], increments(x[indices])
            mean.index_add_(0, places, weights * part[0])
            variance.index_add_(0, places, weights * part[1])
            known[places] &= part[2]
        return mean, variance, known


class ChangesOfTiles:
    """What of a TiledMap has changed, for the map, which owns the tiles.

    Attributes:
        kept_weights: of the tiles, at places that drawing after drawing asks for.
    """

    kept_weights: KeptWeights

    def moment(self) -> _Moment | None:
        """What `since` needs later to tell what has changed since now."""
        if self.layout is None or self.former is not None:
            return _Moment(None, {self.current: self.current_map.moment()})
        tiles = {key: None if tile.seeds else tile.map.moment() for key, tile in self.tiles.items()}
        return _Moment(self.layout, tiles, self.loads, self.forgot)

    def since(self, moment: object) -> Increments | None:
        """Blended increments since a moment, known where the same tiles predict now and did then.

        Where the tiles that predict are others now, the map has noted a change of the whole place.

        Args:
            moment: by `moment`.

        Returns:
            The changes, or None where nothing is known.
        """
        if not isinstance(moment, _Moment):
            return None
        if self.layout is None or self.former is not None:
            then = None if moment.layout is not None else moment.tiles.get(self.current)
            return None if then is None else self.current_map.since(then)
        if moment.layout is not self.layout or moment.forgot != self.forgot:
            return None

        # of tiles in memory now or then
        return TiledIncrements(
            self,
            {
                key: None
                if then is None or key not in self.tiles
                else self.tiles[key].map.since(then)
                for key, then in (dict.fromkeys(self.tiles) | moment.tiles).items()
            },
            moment.loads == self.loads,
        )

    def changed_since(self, epoch: int) -> list[Box] | None:
        """Places that have changed as a whole since an epoch; None: everywhere."""
        if self.former is not None:
            return FieldMap.changed_since(self, epoch)
        if self.layout is None:
            known = epoch >= self.changes.whole
            return self.current_map.changed_since(epoch - self.own_epoch) if known else None
        return self.changes.since(epoch)

    def note_change_of(self, key: Key, before: int) -> None:
        """Note what has changed in a tile since its map had an epoch.

        Args:
            key: of the tile.
            before: the epoch.
        """
        changed = self.tiles[key].map
        if changed.changed_since(before) is None:
            self.note_change(key)
        elif changed.epoch > before:
            self.own_epoch += 1  # `since` tells what

    def note_change(self, key: Key | None = None) -> None:
        """Note that a tile predicts something else all over; None: that all tiles do."""
        self.own_epoch += 1
        if key is None or self.layout is None or self.former is not None:
            self.changes = Changes(self.epoch)
            return

        low, high = self.layout.core(key)

        # into a neighbour as far as both are blended; where there is none, until it is the prior
        for axis in range(2):
            before, after = (
                (key[0] + s, key[1]) if axis == 0 else (key[0], key[1] + s) for s in (-1, 1)
            )
            low[axis] -= self._reach_into(before)
            high[axis] += self._reach_into(after)

        self.changes = self.changes.with_place(self.own_epoch, (tuple(low), tuple(high)))

    def _reach_into(self, key: Key) -> float:
        """How far a tile's predictions matter beyond the border to the tile `key`, m."""
        return (
            0.5 * self.layout.blend
            if self.exists(key)
            else _ALONE * self.current_map.theta.lengthscale
        )
