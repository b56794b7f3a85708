"""What may be asked of a session: predictions with honest noise, counts, the path, what it found.

All of it is read only. The answers are those of the map that is shown, and of what was gathered for
it; a session says which these are, and this file adds nothing to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Prediction, UpdateReport
from gp_mapping.mapping.bias_numbers import BiasNumbers
from gp_mapping.mapping.cells import CellAverager
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.mapping.gathering import Gathering
from gp_mapping.mapping.growing.cell_map import CellMap
from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.notes.displaced import displaced_note
from gp_mapping.mapping.notes.gross import bursts_note, gross_errors_note
from gp_mapping.mapping.notes.settings import refusal_note
from gp_mapping.mapping.repeated.recurring import Recurring
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.scoring.neighbouring_cells import NeighbouringCells
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.scoring.predictions import ScoredPredictions
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Answering"]


class Answering(ABC):
    """Answers from a map, the scores of its predictions and the samples that were gathered."""

    @property
    @abstractmethod
    def shown(self) -> CellMap:
        """The map that answers, with its starts, scores, drawing and counts."""

    @property
    @abstractmethod
    def gathered(self) -> Gathering:
        """The averager of cells, the path, and what samples tell of the sensor."""

    @property
    def settings(self) -> MapSettings:
        """Of model, noise, learning and grid."""
        return self.shown.settings

    # --- predictions ------------------------------------------------------------------------------
    @property
    def _answers(self) -> ScoredPredictions:
        """The map as it is now, for questions."""
        return ScoredPredictions(self.map, self.scores, self.settings, self.slow)

    @torch.no_grad()
    def predict(self, x, velocity=None, heading=None) -> Prediction:
        """Mean, latent variance and predictive noise at x (ScoredPredictions.predict).

        Args:
            x: (N, 2) m.
            velocity: (N, 2) m/s, to predict what the robot would measure on its way, or None.
            heading: (N, 2) unit vectors; the direction of travel if None.

        Raises:
            RuntimeError: before the first cell.
        """
        return self._answers.predict(x, velocity, heading)

    @torch.no_grad()
    def published(self, x) -> Prediction:
        """What is published at x (N, 2) m: a probability, a rate or the field."""
        return self._answers.published(x)

    @property
    def noise_variance(self) -> float:
        """Variance of a new measurement about the latent field, squared SI (OneStepAhead)."""
        return self.scores.variance(self.map)

    @property
    def error_degrees(self) -> float:
        """Degrees of freedom of errors where no score is near; infinite: they are normal."""
        return self._answers.error_degrees

    @property
    def local_scale(self) -> LocalScale | None:
        """The local scale of variances as of now; None where the settings switch it off."""
        return self._answers.local_scale

    def local_scale_at(self, x) -> Tensor | None:
        """Factor of the variance at x (N, 2) m from one-step-ahead scores: (N,), or None."""
        return self._answers.local_scale_at(x)

    # --- the map ----------------------------------------------------------------------------------
    @property
    def map(self) -> FieldMap:
        """The field model; another object after a start was found anew."""
        return self.shown.map

    @property
    def inducing(self) -> Tensor:
        """Inducing inputs: (M, 2) metres; none for the exact model."""
        return self.map.inducing_inputs().cpu()

    @property
    def memory(self) -> Tensor:
        """Positions of remembered samples: (m, 2) metres."""
        return self.map.remembered_places().cpu()

    @property
    def scores(self) -> OneStepAhead:
        """One step ahead, of the map's predictions."""
        return self.shown.scores

    @property
    def slow(self) -> ResponseVariance:
        """What the time constant of a slow sensor adds to its variance."""
        return self.shown.slow

    @property
    def renderer(self) -> Renderer:
        """Of the map's drawings."""
        return self.shown.renderer

    @property
    def changes(self) -> tuple:
        """The newest changes of the field that were found (scoring.change.Change)."""
        return tuple(self.scores.changes)

    @property
    def is_vector_map(self) -> bool:
        """Whether samples are vectors of one map, which a late attitude turns (attitude.py)."""
        return self.shown.is_vector_map

    @property
    def started_settings(self) -> MapSettings:
        """The settings, with the first cells' starts where they leave one open."""
        return self.shown.started_settings

    @property
    def last_report(self) -> UpdateReport | None:
        """Of the last update; None while a cell is open."""
        return self.shown.last_report

    # --- counts -----------------------------------------------------------------------------------
    @property
    def revision(self) -> int:
        """It grows with every change of the map."""
        return self.shown.revision

    @property
    def cell_count(self) -> int:
        """Samples (cells, or raw samples without cells) that the map holds."""
        return self.shown.cell_count

    @property
    def left_out(self) -> int:
        """Cells that the map has refused because it was full."""
        return self.shown.left_out

    @property
    def weakened_cells(self) -> int:
        """Cells that were weakened, for all others contradict them."""
        return self.shown.weakened_cells

    @property
    def newest_stamp(self) -> float | None:
        """Stamp of the newest cell, s; None before the first."""
        return self.shown.last_stamp

    @property
    def raw_count(self) -> int:
        """Raw samples that were used; of n that came, raw_count and refused grow by n together."""
        return self.shown.admission.counts.used

    @property
    def waiting_samples(self) -> int:
        """Those of raw_count whose cells wait for the next ones to confirm them."""
        return self.shown.waiting_samples

    @property
    def refused(self) -> int:
        """Raw samples that were not used."""
        return self.shown.admission.counts.refused

    @property
    def lost(self) -> int:
        """Raw samples of cells that the map has refused; they are among those refused."""
        return self.shown.admission.counts.lost

    @property
    def last_refusal(self) -> str:
        """Why the last refused sample was, in a sentence; '' before the first."""
        return self.shown.admission.counts.last_refusal

    @property
    def passes(self) -> int:
        """Begun so far."""
        return self.gathered.passes

    @property
    def bias_numbers(self) -> BiasNumbers:
        """The numbers of passes that have a constant of their own, not to be changed."""
        return self.shown.admission.bias

    @property
    def gross_errors(self) -> int:
        """Raw samples that were left out as gross errors."""
        return self.gathered.gross_errors + self.shown.admission.gross_errors

    @property
    def is_opening(self) -> bool:
        """Whether there are so few cells that what the first ones decide is still open."""
        return self.shown.admission.first.is_open

    @property
    def beginning_notes(self) -> list[str]:
        """That a sensor had not begun to measure, in sentences; of merged maps, too."""
        return self.shown.admission.first.notes

    @property
    def value_notes(self) -> list[str]:
        """What was left out by its value, in sentences."""
        return [
            *refusal_note(self.refused, self.left_out, self.last_refusal),
            *self.beginning_notes,
            *gross_errors_note(
                self.cells.gross,
                self.raw_count,
                self.cells.newest_gross,
                self.settings.field_scale,
                self.settings.field_unit,
            ),
            *bursts_note(self.cells.bursts.count, self.cells.bursts.newest),
            *displaced_note(self.scores.run.displaced, self.scores.run.displaced_count),
            *self.gathered.notes,
        ]

    # --- the samples ------------------------------------------------------------------------------
    @property
    def cells(self) -> CellAverager:
        """The averager."""
        return self.gathered.cells

    @property
    def neighbours(self) -> NeighbouringCells:
        """White noise of samples that are alone in their cells."""
        return self.gathered.neighbours

    @property
    def recurring(self) -> Recurring:
        """Measurements that are no new ones."""
        return self.gathered.recurring

    @property
    def response(self) -> Response:
        """What a slow sensor's cells say of the field."""
        return self.gathered.response

    @property
    def drift(self) -> DriftWatch:
        """Whether the sensor drifts."""
        return self.gathered.drift

    @property
    def path_trace(self) -> Path:
        """The path driven, not to be changed."""
        return self.gathered.path_trace

    @property
    def path(self) -> Tensor:
        """Thinned positions of the samples: (K, 2) metres."""
        return self.path_trace.points()

    @property
    def driven(self) -> Tensor:
        """Points of the path on ground that was driven: (K, 2) m, without a pose's glitches."""
        return self.path_trace.driven()

    @property
    def path_starts(self) -> Tensor:
        """Points of the path to which no line leads (a new pass, a jump): (K,) bool."""
        return self.path_trace.starts()

    @property
    def position(self) -> tuple[float, float] | None:
        """Where the newest sample was taken, metres; None before the first."""
        newest = self.path_trace.newest
        return None if newest is None else (newest[0], newest[1])
