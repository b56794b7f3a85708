"""A map of tiles at one moment: snapshots of tiles in memory, and states of those on the shelf."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gp_mapping.core.field_map import Covariances, FieldMap, Snapshot
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.blended import blended_covariances, blended_prediction
from gp_mapping.core.models.tiled.layout import Key, Layout, name_of
from gp_mapping.core.models.tiled.tile_copies import TileLost
from gp_mapping.core.stored import StoredState
from gp_mapping.core.types import Prediction

__all__ = ["TiledSnapshot"]


class TiledSnapshot(Snapshot):
    """What some tiles predicted at one moment.

    Args:
        layout: of the tiles.
        tiles: snapshots of those in memory.
        prior: the prediction where no tile is near.
        away: states of others, which are read when they are needed; a state never changes.
        visits: makes a map of one, as TileCopies.get; needed with `away`.
        forgot: logarithm of the product of all forgetting factors.
    """

    def __init__(
        self,
        layout: Layout,
        tiles: dict[Key, Snapshot],
        prior: Prediction,
        away: dict[Key, StoredState] | None = None,
        visits: Callable[[Key, StoredState, float], DualSVGP] | None = None,
        forgot: float = 0.0,
    ):
        self.layout, self.tiles, self.prior = layout, tiles, prior
        self.away, self.visits, self.forgot = away or {}, visits, forgot

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict, blended across borders."""
        return self._blended(x, velocity, heading, None)

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As FieldMap.predict_in_pass, blended across borders."""
        return self._blended(x, velocity, heading, number)

    def _blended(
        self, x: Tensor, velocity: Tensor | None, heading: Tensor | None, number: float | None
    ) -> Prediction:
        """The blended prediction; number: of a pass whose measurements are predicted, or None."""
        return self._answered(
            lambda: blended_prediction(
                self.layout, self._exists, self._asked, self.prior, x, velocity, heading, number
            )
        )

    @torch.no_grad()
    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance; 0 where no tile reaches both."""
        return self.covariance_with(b)(a)[0]

    @torch.no_grad()
    def covariance_with(self, b: Tensor) -> Covariances:
        """Covariances with b (K, 2), as a function of a (N, 2)."""
        with_b = self._answered(
            lambda: blended_covariances(self.layout, self._exists, self._asked, self.prior, b)
        )
        return lambda a: self._answered(lambda: with_b(a))

    def _answered(self, ask: Callable):
        """The result of ask(), repeated without a shelved tile that cannot be read."""
        while True:
            try:
                return ask()
            except TileLost as lost:  # the map itself notes it at its own questions
                del self.away[lost.key]

    def _exists(self, key: Key) -> bool:
        """Whether a tile predicts."""
        return key in self.tiles or key in self.away

    def _asked(self, key: Key) -> Snapshot | FieldMap:
        """What predicts for a tile: its snapshot, or a copy of its map."""
        return (
            self.tiles[key] if key in self.tiles else self.visits(key, self.away[key], self.forgot)
        )

    def state_dict(self) -> dict | None:
        """Layout, tiles in memory and prior; tiles on the shelf are left out."""
        parts = {name_of(key): part.state_dict() for key, part in self.tiles.items()}
        return {
            "layout": self.layout.state_dict(),
            "tiles": parts,
            "prior": {
                name: getattr(self.prior, name) for name in ("mean", "variance", "noise_variance")
            },
        }
