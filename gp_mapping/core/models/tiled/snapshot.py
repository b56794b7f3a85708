"""What a map of tiles said at one moment: the snapshots of some of its tiles."""

from __future__ import annotations

from torch import Tensor

from gp_mapping.core.field_map import Snapshot
from gp_mapping.core.models.tiled.blended import blend, sayings
from gp_mapping.core.models.tiled.layout import Key, Layout, name_of
from gp_mapping.core.types import Prediction

__all__ = ["TiledSnapshot"]


class TiledSnapshot(Snapshot):
    """What some tiles said at one moment."""

    def __init__(self, layout: Layout, tiles: dict[Key, Snapshot], prior: Prediction):
        self.layout, self.tiles, self.prior = layout, tiles, prior

    def predict(self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None) -> Prediction:
        said = []
        for key, which, weight in sayings(self.layout, self.tiles.__contains__, x):
            if key is None:
                part = Prediction(self.prior.mean.expand(len(which), -1), self.prior.variance.expand(len(which), -1),
                                  self.prior.noise_variance)
            else:
                part = self.tiles[key].predict(x[which], None if velocity is None else velocity[which],
                                               None if heading is None else heading[which])
            said.append((which.to(part.mean.device), weight.to(part.mean), part))
        return blend(said, len(x))

    def state_dict(self) -> dict | None:
        parts = {name_of(key): told.state_dict() for key, told in self.tiles.items()}
        return {"layout": self.layout.state_dict(), "tiles": parts,
                "prior": {name: getattr(self.prior, name) for name in ("mean", "variance", "noise_variance")}}
