"""When it is looked whether all passes are in one frame, among what, and what is said of it.

What cells told is kept as rows (place, value, stamp, pass, forward axis); of more than `_MOST`
each two that come one after another in one pass become one. They are averaged to blocks, a fifth of
a lengthscale long, or longer where there are too many. It is looked when a new pass is so many
lengthscales long as `_ENOUGH`, and then at each doubling, when there are half as many rows again as
at the last look, and at the end; a few steps with each cell. The map stays as it is: a sentence
says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.stepwise import PendingSearch
from gp_mapping.mapping.drift.alternatives import DriftTrack
from gp_mapping.mapping.drift.blocks import blocks_of, forward
from gp_mapping.mapping.frames.matching import Moved
from gp_mapping.mapping.frames.search import ALIKE, Break, FrameSearch
from gp_mapping.mapping.notes.frames import break_note
from gp_mapping.settings.mapping import MapSettings

__all__ = ["FEWEST", "FrameWatch", "track_of_passes"]

_MOST = 4096  # rows that are kept
_BLOCKS = 300  # that one search takes
_PARTS = 5.0  # blocks in a lengthscale
_LONGEST = 0.5  # lengthscales of a block, at most
_ENOUGH = 6.0  # lengthscales of a new pass at which it is looked
_MORE = 1.5  # times the rows of the last look
FEWEST = 64  # rows that can tell anything
_STEPS = 8  # of a search with each cell: up to 0.04 s
_COLUMNS, _PASS = 7, 4  # of a row, and which of them is the number of its pass


class FrameWatch:
    """Cells in; whether the places of some passes are in another frame.

    Args:
        settings: of the map.

    Attributes:
        breaks: the newest that were found.
    """

    def __init__(self, settings: MapSettings):
        self.settings = settings
        self.breaks: list[Break] = []
        self._rows: list[list[float]] | None = [] if settings.metric else None
        self._own, self._due = 0.0, 1  # way of the newest pass, m; and how often it was looked, 2ⁿ
        self._looked = 0  # rows at the last look, as many as there are of them now
        self._fresh = False  # whether rows have come since
        self._search: FrameSearch | None = None
        self._begun = 0, 0.0  # rows and lengthscale of the search

    @property
    def is_contradicted(self) -> bool:
        """Whether passes contradict each other, so that nothing else can be told by them."""
        return any(each.kind != ALIKE for each in self.breaks)

    @property
    def is_looking(self) -> bool:
        """Whether a search goes on."""
        return self._search is not None

    def stop_looking(self) -> None:
        """Keep what was found: the cells so far are not all that the map holds."""
        self._rows = self._search = None

    def add(self, cell: Samples, passes: int) -> None:
        """Take in a cell.

        Args:
            cell: of one row, or of some.
            passes: number of its pass.
        """
        rows = self._rows
        if rows is None:
            return
        if cell.y.shape[1] != 1 or cell.stamp is None:  # of a vector, or of raw samples by count
            self.stop_looking()
            return
        for row in _rows(cell, passes):
            if rows and rows[-1][_PASS] == passes:
                self._own += math.dist(rows[-1][:2], row[:2])
            else:
                self._own, self._due = 0.0, 1
            rows.append(row)
        self._fresh = True
        if len(rows) > _MOST:
            self._rows, self._search = halved(rows), None
            self._looked //= 2

    def looking_last(self, lengthscale: Callable[[], float | None]) -> Iterator[None]:
        """Look, since no more cells may come: to the end, yielding between some steps."""
        self._search = None
        self._begin(lengthscale, last=True)
        while self._search is not None:
            yield
            self.look(lengthscale)

    def look(self, lengthscale: Callable[[], float | None]) -> None:
        """Look, where it is due: a few steps of the search in each call.

        Args:
            lengthscale: tells the map's, m; None while there is no map.
        """
        if self._search is None:
            self._begin(lengthscale, last=False)
        search = self._search
        if search is not None and PendingSearch(search).advance(_STEPS):
            self._search, self.breaks = None, search.found or []

    def _begin(self, lengthscale: Callable[[], float | None], last: bool) -> None:
        """Begin a search, where it is due."""
        rows = self._rows
        if rows is None or len(rows) < FEWEST or rows[0][_PASS] == rows[-1][_PASS]:
            return
        length = lengthscale() if self._fresh else None
        if length is None:
            return
        again = self._own >= _ENOUGH * length * self._due
        if last or again or len(rows) >= _MORE * self._looked:
            self._due *= 2 if again else 1
            self._begin_with(len(rows), length, last)

    def _begin_with(self, count: int, length: float, last: bool = False) -> None:
        """Begin a search.

        Args:
            count: of the rows, from the first.
            length: lengthscale, m.
            last: whether passes that hardly meet are compared, too.
        """
        self._looked, self._fresh, self._begun = count, False, (count, length)
        track = _track_of((self._rows or [])[:count], length, self.settings.heading_stddev > 0)
        self._search = FrameSearch(track, length, self.settings.kernel, last)

    def replace(self, cells: Iterable[tuple[Samples, int]]) -> None:
        """Keep other cells in place of those so far: the map begins again with them."""
        if self._rows is None:
            return
        self._rows, self._own, self._looked, self._search = [], 0.0, 0, None
        for cell, passes in cells:
            self.add(cell, passes)

    def forget_before(self, stamp: float) -> None:
        """Forget cells of a sensor that had not begun to measure."""
        if self._rows is not None:
            self._rows = [row for row in self._rows if row[3] >= stamp]

    def join(self, other: FrameWatch) -> None:
        """Say of a sum what was found of its parts: the cells so far are not all that it holds."""
        self.stop_looking()
        self.breaks = self.breaks + other.breaks

    def notes(self) -> list[str]:
        """What is wrong with the frames, in a sentence each."""
        return [break_note(each) for each in self.breaks]

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "kept": None if self._rows is None else _table_of(self._rows),
            "own": self._own,
            "due": self._due,
            "looked": self._looked,
            "fresh": self._fresh,
            "begun": list(self._begun),
            "steps": None if self._search is None else self._search.steps,
            "breaks": [[*each[:3], list(each.moved), *each[4:]] for each in self.breaks],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken: the steps of a search are done again now."""
        self.breaks = [
            Break(str(kind), int(number), float(stamp), Moved(*moved), *others)
            for kind, number, stamp, moved, *others in state["breaks"]
        ]
        if state["kept"] is None:
            self.stop_looking()
            return
        self._rows = state["kept"].tolist()
        if state["steps"] is not None:
            self._begin_with(int(state["begun"][0]), float(state["begun"][1]))
            PendingSearch(self._search).advance(int(state["steps"]))
        self._own, self._due = float(state["own"]), int(state["due"])
        self._looked = int(state["looked"])
        self._fresh = bool(state["fresh"])


