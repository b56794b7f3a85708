"""The one owner of a map: raw samples in, a map with honest noise out. Live node and offline tool use it alike.

The map depends on the sequence of samples only, never on how it is cut into calls nor on a clock: the same bag gives
the same map, live or offline. All learning is done inside `ingest`, a bounded number of steps per cell.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import VECTOR, FieldMap
from gp_mapping.core.registry import build_map
from gp_mapping.core.stored import Room
from gp_mapping.core.types import Prediction, Samples, UpdateReport
from gp_mapping.errors import MapFullError, NumericalError, one_line
from gp_mapping.mapping.beginning.again import Again
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.cells import RawRows
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.drawing.ground import to_draw
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.earth import Fixes
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.motion.attitude import HeadingTrack, turned
from gp_mapping.mapping.notes import nonsense
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.settings.mapping import MapSettings

__all__ = ["MapSession"]

_REFUSALS = (
    NumericalError,
    ArithmeticError,
    torch.linalg.LinAlgError,
)  # by which a map refuses what would spoil it
_LOOK_AGAIN = 200  # revisions of a map that nobody draws
_COUNTS = ("revision", "cell_count", "left_out", "lost")
_NEWEST = ("last_stamp", "pass_samples", "channels")
_FORGOTTEN = 1e-12  # share of what was known that is left when all of it is forgotten


class MapSession(Gathering):
    """Cells, map, learning, one-step-ahead scores, drawing. Samples are (N, 2) metres, (N, 1) SI, with stamps in s.

    room: where parts of the map go that nobody needs now; they stay in memory if None.
    taken: the cells that the map has taken so far, for who asks for them by setting it to []; None: not kept.
    lost: raw samples of cells that the map has refused.  left_out: those of the cells for which it was full.
    """

    taken: list[Samples] | None = None

    def __init__(self, settings: MapSettings, room: Room | None = None):
        super().__init__(settings)
        self.revision, self._room = -1, room
        self.clear()

    def clear(self) -> None:
        """Forget everything; the settings stay."""
        self._begin()
        self._empty_map()
        self._channels: int | None = None
        self._cut: list[str] = []  # what the last drawing has left out, or would have
        self._looked = -_LOOK_AGAIN  # the revision of which `_cut` is
        self.fixes = Fixes(self.settings.max_fixes)  # where on the earth it is
        self.about: dict = {}  # where and of what it is: frame, sensor, …, as the intake of its first sample says
        self.last_report: UpdateReport | None = None

    def _empty_map(self) -> None:
        """No cell has come yet."""
        s = self.settings
        self.map = self._new_map(s)
        self._start = Start(s)
        self._again: Again | None = None  # the map that is being made again with other starts
        self._blank: dict | None = None  # the state of the map before it has seen anything
        self.scores = OneStepAhead(s)
        self.renderer = Renderer(s)
        self._pass_samples = 0
        self._last_stamp: float | None = None
        self.revision += 1
        self.cell_count = self.left_out = self.lost = 0
        self.taken = None if self.taken is None else []

    def _begin_over(self) -> None:
        """What the map refused of these cells it is offered again."""
        self.raw_count, self.refused = self.raw_count + self.lost, self.refused - self.lost
        self.last_refusal = ""
        self._empty_map()

    # --- samples in -----------------------------------------------------------------------------------------------
    @torch.no_grad()
    def ingest(self, samples: Samples) -> UpdateReport | None:
        """Absorb raw samples; the last update's report, or None while a cell is still open.

        A sample that no map can take, or whose cell the map refuses, is counted in `refused`; the others go on. So of
        n samples, raw_count and refused grow by n together.
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
        self._gather(samples)
        return self.last_report

    def _begin_pass(self) -> None:
        super()._begin_pass()
        self._pass_samples = 0

    def _look(self, rows: RawRows, part: slice, rates: list[float], lengths: list[float]) -> None:
        """Vectors are turned back by what their attitude is late, and some samples will be scored."""
        if self.turns:
            late = self.scores.lag.seconds
            rows.y[part] = [turned(y, -rate * late) for y, rate in zip(rows.y[part], rates)]
        self.scores.pick_rows(
            rows.x[part], rows.y[part], rows.stamp[part], lengths, rows.heading[part], rates
        )

    @property
    def turns(self) -> bool:
        """Whether samples are vectors of one map, which a late attitude turns (attitude.py)."""
        return VECTOR in self.map.capabilities

    def as_seen(self, samples: Samples) -> Samples:
        """One pass as this map takes it in: with headings of the path, vectors turned back. To score measurements."""
        if not self.turns and self.settings.axle_distance <= 0:
            return samples
        track = HeadingTrack(self.settings.axle_distance)
        stamps = torch.arange(len(samples)) * 0.02 if samples.stamp is None else samples.stamp
        given = [None] * len(samples) if samples.heading is None else samples.heading.tolist()
        steps = [track.step(x, t, h) for x, t, h in zip(samples.x.tolist(), stamps.tolist(), given)]
        headings, y = [h for h, _ in steps], samples.y
        if self.turns:
            lag = self.scores.lag.seconds
            y = [turned(row, -rate * lag) for row, (_, rate) in zip(y.tolist(), steps)]
        return replace(
            samples, y=y, heading=None if not len(samples) or headings[-1] is None else headings
        )

    def break_pass(self) -> None:
        """A gap or a time jump: the open cell is closed, the next sample starts a new pass; the map stays."""
        super().break_pass()
        self.scores.break_pass()

    def _settled(self) -> bool:
        return self.scores.settled(self.map)

    def _open_with(self, first: Samples, batch: Samples) -> None:
        """The first few cells enter together, with each of them anew, so that none of them decides by itself."""
        try:
            self._begin_again(first)
        except MapFullError as error:
            self._lose(batch, error)
            return
        except _REFUSALS:
            if self._first.opening:  # too few yet to tell which of them is wild
                return
            self._start.keep(self._update(self.map, first))
        self._pass_samples += len(batch)
        self.taken = None if self.taken is None else [first]
        self.cell_count = self.last_report.samples if self.last_report else 0
        self.renderer.touch(batch.x, self.cell_count)
        if not self._first.opening and self._scoring:
            self.scores.keep(self._path.length, self.map, batch.x[-1:])
        self._last_stamp = self._stamp_of(batch)
        self.revision += 1

    def _begin_again(self, first: Samples) -> None:
        """The map of the first cells alone."""
        s, before = self.settings, None
        self._blank = self._blank or self.map.state_dict()
        if self._start.open_with(first):
            self.map = self._new_map(self._start.resolved, self._start.centre)
            self.scores.begin_again(self._start.resolved)
        else:
            self.map.load_state_dict(self._blank)
        parts = [first]
        if (
            s.forgetting_time > 0 and first.stamp is not None
        ):  # each has its age; of one alone the median is itself
            parts = [first[i] for i in range(len(first))]
            self.map = self._new_map(
                self._start.resolved, first.y.median(0).values if s.metric else None
            )
        for part in parts:
            before = self._fade(self.map, before, part)
            self.last_report = self.map.update(part)
            while self.map.refine(math.inf):
                pass

    @property
    def _scoring(self) -> bool:
        return self.settings.predictive_noise or self.settings.follow_changes

    def _absorb(self, batch: Samples) -> None:
        if self._start.add(batch):
            self._again = Again(self._new_map(*self._start.found), self._start.rough)
        self.scores.note_white(self.cells.single_variance, self.cells.averaged_variance)
        if self._scoring:
            self.scores.score(
                batch.velocity[-1], self.map, self._bias.number, batch, self._path.length
            )
        self._last_stamp = self._fade(self.map, self._last_stamp, batch)
        if self._scoring:
            # the newest metres, of this pass, saw the field as it is now
            recent = min(
                self._pass_samples, round(self.settings.score_distance / self.settings.cell_length)
            )
            self.scores.watch(batch, self._path.length, self.map, recent)
        taken = self._update(self.map, self.scores.weaken(batch, self.map))
        self._start.keep(taken)
        used = sum(map(len, taken))
        if used:
            if self.taken is not None:
                self.taken += taken
            self._pass_samples += used
            self.cell_count += used
            self.renderer.touch(batch.x, self.last_report.samples)
            self.revision += 1
        self._go_on_again()
        if used and self._scoring:
            self.scores.keep(self._path.length, self.map, batch.x[-1:])

    def _feed(
        self, field: FieldMap, before: float | None, batch: Samples
    ) -> tuple[list[Samples], float | None]:
        """A first cell once more, into another map."""
        stamp = self._fade(field, before, batch)
        return self._update(field, batch), stamp

    def _go_on_again(self) -> None:
        """Some cells more for the map with the new starts; when it has seen what this one has, it takes its place.

        Scores of what a rough start said are left out: they tell of that start, not of the map.
        """
        again = self._again
        if again is None or not again.go_on(self._start.cells, self._feed):
            return
        self._again = None
        self._start.done(again.taken)
        self.map, self._last_stamp = again.map, again.last_stamp
        if again.rough:
            self.scores = OneStepAhead(self._start.resolved)
            self.scores.note_white(self.cells.single_variance, self.cells.averaged_variance)
        else:
            self.scores.begin_again(self._start.resolved)
        self.renderer = Renderer(self.settings)
        self.cell_count = sum(map(len, again.taken))
        self.taken = None if self.taken is None else list(again.taken)
        self.revision += 1

    def finish_starts(self) -> None:
        """The map that is being made again with other starts takes the place of this one now."""
        while self._again is not None:
            self._go_on_again()

    def finish(self) -> None:
        """The end of what comes: nothing is pending any more, nor put off to cells to come.

        What the map refuses of that stays put off; it is then what it was before.
        """
        self.flush()
        self.finish_starts()
        epoch = self.map.epoch
        try:
            self.map.in_slices(False)
        except _REFUSALS as error:
            self._refuse(0, one_line(error))
        finally:
            self.map.in_slices(True)
        self.revision += self.map.epoch != epoch

    def _new_map(self, settings: MapSettings, centre=None) -> FieldMap:
        """An empty map that spreads what takes long over the cells to come. centre: (C,) SI, where it is known."""
        new = build_map(settings, self._room, **({} if centre is None else {"centre": centre}))
        new.in_slices(True)
        return new

    def _update(self, field: FieldMap, batch: Samples) -> list[Samples]:
        """The map takes the batch in, and learns; the parts that it took. Of a batch that it refuses, halves."""
        try:
            report = field.update(batch)
        except (MapFullError, *_REFUSALS) as error:
            if len(batch) > 1:
                half = len(batch) // 2
                return self._update(field, batch[:half]) + self._update(field, batch[half:])
            self._lose(batch, error)
            return []
        if field is self.map:
            self.last_report = report
        while field.refine(math.inf):
            pass
        return [batch]

    def _lose(self, batch: Samples, error: Exception) -> None:
        """A robot's map must go on: what is known stays, what cannot be added is counted."""
        if isinstance(error, MapFullError):
            self.left_out += len(batch)
        count = len(batch) if batch.count is None else round(float(batch.count.sum()))
        self.raw_count -= count
        self.lost += count
        self._refuse(count, one_line(error))

    def _fade(self, field: FieldMap, before: float | None, batch: Samples) -> float | None:
        """Let a map forget for the time from `before` (s) to the batch, whatever lay between; when that was."""
        tau, stamp = self.settings.forgetting_time, self._stamp_of(batch)
        if tau > 0 and stamp is not None and before is not None and stamp > before:
            field.forget(max(math.exp(-(stamp - before) / tau), _FORGOTTEN))
        return before if stamp is None else stamp

    @staticmethod
    def _stamp_of(batch: Samples) -> float | None:
        return None if batch.stamp is None else float(batch.stamp[-1])

    @property
    def noise_variance(self) -> float:
        """Variance of one new measurement about the latent field, squared SI: from scores, else the model's."""
        return self.scores.variance(self.map)

    @property
    def changes(self) -> tuple:
        """The newest changes of the field that were found (core.change.Change)."""
        return tuple(self.scores.changes)

    def merge(self, other: "MapSession") -> None:
        """Add what another session has mapped: cells, path, scores. The other stays as it is.

        This session's settings and hyper-parameters count. Frames are compared by who calls: what lies at (x, y) in one
        map must lie there in the other.

        Raises:
            ValueError: they cannot be added: units, channels or models differ, or one of them has seen little more
                than its first cells. The maps are as they were; of both the open cell is closed either way.
        """
        mine, its = self.settings, other.settings
        for name in ("field_unit", "model", "likelihood", "cells"):
            if getattr(mine, name) != getattr(its, name):
                raise ValueError(
                    f"maps that differ in {name} cannot be merged: {getattr(mine, name)!r} here, "
                    f"{getattr(its, name)!r} there"
                )
        if self.channels != other.channels:
            raise ValueError(
                f"maps of {self.channels} and of {other.channels} numbers in a measurement cannot be "
                "merged"
            )
        for each in (self, other):
            each.break_pass()
            if each.opening:
                raise ValueError(
                    f"a map of {each.cell_count} cells has hardly begun and cannot be merged; map its "
                    "recording with the other's instead"
                )
            each.finish_starts()
        self.map.merge(other.map)
        self._start.close()
        self._first.close()
        self.scores.join(other.scores, self.map)
        self._path.join(other.trace)
        self.fixes.join(other.fixes)
        for name in ("raw_count", "cell_count", "passes", "left_out", "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._bias.join(other.bias_numbers)
        stamps = [stamp for stamp in (self._last_stamp, other.newest_stamp) if stamp is not None]
        self._last_stamp = max(stamps, default=None)
        self.renderer, self.revision = Renderer(mine), self.revision + 1

    @property
    def channels(self) -> int | None:
        """Numbers in a measurement; None before the first."""
        return self._channels

    @property
    def started_settings(self) -> MapSettings:
        """The settings, with the starts that the first cells told where they leave them open."""
        return self._start.resolved

    @property
    def newest_stamp(self) -> float | None:
        """Of the newest cell, s."""
        return self._last_stamp

    # --- the map out ----------------------------------------------------------------------------------------------
    @torch.no_grad()
    def predict(self, x, velocity=None, heading=None) -> Prediction:
        """Mean, latent variance and predictive noise at x (N, 2) metres. RuntimeError before the first cell.

        Both variances are scaled by what one-step-ahead scores say of the place (local_scale), so noise_variance is
        (N, C) there; the field's, too, by what is not known of hyper-parameters. The noise is that of a measurement of
        a pass to come: with its unknown constant, which the field's variance is without.

        velocity (N, 2) m/s, heading (N, 2) or the direction of travel: then of what the robot would measure on its
        way, with its time offset and its own field.
        """
        x = torch.as_tensor(x, dtype=torch.float64).reshape(-1, 2)
        velocity, heading = (
            None if c is None else torch.as_tensor(c, dtype=torch.float64)
            for c in (velocity, heading)
        )
        p = self.map.predict(x, velocity, heading)
        noise = (
            self.scores.component_variances(self.map)
            .to(p.noise_variance)
            .expand_as(p.noise_variance)
        )
        bias = self.map.bias_variance().to(p.noise_variance)
        local = self.local
        if local is None or not local.tells:
            return replace(p, noise_variance=noise + bias)
        here = torch.from_numpy(local.at(x.cpu())).to(p.mean)[:, None]
        own = (noise * here).clamp_min(
            self.scores.white_variance
        )  # no place is without the sensor's white noise
        scale = local.everywhere * here
        joint = None if p.covariance is None else p.covariance * scale[:, :, None]
        return replace(p, variance=p.variance * scale, noise_variance=own + bias, covariance=joint)

    @property
    def local(self) -> LocalScale | None:
        """What variances are scaled by, as of now; None where the settings say that nothing is."""
        return self.scores.scale(self.map) if self.settings.local_scale else None

    def local_scale_at(self, x) -> Tensor | None:
        """By how much one-step-ahead scores scale the variance at x (N, 2) m: (N,); None where they do not."""
        if not self.settings.local_scale or not len(self.scores.local):
            return None
        return torch.from_numpy(self.scores.local.at(torch.as_tensor(x).cpu()))

    @torch.no_grad()
    def published(self, x) -> Prediction:
        """What is published at x (N, 2) metres: of classes and counts the probability or rate (setting `published`).

        Else as predict. RuntimeError before the first cell.
        """
        told = self.predict(x)
        return self.map.observed(told) if self.settings.observes else told

    @torch.no_grad()
    def render(self, budget: int | None = None) -> FieldGrid:
        """The map on its grid; only what changed since the last call is drawn again.

        budget: most points to evaluate in this call, for a live map at a steady rate; the rest comes with later calls,
        nearest to the robot first. None draws everything.
        """
        noise = math.sqrt(self.noise_variance)
        bounds, place = self._ground()
        return self.renderer.render(
            self.map, bounds, noise, self.revision, budget, self.local, place
        )

    def draw_ahead(self, budget: int) -> None:
        """Evaluate so many points of the next drawing, the longest waiting first, without the cost of making a grid."""
        noise = math.sqrt(self.noise_variance)
        bounds, place = self._ground()
        self.renderer.advance(self.map, bounds, noise, self.revision, budget, place, oldest=True)

    def _ground(self) -> tuple[tuple[list[float], list[float]], tuple[float, float]]:
        """What to draw (low, high), and the robot in it; what is left out though nobody asked for that: `warnings`."""
        ground = to_draw(self.settings, self._path)
        self._cut, self._looked = ground.notes, self.revision
        return (ground.low, ground.high), ground.place

    @property
    def stale_share(self) -> float:
        """Share of the driven ground that waits to be drawn again (a live map with a budget)."""
        return self.renderer.stale_share(self._path.points())

    @property
    def warnings(self) -> list[str]:
        """What a person should look at, in plain words: what is not drawn, settings that make no sense together."""
        if self.cell_count and self.revision >= self._looked + _LOOK_AGAIN:
            self._ground()  # nobody draws it
        return [
            *self._cut,
            *([self._first.note] if self._first.note else []),
            *nonsense(self._start.resolved, self._first.spread),
            *self.map.notes(),
        ]

    @property
    def path(self) -> Tensor:
        """(K, 2) thinned positions of the samples, metres."""
        return self._path.points()

    @property
    def driven(self) -> Tensor:
        """(K, 2) points of the path on ground that was driven, metres: without the places of a pose's glitches."""
        return self._path.driven()

    @property
    def position(self) -> tuple[float, float] | None:
        """Where the newest sample was taken, metres; None before the first."""
        newest = self._path.newest
        return None if newest is None else (newest[0], newest[1])

    @property
    def path_starts(self) -> Tensor:
        """(K,) bool: points of the path to which no line leads (a new pass, a jump of the position)."""
        return self._path.starts()

    @property
    def inducing(self) -> Tensor:
        """(M, 2) inducing inputs, metres; none for the exact model."""
        return self.map.inducing_inputs().cpu()

    @property
    def memory(self) -> Tensor:
        """(m, 2) positions of remembered samples, metres."""
        return self.map.remembered_places().cpu()

    def report(self) -> dict:
        """Plain numbers for diagnostics and reports, SI."""
        counted = self.map.counters()
        return {
            "samples": self.raw_count,
            "cells": self.cell_count,
            "passes": self.passes,
            "inducing": len(self.inducing),
            "memory": len(self.memory),
            "revision": self.revision,
            "path_length": self._path.length,
            "scores": len(self.scores.noise),
            "gross_errors": self.gross,
            "weakened_cells": self.scores.weakened,
            "changes": self.scores.change_count,
            "left_out": self.left_out,
            "stale_share": self.stale_share,
            "refused_samples": self.refused,
            "last_refusal": self.last_refusal,
            "noise_stddev": math.sqrt(self.noise_variance) if self.map.started else None,
            "learning_steps": self.map.learning_steps or 0,
            "learning_rejected": 0,
            "attitude_lag": self.scores.lag.seconds,
            "fixes": self.fixes.count,
            "datum": self.fixes.summary()[1],
            "hyperparameters": self.map.hyperparameters(),
            **counted,
        }

    # --- resume ---------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Everything that an exact resume needs; tensors, numbers, strings and nested dicts and lists of them."""
        return {
            "settings": asdict(self.settings),
            "about": dict(self.about),
            "fixes": self.fixes.state_dict(),
            "map": self.map.state_dict(),
            "scores": self.scores.state_dict(),
            "start": self._start.state_dict(),
            "again": None if self._again is None else self._again.state_dict(),
            **self._gathered(),
            **{n: getattr(self, f"_{n}") for n in _NEWEST},
            **{n: getattr(self, n) for n in _COUNTS},
        }

    @staticmethod
    def from_state_dict(state: dict, room: Room | None = None, **overrides) -> "MapSession":
        """Continue exactly. room: as of a new one.  overrides: settings that may differ (resolution, device, …).

        Raises ValueError where the state is not of a session or does not fit the settings.
        """
        try:
            session = MapSession(MapSettings(**(state["settings"] | overrides)), room)
            session._blank = session.map.state_dict()
            if "start" in state:  # else of a version that knew no automatic starts
                session._start.load_state_dict(state["start"])
                session.map = session._new_map(session._start.resolved)
                session.scores = OneStepAhead(session._start.resolved)
            if state.get("again") is not None:
                session._again = Again.restored(
                    state["again"], session._new_map(*session._start.found)
                )
            session.map.load_state_dict(state["map"])
            session._load_gathered(state)
            session.scores.load_state_dict(state["scores"], session.map)
            session.__dict__ |= {f"_{n}": state[n] for n in _NEWEST}
            session.__dict__ |= {
                n: state.get(n, 0) for n in _COUNTS
            }  # 0: maps saved before it was counted
            if "fixes" in state:  # else of a version that knew none
                session.fixes.load_state_dict(state["fixes"])
            session.about = dict(
                state.get("about", {})
            )  # maps saved before they knew where they are: empty
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(
                f"not the state of a mapping session: {type(error).__name__}: {error}"
            ) from error
        return session
