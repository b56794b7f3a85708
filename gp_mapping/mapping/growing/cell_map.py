"""One map with all that begins again together with it: starts, scores, drawing and counts.

Cells come in one by one, in order of time (admission.py decides which). The first few make the map
anew each time; later ones are scored, looked at for a change of the field, then absorbed. All
learning is done on the way, a bounded number of steps per cell.
"""

from __future__ import annotations

from collections.abc import Iterator

from gp_mapping.core.field_map import VECTOR, FieldMap
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.stored import Room
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.errors import MapFullError, one_line
from gp_mapping.mapping.averaging.cell_length import (
    least_lengthscale,
    lengthened,
    suitable_length,
)
from gp_mapping.mapping.averaging.unexpected import Unexpected
from gp_mapping.mapping.beginning.first_map import map_first_cells
from gp_mapping.mapping.beginning.restarted import RestartedMap
from gp_mapping.mapping.beginning.smoothness import SmoothnessWatch
from gp_mapping.mapping.beginning.start import ROUGH, Start
from gp_mapping.mapping.cells import RawRows
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.feeding import (
    REFUSALS,
    absorb_batch,
    forget_elapsed,
    forget_for,
    new_map,
    stamp_of,
)
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.growing.admission import Admission
from gp_mapping.mapping.motion.attitude import rotate_about_vertical
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.scoring.response_slopes import ResponseSlopes
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.mapping.scoring.suspects import Suspects, Verdict
from gp_mapping.mapping.scoring.white_noise import white_noise
from gp_mapping.settings.mapping import MapSettings

__all__ = ["CellMap"]


