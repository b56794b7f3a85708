"""The one owner of a map: raw samples in, predictions and drawings with honest noise out.

The live node and the offline tool use it alike. The map depends on the sequence of samples only,
never on how it is cut into calls nor on a clock: the same bag gives the same map, live or offline.
All learning is done inside `ingest`, a bounded number of steps per cell.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import torch

from gp_mapping.core.field_map import VECTOR, FieldMap
from gp_mapping.core.stored import Room
from gp_mapping.core.transaction import taken_back
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.errors import MapFullError, one_line
from gp_mapping.mapping.beginning.first_map import map_first_cells
from gp_mapping.mapping.beginning.renewing import Renewing
from gp_mapping.mapping.beginning.restarted import RestartedMap
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.cells import RawRows
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.ground import DrawnGround
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.earth import Fixes
from gp_mapping.mapping.feeding import REFUSALS, absorb_batch, forget_elapsed, new_map, stamp_of
from gp_mapping.mapping.merging import prepare_merge
from gp_mapping.mapping.motion.attitude import rotate_about_vertical, with_attitude_lag
from gp_mapping.mapping.notes.repeats import Repeats
from gp_mapping.mapping.notes.settings import inconsistent_settings, unused_starts
from gp_mapping.mapping.reporting import report_of
from gp_mapping.mapping.scoring.answering import Answering
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.scoring.response_slopes import ResponseSlopes
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.mapping.scoring.white_noise import white_noise
from gp_mapping.settings.mapping import MapSettings

__all__ = ["MapSession"]

# Attributes of the saved state, by name; those of _NEWEST are private here.
_COUNTS = ("revision", "cell_count", "left_out", "lost")
_NEWEST = ("last_stamp", "pass_samples")


class MapSession(Answering, Renewing):
    """Cells, map, learning, one-step-ahead scores and drawing of one map of the plane.

    Samples have positions (N, 2) in metres, values (N, C) in SI units and stamps in seconds.
    One thread owns a session: no method may be called while another one runs.

    Args:
        settings: of model, noise, learning and grid.
        room: where parts of the map go that are not needed now; they stay in memory if None.

    Attributes:
        map: the field model; another object after a start was found anew.
        revision: grows with every change of the map.
        cell_count: samples (cells, or raw samples without cells) that the map holds.
        taken: the cells that the map has taken so far; kept only after it was set to [], else None.
        lost: raw samples of cells that the map has refused.
        left_out: cells that the map has refused because it was full.
        fixes: where on the earth the map lies.
        about: where and of what the map is, as the intake of its first sample reports.
        last_report: of the last update; None while a cell is open.
        resume_notes: sentences on settings that have no effect on a saved map.
    """

    taken: list[Samples] | None = None
    looks_for_lag = True
    own_names = (
        *(
            "map",
            "_start",
            "_again",
            "_blank",
            "scores",
            "slow",
            "renderer",
            "last_report",
            "taken",
        ),
        *("_last_stamp", "_pass_samples", "revision", "cell_count", "left_out"),
    )

    def __init__(self, settings: MapSettings, room: Room | None = None):
        super().__init__(settings)
        self.revision, self._room = -1, room
        self.clear()

    def clear(self) -> None:
        """Forget everything; the settings stay."""
        self._begin()
        self._empty_map()
        self._channels: int | None = None
        self._drawn = DrawnGround()
        self._repeats = Repeats()
        self.resume_notes: list[str] = []
        self.fixes = Fixes(self.settings.max_fixes)
        self.about: dict = {}
        self.last_report: UpdateReport | None = None

    def _empty_map(self) -> None:
        """Start an empty map, with starts, scores and drawing to match."""
        s = self.settings
        self.map = self._new_map(s)
        self._start = Start(s)
        # the map that is made again from the first cells with other starts, next to this one
        self._again: RestartedMap | None = None
        self._blank: dict | None = None  # the state of an empty map

        self.scores, self.slow = OneStepAhead(s), self._new_slow()
        self.renderer = Renderer(s)

        self._pass_samples = 0
        self._last_stamp: float | None = None
        self.revision += 1
        self.cell_count = self.left_out = self.lost = 0
        self.taken = None if self.taken is None else []

    def _begin_over(self) -> None:
        """Empty the map; the cells that it refused are offered to it once more."""
        self.raw_count, self.refused = self.raw_count + self.lost, self.refused - self.lost
        self.last_refusal = ""
        self._empty_map()

    # --- samples in -------------------------------------------------------------------------------
    @torch.no_grad()
    def ingest(self, samples: Samples) -> UpdateReport | None:
        """Absorb raw samples, in order of time.

        A sample that no map can take, or whose cell the map refuses, is counted in `refused`; the
        others go on. So of n samples, raw_count and refused grow by n together.

        Returns:
            The last update's report; None while a cell is still open.

        Raises:
            ValueError: positions are not 2-D, or the number of channels differs from earlier
                samples.
        """
        if samples.x.shape[1] != 2:
            raise ValueError(
                f"a session maps the plane: positions are {samples.x.shape[1]}-D, expected 2-D"
            )
        channels = samples.y.shape[1]
        if self._channels not in (None, channels):
            raise ValueError(f"this map has {self._channels} channels, the samples have {channels}")

        if not len(samples):
            return None

        self._channels, self.last_report = channels, None
        if self.settings.metric:  # labels and counts may well be the same everywhere
            self._repeats.add(samples)
        self._gather(samples)
        return self.last_report

    def _look(self, rows: RawRows, part: slice, rates: list[float], lengths: list[float]) -> None:
        """Turn vectors back by their attitude's lag, and pick some samples for scoring."""
        if self.is_vector_map:
            lag = self.scores.lag.seconds
            rows.y[part] = [
                rotate_about_vertical(y, -rate * lag) for y, rate in zip(rows.y[part], rates)
            ]

        # of a slow sensor the blocks are picked, not what it tells; a new map has not come here yet
        if not (self.response.is_active or self.is_renewing):
            self.scores.pick_rows(
                rows.x[part], rows.y[part], rows.stamp[part], lengths, rows.heading[part], rates
            )

    @property
    def is_vector_map(self) -> bool:
        """Whether samples are vectors of one map, which a late attitude turns (attitude.py)."""
        return VECTOR in self.map.capabilities

    def as_mapped(self, samples: Samples) -> Samples:
        """One pass as this map takes it in, to compare predictions with it."""
        return with_attitude_lag(
            self.response.settled(samples),
            self.settings.axle_distance,
            self.scores.lag.seconds if self.is_vector_map else None,
        )

    def break_pass(self) -> None:
        """Close the open cell at a gap or a time jump: the next sample starts a new pass."""
        super().break_pass()
        self._repeats.break_pass()

    def _end_pass(self) -> None:
        """Let the scores know that a pass has ended."""
        self.scores.break_pass()
        self._pass_samples = 0

    def _settled(self) -> bool:
        """Whether hyper-parameters are past their first steps, so that the map can judge cells."""
        return self.scores.is_settled(self.map)

    def _open_with(self, first: Samples, batch: Samples) -> None:
        """Make the map of the first few cells anew with each of them: none decides by itself."""
        taken = self._begin_again(first)
        if taken is None:
            return
        self.scores.note_white(*white_noise(self, self.map))
        self._pass_samples += len(batch)
        self.slow = self._new_slow()
        for each in taken:
            self.slow.own.add(each)
        self.taken = None if self.taken is None else taken
        self.cell_count = sum(map(len, taken))
        self.renderer.touch(batch.x, self.cell_count)
        if not self._first.is_open and self.scores.is_needed:
            self.scores.keep_posterior(self._length, self.map, batch.x[-1:])

        self._last_stamp = stamp_of(batch)
        self.revision += 1

    def _begin_again(self, first: Samples) -> list[Samples] | None:
        """Go on with the map of the first cells alone, of all that are not far from their median.

        Returns:
            The parts that it took; None where the map stays as it was (map_first_cells).
        """
        self._blank = self._blank or self.map.state_dict()
        new = map_first_cells(
            first, self._start, self.map, self._blank, self._new_map, self._first.is_open
        )
        if new is None:
            return None

        for each, error in new.refused:
            self._lose(each, error)
        if new.refused:
            self._first.drop_newest(len(new.refused))
        if new.found:
            self.scores.restart(new.start.resolved)
        self.map, self._start, self.last_report = new.map, new.start, new.report
        return new.taken

    def _absorb(self, batch: Samples) -> None:
        """Score a cell, look for a change of the field, then let the map take the cell."""
        if self._start.add(batch):
            self._again = RestartedMap(self._new_map(*self._start.found), self._start.was_guess)

        self.scores.note_white(*white_noise(self, self.map))
        if self.response.is_active:
            self.scores.pick_cell(batch, self._length)
        if self.scores.is_needed:
            self.scores.score(batch.velocity[-1], self.map, self._bias.number, batch, self._length)
        # forgetting comes after the scores, which are of the map before this cell
        self._last_stamp = forget_elapsed(
            self.map, self.settings.forgetting_time, self._last_stamp, batch
        )
        if self.scores.is_needed:
            # the newest metres, of this pass, saw the field as it is now
            recent = min(
                self._pass_samples, round(self.settings.score_distance / self.settings.cell_length)
            )
            self.scores.detect_change(batch, self._length, self.map, recent)

        # only now does the map see the cell: everything above judges it as unseen
        taken = self._take(self.scores.down_weight(batch, self.map))

        self._go_on_again()
        if not taken:
            self.scores.leave(self._length)
        elif self.scores.is_needed:
            self.scores.keep_posterior(self._length, self.map, batch.x[-1:])

    def _lengthscale(self) -> float | None:
        """As the map has learned it, m."""
        return self.map.hyperparameters()["lengthscale"] if self.map.started else None

    def _go_on_again(self) -> None:
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
        self.map, self._last_stamp = again.map, again.last_stamp

        if again.rough:
            self.scores = OneStepAhead(self._start.resolved)
            self.scores.note_white(*white_noise(self, self.map))
        else:
            self.scores.restart(self._start.resolved)

        self.renderer = Renderer(self.settings)
        self.cell_count = sum(map(len, again.taken))
        self.taken = None if self.taken is None else list(again.taken)
        self.revision += 1

    def finish_starts(self) -> None:
        """Finish the map that is made again with other starts, or cells; it replaces this one."""
        self._catch_up(len(self._waiting))
        while self._again is not None:
            self._go_on_again()

    def finish(self) -> None:
        """Leave nothing pending, nor put off to cells to come: the stream has ended.

        Work that the map refuses stays put off; the map is then what it was before.
        """
        super().finish()
        self.finish_starts()
        # the last look at a slow sensor comes after the last cell
        if self.slow.own.deviation != self.response.deviation:
            self.slow.own.deviation = self.response.deviation
            self.revision += 1
        epoch = self.map.epoch

        try:
            self.map.in_slices(False)
        except REFUSALS as error:
            self._refuse(0, one_line(error))
        finally:
            self.map.in_slices(True)
        self.revision += self.map.epoch != epoch

    def _new_map(self, settings: MapSettings, centre=None) -> FieldMap:
        """Make an empty map with the settings, and the centre (C,) where it is known, SI."""
        return new_map(settings, self._room, centre)

    def _new_slow(self) -> ResponseVariance:
        """What the sensor's time constant adds to the variance, of an empty map."""
        deviation, length, signal = self.response.uncertainty
        return ResponseVariance(ResponseSlopes(deviation, length, signal, self.settings.kernel))

    def _take(self, batch: Samples) -> list[Samples]:
        """Let the map take the batch in, and count what it took; return these parts."""
        taken: list[Samples] = []
        try:
            # each is counted before the map learns from it, for learning may raise
            for part, report in absorb_batch(self.map, batch, self._lose):
                taken.append(part)
                self.last_report = report
                self.slow.own.deviation = self.response.deviation
                self.slow.own.add(part)
                self._pass_samples += len(part)
                self.cell_count += len(part)
                self.renderer.touch(part.x, report.samples)
                self.revision += 1
        finally:
            self._start.keep_taken(taken)
            if self.taken is not None:
                self.taken += taken
        return taken

    def _lose(self, batch: Samples, error: Exception) -> None:
        """Count a batch that the map refuses: a robot's map must go on with what it has."""
        if isinstance(error, MapFullError):
            self.left_out += len(batch)
        count = len(batch) if batch.count is None else round(float(batch.count.sum()))

        self.raw_count -= count
        self.lost += count
        self._refuse(count, one_line(error))

    def merge(self, other: "MapSession") -> None:
        """Add what another session has mapped: cells, path and scores. The other stays as it is.

        The robot is where this session has it; its settings and hyper-parameters count. The caller
        sees to it that what lies at (x, y) in one map lies there in the other.

        Raises:
            ValueError: they cannot be added: units, models, likelihoods, use of cells or channels
                differ, or one of them has seen little more than its first cells. The maps are as
                they were; the open cells of both are closed either way.
            Exception: whatever fails halfway; the maps are as they were then, too.
        """
        prepare_merge(self, other)
        with taken_back(self):
            self._merge(other)

    def _merge(self, other: "MapSession") -> None:
        """Add all of another session; where that fails, this one is half of the sum."""
        self.map.merge(other.map)
        self._start.close()
        self.response.stop_looking()
        self.drift.stop_looking()
        self._first.join(other.beginning_notes)
        self.scores.join(other.scores, self.map)
        self.slow.join(other.slow)

        self._join_gathered(other)
        self.fixes.join(other.fixes)
        for name in ("raw_count", "cell_count", "passes", "left_out", "refused", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cells.gross += other.gross_errors

        stamps = [stamp for stamp in (self._last_stamp, other.newest_stamp) if stamp is not None]
        self._last_stamp = max(stamps, default=None)
        self.renderer, self.revision = Renderer(self.settings), self.revision + 1

    @property
    def channels(self) -> int | None:
        """Numbers in a measurement, C; None before the first."""
        return self._channels

    @property
    def started_settings(self) -> MapSettings:
        """The settings, with the first cells' starts where they leave one open."""
        return self._start.resolved

    @property
    def weakened_cells(self) -> int:
        """Cells that were weakened, for all others contradict them."""
        return self.scores.weakened + self._start.weakened

    @property
    def newest_stamp(self) -> float | None:
        """Stamp of the newest cell, s; None before the first."""
        return self._last_stamp

    # --- the map out ------------------------------------------------------------------------------
    @torch.no_grad()
    def render(self, budget: int | None = None) -> FieldGrid:
        """Draw the map on its grid; only what changed since the last call is drawn again.

        Args:
            budget: most points to evaluate in this call, for a live map at a steady rate; the
                remainder comes with later calls, nearest to the robot first. None draws everything.
        """
        noise = math.sqrt(self.noise_variance)
        ground = self._drawn.choose(self.settings, self._path, self.revision)
        return self.renderer.render(
            self.map,
            ground.bounds,
            noise,
            self.revision,
            budget,
            self.local_scale,
            ground.place,
            slow=self.slow,
        )

    def draw_ahead(self, budget: int) -> None:
        """Evaluate so many points of the next drawing, the longest waiting first; make no grid."""
        noise = math.sqrt(self.noise_variance)
        ground = self._drawn.choose(self.settings, self._path, self.revision)
        self.renderer.advance(
            self.map, ground.bounds, noise, self.revision, budget, ground.place, oldest=True
        )

    @property
    def stale_share(self) -> float:
        """Fraction of the driven ground that waits to be drawn again (a live map with a budget)."""
        return self.renderer.stale_share(self._path.points())

    @property
    def warnings(self) -> list[str]:
        """What a person should look at, in sentences: ground not drawn, settings at odds."""
        if self.cell_count:
            self._drawn.look_again(self.settings, self._path, self.revision)
        return [
            *self._drawn.notes,
            *self._repeats.notes(
                self.settings.field_scale, self.settings.field_unit, self.recurring.end
            ),
            *self.resume_notes,
            *self.value_notes,
            *inconsistent_settings(self._start.resolved, self._first.spread),
            *self.map.notes(),
        ]

    def report(self) -> dict:
        """Plain numbers for diagnostics and reports by name, SI."""
        return report_of(self)

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """All that an exact resume needs: tensors, plain values, and dicts and lists of them."""
        return {
            "settings": asdict(self.settings),
            "about": dict(self.about),
            "fixes": self.fixes.state_dict(),
            "channels": self._channels,
            **self._gathered(),
            **self._map_state(),
            "renewal": self._renewal_state(),
        }

    def _map_state(self) -> dict:
        """Collect what belongs to the map, not to its cells, their path and the place."""
        return {
            "map": self.map.state_dict(),
            "scores": self.scores.state_dict(),
            "slow": self.slow.state_dict(),
            "start": self._start.state_dict(),
            "again": None if self._again is None else self._again.state_dict(),
            **self._beginning_state(),
            **{n: getattr(self, f"_{n}") for n in _NEWEST},
            **{n: getattr(self, n) for n in _COUNTS},
        }

    @staticmethod
    def from_state_dict(state: dict, room: Room | None = None, **overrides) -> "MapSession":
        """Continue exactly where state_dict was taken.

        Args:
            state: as of state_dict, also of older versions.
            room: as of a new session.
            overrides: settings that may differ (resolution, device, …).

        Raises:
            ValueError: the state is not of a session, or does not fit the settings.
        """
        try:
            session = MapSession(MapSettings(**(state["settings"] | overrides)), room)
            session._blank = session.map.state_dict()
            # absent in maps of a version that knew no automatic starts
            if "start" in state:
                session._start.load_state_dict(state["start"])
                session.map = session._new_map(session._start.resolved)
                session.scores = OneStepAhead(session._start.resolved)

            if state.get("again") is not None:
                session._again = RestartedMap.restored(
                    state["again"], session._new_map(*session._start.found)
                )

            # after the starts: they choose the map and the scores that the state fits
            session.map.load_state_dict(state["map"])
            used = session.map.hyperparameters()
            session.resume_notes = unused_starts(state["settings"], session.settings, used)
            session._load_gathered(state)
            session.scores.load_state_dict(state["scores"], session.map)
            # absent in maps of a version that took the time constant for certain
            if slow := state.get("slow"):
                session.slow = ResponseVariance.restored(slow)
            session.__dict__ |= {f"_{n}": state[n] for n in (*_NEWEST, "channels")}
            # 0: in maps saved before it was counted
            session.__dict__ |= {n: state.get(n, 0) for n in _COUNTS}
            # absent in maps of a version that knew no fixes
            if "fixes" in state:
                session.fixes.load_state_dict(state["fixes"])
            # absent in maps saved before they knew where they are
            session.about = dict(state.get("about", {}))
            # absent in maps of a version that began again at once
            if renewal := state.get("renewal"):
                of_new = state | renewal["map"] | {"renewal": None}
                session._load_renewal(
                    renewal, MapSession.from_state_dict(of_new, room, **overrides)
                )
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(
                f"not the state of a mapping session: {type(error).__name__}: {error}"
            ) from error
        return session
