"""The one owner of a map: raw samples in, predictions and drawings with honest noise out.

The live node and the offline tool use it alike. The map depends on the sequence of samples only,
never on how it is cut into calls nor on a clock: the same bag gives the same map, live or offline.
All learning is done inside `ingest`, a bounded number of steps per cell.

    raw samples → Gathering → cells → RenewableMap → Admission → CellMap
                                      (two maps, while one takes the other's place)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TypeVar, cast

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.registry import with_device_here
from gp_mapping.core.stored import Room
from gp_mapping.core.transaction import taken_back
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.gradients import unrecorded
from gp_mapping.mapping.beginning.renewing import RenewableMap
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.ground import DrawnGround
from gp_mapping.mapping.earth import Fixes
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.growing.answering import Answering
from gp_mapping.mapping.growing.cell_map import CellMap
from gp_mapping.mapping.merging import prepare_merge
from gp_mapping.mapping.motion.attitude import with_attitude_lag
from gp_mapping.mapping.notes.repeats import Repeats
from gp_mapping.mapping.notes.settings import inconsistent_settings, unused_starts
from gp_mapping.mapping.reporting import report_of
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.parts import KERNELS, LIKELIHOODS, MODELS

__all__ = ["MapSession"]

Method = TypeVar("Method", bound=Callable)


def _without_gradients(method: Method) -> Method:
    """A method of a session that needs none: outside of torch's autograd layer, where it may be."""

    @functools.wraps(method)
    def run(session: MapSession, *args, **kwargs):
        with unrecorded(outside=session.is_builtin):
            return method(session, *args, **kwargs)

    return cast(Method, run)