class CellMap:
    """A map that takes in cells, learns, scores its predictions and is drawn.

    Args:
        settings: of model, noise, learning and grid.
        room: where parts of the map go that are not needed now; they stay in memory if None.
        gathered: where the cells come from; it is only asked, of what it knows of the sensor.
        bias_time: s after which a pass gets another constant; 0: never.
        before: the map whose place it takes: its revisions go on, and cells are kept as there.

    Attributes:
        admission: decides which cells it gets, and counts raw samples.
        map: the field model; another object after a start was found anew.
        scores: one step ahead, of its predictions.
        smoothness: looks at the kernel again.
        slow: what the time constant of a slow sensor adds to its variance.
        renderer: of its drawings.
        last_report: of the last update; None before the first.
        taken: the cells that it has taken so far; kept only after it was set to [], else None.
        revision: grows with every change of the map.
        cell_count: samples (cells, or raw samples without cells) that it holds.
        left_out: cells that it has refused because it was full.
        last_stamp: of the newest cell, s; None before the first.
    """

    def __init__(
        self,
        settings: MapSettings,
        room: Room | None,
        gathered: Gathering,
        bias_time: float,
        before: CellMap | None = None,
    ):
        self.settings, self._room, self._gathered = settings, room, gathered
        self.admission = Admission(settings, gathered, bias_time)
        self.last_report: UpdateReport | None = None
        self.taken: list[Samples] | None = None if before is None else before.taken
        self.revision = -1 if before is None else before.revision
        self._empty()

    def _empty(self) -> None:
        """Start an empty map, with starts, scores and drawing to match."""
        s = self.settings
        self.map = self._new_map(s)
        self._start = Start(s)
        # the map that is made again from the first cells with other starts, next to this one
        self._again: RestartedMap | None = None
        self._blank: dict | None = None  # the state of an empty map

        self.scores, self.slow = OneStepAhead(s), self._new_slow()
        self.renderer = Renderer(s)
        # cells that the map did not expect, until the next ones confirm them or not
        self._suspects = Suspects(s.cell_length)
        self._unexpected = Unexpected()
        self.smoothness = SmoothnessWatch(s)

        self._pass_samples = 0
        self.last_stamp: float | None = None
        self.revision += 1
        self.cell_count = self.left_out = 0
        self.taken = None if self.taken is None else []

    def _new_map(self, settings: MapSettings, centre=None) -> FieldMap:
        """Make an empty map with the settings, and the centre (C,) where it is known, SI."""
        return new_map(settings, self._room, centre)

    def _new_slow(self) -> ResponseVariance:
        """What the sensor's time constant adds to the variance, of an empty map."""
        deviation, length, signal = self._gathered.response.uncertainty
        return ResponseVariance(ResponseSlopes(deviation, length, signal, self.kernel))

    # --- what is known of it ----------------------------------------------------------------------
    @property
    def is_vector_map(self) -> bool:
        """Whether samples are vectors of one map, which a late attitude turns (attitude.py)."""
        return VECTOR in self.map.capabilities

    @property
    def started_settings(self) -> MapSettings:
        """The settings, with the first cells' starts where they leave one open."""
        return self._start.resolved

    @property
    def kernel(self) -> str:
        """Name of the map's kernel: given, or as smooth as the first cells show the field."""
        return self._start.resolved.kernel

    @property
    def weakened_cells(self) -> int:
        """Cells that were weakened, for all others contradict them."""
        return self.scores.weakened + self._start.weakened

    @property
    def waiting_samples(self) -> int:
        """Raw samples that are counted as used, and that the map has yet to take or to weaken."""
        return self.admission.first.waiting_samples + self._suspects.samples

    def is_settled(self) -> bool:
        """Whether the map can judge cells by itself."""
        return self.scores.can_judge(self.map)

    def lengthscale(self) -> float | None:
        """As the map has learned it, m; None before the first cell."""
        return self.map.hyperparameters()["lengthscale"] if self.map.started else None

    def suitable_length(self) -> float:
        """Length of the cells to come, m: `final_length`, by one doubling at a time.

        Kept posteriors reach a cell farther than they need.
        """
        cells = self._gathered.cells
        return min(self.final_length(), 2.0 * max(cells.length, cells.longest))

    def final_length(self) -> float:
        """Length that suits cells, m (averaging/cell_length.py, averaging/unexpected.py).

        Where hyper-parameters are given, so is that: a fleet's bags have the same cells.
        """
        cells, s = self._gathered.cells, self.settings
        known = s.learn_hyperparameters and s.metric and self.map.started
        known = known and self.cell_count > ROUGH
        if not known or self._gathered.response.is_active:
            return cells.longest
        learned = self.map.hyperparameters()
        kernel, lengthscale = self.kernel, learned["lengthscale"]
        signal = learned["signal_stddev"] ** 2
        is_smooth = s.cell_lengthscales * lengthscale >= 2.0 * cells.longest
        if is_smooth and self._unexpected.is_over(self._gathered.path_trace.length):
            least = least_lengthscale(self.map.learned())
            longest, white = s.cell_lengthscales * least, self.scores.white_averaged * cells.length
            return lengthened(cells.longest, longest, kernel, least, signal, white)
        white = cells.averaged_variance * cells.length
        return suitable_length(cells.longest, kernel, lengthscale, signal, white)

    # --- raw samples, before they enter their cell ------------------------------------------------
    def turn_back(self, rows: RawRows, part: slice, rates: list[float]) -> None:
        """Turn vectors back by their attitude's lag.

        Args:
            rows: raw samples as columns, which are changed.
            part: which of them are new.
            rates: yaw rates of the new ones, rad/s.
        """
        if self.is_vector_map:
            lag = self.scores.lag.seconds
            rows.y[part] = [
                rotate_about_vertical(y, -rate * lag) for y, rate in zip(rows.y[part], rates)
            ]

    # --- cells in ---------------------------------------------------------------------------------
    def admit(self, cell: Samples, passes: int, length: float) -> None:
        """Take in a cell, once it is known what it is.

        Args:
            cell: it.
            passes: number of its pass.
            length: of the path when it came, m.
        """
        self.admission.admit(cell, passes, length, self)

    def end_pass(self) -> None:
        """Let the scores know that a pass has ended; what waits is confirmed by nothing more."""
        self.give_up_suspects()
        self.scores.break_pass()
        self._pass_samples = 0

    def begin_over(self) -> None:
        """Empty the map; the cells that it refused are offered to it once more."""
        self.admission.counts.offer_again()
        self._empty()

    def open_with(self, first: Samples, cell: Samples, length: float) -> None:
        """Make the map of the first few cells anew with each of them: none decides by itself.

        Args:
            first: all of the first cells so far that are not far from their median.
            cell: the new one.
            length: of the path when it came, m.
        """
        taken = self._restart(first)
        if taken is None:
            return
        self.scores.note_white(*white_noise(self._gathered, self.map))
        self._pass_samples += len(cell)
        self.slow = self._new_slow()
        for each in taken:
            self.slow.own.add(each)
        self.taken = None if self.taken is None else taken
        self.cell_count = sum(map(len, taken))
        self.renderer.touch(cell.x, self.cell_count)
        if not self.admission.first.is_open and self.scores.is_needed:
            self.scores.keep_posterior(length, self.map, cell.x[-1:])

        self.last_stamp = stamp_of(cell)
        self.revision += 1

    def _restart(self, first: Samples) -> list[Samples] | None:
        """Go on with the map of the first cells alone, of all that are not far from their median.

        Returns:
            The parts that it took; None where the map stays as it was (map_first_cells).
        """
        values = self.admission.first
        self._blank = self._blank or self.map.state_dict()
        new = map_first_cells(
            first, self._start, self.map, self._blank, self._new_map, values.is_open
        )
        if new is None:
            return None

        for each, error in new.refused:
            self._lose(each, error)
        if new.refused:
            values.drop_newest(len(new.refused))
        if new.found:
            self.scores.restart(new.start.resolved)
        self.map, self._start, self.last_report = new.map, new.start, new.report
        return new.taken

    def absorb(self, cell: Samples, length: float) -> None:
        """Score a cell, look for a change of the field, then let the map take the cell.

        Args:
            cell: it.
            length: of the path when it came, m.
        """
        if self._start.add(cell):
            self._again = RestartedMap(self._new_map(*self._start.found), self._start.was_guess)

        self.scores.note_white(*white_noise(self._gathered, self.map))
        self.scores.note_cells(self._gathered.cells.length)
        if self._gathered.response.is_active:
            self.scores.pick_cell(cell, length)
        if self.scores.is_needed:
            bias = self.admission.bias.number
            self.scores.score(cell.velocity[-1], self.map, bias, cell, length)
        # forgetting comes after the scores, which are of the map before this cell
        self.last_stamp = forget_elapsed(
            self.map, self.settings.forgetting_time, self.last_stamp, cell
        )
        if self.scores.is_needed:
            # the newest metres, of this pass, saw the field as it is now
            length_of_cells = self._gathered.cells.length
            recent = min(
                self._pass_samples, max(1, round(self.settings.score_distance / length_of_cells))
            )
            self.scores.detect_change(cell, length, self.map, recent)

        # only now does the map see the cell: everything above judges it as unseen
        judged = self.scores.judge(cell, self.map, self._gathered.cells.bursts.now)
        if judged.square is not None:
            self._unexpected.note(judged.square, length, self.map.hyperparameters()["lengthscale"])
        verdict = self._suspects.look(judged)
        taken = self._take(verdict)

        self._advance_restart()
        self._look_at_smoothness(cell)
        if taken and self.scores.is_needed:
            self.scores.keep_posterior(length, self.map, cell.x[-1:])
        elif verdict.cells:
            self.scores.leave(length)

    def give_up_suspects(self) -> None:
        """Take the cells that wait to be confirmed, weakened: nothing comes that could do so."""
        if len(self._suspects):
            self._take(self._suspects.release(), 0)
        self.scores.settle_alarms(self.map)

    def _take(self, verdict: Verdict, new: int = 1) -> list[Samples]:
        """Let the map take cells in, and count what it took.

        Args:
            verdict: the cells; some of them may have waited.
            new: how many cells have come for it.

        Returns:
            The parts that the map took.
        """
        self.scores.weakened += verdict.weakened
        taken: list[Samples] = []
        left = list(verdict.cells)
        try:
            while left:
                self._absorb_into(left.pop(0), taken)
        except Exception as error:
            for cell in left:
                self._lose(cell, error)
            raise
        finally:
            self._start.keep_taken(taken, new)
            if self.taken is not None:
                self.taken += taken
        return taken

    def _absorb_into(self, cell: Samples, taken: list[Samples]) -> None:
        """Let the map take one cell in; append to `taken` the parts that it took."""
        slow, response = self.slow.own, self._gathered.response
        # each is counted before the map learns from it, for learning may raise
        for part, report in absorb_batch(self.map, cell, self._lose):
            taken.append(part)
            self.last_report = report
            slow.deviation = response.deviation
            slow.add(part)
            self._pass_samples += len(part)
            self.cell_count += len(part)
            self.renderer.touch(part.x, report.samples)
            self.revision += 1

    def _lose(self, batch: Samples, error: Exception) -> None:
        """Count a batch that the map refuses: a robot's map must go on with what it has."""
        if isinstance(error, MapFullError):
            self.left_out += len(batch)
        self.admission.counts.lose(batch.raw_count, one_line(error))

    # --- another kernel ---------------------------------------------------------------------------
    def _look_at_smoothness(self, cell: Samples) -> None:
        """Count a cell; look a step on for the likeliest kernel, and go by the map's."""
        if not self.smoothness.is_over:
            self.smoothness.add(cell)
            if self._again is None and (found := self.smoothness.look(self.map)):
                self.map.use_kernel(found)
        self._follow_kernel()

    def _follow_kernel(self) -> None:
        """Let all that goes by the kernel use the one that the map has taken over by now."""
        name = self.map.kernel_name
        if name is None or name == self.kernel or not self.map.started:
            return
        self._start.use_kernel(name)
        self.scores.restart(self._start.resolved)
        self.renderer = Renderer(self._start.resolved)
        self.revision += 1

    # --- the map made again with other starts -----------------------------------------------------
    def _advance_restart(self) -> None:
        """Feed some more first cells to the map with the new starts.

        Once it has seen all of them, it replaces this one. Scores of predictions from a rough start
        are dropped: they judge that start, not the map.
        """
        again = self._again
        if again is None or not again.feed(
            self._start.cells, self.settings.forgetting_time, self._lose
        ):
            return
        self._again = None
        self._start.adopt_found(again.taken)
        self.map, self.last_stamp = again.map, again.last_stamp

        if again.rough:
            self.scores = OneStepAhead(self._start.resolved)
            self.scores.note_white(*white_noise(self._gathered, self.map))
        else:
            self.scores.restart(self._start.resolved)

        self.renderer = Renderer(self._start.resolved)
        self.cell_count = sum(map(len, again.taken))
        self.taken = None if self.taken is None else list(again.taken)
        self.revision += 1

    def finishing_starts(self) -> Iterator[None]:
        """Finish the map that is made again with other starts, yielding between its cells."""
        while self._again is not None:
            self._advance_restart()
            yield

    def finish(self) -> None:
        """Do what is put off to cells to come. Work that the map refuses stays put off."""
        # the last look at a slow sensor comes after the last cell
        deviation = self._gathered.response.deviation
        if self.slow.own.deviation != deviation:
            self.slow.own.deviation = deviation
            self.revision += 1
        epoch = self.map.epoch

        if found := self.smoothness.finish(self.map):
            self.map.use_kernel(found)
        try:
            self.map.in_slices(False)
        except REFUSALS as error:
            self.admission.counts.refuse(0, one_line(error))
        finally:
            self.map.in_slices(True)
        self._follow_kernel()
        self.revision += self.map.epoch != epoch

    def age(self, stamp: float) -> float:
        """Forget for the time up to a stamp (s); the fraction of the data's weight that is left."""
        if self.last_stamp is None or stamp <= self.last_stamp or not self.map.started:
            return 1.0
        left = forget_for(self.map, self.settings.forgetting_time, stamp - self.last_stamp)
        self.last_stamp = stamp
        self.renderer, self.revision = Renderer(self._start.resolved), self.revision + 1
        return left

    def agree_on(self, theta: Theta) -> bool:
        """Reparametrise the map to a θ, whose kernel is the map's from then on; whether it is."""
        agreed = self.map.agree_on(theta)
        if agreed:
            self._start.use_kernel(theta.kernel_name)
            self.smoothness.stop()
        return agreed

    def merge(self, other: CellMap) -> None:
        """Add another map, whose pass has ended; where that fails, this one is half of the sum."""
        self.map.merge(other.map)
        self._start.close()
        self.smoothness.stop()
        self.admission.join(other.admission)
        self.scores.join(other.scores, self.map)
        self.slow.join(other.slow)

        self.cell_count += other.cell_count
        self.left_out += other.left_out
        stamps = [stamp for stamp in (self.last_stamp, other.last_stamp) if stamp is not None]
        self.last_stamp = max(stamps, default=None)
        self.renderer, self.revision = Renderer(self.settings), self.revision + 1

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """All that an exact resume needs: tensors, plain values, and dicts and lists of them."""
        return {
            "map": self.map.state_dict(),
            "scores": self.scores.state_dict(),
            "slow": self.slow.state_dict(),
            "suspects": self._suspects.state_dict(),
            "unexpected": self._unexpected.state_dict(),
            "start": self._start.state_dict(),
            "smoothness": self.smoothness.state_dict(),
            "again": None if self._again is None else self._again.state_dict(),
            **self.admission.state_dict(),
            "last_stamp": self.last_stamp,
            "pass_samples": self._pass_samples,
            "revision": self.revision,
            "cell_count": self.cell_count,
            "left_out": self.left_out,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue exactly where state_dict was taken; this map is empty.

        Args:
            state: as of state_dict, also of older versions.
        """
        self._blank = self.map.state_dict()
        # absent in maps of a version that knew no automatic starts
        if "start" in state:
            self._start.load_state_dict(state["start"])
            self.map = self._new_map(self._start.resolved)
            self.scores = OneStepAhead(self._start.resolved)
            self.renderer = Renderer(self._start.resolved)

        if state.get("again") is not None:
            self._again = RestartedMap.restored(state["again"], self._new_map(*self._start.found))

        # after the starts: they choose the map and the scores that the state fits
        self.map.load_state_dict(state["map"])
        self.scores.load_state_dict(state["scores"], self.map)
        # absent in maps of a version that took the time constant for certain
        if slow := state.get("slow"):
            self.slow = ResponseVariance.restored(slow)
        # absent in maps of a version that weakened a cell at once
        self._suspects.load_state_dict(state.get("suspects", []))
        # absent in maps of a version with cells of one length
        if unexpected := state.get("unexpected"):
            self._unexpected.load_state_dict(unexpected)
        # absent in maps of a version that found the kernel from the first cells alone
        if smoothness := state.get("smoothness"):
            self.smoothness.load_state_dict(smoothness)
        self.admission.load_state_dict(state)
        self.last_stamp, self._pass_samples = state["last_stamp"], state["pass_samples"]
        # 0: in maps saved before it was counted
        self.revision, self.cell_count, self.left_out = (
            state.get(name, 0) for name in ("revision", "cell_count", "left_out")
        )
