"""Stream trials through a MapSession, and score whatever predicts: shared by the accuracy tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from benchmark.recordings import trial
from gp_mapping.analysis.metrics import BANDS, PredictionScores
from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.models.exact import ExactGP
from gp_mapping.core.registry import build_map
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = [
    "BATCH",
    "GIVEN",
    "TEST",
    "TRAIN",
    "columns",
    "distance",
    "evaluate",
    "exact_beside",
    "row",
    "stream",
]

TRAIN, TEST = (1, 2, 3, 5), 4
BATCH = 100
LENGTHSCALE, SIGNAL, NOISE = 0.446, 160.0, 1.2  # m, µT², µT²
# Nothing is learned, the time offset included: only so may a map be held against the judges, which know none.
GIVEN = {
    "lengthscale": LENGTHSCALE,
    "signal_stddev": SIGNAL**0.5 * 1e-6,
    "noise_stddev": NOISE**0.5 * 1e-6,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
}


def stream(trials: list[Samples], keep: bool = False, **settings) -> MapSession:
    """A session that has seen the trials one after the other, each a pass of its own, in batches of 100.

    keep: the cells that its map took are in `taken`.
    """
    session = MapSession(MapSettings(**settings))
    session.taken = [] if keep else None
    for samples in trials:
        session.break_pass()
        for start in range(0, len(samples), BATCH):
            session.ingest(samples[start : start + BATCH])
    session.finish()
    return session


def exact_beside(session: MapSession) -> ExactGP:
    """The exact GP at the θ of the session's map, given the same cells. The session was streamed with `keep`."""
    exact = build_map(
        replace(
            session.settings,
            model="exact",
            learn_hyperparameters=False,
            learn_time_offset=False,
            max_exact_samples=50000,
        ),
        centre=session.map.centre,
    )
    exact.adopt(session.map.current_map.theta)
    for cells in session.taken:
        exact.update(cells)
    return exact


def distance(field: FieldMap, judge: FieldMap, x: Tensor) -> tuple[float, float]:
    """How far a map lies from its judge at x (N, 2) m: its mean in the judge's sd, log of the ratio of sd; both rms."""
    told, right = field.predict(x), judge.predict(x)
    mean = (told.mean - right.mean) / right.variance.sqrt()
    ratio = 0.5 * (told.variance / right.variance).log()
    return float(mean.square().mean().sqrt()), float(ratio.square().mean().sqrt())


@dataclass(frozen=True)
class _Still:
    """A predictor that is asked for the field alone."""

    inner: object

    def predict(self, x, velocity=None, heading=None):
        return self.inner.predict(x)


def evaluate(model, trained: np.ndarray, test: Samples, still: bool = False) -> dict:
    """RMSE, NLPD, coverage, n, bands, as `gp-mapping map --test` scores; `trained`: (N, 2) positions.

    still: predict the field at the sample's place, not what the robot measures there as it moves (time offset, its own
    field).
    """
    if still:
        model = _Still(model)
    scores = PredictionScores(model, trained)
    scores.add(test)
    return scores.result()


def columns(first: str) -> list[tuple[str, str]]:
    """The columns that `row` fills."""
    return [
        (first, ""),
        ("M", "d"),
        ("RMSE µT", ".3f"),
        ("NLPD", ".3f"),
        ("in 95 %", ".3f"),
        *((f"{what}, {band} m", ".3f") for band in BANDS for what in ("RMSE", "in 95 %")),
        ("s", ".1f"),
    ]


def row(name: str, inducing: int | None, result: dict, seconds: float | None) -> list:
    """One line of a table of scores."""
    bands = [result["bands"][b][k] for b in BANDS for k in ("rmse_ut", "coverage")]
    return [name, inducing, result["rmse_ut"], result["nlpd"], result["coverage"], *bands, seconds]


def average(results: list[dict]) -> dict:
    """Mean over runs of each score; of a band over the runs that have samples in it."""

    def mean(parts: list[dict]) -> dict:
        found = [p for p in parts if p["n"]]
        return {
            k: sum(p[k] for p in found) / len(found) if found else None
            for k in ("rmse_ut", "nlpd", "coverage")
        }

    return mean(results) | {"bands": {b: mean([r["bands"][b] for r in results]) for b in BANDS}}


def positions(trials: list[Samples]) -> np.ndarray:
    """(N, 2) of all samples."""
    return torch.cat([t.x for t in trials]).numpy()


def trials(numbers, quick: bool) -> list[Samples]:
    """Those trials; the first 700 samples of each where it is to be quick."""
    return [trial(k, 700 if quick else None) for k in numbers]