class MapSession(Answering):
    """Cells, map, learning, one-step-ahead scores and drawing of one map of the plane.

    Samples have positions (N, 2) in metres, values (N, C) in SI units and stamps in seconds.
    One thread owns a session: no method may be called while another one runs.

    Args:
        settings: of model, noise, learning and grid.
        room: where parts of the map go that are not needed now; they stay in memory if None.

    Attributes:
        fixes: where on the earth the map lies.
        about: where and of what the map is, as the intake of its first sample reports.
        resume_notes: sentences on settings that have no effect on a saved map.
    """

    def __init__(self, settings: MapSettings, room: Room | None = None):
        self._settings, self._room = settings, room
        self._begin(None)

    def clear(self) -> None:
        """Forget everything; the settings stay."""
        self._begin(self.shown)

    def _begin(self, before: CellMap | None) -> None:
        """Start with nothing: no sample has come yet.

        Args:
            before: the map whose revisions go on; None: there is none.
        """
        s = self._settings
        self._gathered = Gathering(s, looks_for_lag=True)
        self._maps = RenewableMap(s, self._room, self._gathered, before)

        self._channels: int | None = None
        self._drawn = DrawnGround()
        self._repeats = Repeats()
        self.resume_notes: list[str] = []
        self.fixes = Fixes(s.max_fixes)
        self.about: dict = {}

    @property
    def shown(self) -> CellMap:
        """The map that answers, with its starts, scores, drawing and counts."""
        return self._maps.shown

    @property
    def gathered(self) -> Gathering:
        """The averager of cells, the path, and what samples tell of the sensor."""
        return self._gathered

    @property
    def channels(self) -> int | None:
        """Numbers in a measurement, C; None before the first."""
        return self._channels

    @property
    def is_builtin(self) -> bool:
        """Whether model, kernel and likelihood are of this package: none enables gradients."""
        s = self._settings
        parts = (MODELS, s.model), (KERNELS, s.kernel), (LIKELIHOODS, s.likelihood)
        return all(registry.is_builtin(name) for registry, name in parts)

    @property
    def is_renewing(self) -> bool:
        """Whether a new map is on its way, which takes all cells again."""
        return self._maps.is_renewing

    @property
    def waiting_count(self) -> int:
        """Number of cells that the new map has yet to see, and of ends of passes among them."""
        return self._maps.waiting_count

    @property
    def taken(self) -> list[Samples] | None:
        """The cells that the map has taken so far; kept only after it was set to [], else None."""
        return self.shown.taken

    @taken.setter
    def taken(self, cells: list[Samples] | None) -> None:
        self.shown.taken = cells

    # --- samples in -------------------------------------------------------------------------------
    @_without_gradients
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

        self._channels, self.shown.last_report = channels, None
        if self.settings.metric:  # labels and counts may well be the same everywhere
            self._repeats.add(samples)
        for cell in self._gathered.gather(samples, self._maps):
            self._maps.admit(cell)
        return self.last_report

    def as_mapped(self, samples: Samples) -> Samples:
        """One pass as this map takes it in, to compare predictions with it."""
        return with_attitude_lag(
            self.response.settled(samples),
            self.settings.axle_distance,
            self.scores.lag.seconds if self.is_vector_map else None,
        )

    @_without_gradients
    def break_pass(self) -> None:
        """Close the open cell at a gap or a time jump: the next sample starts a new pass."""
        self._maps.break_pass()
        self._repeats.break_pass()

    @_without_gradients
    def flush(self) -> None:
        """Hand over the open cell, and all that waits."""
        self._maps.flush()

    @_without_gradients
    def finish_starts(self) -> None:
        """Finish the map that is made again with other starts, or cells; it replaces this one."""
        self._maps.finish_starts()

    def finish(self) -> None:
        """Leave nothing pending, nor put off to cells to come: the stream has ended.

        Work that the map refuses stays put off; the map is then what it was before.
        """
        for _ in self.finishing():
            pass

    def finishing(self) -> Iterator[None]:
        """As `finish`, in steps: each may be the last one, and leaves the map whole."""
        steps = self._maps.finishing()
        while self._advance(steps):
            yield

    @_without_gradients
    def _advance(self, steps: Iterator[None]) -> bool:
        """Do one step; whether there was one."""
        return next(steps, self) is not self

    def merge(self, other: "MapSession") -> None:
        """Add what another session has mapped: cells, path and scores. The other stays as it is.

        The robot is where this session has it; its settings and hyper-parameters count. The caller
        sees to it that what lies at (x, y) in one map lies there in the other, and that they are of
        one time, where they forget (`age`).

        Raises:
            ValueError: they cannot be added: units, models, likelihoods, use of cells or channels
                differ, or one of them has seen little more than its first cells. The maps are as
                they were; the open cells of both are closed either way.
            Exception: whatever fails halfway; the maps are as they were then, too.
        """
        prepare_merge(self, other)
        with taken_back(self):
            self._merge(other)

    @_without_gradients
    def agree_on(self, theta: Theta) -> bool:
        """Reparametrise the map to a θ (FieldMap.agree_on), whose kernel is the map's from then on.

        Args:
            theta: in inner units.

        Returns:
            Whether that succeeded; else the map is as it was.
        """
        return self.shown.agree_on(theta)

    def age(self, stamp: float) -> float:
        """Let the map forget up to a stamp as if it had gone on till then (`forgetting_time`).

        Maps that are added are all of one time then. The open cell is closed.

        Args:
            stamp: s; nothing is forgotten where the map is newer.

        Returns:
            The fraction of the data's weight that is left.
        """
        self.break_pass()
        self.finish_starts()
        return self.shown.age(stamp)

    def _merge(self, other: "MapSession") -> None:
        """Add all of another session; where that fails, this one is half of the sum."""
        gross = other.gross_errors
        self.shown.merge(other.shown)
        self._gathered.join(other.gathered)
        self.cells.gross += gross
        self.fixes.join(other.fixes)

    # --- the map out ------------------------------------------------------------------------------
    @_without_gradients
    def render(self, budget: int | None = None) -> FieldGrid:
        """Draw the map on its grid; only what changed since the last call is drawn again.

        Args:
            budget: most points to evaluate in this call, for a live map at a steady rate; the
                remainder comes with later calls, nearest to the robot first. None draws everything.
        """
        noise = math.sqrt(self.noise_variance)
        ground = self._drawn.choose(self.settings, self.path_trace, self.revision)
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

    @_without_gradients
    def draw_ahead(self, budget: int) -> None:
        """Evaluate so many points of the next drawing, the longest waiting first; make no grid."""
        noise = math.sqrt(self.noise_variance)
        ground = self._drawn.choose(self.settings, self.path_trace, self.revision)
        self.renderer.advance(
            self.map, ground.bounds, noise, self.revision, budget, ground.place, oldest=True
        )

    @property
    def stale_share(self) -> float:
        """Fraction of the driven ground that waits to be drawn again (a live map with a budget)."""
        return self.renderer.stale_share(self.path)

    @property
    def warnings(self) -> list[str]:
        """What a person should look at, in sentences: ground not drawn, settings at odds."""
        if self.cell_count:
            self._drawn.look_again(self.settings, self.path_trace, self.revision)
        return [
            *self._drawn.notes,
            *self._repeats.notes(
                self.settings.field_scale, self.settings.field_unit, self.gathered.range_limits
            ),
            *self.resume_notes,
            *self.value_notes,
            *inconsistent_settings(self.started_settings, self.shown.admission.first.spread),
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
            **self._gathered.state_dict(),
            **self._maps.state_dict(),
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
            saved = state["settings"]
            moved = with_device_here(saved)
            session = MapSession(MapSettings(**(moved | overrides)), room)
            session._load(state)
            if moved is not saved and "device" not in overrides:
                session.resume_notes.append(f"device {saved['device']!r} is not here: it is on cpu")
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(
                f"not the state of a mapping session: {type(error).__name__}: {error}"
            ) from error
        return session

    def _load(self, state: dict) -> None:
        """Continue exactly where state_dict was taken; no sample has come yet."""
        self._maps.load_state_dict(state)
        self._gathered.use_kernel(self._maps.shown.kernel)
        self._gathered.load_state_dict(state)
        self._channels = state["channels"]
        used = self.map.hyperparameters()
        self.resume_notes = unused_starts(state["settings"], self.settings, used)
        # absent in maps of a version that knew no fixes
        if "fixes" in state:
            self.fixes.load_state_dict(state["fixes"])
        # absent in maps saved before they knew where they are
        self.about = dict(state.get("about", {}))
