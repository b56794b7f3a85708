"""A map of any extent at constant cost: tiles, each a map, opened where the robot goes on.

    one area     one tile, which is the map that there would be without tiles, bit for bit
    going on     where that map's budget fills and the robot has left a square of 1.25 `side`, or it
                 would smooth what was measured, the plane is laid out in tiles (opening.py,
                 layout.py). While all samples are remembered the map is split: each tile takes in
                 those of its ground, slice by slice, and the map predicts until that is done. Else
                 it becomes the first tile as it is. From then on a sample outside all tiles opens
                 the next one, which starts with what its neighbours remember
    everywhere   a sample goes to the tiles in whose core or halo it lies, four at most; θ is one
                 for all, learned in the tile where the robot is and, every other step, in one next
                 to it
    far away     beyond `most` tiles, those that were not needed for longest are put on the shelf,
                 whose room writes them to a disk, and come back when the robot does; a question
                 looks at a copy, so that the map depends on its samples alone. A tile that cannot
                 be read is left out, for good or until its file is in reach again, and named

Sites, memory and basis are each tile's own: nothing in this file knows them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.hyper.adopting import go_on_with_kernel, learn
from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.smoothness import KernelSearch
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled import shared_constants
from gp_mapping.core.models.tiled import state as states
from gp_mapping.core.models.tiled.blended import KeptWeights
from gp_mapping.core.models.tiled.changes import Changes, ChangesOfTiles
from gp_mapping.core.models.tiled.joining import merge_tiles, use_budgets
from gp_mapping.core.models.tiled.layout import Key, Layout
from gp_mapping.core.models.tiled.opening import (
    needs_tiles,
    new_tile,
    require_room,
    split_into_tiles,
)
from gp_mapping.core.models.tiled.predictions import TiledPredictions
from gp_mapping.core.models.tiled.sending import (
    adopt_tiles_in_slices,
    learned_by,
    move_tiles,
    search_in_tiles,
    slim_state,
    unreadable_tiles,
)
from gp_mapping.core.models.tiled.shelf import Shelf, TileResidency
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.models.tiled.tile_copies import TileCopies
from gp_mapping.core.places import need_radius, places_of
from gp_mapping.core.scaled_map import check_alike
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.transaction import Revertible, taken_back, transaction
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.errors import NumericalError

__all__ = ["TiledMap"]

_HOME: Key = (0, 0)
_OWN_STEPS = 0.5  # fraction of learning steps in the tile where the robot is


class TiledMap(TiledPredictions, TileResidency, ChangesOfTiles, Revertible, FieldMap):
    """Many maps as one, see above; what it predicts and reports is in predictions.py.

    Args:
        make: a new, empty tile: called with the prior mean (C,) SI, or None for the first batch's.
        side: of a tile, in lengthscales; less where the field takes more inputs than a budget has
            for it.
        most: tiles kept in memory.
        limit: the largest number of tiles.
        shelf: where the others are; None: one without a room, which keeps them in memory.
        seed: of random choices.

    Attributes:
        layout: where the tiles lie; None while the first tile is everything.
        former: the one map, while it is being split.
        tiles: those in memory.
        current: the tile where the robot is.
        learner: of all tiles; None while there is one, which has its own.
        sliced: whether tiles are transferred to another θ slice by slice.
        copies: of tiles on the shelf, for questions.
        lost: the newest tiles that could not be read any more, and why.
        low: lower corner of the box of all samples, m.
        high: its upper corner, m.
        turn: number of the newest update.
        forgot: logarithm of the product of all forgetting factors.
        widened: budgets of one map that each tile may have, see widen_budget.
        loads: how often a tile came back from the shelf.
        merged_without: samples that merging left out.
    """

    name = "tiled"

    def __init__(
        self,
        make: Callable[[Tensor | None], DualSVGP],
        *,
        side: float = 8.0,
        most: int = 12,
        limit: int = 100_000,
        shelf: Shelf | None = None,
        seed: int = 0,
    ):
        self.make, self.side, self.most, self.limit = make, side, max(most, 9), limit
        self.shelf = Shelf() if shelf is None else shelf

        self.sliced = False
        self.layout: Layout | None = None
        self.former: DualSVGP | None = None
        self.tiles: dict[Key, Tile] = {_HOME: Tile(make(None))}
        self.current: Key = _HOME
        self.learner = None
        self.generator = torch.Generator().manual_seed(seed)
        self.copies = TileCopies(self.most)
        self.kept_weights = KeptWeights()
        self.lost: dict[Key, str] = {}

        self.low, self.high = [math.inf, math.inf], [-math.inf, -math.inf]
        self.samples, self.turn, self.own_epoch, self.forgot = 0, 0, 0, 0.0
        self.widened = 1
        self.changes = Changes()
        self.newest_pass = NO_PASS
        # what tiles on the shelf say of the passes' constants; None: nothing
        self.shelved_evidence: PassEvidence | None = None
        self.shelf_prior: PassEvidence | None = None  # as tiles on the shelf have it
        self.evidence_version = 0
        self.loads, self.merged_without, self.lost_count = 0, 0, 0

    # --- samples in -------------------------------------------------------------------------------
    @property
    def current_map(self) -> DualSVGP:
        """The map of the tile where the robot is, or the one that is being split."""
        return self.tiles[self.current].map if self.former is None else self.former

    def update(self, batch: Samples) -> UpdateReport:
        """Absorb each sample once in every tile that knows its place, or none of the batch.

        Raises:
            MapFullError: its ground takes more tiles than there may be; samples of a part of it may
                fit.
        """
        if not len(batch):
            return self.current_map.update(batch)
        self.widened = 1  # each tile returns to its own budget with its next sample
        if self.layout is None:
            return self._update_only_map(batch)

        # before the transaction, since the shelf takes part in none
        keys = [key for key, _ in self.layout.group_by_tile(batch.x)]
        require_room(self, keys)
        self.turn += 1
        self.return_tiles()
        for key in keys:
            for near in self.load_tiles(self.layout.neighbourhood(key)):
                self.tiles[near].touched = self.turn

        if self.sliced:
            self._advance_slice(batch.x)

        with transaction(self), ExitStack() as stack:
            # a new tile takes what the former map knew before: the batch comes to it below
            for key in keys:
                if not self.exists(key):
                    self.open_tile(key)
            if self.former is not None:
                self.former.update(batch)

            reports = self._update_tiles(batch, stack)
            self._split_on(stack)

            self._count(batch)
            if self.learner is not None:
                self.learner.theta = self.learner.theta.with_biases_of(self.current_map.theta)
                self.learner.schedule(len(batch))
            shared_constants.exchange_due(self, stack, len(batch))

        self.shelve_tiles()
        return self._report(len(batch), reports)

    def _update_only_map(self, batch: Samples) -> UpdateReport:
        """Absorb a batch while one map is everything, which is split where it no longer suffices.

        The split belongs to the batch: where it fails, neither has been.
        """
        with transaction(self), transaction(self.current_map):
            report = self.current_map.update(batch)
            self._count(batch)
            if needs_tiles(self, len(batch)):
                self.split_into_tiles()
        return report

    def _update_tiles(self, batch: Samples, stack: ExitStack) -> list[UpdateReport]:
        """Absorb a batch in all tiles that know its places; their reports.

        Args:
            batch: not empty.
            stack: of the map's transaction, with which that of each tile ends.
        """
        self.current = self.layout.key_at(batch.x[-1])
        reports = []
        for key, known in self.knowing(batch.x).items():
            tile = self.tiles[key]
            stack.enter_context(transaction(tile))
            before = tile.map.epoch

            tile.adopt_learned(self.learner)
            tile.absorb_seed()
            # a robot brings one place at a time
            reports.append(tile.map.update(batch if len(batch) == 1 else batch[known]))
            self.note_change_of(key, before)
        return reports

    def _count(self, batch: Samples) -> None:
        """Count a batch's samples; note their passes and their bounds."""
        self.note_passes(batch.pass_number)
        self.extend_bounds(batch.x)
        self.samples += len(batch)

    def in_slices(self, on: bool) -> None:
        """Set whether large work is done in slices; what waits is done at once where it is not."""
        self.sliced = on

        maps = {
            id(m): m for m in (self.current_map, *(tile.map for tile in self.tiles.values()))
        }.values()
        before = [single.epoch for single in maps]
        for single in maps:
            self.adopt_map(single)
        if not on:
            self.absorb_waiting()
        if before != [single.epoch for single in maps]:
            self.note_change()

    def adopt_map(self, tile_map: DualSVGP) -> DualSVGP:
        """A tile's map, which from now on does large work in slices where this map does."""
        tile_map.in_slices(self.sliced, driven=self.layout is not None)
        return tile_map

    def _advance_slice(self, x: Tensor) -> None:
        """Do one slice of large work for all tiles together.

        That is of the map that is being split, else of a transfer under way, else of a tile that
        knows x.
        """
        if self.former is not None and Tile(self.former).advance_transfer(self.learner):
            return

        newest = sorted(self.tiles, key=lambda k: (k != self.current, -self.tiles[k].touched, k))
        under_way = [k for k in newest if self.tiles[k].map.rebuild is not None]
        knowing = {} if under_way else self.knowing(x)

        for key in under_way[:1] or [k for k in newest if k in knowing]:
            tile = self.tiles[key]
            before = tile.map.epoch
            if tile.advance_transfer(self.learner):
                self.note_change_of(key, before)
                return

    def _report(self, used: int, reports: list[UpdateReport]) -> UpdateReport:
        """The report of an update from those of the tiles that took part."""
        maps = [tile.map.report(0) for tile in self.tiles.values()]
        return UpdateReport(
            used,
            self.samples,
            sum(m.inducing for m in maps),
            sum(m.memory for m in maps),
            sum(r.added for r in reports),
            sum(r.removed for r in reports),
            max((r.jitter for r in reports), default=0.0),
            any(r.everywhere for r in reports),
        )

    def note_passes(self, numbers: Tensor | None) -> None:
        """Note numbers of passes (N,) that were seen in some tile."""
        if numbers is not None and numbers.shape[0]:
            self.newest_pass = max(self.newest_pass, float(numbers.max()))

    def extend_bounds(self, x: Tensor) -> None:
        """Extend the box of all samples by x (N, 2), m."""
        low, high = (x[0], x[0]) if x.shape[0] == 1 else (x.amin(0), x.amax(0))
        self.low = list(map(min, self.low, low.tolist()))
        self.high = list(map(max, self.high, high.tolist()))

    def split_into_tiles(self) -> None:
        """Lay the plane out in tiles; the first map is split, or becomes the first of them."""
        split_into_tiles(self)

    def _split_on(self, stack: ExitStack) -> None:
        """Give one slice to the tiles that the former map is split into; drop it after the last."""
        if self.former is None:
            return

        waiting = [tile for _, tile in sorted(self.tiles.items()) if tile.seeds]
        if waiting:
            stack.enter_context(transaction(waiting[0]))
            waiting[0].absorb_seed()

        if not any(tile.seeds for tile in self.tiles.values()):
            self.former = None
            self.note_change()

    def absorb_waiting(self) -> None:
        """Give the tiles all that waits for them; what one refuses goes on waiting."""
        waiting = [tile for _, tile in sorted(self.tiles.items()) if tile.seeds]

        for tile in waiting:
            with transaction(tile):
                tile.absorb_all_seeds()

        self.former = None
        if waiting:
            self.note_change()
        shared_constants.exchange_all(self)

    def open_tile(self, key: Key) -> None:
        """Open a tile, which starts with what its neighbours remember of its ground."""
        self.tiles[key] = new_tile(self, key)

    def refine(self, budget_s: float = math.inf) -> bool:
        """Do pending hyper-parameter steps: half of them where the robot is, half near it.

        Returns:
            Whether more are pending.
        """
        if self.learner is None:
            return self.layout is None and self.current_map.refine(budget_s)
        return learn(self, self.learner, self._step, self._follow, budget_s)

    def _step(self) -> None:
        """One step of the learner, from the samples that one tile remembers."""
        draw, choice = torch.rand(2, dtype=torch.float64, generator=self.generator).tolist()

        data = self.current_map
        nearby = [
            k
            for k in self.layout.neighbourhood(self.current)
            if k in self.tiles and self.tiles[k].map.samples
        ]

        if self.former is None and draw >= _OWN_STEPS:
            data = self.tiles[nearby[int(choice * len(nearby))]].map

        self.learner.step(data.learning_data(), self.generator)

    def _follow(self) -> None:
        """Adopt the learner's θ in the tile where the robot is, where it has left the tile's."""
        theta, home = self.learner.theta, self.current_map
        if self.sliced or not (self.learner.should_adopt(home.theta) and home.promises(theta)):
            return
        try:
            with transaction(home):
                if home.adopt_in_slices(theta):
                    self.note_change(self.current)
        except (NumericalError, torch.linalg.LinAlgError):
            home.not_adopted(theta)
            self.learner.rejected += 1  # a tile has no learner that would count it

    # --- what has changed -------------------------------------------------------------------------
    epoch = property(
        lambda self: self.own_epoch + (self.current_map.epoch if self.layout is None else 0)
    )

    # --- forget, fantasize, merge, save -----------------------------------------------------------
    def forget(self, factor: float) -> None:
        """As FieldMap.forget; shelved tiles follow later.

        Raises:
            ValueError: the factor is outside (0, 1].
        """
        if self.layout is None:
            return self.current_map.forget(factor)
        if not 0.0 < factor <= 1.0:
            raise ValueError(f"a forgetting factor lies in (0, 1], not {factor}")

        self.forgot += math.log(factor)
        self.copies.clear()
        if self.shelved_evidence is not None:
            self.shelved_evidence = self.shelved_evidence.scale(factor)
        if self.former is not None:
            self.former.forget(factor)
        for tile in self.tiles.values():
            tile.forget(self.forgot)
        self.note_change()
        return None

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget in every tile that knows the place.

        Args:
            x: (K, 2) m.
            radius: m.
            newest: so many samples stay.

        Returns:
            How many samples went, counted in the tile that lost most.
        """
        need_radius(radius)
        if self.layout is None:
            return self.current_map.forget_near(x, radius, newest)
        x = places_of(x, 2)
        if self.former is not None:  # what waits still knows the old field
            self.absorb_waiting()

        keys = self.load_tiles(list(self.knowing(x)))
        for key in keys:
            self.note_change(key)
        return max((self.tiles[k].map.forget_near(x, radius, newest) for k in keys), default=0)

    def fantasize(self, x: Tensor) -> TiledMap:
        """A copy conditioned on its own mean at x (K, 2); tiles that do not know x are shared."""
        self.need_data()
        x = places_of(x, len(self.current_map.scaling.origin))
        new: TiledMap = copy.copy(self)
        new.forget_mark()
        new.tiles, new.shelf = dict(self.tiles), self.shelf.copy()

        if self.layout is None:
            new.tiles[_HOME] = Tile(self.current_map.fantasize(x))
            return new

        if self.former is not None:
            new.former = self.former.fantasize(x)
            return new
        new.copies, new.fantasy_of = TileCopies(self.most), self

        def expect() -> None:
            """Replace the tiles that know a place."""
            for key, known in self.knowing(x).items():
                new.tiles[key] = Tile(self.map_for(key).fantasize(x[known]), forgot=self.forgot)

        self.retry_without_lost(expect)
        return new

    def merge(self, other: FieldMap) -> None:
        """Add another map, of tiles or not.

        While both are one tile, it is merged as that model merges; else by remembered samples. What
        the other no longer remembers cannot be told apart by place: it is left out, and counted in
        `merged_without` (samples).

        Raises:
            ValueError: it is not a TiledMap, or has several tiles while this one is empty.
        """
        if not isinstance(other, TiledMap):
            raise ValueError(
                f"cannot merge a {type(other).__name__} into a map of tiles; make both with the same "
                "setting tiles"
            )

        if not other.started:
            return
        check_alike(self.current_map, other.current_map)  # before anything changes

        if self.layout is None and other.layout is None:
            with taken_back(self):
                self.current_map.merge(other.current_map)
                self.newest_pass = self.current_map.newest_pass
                if other.samples:
                    self.extend_bounds(torch.tensor([other.low, other.high], dtype=torch.float64))
                self.samples += other.samples
                if needs_tiles(self, other.samples):
                    self.split_into_tiles()
            return

        if not self.started:
            raise ValueError(
                "a map of several tiles cannot be merged into an empty one; load it in its place"
            )

        with taken_back(self):
            merge_tiles(self, other)

    def widen_budget(self, times: int) -> None:
        """As FieldMap.widen_budget, every tile; those on the shelf when they come back."""
        self.widened = max(self.widened, times)
        for single in (self.former, *(tile.map for tile in self.tiles.values())):
            if single is not None:
                single.widen_budget(times)

    def use_budget(self) -> None:
        """As FieldMap.use_budget, every tile."""
        with taken_back(self):
            use_budgets(self)

    def slimmed(self, state: dict) -> dict:
        """As FieldMap.slimmed."""
        return slim_state(self, state)

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """As FieldMap.move; several tiles can be shifted, not turned."""
        move_tiles(self, turn, shift)

    def unreadable(self) -> list[str]:
        """As FieldMap.unreadable: of tiles on the shelf."""
        return unreadable_tiles(self)

    def learned(self) -> Learned | None:
        """As FieldMap.learned."""
        return learned_by(self)

    @property
    def kernel_name(self) -> str | None:
        """As FieldMap.kernel_name: that which all tiles take over, each when the robot is there."""
        learner = None if self.layout is None else self.learner
        return self.current_map.kernel_name if learner is None else learner.theta.kernel_name

    def kernel_search(self) -> KernelSearch | None:
        """As FieldMap.kernel_search, among what the tiles in memory remember."""
        if self.layout is None:
            return self.current_map.kernel_search()
        return search_in_tiles(self)

    def use_kernel(self, theta: Theta) -> None:
        """As FieldMap.use_kernel; a tile takes it over when the robot is there."""
        if self.layout is None:
            return self.current_map.use_kernel(theta)
        go_on_with_kernel(self.learner, theta)
        self._follow()
        return None

    def agree_on(self, theta: Theta) -> bool:
        """As FieldMap.agree_on, tile by tile."""
        return adopt_tiles_in_slices(self, theta)

    def state_dict(self) -> dict:
        """Everything needed for exact resume; of a single map its own state and its ground."""
        return states.save(self)

    def load_state_dict(self, state: dict) -> None:
        """Continue exactly where `state_dict` was taken.

        Raises:
            ValueError: the state does not fit; the map is as it was.
        """
        self.__dict__.update(states.load(self, state) | {"own_epoch": self.own_epoch + 1})
        self.copies = TileCopies(self.most)
        self.changes = Changes(self.epoch)

        # they were made while this map had no tiles yet, where each map does its slices by itself
        if self.layout is not None:
            for single in (self.former, *(tile.map for tile in self.tiles.values())):
                if single is not None:
                    self.adopt_map(single)

    def restored(self, state: dict) -> DualSVGP:
        """A tile's map from its state."""
        new = self.make(None)
        new.learner = None
        new.load_state_dict(state)
        return self.adopt_map(new)
