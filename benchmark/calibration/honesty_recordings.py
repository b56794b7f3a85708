"""The same questions on the recordings: leave one out; order, seed and start; a field that changed; gross errors."""

from __future__ import annotations

import sys

import numpy as np

from benchmark.protocol import positions, trials
from benchmark.robots import add_spikes
from benchmark.tables import Goal, Table
from gp_mapping.analysis.calibration import calibration_report
from gp_mapping.analysis.metrics import BANDS
from gp_mapping.analysis.residuals import LEVELS, residuals
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["tables"]

_FOLDS = (1, 2, 3, 4, 5)
_OFF = {"learn_time_offset": False, "heading_stddev": 0.0}
_COVERED = [(f"in {100 * level:g} %", ".3f") for level in LEVELS]


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"honesty: {text}", file=sys.stderr, flush=True)


def mapped(passes: list[Samples], **settings) -> MapSession:
    """One pass after the other from the default start."""
    session = MapSession(MapSettings(**settings))
    for samples in passes:
        session.break_pass()
        session.ingest(samples)
    session.break_pass()
    return session


def leave_one_out(quick: bool) -> tuple[Table, list[Goal]]:
    """Everything on; offset and heading off."""
    table = Table(
        "Leave one trial out, trials 1 to 5: everything on, and offset and heading off",
        [
            ("settings", ""),
            ("test trial", ""),
            ("RMSE µT", ".3f"),
            ("NLPD", ".3f"),
            *_COVERED,
            *((f"in 95 %, {band} m", ".3f") for band in BANDS),
            ("δ s", ".3f"),
            ("± s", ".3f"),
            ("turns µT", ".2f"),
            ("± µT", ".2f"),
        ],
    )
    goals = []
    for name, settings, highest, nlpd in (
        ("all on", {}, 2.25, 1.80),
        ("offset, heading off", _OFF, 3.2, 2.45),
    ):
        rows = []
        for k in _FOLDS[:2] if quick else _FOLDS:
            say(f"{name}, leave out {k}")
            train, test = trials([j for j in _FOLDS if j != k], quick), trials([k], quick)
            session = mapped(train, **settings)
            found = residuals(session, test, positions(train)).summary()
            c = calibration_report(session.map, session.noise_variance)
            rows.append(
                [
                    found["rmse_ut"],
                    found["nlpd"],
                    *found["coverage_levels"].values(),
                    *(found["bands"][b]["coverage"] for b in BANDS),
                    c.offset,
                    c.offset_stddev,
                    c.turning * 1e6,
                    c.turning_stddev * 1e6,
                ]
            )
            table.add(name, str(k), *rows[-1])
        average = [float(np.mean([v for v in column if v is not None])) for column in zip(*rows)]
        table.add(name, "mean", *average)
        goals += [
            Goal(f"Leave one out, {name}: RMSE", average[0], high=highest, unit="µT"),
            Goal(f"Leave one out, {name}: NLPD", average[1], high=nlpd),
            Goal(
                f"Leave one out, {name}: in 95 %",
                average[4],
                low=0.92 if not settings else 0.91,
                high=0.97,
            ),
        ]
        if not settings:
            goals += [
                Goal(
                    "Leave one out, all on: least in 95 % of a trial",
                    min(r[4] for r in rows),
                    low=0.89,
                ),
                *(
                    Goal(
                        f"Leave one out, all on: in 95 %, {b} m",
                        average[6 + i],
                        low=0.91,
                        high=0.97,
                    )
                    for i, b in enumerate(BANDS[:2])
                ),
            ]
    return table, goals


