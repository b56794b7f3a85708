"""What a map of tiles answers: predictions, covariances, snapshots, and what it reports of itself.

While there is one map, or one that is being split, that answers alone. Else tiles are blended
(blended.py): those in memory, and copies of those on the shelf, which are made for a question: the
map does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gp_mapping.core.field_map import CalibrationData, Covariances, PassBias, Snapshot
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.blended import blended_covariances, blended_prediction
from gp_mapping.core.models.tiled.layout import Key, Layout, key_of, name_of
from gp_mapping.core.models.tiled.opening import bound_note
from gp_mapping.core.models.tiled.shared_constants import shared_evidence
from gp_mapping.core.models.tiled.shelf import Shelf
from gp_mapping.core.models.tiled.snapshot import TiledSnapshot
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.models.tiled.tile_copies import TileCopies, TileLost
from gp_mapping.core.types import Prediction, Samples

__all__ = ["TiledPredictions"]


class TiledPredictions:
    """The questions of a FieldMap, for a TiledMap, which owns the tiles.

    It uses the map's `current_map`, `drop_lost`, `restored`, `tile_count`, FieldMap's `prior` and
    `need_data`, and the attributes below; it changes none of them, except that an
    unreadable tile is lost.
    """

    layout: Layout | None
    former: DualSVGP | None
    tiles: dict[Key, Tile]
    current: Key
    learner: HyperLearner | None
    shelf: Shelf
    copies: TileCopies
    most: int
    lost: dict[Key, str]
    lost_count: int
    loads: int
    merged_without: int
    forgot: float
    # the map of which this one is a fantasy: what its passes' constants are told stays
    fantasy_of: TiledPredictions | None = None

    centre = property(lambda self: self.current_map.centre)
    capabilities = property(
        lambda self: (
            self.current_map.capabilities
            if self.learner is None
            else self.current_map.capabilities | {"learns"}
        )
    )

    @property
    def learning_steps(self) -> int | None:
        """As FieldMap.learning_steps: of the learner that all tiles have in common."""
        return self.current_map.learning_steps if self.learner is None else self.learner.steps

    def predicts(self, key: Key) -> bool:
        """Whether a tile predicts: not while it waits for what its neighbours remember."""
        return not self.tiles[key].seeds if key in self.tiles else key in self.shelf

    @torch.no_grad()
    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict, blended across borders; the prior where no tile is near."""
        if self.layout is None or self.former is not None:
            return self.current_map.predict(x, velocity, heading)
        self.need_data()
        return self.retry_without_lost(
            lambda: blended_prediction(
                self.layout, self.predicts, self.map_for, self.prior(), x, velocity, heading
            )
        )

    @torch.no_grad()
    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As FieldMap.predict_in_pass, blended across borders."""
        if self.layout is None or self.former is not None:
            return self.current_map.predict_in_pass(x, number, velocity, heading)
        return self.retry_without_lost(
            lambda: blended_prediction(
                self.layout, self.predicts, self.map_for, self.prior(), x, velocity, heading, number
            )
        )

    def prepare(self, key: Key, copy: DualSVGP, state: dict) -> None:
        """Give a copy of a shelved tile the evidence of all others for the passes' constants.

        Args:
            key: of the tile.
            copy: its map.
            state: of the tile.
        """
        shared_evidence(self).prepare(key, copy, state)

    def bias_variance(self) -> Tensor:
        """As FieldMap.bias_variance."""
        return self.current_map.bias_variance()

    def biases(self) -> list[PassBias]:
        """Constants of passes, as the tile where the robot is knows them."""
        return self.current_map.biases()

    def retry_without_lost(self, ask: Callable):
        """The result of ask(), repeated without a tile that cannot be read."""
        while True:
            try:
                return ask()
            except TileLost as lost:
                self.drop_lost(lost)

    def map_for(self, key: Key) -> DualSVGP:
        """A tile's map for questions; of one on the shelf a copy, which is not part of the map."""
        if key in self.tiles:
            return self.tiles[key].map
        stored, of = self.shelf.peek(key), self.fantasy_of or self
        return self.copies.get(key, stored, self.forgot, of.restored, of.prepare)

    @torch.no_grad()
    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance; 0 where no tile reaches both."""
        return self.covariance_with(b)(a)[0]

    @torch.no_grad()
    def covariance_with(self, b: Tensor) -> Covariances:
        """Covariances with b (K, 2), as a function of a (N, 2)."""
        if self.layout is None or self.former is not None:
            return self.current_map.covariance_with(b)

        prior = self.prior()
        with_b = self.retry_without_lost(
            lambda: blended_covariances(self.layout, self.predicts, self.map_for, prior, b)
        )
        return lambda a: self.retry_without_lost(lambda: with_b(a))

    def noise_variance(self) -> Tensor:
        """As FieldMap.noise_variance."""
        return self.current_map.noise_variance()

    def observed(self, p: Prediction) -> Prediction:
        """As FieldMap.observed."""
        return self.current_map.observed(p)

    def outcome(self, y: Tensor) -> Tensor:
        """As FieldMap.outcome."""
        return self.current_map.outcome(y)

    def log_predictive(self, batch: Samples) -> Tensor:
        """As FieldMap.log_predictive; of several tiles, with Gaussian noise."""
        return (
            self.current_map.log_predictive(batch)
            if self.layout is None
            else super().log_predictive(batch)
        )

    def hyperparameters(self) -> dict[str, float]:
        """Hyper-parameters of the tile where the robot is."""
        return self.current_map.hyperparameters()

    def body_field(self) -> tuple[Tensor, Tensor] | None:
        """As FieldMap.body_field, as the tile where the robot is knows it."""
        return self.current_map.body_field()

    def calibration_data(self) -> CalibrationData | None:
        """Samples that the tile remembers where the robot is."""
        return self.current_map.calibration_data()

    def inducing_inputs(self) -> Tensor:
        """Inducing inputs of the tiles in memory, each in its own core."""
        return self._places(lambda m: m.inducing_inputs())

    def remembered_places(self) -> Tensor:
        """Remembered places of the tiles in memory, each in its own core."""
        return self._places(lambda m: m.remembered_places())

    def remembered_motion(self) -> tuple[Tensor, Tensor]:
        """As FieldMap.remembered_motion, of the tiles in memory, each in its own core."""
        if self.layout is None or self.former is not None:
            return self.current_map.remembered_motion()

        kept = [(key, *self.tiles[key].map.remembered_motion()) for key in sorted(self.tiles)]
        places, inside = self.layout.in_own([(key, x) for key, x, _ in kept])
        return places[inside], torch.cat([velocity for _, _, velocity in kept])[inside]

    def _places(self, places_of) -> Tensor:
        """What `places_of` gives for each tile's map, in the tile's own core."""
        if self.layout is None or self.former is not None:
            return places_of(self.current_map)
        places, inside = self.layout.in_own(
            [(key, places_of(self.tiles[key].map)) for key in sorted(self.tiles)]
        )
        return places[inside]

    def counters(self) -> dict[str, int | float]:
        """Counters of the tile where the robot is, and of the tiles."""
        counters = self.current_map.counters()
        if self.learner is not None:
            counters = counters | {"learning_rejected": self.learner.rejected}
        return counters | {
            "tiles": self.tile_count,
            "tiles_in_memory": len(self.tiles),
            "tiles_loaded": self.loads,
            "tiles_lost": self.lost_count,
            "merged_without": self.merged_without,
        }

    def notes(self) -> list[str]:
        """Tiles that are left out or cannot be put on the shelf, and the bound of tiles."""
        notes = [
            f"tile {name_of(key)} of the map is left out, what it knew is not known "
            f"{'until it can be read' if self.shelf.is_aside(key) else 'any more'}: {why}"
            for key, why in self.lost.items()
        ]
        if self.lost_count > len(self.lost):
            notes.append(f"{self.lost_count - len(self.lost)} more tiles are left out")
        return [
            *notes,
            *filter(None, [self.shelf.problem(), bound_note(self)]),
            *self.current_map.notes(),
        ]

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> Snapshot:
        """As FieldMap.snapshot: of the tiles near the places, or of all.

        All are the tiles in memory, and the states of others.
        """
        if self.layout is None or self.former is not None:
            return self.current_map.snapshot(near, reach)
        self.need_data()

        keys = [k for k in sorted(self.tiles) if self.predicts(k)]
        if near is not None:
            half = 0.5 * self.layout.blend
            keys = [
                k for k in keys if bool((self.layout.outside(k, near) <= reach + half).any())
            ] or [self.current]
            return TiledSnapshot(
                self.layout, {k: self.tiles[k].map.snapshot() for k in keys}, self.prior()
            )

        away = {k: self.shelf.peek(k) for k in self.shelf.keys()}
        return TiledSnapshot(
            self.layout,
            {k: self.tiles[k].map.snapshot() for k in keys},
            self.prior(),
            away,
            partial(
                TileCopies(self.most).get,
                restore=self.restored,
                prepare=shared_evidence(self).prepare,
            ),
            self.forgot,
        )

    def load_snapshot(self, state: dict) -> Snapshot:
        """A snapshot of one map or of tiles from its `state_dict`."""
        if "layout" not in state:
            return self.current_map.load_snapshot(state)

        prior = Prediction(
            *(state["prior"][name] for name in ("mean", "variance", "noise_variance"))
        )
        tiles = {
            key_of(name): self.current_map.load_snapshot(part)
            for name, part in state["tiles"].items()
        }
        return TiledSnapshot(Layout.from_state_dict(state["layout"]), tiles, prior)
