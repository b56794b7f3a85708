"""One-step-ahead scores: how well a map of a while ago predicted the samples that come now.

From them come the noise that is reported with predictions,

    σ² = argmin Σ [log(v + σ²) + r²/(v + σ²)] / τ

(docs/how_it_works.md, "Honest intervals"), the weight of a gross error, and the news that the field
has changed. All of it happens at times that the samples fix, never when a question comes: the same
samples give the same numbers, live or offline.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, replace
from statistics import median_low

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.field_map import VECTOR, FieldMap, Snapshot
from gp_mapping.core.hyper.freedom import degrees_of_freedom, interval_factor, noise_factor
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.types import Prediction, Samples
from gp_mapping.mapping.alarms.error_run import ErrorRun, number_of
from gp_mapping.mapping.alarms.kept_posteriors import KeptPosteriors
from gp_mapping.mapping.motion.attitude import AttitudeLag
from gp_mapping.mapping.repeated.within_range import tells_noise, told_mean
from gp_mapping.mapping.scoring.change import Change, ChangeDetector, student_weight
from gp_mapping.mapping.scoring.error_shape import ErrorShape, shape_of_errors
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.scoring.predictive_noise import PredictiveNoise
from gp_mapping.mapping.scoring.suspects import Judged
from gp_mapping.settings.mapping import MapSettings

__all__ = ["OneStepAhead"]

_PERIOD = 0.1  # s between scored samples
_REFIT = 20  # new scores after which the noise is fitted again
_SETTLED = 60  # learning steps before surprises count
_LARGEST = 9.0  # squared standardised error that the local scale counts: one surprise widens little
_MOST_SURPRISING = 1e30  # squared standardised error beyond which a cell's weight does not fall
_NEWEST = 32  # squared standardised errors of cells, whose median is usual
_KNOWN = 16  # of them from which on it is known what is usual
_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal
_CHANGES = 100  # newest changes kept for reports


class OneStepAhead:
    """Picks raw samples, scores them against an older posterior, fits the noise, finds changes.

    Args:
        settings: with a number for each automatic start.

    Attributes:
        noise: window of scores, from which the noise is fitted.
        detector: of changes of the field.
        local: scale of variances by place.
        lag: of the attitude, for vectors.
        run: the newest cells, which tell a change from poses that lie off.
        changes: the newest changes that were found.
        change_count: number of all changes.
        weakened: number of cells that were weakened.
        fitted: noise variance of each component, squared SI; None before the first fit.
        shape: of the distribution of errors, at the last fit.
        white_variance: of one raw sample, squared SI.
        white_averaged: what averaging leaves of it in a cell, squared SI.
    """

    def __init__(self, settings: MapSettings):
        self.settings = settings
        self.noise = PredictiveNoise(settings.score_window)
        self._cell = settings.cell_length  # of the longest that come now, m
        self.detector = ChangeDetector(5 * self._cell)
        self.local = LocalScale(_width(settings))
        self.lag = AttitudeLag()
        self.run = ErrorRun()

        self.changes: deque[Change] = deque(maxlen=_CHANGES)
        self.change_count, self.weakened, self.fitted, self._fresh = 0, 0, None, 0
        self.white_variance = self.white_averaged = 0.0
        # LocalScale.everywhere at the last fit
        self._widened = 1.0
        # of the scores at the last fit
        self.shape = ErrorShape()
        # raw samples that wait for their score: x, y, path length, heading, yaw rate
        self._picked: list[tuple] = []
        # stamp and path length of the last pick
        self._last: tuple[float, float] | None = None
        self._before = KeptPosteriors(settings.score_distance, settings.follow_changes)
        # a snapshot's prediction of the cell that is scored now, for `detect_change`
        self._ahead: tuple[Snapshot, Prediction] | None = None
        # squared standardised errors of the newest cells, as of `judge`
        self._surprises: deque[float] = deque(maxlen=_NEWEST)

    def restart(self, settings: MapSettings) -> None:
        """Go on with the settings of a map that was made again with other starts.

        The scores are kept. The local scale takes its width from the new start while it has no
        scores; those of a rough start are left out.
        """
        self.settings = settings
        if not len(self.local):
            self.local = LocalScale(_width(settings))

    @property
    def is_needed(self) -> bool:
        """Whether the settings need scores; without them no samples are picked."""
        return self.settings.predictive_noise or self.settings.follow_changes

    def note_white(self, single: float, averaged: float) -> None:
        """Note the white noise that the cells have shown so far.

        Args:
            single: variance of it in one raw sample, SI².
            averaged: what is left of it in the mean of a cell, SI².
        """
        self.white_variance, self.white_averaged = single, averaged

    def note_cells(self, length: float) -> None:
        """Note the length of the cells that come, m; longer ones have patches as long, anew."""
        self._cell = max(length, self.settings.cell_length)
        if self.detector.size != 5 * self._cell:
            self.detector = ChangeDetector(5 * self._cell)

    def break_pass(self) -> None:
        """Forget the last pick: the next sample is not one step ahead of it."""
        self._last = None
        self.run.end_pass()

    def pick(
        self,
        x: list[float],
        y: list[float],
        stamp: float,
        length: float,
        heading=None,
        rate: float = 0.0,
    ) -> None:
        """Pick a raw sample for scoring, if it is due: ten a second, while the robot moves.

        A standing robot measures one thing over and over.

        Args:
            x: (2,) m.
            y: (C,) SI.
            stamp: s.
            length: of the path up to it, m.
            heading: (2,) unit vector, or None.
            rate: yaw rate, rad/s.
        """
        self.pick_rows([x], [y], [stamp], [length], [heading], [rate])

    def pick_cell(self, cell: Samples, length: float) -> None:
        """Pick the rows of a cell, as of a sensor of which no raw sample says what the field is.

        Args:
            cell: with stamps.
            length: of the path up to it, m.
        """
        rows = [part.tolist() for part in (cell.x, cell.y, cell.stamp)]
        n = len(cell)
        self.pick_rows(*rows, [length] * n, [None] * n, [0.0] * n)

    def pick_rows(
        self,
        positions: list,
        values: list,
        stamps: list[float],
        lengths: list[float],
        headings: list,
        rates: list[float],
    ) -> None:
        """Pick raw samples as `pick` does each in turn; none where nobody would score them.

        Args:
            positions: (2,) m of each sample.
            values: (C,) SI.
            stamps: s.
            lengths: of the path up to each sample, m.
            headings: (2,) unit vectors, or None.
            rates: yaw rates, rad/s.
        """
        if not self.is_needed:
            return

        last, step = self._last, self.settings.cell_length / 10
        # the path only grows
        if last is not None and lengths and lengths[-1] - last[1] < step:
            return
        for i, (stamp, length) in enumerate(zip(stamps, lengths)):
            # by path and by time: a standing robot is not scored
            if last is None or (length - last[1] >= step and abs(stamp - last[0]) >= _PERIOD):
                last = (stamp, length)
                self._picked.append(
                    (list(positions[i]), list(values[i]), length, headings[i], rates[i])
                )

        self._last = last

    def keep_posterior(self, length: float, field: FieldMap, place: Tensor) -> None:
        """Keep a posterior for later scores each time the path has grown by half a score_distance.

        Args:
            length: of the path, m.
            field: the map.
            place: (1, 2) m, the robot; the posterior is needed around it only.
        """
        self._before.keep(length, field, place, 2 * self._cell)

    def leave(self, length: float) -> None:
        """Of a cell that the map leaves out: where that goes on, nothing is one step ahead of it.

        Args:
            length: of the path, m.
        """
        self._before.leave(length)

    def predicts_finite(self, x: Tensor) -> bool:
        """Whether all posteriors that are kept predict finite values at x (N, 2) m."""
        predictions = [
            kept.predict_in_pass(x, NO_PASS, torch.zeros_like(x), None)
            for kept in self._before.posteriors
        ]
        return all(
            bool(torch.isfinite(p.mean).all() and torch.isfinite(p.variance).all())
            for p in predictions
        )

    def variance(self, field: FieldMap) -> float:
        """Variance of one new measurement about the latent field, squared SI, mean over components.

        From scores, else the model's.
        """
        each = self.component_variances(field)
        return float(each[0]) if len(each) == 1 else float(each.mean())

    def component_variances(self, field: FieldMap) -> Tensor:
        """Variance of one new measurement of each component: (C,), squared SI."""
        if self.fitted is None or not self.settings.predictive_noise:
            return self._expected(field)
        return torch.tensor(self.fitted, dtype=torch.float64)

    def _expected(self, field: FieldMap) -> Tensor:
        """Noise variance of one new measurement before there are scores: (C,), squared SI.

        The model's, which is of a cell, with all of the white part. Where neither cell mates nor
        neighbours tell the white part, the model's may be known to a factor only (freedom.py).
        """
        model = field.noise_variance().cpu()
        if not self.white_variance and self.settings.metric:
            return model * noise_factor(field.learned())
        return model + max(0.0, self.white_variance - self.white_averaged)

    def score(
        self,
        velocity: Tensor,
        field: FieldMap,
        number: float,
        cell: Samples | None = None,
        length: float = 0.0,
    ) -> None:
        """Score the picked samples, each by the newest posterior that is a score_distance older.

        Args:
            velocity: (2,) m/s, at which they were driven.
            field: the map.
            number: of their pass, whose constant is in the predictions.
            cell: the cell that they are of, which `detect_change` will look at; where both use one
                posterior, it is evaluated once for both.
            length: of the path at the cell, m.
        """
        self._ahead, ahead = None, None if cell is None else self._before.before(length)
        # samples that share a posterior are predicted together
        groups: dict[int, tuple] = {}
        for x, y, length, heading, rate in self._picked:
            posterior = self._before.before(length)
            if posterior is not None:
                groups.setdefault(id(posterior), (posterior, []))[1].append((x, y, heading, rate))

        self._picked = []
        if not groups:
            return

        current = self.component_variances(field)
        for posterior, rows in groups.values():
            places, values, headings, rates = zip(*rows)
            x, y = (torch.tensor(part, dtype=torch.float64) for part in (places, values))
            known = all(h is not None for h in headings)
            heading = torch.tensor(headings, dtype=torch.float64) if known else None

            prediction = self._asked(
                posterior, x, number, velocity, heading, cell if posterior is ahead else None
            )

            if self.settings.censored:
                inside = tells_noise(y, prediction, self.settings)
                if not bool(inside.any()):
                    continue
                x, y = x[inside], y[inside]
                prediction = Prediction(
                    prediction.mean[inside], prediction.variance[inside], prediction.noise_variance
                )
            # five standard deviations and beyond is a change or a gross error: it counts as five
            total = prediction.variance.cpu() + current
            limit = 5.0 * total.sqrt()
            residual = y - prediction.mean.cpu()
            residual = torch.minimum(torch.maximum(residual, -limit), limit)

            self.noise.add(residual, prediction.variance)
            if VECTOR in field.capabilities:  # in display units
                self.lag.add(
                    np.array(rates),
                    *(
                        tensor.cpu().numpy() / self.settings.field_scale
                        for tensor in (residual, prediction.mean)
                    ),
                    total.numpy() / self.settings.field_scale**2,
                )
            # the variance that is published, but for the local scale itself
            claimed = self._widened * prediction.variance.cpu() + current
            self.local.add(x, (residual.square() / claimed).clamp_max(_LARGEST).mean(1))
            self._fresh += x.shape[0]

        if self._fresh >= _REFIT or self.fitted is None:
            self._widened = interval_factor(degrees_of_freedom(field.learned()))
            self._fit(field)

    def _fit(self, field: FieldMap) -> None:
        """Find the noise, and what errors are distributed like, by the scores of the window."""
        self.fitted = self.noise.variances(self._expected(field).tolist(), self.white_variance)
        self._fresh = 0
        claimed = self._widened * self.noise.latent + self.component_variances(field)
        square = self.noise.residual_square / claimed
        self.shape = shape_of_errors(square.mT.reshape(-1).numpy())

    def degrees(self, field: FieldMap, count: np.ndarray) -> np.ndarray:
        """Degrees of freedom of Student's t that errors are distributed like; infinite: normal.

        What scores tell, and what is unknown of θ: 2/ν is the variance of log v, so 1/ν adds up.

        Args:
            field: the map.
            count: of the scores around each place (N,).
        """
        inverse = 1.0 / self.shape.degrees_near(count)
        inverse += 1.0 / degrees_of_freedom(field.learned())
        return np.divide(1.0, inverse, out=np.full_like(inverse, math.inf), where=inverse > 0.0)

    def _asked(
        self,
        old: Snapshot,
        x: Tensor,
        number: float,
        velocity: Tensor,
        heading: Tensor | None,
        cell: Samples | None,
    ) -> Prediction:
        """Predict the picked samples x (n, 2), and their cell, which `detect_change` needs."""
        passing = velocity.expand(len(x), 2)
        # asked apart where headings or passes differ
        if cell is None or (cell.heading is None) != (heading is None) or number_of(cell) != number:
            return old.predict_in_pass(x, number, passing, heading)

        joint = None if heading is None else torch.cat([heading, cell.heading])
        prediction = old.predict_in_pass(
            torch.cat([x, cell.x]), number, torch.cat([passing, cell.velocity]), joint
        )

        # the picked samples, then the cell
        parts = [
            Prediction(prediction.mean[part], prediction.variance[part], prediction.noise_variance)
            for part in (slice(len(x)), slice(len(x), None))
        ]
        self._ahead = old, parts[1]
        return parts[0]

    def scale(self, field: FieldMap) -> LocalScale:
        """The local scale of variances as of now."""
        self.local.everywhere = interval_factor(degrees_of_freedom(field.learned()))
        return self.local

    def is_settled(self, field: FieldMap) -> bool:
        """Whether hyper-parameters are past their first steps, so that surprises mean something."""
        return field.started and (field.learning_steps is None or field.learning_steps >= _SETTLED)

    def detect_change(self, batch: Samples, length: float, field: FieldMap, recent: int) -> None:
        """Look for a change of the field; where there is one, forget what was known there.

        Args:
            batch: the newest cell.
            length: of the path at it, m.
            field: the map.
            recent: so many of the newest samples stay.
        """
        old = self._before.before(length)
        if not self.settings.follow_changes or old is None or not self.is_settled(field):
            return

        same = self._ahead is not None and self._ahead[0] is old
        p, noise = self._ahead[1] if same else _in_pass(old, batch), self.variance(field)
        self._ahead = None

        # one score for all of a batch: raw samples of one moment are not independent witnesses
        residual, latent = (
            float((batch.y - told_mean(p, self.settings)).mean()),
            float(p.variance.mean()),
        )
        square, alarm = None, None
        if latent <= noise:  # else hardly known before: an error shows a guess, not a change
            place, variance = batch.x.mean(0).tolist(), latent + noise
            stamp = 0.0 if batch.stamp is None else float(batch.stamp[-1])
            alarm = self.detector.add(place, residual, variance, stamp, length)
            square = residual**2 / variance

        self.run.add(batch, square, alarm, recent)
        self.settle_alarms(field, last=False)

    def settle_alarms(self, field: FieldMap, last: bool = True) -> None:
        """Forget what was known where alarms that wait are changes of the field.

        Args:
            field: the map.
            last: whether no more cells come that could tell.
        """
        if not self.run.alarms:
            return
        radius = field.hyperparameters()["lengthscale"]
        for change in self.run.decide(self._before.oldest, self.variance(field), radius, last):
            self.changes.append(change)
            self.change_count += 1
            # the field has changed here: forget, but for what has just seen it
            place = torch.tensor([[change.x, change.y]], dtype=torch.float64)
            field.forget_near(place, radius, self.run.recent)
            self.local.forget_near([change.x, change.y], radius)

    def join(self, other: "OneStepAhead", field: FieldMap) -> None:
        """Add another session's scores.

        Args:
            other: its scores.
            field: the map, which has taken the other's map in.
        """
        counts = len(self.noise), len(other.noise)
        # means over both, weighted by their scores
        if sum(counts):
            self.white_variance, self.white_averaged = (
                (counts[0] * own_variance + counts[1] * other_variance) / sum(counts)
                for own_variance, other_variance in (
                    (self.white_variance, other.white_variance),
                    (self.white_averaged, other.white_averaged),
                )
            )

        self.noise.join(other.noise)
        self.local.join(other.local)
        self.run.join(other.run)
        self.changes.extend(other.changes)
        self.change_count, self.weakened = (
            self.change_count + other.change_count,
            self.weakened + other.weakened,
        )

        # the noise of both, at once and not after the next scores
        if len(self.noise):
            self._fit(field)

    def judge(self, batch: Samples, field: FieldMap, bursts: bool = False) -> Judged:
        """Compare a cell with the map's prediction; one that is far may be a gross error.

        Far is beyond five standard deviations, by what is usual for the newest cells: a start that
        is too smooth, or too quiet, makes no gross errors of the field. So the map need not have
        learned for long. As a gross error the cell's sensor variance grows, so that it weighs as
        student_weight has it. The next cells decide whether it is one (suspects.py).

        Args:
            batch: the cell.
            field: the map, which has not seen it.
            bursts: so many samples lie far from others that none of them is an error.
        """
        s = self.settings
        if not (s.robust and s.metric and s.cells and field.started):
            return Judged(batch, batch, None)

        prediction = _in_pass(field, batch)  # of right now, not of an older posterior
        model_noise = field.hyperparameters()["noise_stddev"] ** 2
        noise = model_noise + float(batch.sensor_variance[0]) / float(batch.count[0])

        residual = batch.y - told_mean(prediction, s)
        square = float(residual.square().mean()) / (float(prediction.variance.mean()) + noise)
        square = min(square, _MOST_SURPRISING)
        judges, usual = self.can_judge(field), self._usual_surprise()
        self._surprises.append(square)
        if not judges or bursts:
            return Judged(batch, batch, None, square)

        weight = student_weight(square / usual)
        weakened = batch
        if weight < 1.0:
            # model noise + sensor variance / count is then noise / weight
            variance = batch.count * (noise / weight - model_noise)
            weakened = replace(batch, sensor_variance=variance)
        return Judged(batch, weakened, residual.mean(0).tolist(), square)

    def can_judge(self, field: FieldMap) -> bool:
        """Whether cells are judged: the map has settled, or it is known what is usual."""
        return len(self._surprises) >= _KNOWN or self.is_settled(field)

    def _usual_surprise(self) -> float:
        """Squared standardised error that is usual, by the median of the newest; at least 1."""
        if len(self._surprises) < _KNOWN:
            return 1.0
        return max(1.0, median_low(self._surprises) / _MEDIAN_OF_SQUARE)

    def state_dict(self) -> dict:
        """Return scores, changes found, samples that wait for a score, and snapshots of the map."""
        return {
            "noise": self.noise.state_dict(),
            "detector": self.detector.state_dict(),
            "run": self.run.state_dict(),
            "local": self.local.state_dict(),
            "changes": [asdict(c) for c in self.changes],
            "change_count": self.change_count,
            "white": self.white_variance,
            "white_averaged": self.white_averaged,
            "weakened": self.weakened,
            "fitted": self.fitted,
            "fresh": self._fresh,
            "widened": self._widened,
            "shape": list(self.shape),
            "surprises": list(self._surprises),
            "picked": [
                {"x": x, "y": y, "length": n, "heading": h, "rate": w}
                for x, y, n, h, w in self._picked
            ],
            "lag": self.lag.state_dict(),
            "last": None if self._last is None else list(self._last),
            "snapshots": self._before.state_dict(),
        }

    def load_state_dict(self, state: dict, field: FieldMap) -> None:
        """Continue where state_dict was taken.

        Args:
            state: as of state_dict, also of older versions.
            field: the map, whose snapshots are among it.
        """
        self.noise.load_state_dict(state["noise"])
        self.detector.load_state_dict(state["detector"])
        if "run" in state:  # absent in maps of a version that took every alarm for a change
            self.run.load_state_dict(state["run"])
        self.local.load_state_dict(state["local"])
        self.changes.extend(Change(**c) for c in state["changes"])
        self.white_variance, self.white_averaged = (
            float(state.get(name, 0.0)) for name in ("white", "white_averaged")
        )
        self.change_count, self.weakened = int(state["change_count"]), int(state["weakened"])
        self.fitted, self._fresh = state["fitted"], int(state["fresh"])
        self._widened = float(state.get("widened", 1.0))
        self.shape = ErrorShape(*map(float, state.get("shape", ErrorShape())))
        # absent in maps of a version that judged by what a map says alone
        self._surprises.extend(map(float, state.get("surprises", [])))
        self.lag.load_state_dict(state["lag"])
        self._picked = [
            tuple(p[k] for k in ("x", "y", "length", "heading", "rate"))
            # an older version picked samples that nobody scored
            for p in (state["picked"] if self.is_needed else [])
        ]
        self._last = None if state["last"] is None else tuple(state["last"])
        self._before.load_state_dict(state["snapshots"], field)


def _in_pass(field: FieldMap | Snapshot, batch: Samples) -> Prediction:
    """Prediction of a cell's measurement in its pass, the pass's constant included."""
    return field.predict_in_pass(batch.x, number_of(batch), batch.velocity, batch.heading)


def _width(settings: MapSettings) -> float:
    """Half a lengthscale, m: of the prior, else of the start, else of a bare map's."""
    return 0.5 * (settings.lengthscale_prior or settings.lengthscale or 0.6)