def track_of_passes(passes: list[Samples], length: float, heading: bool) -> DriftTrack | None:
    """What a sensor told in some passes, as a search takes it; None where it is a vector.

    Args:
        passes: each in order of time.
        length: lengthscale that is expected, m.
        heading: whether the sensor may turn with the robot.
    """
    passes = [samples for samples in passes if len(samples)]
    if not passes or any(s.y.shape[1] != 1 or s.stamp is None for s in passes):
        return None
    return _track_of(
        [row for i, samples in enumerate(passes, 1) for row in _rows(samples, i)], length, heading
    )


def _rows(cells: Samples, passes: int) -> list[list[float]]:
    """Rows of cells: place, value, stamp, number of the pass, forward axis."""
    pass_numbers = torch.full((len(cells), 1), float(passes), dtype=torch.float64)
    stamp = torch.empty(0) if cells.stamp is None else cells.stamp[:, None]
    return torch.cat([cells.x, cells.y, stamp, pass_numbers, forward(cells)], 1).tolist()


def _table_of(rows: list[list[float]]) -> torch.Tensor:
    """Rows as a table (n, _COLUMNS), also where there are none."""
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, _COLUMNS)


def halved(rows: list[list[float]]) -> list[list[float]]:
    """Each two rows that come one after another in one pass as one, their mean."""
    out, i = [], 0
    while i < len(rows):
        pair = rows[i : i + 2]
        if len(pair) == 2 and pair[0][_PASS] == pair[1][_PASS]:
            out.append([0.5 * (a + b) for a, b in zip(*pair)])
            i += 2
        else:
            out.append(pair[0])
            i += 1
    return out


def _track_of(rows: list[list[float]], length: float, heading: bool) -> DriftTrack:
    """Rows averaged to blocks, evenly chosen where there are too many.

    Args:
        rows: of `_rows`, pass by pass.
        length: lengthscale, m.
        heading: whether the sensor may turn with the robot.
    """
    columns = torch.tensor(rows, dtype=torch.float64)
    passes = columns[:, _PASS].long()
    track = DriftTrack(
        columns[:, :2], columns[:, 2], columns[:, 3], passes, columns[:, 5:] if heading else None
    )
    blocks = blocks_of(track, length / _PARTS)
    if len(blocks.y) > _BLOCKS:  # longer ones
        blocks = blocks_of(track, min(_LONGEST, len(blocks.y) / _BLOCKS / _PARTS) * length)
    chosen = torch.linspace(0, len(blocks.y) - 1, min(_BLOCKS, len(blocks.y)), dtype=torch.float64)
    return DriftTrack(*(c if c is None else c[chosen.round().long()] for c in blocks))
