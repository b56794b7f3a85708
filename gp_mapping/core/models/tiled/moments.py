"""What has changed of a map of tiles since a moment: tile by tile, blended as their answers are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.field_map import Increments
from gp_mapping.core.models.tiled.blended import sayings
from gp_mapping.core.models.tiled.layout import Key, Layout

__all__ = ["Moments"]


@dataclass(frozen=True)
class _Moment:
    """What is kept of the tiles at hand, and how they lay. layout: None while one map is everything.

    loads, forgot: of the map then; while they stay, a tile that was on the shelf and is there says what it said.
    """

    layout: Layout | None
    tiles: dict[Key, object]
    loads: int = 0
    forgot: float = 0.0


class Moments:
    """`moment` and `since` of a TiledMap."""

    def moment(self) -> _Moment | None:
        if self.layout is None or self.former is not None:
            return _Moment(None, {self.current: self.home.moment()})
        tiles = {key: None if tile.seeds else tile.map.moment() for key, tile in self.tiles.items()}
        return _Moment(self.layout, tiles, self.loads, self.forgot)

    def since(self, moment: object) -> Increments | None:
        """As blended_prediction, of increments: known where the same tiles answer now and answered then.

        Where the tiles that answer are others now, the map has noted a change of the whole place.
        """
        if not isinstance(moment, _Moment):
            return None
        if self.layout is None or self.former is not None:
            then = None if moment.layout is not None else moment.tiles.get(self.current)
            return None if then is None else self.home.since(then)
        if moment.layout is not self.layout or moment.forgot != self.forgot:
            return None
        found: dict[Key, Increments | None] = {}

        def of(key: Key) -> Increments | None:
            """What a tile at hand tells."""
            if key not in found:
                then = moment.tiles.get(key)
                found[key] = (
                    None
                    if then is None or key not in self.tiles
                    else self.tiles[key].map.since(then)
                )
            return found[key]

        def at(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean = torch.zeros(
                (len(x), len(self.centre)), dtype=torch.float64, device=self.centre.device
            )
            variance, known = (
                torch.zeros_like(mean),
                torch.ones(len(x), dtype=torch.bool, device=mean.device),
            )
            for key, which, weight in sayings(self.layout, self._answers, x):
                if key is None or (
                    key not in self.tiles and key not in moment.tiles and moment.loads == self.loads
                ):
                    continue  # the prior, then as now, or a tile that has been on the shelf all the time
                some, memory_sites = which.to(mean.device), weight.to(mean)[:, None]
                if of(key) is None:
                    known[some] = False
                    continue
                more = of(key)(x[which])
                mean.index_add_(0, some, memory_sites * more[0])
                variance.index_add_(0, some, memory_sites * more[1])
                known[some] &= more[2]
            return mean, variance, known

        return at