def varied(quick: bool) -> tuple[Table, list[Goal]]:
    """Trials 1, 2, 3, 5 against 4, with other orders, seeds and starts of the hyper-parameters."""
    table = Table(
        "Order, seed and start varied: trials 1, 2, 3, 5, tested on 4",
        [("what differs", ""), ("RMSE µT", ".3f"), ("NLPD", ".3f"), *_COVERED, ("δ s", ".3f")],
    )
    starts = {
        "ℓ starts at .5 m": {"lengthscale": 0.5},
        "ℓ starts at 2 m": {"lengthscale": 2.0},
        "s starts at 5 µT": {"signal_stddev": 5e-6},
        "s starts at 20 µT": {"signal_stddev": 20e-6},
        "δ starts at -.1 s": {"time_offset": -0.1},
    }
    runs = [
        ("default", (1, 2, 3, 5), {}),
        *((f"seed {s}", (1, 2, 3, 5), {"seed": s}) for s in (1, 2)),
        *(
            (f"order {', '.join(map(str, o))}", o, {})
            for o in ((5, 3, 2, 1), (3, 5, 1, 2), (2, 1, 5, 3))
        ),
        *((name, (1, 2, 3, 5), settings) for name, settings in starts.items()),
    ]
    rows, test = [], trials([4], quick)
    for name, order, settings in runs[:2] if quick else runs:
        say(name)
        train = trials(order, quick)
        session = mapped(train, **settings)
        found = residuals(session, test, positions(train)).summary()
        rows.append(
            [
                found["rmse_ut"],
                found["nlpd"],
                *found["coverage_levels"].values(),
                session.map.hyperparameters()["time_offset"],
            ]
        )
        table.add(name, *rows[-1])
    rmse, inside = np.array([r[0] for r in rows]), np.array([r[4] for r in rows])
    return table, [
        Goal(
            "Order, seed, start: largest deviation of RMSE from its median",
            100 * float(np.abs(rmse / np.median(rmse) - 1).max()),
            high=8.0,
            unit="%",
        ),
        Goal(
            "Order, seed, start: largest deviation of 95 % coverage from its median",
            float(np.abs(inside - np.median(inside)).max()),
            high=0.03,
        ),
    ]


def changed(quick: bool) -> tuple[Table, list[Goal]]:
    """Trials 1–5, then the first half of 6, where shelves were brought in; tested on the second half of 6."""
    table = Table(
        "A field that changed: trials 1 to 5, then the first half of 6; tested on its second half",
        [
            ("map", ""),
            ("RMSE µT", ".3f"),
            ("NLPD", ".3f"),
            *_COVERED,
            ("changes before 6", "d"),
            ("changes in 6", "d"),
            ("places", ""),
        ],
    )
    before, (six,) = trials(_FOLDS, quick), trials([6], quick)
    half = len(six) // 2
    first, second = six[:half], six[half:]
    found = {}
    for name, passes, settings in (
        ("changes followed", [*before, first], {}),
        ("not followed", [*before, first], {"follow_changes": False}),
        ("of the first half of 6 alone", [first], {}),
    ):
        say(f"changed field, {name}")
        session = mapped(passes[:-1], **settings)
        early = session.scores.change_count
        session.ingest(first)
        session.break_pass()
        result = residuals(session, [second], positions(passes)).summary()
        late = session.changes[early:]
        found[name] = result["rmse_ut"]
        table.add(
            name,
            result["rmse_ut"],
            result["nlpd"],
            *result["coverage_levels"].values(),
            early,
            len(late),
            "; ".join(f"({c.x:.1f}, {c.y:.1f})" for c in late) or "–",
        )
    followed = found["changes followed"]
    return table, [
        Goal(
            "Changed field: RMSE followed / not followed",
            followed / found["not followed"],
            high=0.999,
        ),
        Goal(
            "Changed field: RMSE followed / map of 6 alone",
            followed / found["of the first half of 6 alone"],
            high=1.0,
        ),
    ]


def spiked(quick: bool) -> tuple[Table, list[Goal]]:
    """Gross errors in the training trials; trial 4 as it is."""
    table = Table(
        "5 % gross errors in trials 1, 2, 3, 5; tested on 4 as it is",
        [
            ("size µT", "g"),
            ("RMSE µT", ".3f"),
            ("ratio", ".3f"),
            ("NLPD", ".3f"),
            *_COVERED,
            ("left out", ".3f"),
        ],
    )
    clean, test, first = trials((1, 2, 3, 5), quick), trials([4], quick), None
    for size in (0.0, 5.0, 50.0, 500.0):
        say(f"spikes of {size:g} µT in the recordings")
        train = (
            [add_spikes(t, 0.05, size * 1e-6, k) for k, t in enumerate(clean)] if size else clean
        )
        session = mapped(train)
        found = residuals(session, test, positions(train)).summary()
        first = first or found["rmse_ut"]
        table.add(
            size,
            found["rmse_ut"],
            found["rmse_ut"] / first,
            found["nlpd"],
            *found["coverage_levels"].values(),
            session.cells.gross / sum(map(len, train)),
        )
    ratio, inside = max(row[2] for row in table.rows), min(row[6] for row in table.rows)
    return table, [
        Goal("Recordings, 5 % gross errors: largest ratio of RMSE", ratio, high=1.10),
        Goal("Recordings, 5 % gross errors: least 95 % coverage", inside, low=0.90),
    ]


def tables(quick: bool) -> tuple[list[Table], list[Goal]]:
    """All of them. RecordingsAbsent where there are none."""
    made, goals = [], []
    for part in (leave_one_out, varied, changed, spiked):
        table, more = part(quick)
        print(table.markdown(), flush=True)
        made.append(table)
        goals += more
    return made, goals
