"""A map that begins again with all its cells, beside the one that answers.

Where a sensor is found to be slow, or to drift, the cells so far say something else of the field
than the map has taken from them. The new map takes a few of them with each new cell, so no update
is long. Until it has caught up the map of before answers, and takes nothing more; new cells wait in
the same queue. It is never longer than what it began with, for it shrinks with each cell.

Afterwards the map is the one that would have been, had all of it been done at once: each cell comes
with the length of the path at which it came, which scores and changes go by.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import NamedTuple

from gp_mapping.core.stored import Room
from gp_mapping.core.types import Samples
from gp_mapping.mapping.cells import RawRows
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.growing.cell_map import CellMap
from gp_mapping.mapping.growing.counts import SampleCounts
from gp_mapping.settings.mapping import MapSettings

__all__ = ["RenewableMap"]

_KNOWN = 64  # differences of neighbours that tell the white noise to a quarter
TOGETHER = 2  # earlier cells that go in with each new one; early ones may cost 0.04 s each


class _Waiting(NamedTuple):
    """What the new map has yet to see.

    Attributes:
        cell: it; None: the pass has ended.
        passes: number of its pass.
        length: of the path when it came, m.
    """

    cell: Samples | None
    passes: int
    length: float


class RenewableMap:
    """The map that answers, and the new one that is on its way to take its place, if any.

    It judges the raw samples of `gathered` (gathering.SampleJudge), and gets their cells.

    Args:
        settings: of the map.
        room: where parts of the map go that are not needed now; they stay in memory if None.
        gathered: where the cells come from.
        before: the map whose place it takes, by CellMap.

    Attributes:
        shown: the map that answers.
    """

    def __init__(
        self,
        settings: MapSettings,
        room: Room | None,
        gathered: Gathering,
        before: CellMap | None = None,
    ):
        self._settings, self._room, self._gathered = settings, room, gathered
        self.shown = CellMap(settings, room, gathered, settings.bias_time, before)
        # the new map, and what it has yet to see; None: there is no new map
        self._new: CellMap | None = None
        self._waiting: deque[_Waiting] = deque()
        # whether cells come with the white noise that neighbours tell, where they have no other
        self._told = False

    @property
    def is_renewing(self) -> bool:
        """Whether a new map is on its way."""
        return self._new is not None

    @property
    def waiting_count(self) -> int:
        """Number of cells that the new map has yet to see, and of ends of passes among them."""
        return len(self._waiting)

    # --- raw samples, before they enter their cell ------------------------------------------------
    @property
    def counts(self) -> SampleCounts:
        """Raw samples that were used, or not."""
        return self.shown.admission.counts

    def is_credible(self, values: list[float]) -> bool:
        """Whether a raw value (C,), SI, can be of this field."""
        return self.shown.admission.first.is_credible(values)

    def look(self, rows: RawRows, part: slice, rates: list[float], lengths: list[float]) -> None:
        """Turn vectors back by their attitude's lag, and pick some samples for scoring.

        Args:
            rows: raw samples as columns, which are changed.
            part: which of them are new.
            rates: yaw rates of the new ones, rad/s.
            lengths: of the path up to each new one, m.
        """
        self.shown.turn_back(rows, part, rates)
        # of a slow sensor the blocks are picked, not what it tells; a new map has not come here yet
        if not (self._gathered.response.is_active or self.is_renewing):
            self.shown.scores.pick_rows(
                rows.x[part], rows.y[part], rows.stamp[part], lengths, rows.heading[part], rates
            )

    # --- cells in ---------------------------------------------------------------------------------
    def admit(self, cell: Samples) -> None:
        """Take a finished cell; look a few steps on for a slow sensor, or one that drifts."""
        settled, white = self._gathered.settle(cell), self._gathered.neighbours.variance
        self._pass_on([_with_noise(each, white) for each in settled] if self._told else settled)
        self._gathered.use_kernel(self.shown.kernel)
        frames = self._gathered.frames
        frames.look(self.shown.lengthscale)
        if self._new is not None:
            self._catch_up(TOGETHER)
        elif (
            frames.is_contradicted
        ):  # so passes differ as those of a sensor that is slow, or drifts
            pass
        elif not frames.is_looking and self._gathered.response.look(self.shown.lengthscale):
            self._renew_settled()
        elif self._gathered.drift.look(self.shown.lengthscale):
            self._renew(self._gathered.drift.again())
        self._gathered.cells.length = self._suitable_length()

    def _suitable_length(self) -> float:
        """Length of the cells to come, m; first of all longer ones, the white noise is told apart.

        Of samples that were alone in their cells it is a part of what two passes differ by, which
        no longer cell would average: the map begins again with cells that come with it. Where they
        would stay alone, longer cells are of no use.
        """
        length, cells = self.shown.suitable_length(), self._gathered.cells
        if length <= cells.longest or cells.single_variance or self.is_renewing or self._told:
            return length
        neighbours, drift = self._gathered.neighbours, self._gathered.drift
        stay_alone = self.shown.final_length() < neighbours.apart
        if stay_alone or neighbours.count < _KNOWN or drift.kept is None:
            return cells.longest
        self._told = True
        told = [(_with_noise(cell, neighbours.variance), passes) for cell, passes in drift.kept]
        drift.replace(told)
        self._renew(told)
        return length

    def _pass_on(self, cells: list[Samples]) -> None:
        """Hand over cells of the pass that is open, or let them wait for the new map."""
        passes, length = self._gathered.passes, self._gathered.path_trace.length
        for cell in cells:
            self._gathered.drift.add(cell, passes)
            self._gathered.frames.add(cell, passes)
        if self._new is None:
            for cell in cells:
                self.shown.admit(cell, passes, length)
            return
        self._waiting.extend(_Waiting(cell, passes, length) for cell in cells)
        self._catch_up(len(cells))  # so that the queue never grows

    def _close_cell(self) -> None:
        """Take the open cell, or the raw samples that wait for their batch, and the open block."""
        pending = self._gathered.close()
        if pending is not None:
            self.admit(pending)
        self._pass_on(self._gathered.response.flush())

    def break_pass(self) -> None:
        """Close the open cell at a gap or a time jump: the next sample starts a new pass."""
        # the open cell must not reach into the next pass
        self._close_cell()
        # what comes now is elsewhere, or later: it confirms nothing
        self.shown.admission.first.drop_held()
        self._gathered.end_pass()

        if self._new is None:
            self.shown.end_pass()
        elif not self._waiting or self._waiting[-1].cell is not None:
            passes, length = self._gathered.passes, self._gathered.path_trace.length
            self._waiting.append(_Waiting(None, passes, length))

    def flush(self) -> None:
        """Take the open cell, and all that waits."""
        for _ in self._flushing():
            pass

    def _flushing(self) -> Iterator[None]:
        """As `flush`, in steps."""
        response, drift = self._gathered.response, self._gathered.drift
        self._close_cell()
        frames = self._gathered.frames
        if not (frames.is_contradicted or frames.is_looking):
            if (yield from response.finishing_search()):
                self._renew_settled()
        yield from self._catching_up()
        if not frames.is_contradicted and (yield from drift.finishing_search()):
            self._renew(drift.again())
            yield from self._catching_up()
        self.shown.give_up_suspects()

    def finishing(self) -> Iterator[None]:
        """Leave nothing pending, nor put off to cells to come: the stream has ended.

        It comes in steps. After each of them the map is whole, and what is not done stays put off.
        """
        response, drift = self._gathered.response, self._gathered.drift
        frames = self._gathered.frames
        yield from self._flushing()
        self._gathered.use_kernel(self.shown.kernel)
        length = self.shown.lengthscale
        yield from frames.looking_last(length)
        if not frames.is_contradicted and (yield from response.looking_last(length)):
            self._renew_settled()
            yield from self._flushing()

        length = self.shown.lengthscale
        if not frames.is_contradicted and (yield from drift.looking_last(length)):
            self._renew(drift.again())
            yield from self._flushing()
        yield from self._catching_up()
        yield from self.shown.finishing_starts()
        self.shown.finish()

    def finish_starts(self) -> None:
        """Finish the map that is made again with other starts, or cells; it replaces this one."""
        self._catch_up(len(self._waiting))
        for _ in self.shown.finishing_starts():
            pass

    # --- the new map ------------------------------------------------------------------------------
    def _renew_settled(self) -> None:
        """Begin the new map, with what a slow sensor's cells say of the field."""
        cells = self._gathered.response.again()
        self._gathered.drift.replace(cells)
        self._gathered.frames.replace(cells)
        self._renew(cells)

    def _renew(self, cells: Iterable[tuple[Samples, int]]) -> None:
        """Begin the new map.

        Args:
            cells: all so far, each with the number of its pass.
        """
        shown, gathered = self.shown, self._gathered
        new = CellMap(self._settings, self._room, gathered, gathered.drift.bias_time, shown)
        new.last_report = shown.last_report
        new.admission.first.notes = shown.admission.first.notes

        self._new, length = new, gathered.path_trace.length
        self._waiting = deque(_Waiting(cell, passes, length) for cell, passes in cells)

    def _catch_up(self, count: int) -> None:
        """Let the new map see so much of what waits; once nothing does, it is the map."""
        new = self._new
        if new is None:
            return
        # ends of passes cost nothing, and do not count
        while self._waiting and (count > 0 or self._waiting[0].cell is None):
            cell, passes, length = self._waiting.popleft()
            if cell is not None:
                count -= 1
                new.admit(cell, passes, length)
            else:
                new.admission.first.drop_held()
                new.end_pass()
        if self._waiting:
            return

        # cells that the map of before has refused were offered once more
        new.admission.counts.follow(self.counts)
        self.shown, self._new = new, None

    def _catching_up(self) -> Iterator[None]:
        """Let the new map see all that waits, yielding after some of it."""
        while self._new is not None:
            self._catch_up(TOGETHER)
            yield

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """All that an exact resume needs; `renewal` is of the new map, None: there is none."""
        renewal = self._renewal_state()
        return {**self.shown.state_dict(), "renewal": renewal, "noise_told": self._told}

    def _renewal_state(self) -> dict | None:
        """Collect what an exact resume of the new map needs; None: there is none."""
        if self._new is None:
            return None
        return {
            "map": self._new.state_dict(),
            "waiting": [
                {
                    "cell": cell and {f.name: getattr(cell, f.name) for f in fields(cell)},
                    "passes": passes,
                    "length": length,
                }
                for cell, passes, length in self._waiting
            ],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken; `gathered` and this one are empty.

        Args:
            state: as of state_dict, also of older versions.
        """
        self.shown.load_state_dict(state)
        self._told = bool(state.get("noise_told", False))  # absent in maps of an older version
        # absent in maps of a version that began again at once
        if not (renewal := state.get("renewal")):
            return
        s = self._settings
        self._new = CellMap(s, self._room, self._gathered, s.bias_time)
        self._new.load_state_dict(state | renewal["map"])
        self._waiting = deque(
            _Waiting(each["cell"] and Samples(**each["cell"]), each["passes"], each["length"])
            for each in renewal["waiting"]
        )


def _with_noise(cell: Samples, white: float) -> Samples:
    """A cell with the white variance of its samples, squared SI, where it came without one."""
    known = cell.sensor_variance
    if known is None or bool((known > 0.0).all()):
        return cell
    return replace(cell, sensor_variance=known.where(known > 0.0, white))
