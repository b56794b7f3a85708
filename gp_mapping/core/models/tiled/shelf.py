"""Which tiles are in memory, and the states of those that are not needed now."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled import shared_constants
from gp_mapping.core.models.tiled.layout import Key, Layout, key_of, name_of
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.models.tiled.tile_copies import TileLost, make_copy, read_tile
from gp_mapping.core.stored import Room, StoredState

__all__ = ["Shelf", "TileResidency"]

_NAMED = 10  # lost tiles that are named one by one
_RETRY = 50  # updates after which tiles that were out of reach are looked at again
_TRIED = 20  # of them, at most, at a time


class Shelf:
    """States of tiles by their keys.

    Args:
        room: where they are written to; None keeps them in memory.
        states: to begin with.
        aside: states that were out of reach.
    """

    def __init__(
        self,
        room: Room | None = None,
        states: dict[Key, StoredState] | None = None,
        aside: dict[Key, StoredState] | None = None,
    ):
        self.room, self._states, self._aside = room, dict(states or {}), dict(aside or {})

    def __contains__(self, key: Key) -> bool:
        return key in self._states

    def __len__(self) -> int:
        return len(self._states)

    def keys(self) -> Iterable[Key]:
        """Keys of the tiles that are here."""
        return list(self._states)

    def put(self, key: Key, state: StoredState) -> None:
        """Keep a state, and write it where there is a room.

        Args:
            key: of the tile.
            state: of the tile; one that lies in a file is not written again.
        """
        self._states[key] = state
        if self.room is not None and state.in_memory:
            self.room.put(state)

    def take(self, key: Key) -> StoredState:
        """Remove a state from the shelf and return it; KeyError where there is none."""
        return self._states.pop(key)

    def peek(self, key: Key) -> StoredState:
        """The state of a tile, which stays on the shelf."""
        return self._states[key]

    def set_aside(self, key: Key, state: StoredState) -> None:
        """Keep a state that is out of reach; of a tile that has one aside already, that one.

        Args:
            key: of the tile.
            state: of the tile.
        """
        self._aside.setdefault(key, state)

    def is_aside(self, key: Key) -> bool:
        """Whether a state of the tile was set aside."""
        return key in self._aside

    def returned(self, is_open: Callable[[Key], bool]) -> list[Key]:
        """Take up again what was set aside and is in reach, but nothing that is mapped anew.

        Args:
            is_open: whether a tile is in memory.

        Returns:
            Which tiles are on the shelf again. Some are looked at, others at the next call.
        """
        back = []
        for key in list(self._aside)[:_TRIED]:
            state = self._aside.pop(key)
            if is_open(key) or key in self or state.visible_fault():
                self._aside[key] = state  # at the end
            else:
                self._states[key] = state
                back.append(key)
        return back

    def problem(self) -> str:
        """Why states stay in memory that should not; '' where none do."""
        return "" if self.room is None else self.room.problem()

    def copy(self) -> Shelf:
        """An independent shelf with the same states."""
        return Shelf(self.room, self._states, self._aside)

    def __deepcopy__(self, memo) -> Shelf:
        return self.copy()

    def state_dict(self) -> dict:
        """States by the tiles' names."""
        return {name_of(key): state for key, state in self._states.items()}

    def aside_dict(self) -> dict:
        """States that were set aside, by the tiles' names."""
        return {name_of(key): state for key, state in self._aside.items()}

    def restored(self, state: dict, aside: dict | None = None) -> Shelf:
        """A shelf with the same room and the states of a checkpoint.

        Args:
            state: states by the tiles' names; plain ones in files before tiles had their own.
            aside: states that were set aside, by the tiles' names.
        """
        return Shelf(
            self.room,
            {
                key_of(name): part if isinstance(part, StoredState) else StoredState(name, part)
                for name, part in state.items()
            },
            {key_of(name): part for name, part in (aside or {}).items()},
        )


class TileResidency:
    """Which tiles are in memory and which on the shelf, for a TiledMap, which owns the tiles.

    It uses `note_change`, `restored` and the attributes below, which are as of TiledMap.
    """

    layout: Layout | None
    tiles: dict[Key, Tile]
    shelf: Shelf
    current: Key
    most: int
    turn: int
    forgot: float
    widened: int
    loads: int
    lost: dict[Key, str]
    lost_count: int
    note_change: Callable[..., None]
    restored: Callable[[dict], DualSVGP]

    def exists(self, key: Key) -> bool:
        """Whether there is such a tile, in memory or on the shelf."""
        return key in self.tiles or key in self.shelf

    def knowing(self, x: Tensor) -> dict[Key, Tensor]:
        """Tiles that know at least one of x (N, 2), in a fixed order, and which they know (N,)."""
        around = {
            k for key, _ in self.layout.group_by_tile(x) for k in self.layout.neighbourhood(key)
        }
        return self.layout.knowing([k for k in sorted(around) if self.exists(k)], x)

    @property
    def tile_count(self) -> int:
        """Number of tiles."""
        return len(self.tiles) + len(self.shelf)

    def load_tiles(self, keys: list[Key]) -> list[Key]:
        """Bring tiles back from the shelf where they are there; keys of those that exist.

        These have then forgotten what the others have. One that cannot be read is left out from
        now on, or until it is in reach again.
        """
        present = []
        for key in keys:
            if key not in self.tiles and key in self.shelf:
                try:
                    self.tiles[key] = self._taken(key)
                except TileLost as lost:
                    self.drop_lost(lost)
            if key in self.tiles:
                present.append(key)
        return present

    def _taken(self, key: Key) -> Tile:
        """A tile from its state, which leaves the shelf once it has been read."""
        stored = self.shelf.peek(key)
        forgot = read_tile(key, stored)["forgot"]
        tile = Tile(make_copy(key, stored, forgot, self.restored), forgot=forgot, touched=self.turn)
        tile.restore_evidence(read_tile(key, stored), forgot)
        tile.map.widen_budget(self.widened)
        tile.mark_stored(stored)
        tile.forget(self.forgot)  # while it lay on the shelf
        shared_constants.unshelve_evidence(self, tile)

        self.shelf.take(key)
        self.loads += 1
        return tile

    def drop_lost(self, lost: TileLost) -> None:
        """Leave a tile out: what it knew is not known any more, or not until it is in reach."""
        if lost.key in self.shelf:
            state = self.shelf.take(lost.key)
            if lost.passing:
                self.shelf.set_aside(lost.key, state)

        self.lost_count += 1
        self.lost[lost.key] = lost.why
        while len(self.lost) > _NAMED:
            self.lost.pop(next(iter(self.lost)))

        self.note_change(lost.key)

    def return_tiles(self) -> None:
        """Take up tiles again that were out of reach, each so many updates."""
        if self.turn % _RETRY:
            return
        for key in self.shelf.returned(self.tiles.__contains__):
            self.lost.pop(key, None)
            self.lost_count -= 1
            self.note_change(key)

    def shelve_tiles(self) -> None:
        """Put those that were not needed for longest on the shelf, but none near the robot."""
        if len(self.tiles) <= self.most:
            return

        kept = set(self.layout.neighbourhood(self.current))
        order = sorted(
            (t.touched, k) for k, t in self.tiles.items() if k not in kept and not t.seeds
        )

        for _, key in order[: len(self.tiles) - self.most]:
            tile = self.tiles.pop(key)
            tile.abandon_transfer()
            shared_constants.shelve_evidence(self, key, tile)
            self.shelf.put(key, tile.stored(name_of(key)))
