"""Offline fits against what is learned on the way: `python -m benchmark fits [--quick] [--only MODELS]`.

Each of trials 1 to 5 left out once: the streamed map of the others, and the map at the hyper-parameters that
`gp-mapping fit` finds from all of their cells at once, tested on the one left out. For the anytime family: iterations
until the stochastic natural gradients are within 1 % of their limit, with blocks drawn in shuffled rounds.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmark.protocol import positions, trials
from benchmark.tables import Goal, Part, Table
from gp_mapping.analysis.residuals import residuals
from gp_mapping.commands.fit.fitting import fit_and_map
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["TABLES", "run"]

TABLES = ("dual_svgp", "solve_gp", "wiski", "exact", "fitc", "pitc", "pic")
_FOLDS = (1, 2, 3, 4, 5)


def drive(session: MapSession, passes: list[Samples]) -> MapSession:
    """Each pass in turn."""
    for samples in passes:
        session.break_pass()
        session.ingest(samples)
    session.break_pass()
    return session


def leave_one_out(model: str, quick: bool) -> tuple[Table, list[Goal]]:
    """Streamed and fitted, on each trial that was left out."""
    table = Table(
        f"Leave one trial out, {model}: streamed and fitted",
        [
            ("test trial", ""),
            ("RMSE µT", ".3f"),
            ("fitted", ".3f"),
            ("NLPD", ".3f"),
            ("fitted", ".3f"),
            ("in 95 %", ".3f"),
            ("fitted", ".3f"),
            ("evidence gained", ".1f"),
            ("s", ".1f"),
            ("t to 1 %", "d"),
            ("blocks", "d"),
        ],
    )
    rows = []
    for k in _FOLDS[:2] if quick else _FOLDS:
        train, test = trials([j for j in _FOLDS if j != k], quick), trials([k], quick)
        streamed = MapSession(MapSettings(model=model))
        streamed.taken = []
        drive(streamed, train)
        begun = time.process_time()
        made = fit_and_map(streamed, lambda session, train=train: drive(session, train))
        seconds = time.process_time() - begun
        one, other = (
            residuals(session, test, positions(train)).summary()
            for session in (streamed, made.session)
        )
        gain = made.fit.evidence_after - made.fit.evidence_before
        limit = made.limit or {"within": None, "blocks": None}
        rows.append(
            [
                one["rmse_ut"],
                other["rmse_ut"],
                one["nlpd"],
                other["nlpd"],
                one["coverage"],
                other["coverage"],
                gain,
                seconds,
            ]
        )
        table.add(str(k), *rows[-1], limit["within"], limit["blocks"])
        print(
            f"fits: {model}, without {k}: RMSE {one['rmse_ut']:.3f}, {other['rmse_ut']:.3f}; NLPD "
            f"{one['nlpd']:.3f}, {other['nlpd']:.3f}; {gain:.1f} nats, {seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    mean = np.array(rows).mean(0).tolist()
    table.add("mean", *mean, None, None)
    return table, [
        Goal(f"{model}: RMSE fitted / streamed", mean[1] / mean[0], high=1.0),
        Goal(f"{model}: NLPD fitted − streamed", mean[3] - mean[2], high=0.0),
    ]


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """RecordingsAbsent where there are none."""
    made = [leave_one_out(model, quick) for model in only]
    return Part(
        "fits", [goal for _, goals in made for goal in goals], [table for table, _ in made], where
    )
