"""Does σ mean what it says, and is what is wrong with the robot found? Simulated truth, and the recordings."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace

import numpy as np

from benchmark.calibration import honesty_recordings
from benchmark.calibration.honesty_changes import changed_worlds, unchanged_worlds
from benchmark.recordings import RecordingsAbsent
from benchmark.robots import Robot, add_spikes, survey
from benchmark.tables import Goal, Part, Table
from gp_mapping.analysis.calibration import Calibration, calibration_report
from gp_mapping.analysis.residuals import LEVELS, residuals
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["Outcome", "run", "run_robot"]

DELAYS = (-0.1, 0.0, 0.1, 0.3)  # s
NOISES = {
    "white .2 µT": {},
    "OU .4 µT, .7 s": {"correlated": 0.4e-6},
    "OU 1 µT, 2 s": {"correlated": 1e-6, "correlation": 2.0},
}
_COVERED = [(f"in {100 * level:g} %", ".3f") for level in LEVELS]


@dataclass(frozen=True)
class Outcome:
    """One simulated robot: what the map reports of it, and how it does on a test drive. RMSE in µT."""

    calibration: Calibration
    coverage: list[float]
    rmse: float
    nlpd: float
    changes: int
    gross: int


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"honesty: {text}", file=sys.stderr, flush=True)


def run_robot(mapping: Samples, test: Samples, **settings) -> Outcome:
    """Map one drive from the default start, score the other."""
    session = MapSession(MapSettings(**settings))
    session.ingest(mapping)
    session.finish()
    found = residuals(session, [test], mapping.x.numpy())
    scores, report = found.summary(), session.report()
    return Outcome(
        calibration_report(session.map, session.noise_variance),
        list(found.coverage().values()),
        scores["rmse_ut"],
        scores["nlpd"],
        report["changes"],
        report["gross_errors"],
    )


def mean(values) -> float:
    return float(np.mean(list(values)))


def covered(outcomes: list[Outcome]) -> list[float]:
    """Mean coverage at each level."""
    return np.mean([o.coverage for o in outcomes], axis=0).tolist()


def offsets(seeds: range) -> tuple[Table, list[Goal]]:
    """δ and coverage, for each delay and noise."""
    table = Table(
        "Time offset and coverage: one drive of 63 m maps, another tests; no lever arm, nothing turns",
        [
            ("noise per axis", ""),
            ("δ s", ".1f"),
            ("mean error s", ".4f"),
            ("rms error s", ".4f"),
            ("in use, rms error s", ".4f"),
            ("stated sd s", ".4f"),
            ("rms of error/sd", ".2f"),
            ("within goal", ".2f"),
            ("false heading", ".2f"),
            ("false changes", ".2f"),
            ("RMSE µT", ".3f"),
            ("NLPD", ".3f"),
            *_COVERED,
        ],
    )
    good, false, levels = [], [], []
    for name, noise in NOISES.items():
        for delay in DELAYS:
            outcomes = []
            for seed in seeds:
                say(f"{name}, δ {delay}, seed {seed}")
                outcomes.append(run_robot(*survey(Robot(delay=delay, **noise), seed)))
            seen = [o.calibration for o in outcomes]
            error = np.array([c.offset - delay for c in seen])
            used = np.array([c.offset_in_use - delay for c in seen])
            sd = np.array([c.offset_stddev for c in seen])
            within = np.abs(used) <= max(0.01, 0.1 * abs(delay))
            good += within.tolist()
            false += [c.has_offset for c in seen] if delay == 0 else []
            levels.append(covered(outcomes))
            table.add(
                name,
                delay,
                error.mean(),
                _rms(error),
                _rms(used),
                sd.mean(),
                _rms(error / sd),
                within.mean(),
                mean(c.has_body_field for c in seen),
                mean(o.changes for o in outcomes),
                mean(o.rmse for o in outcomes),
                mean(o.nlpd for o in outcomes),
                *levels[-1],
            )
    table.notes = [
        f"{len(seeds)} seeds each, world and noise. Within goal: the offset that the map uses is within "
        "10 ms or 10 %. False heading: fraction of runs that report a part that turns; false changes: mean "
        "number. sd: as `calibration_report` states it. The robot's speed is .3 m/s with stops at corners."
    ]
    worst = np.abs(np.array(levels) - LEVELS).max(0)
    return table, [
        Goal("δ within 10 ms or 10 %: fraction of the runs", mean(good), low=0.95),
        Goal("δ = 0: fraction of runs that report an offset", mean(false), high=0.05),
        *(
            Goal(
                f"coverage at {100 * level:g} %, simulated: largest deviation of a setting",
                worst[i],
                high=0.03,
            )
            for i, level in enumerate(LEVELS)
        ),
    ]


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def levers(seeds: range) -> tuple[Table, list[Goal]]:
    """Lever arms with learn_lever_arm, δ = .1 s."""
    table = Table(
        "Lever arm: learn_lever_arm on, δ = .1 s, OU noise of .4 µT",
        [
            ("ahead m", ".2f"),
            ("left m", ".2f"),
            ("speed m/s", ""),
            ("left, rms error m", ".4f"),
            ("stated sd m", ".4f"),
            ("sum along the way, rms error m", ".4f"),
            ("stated sd m", ".4f"),
            ("ahead, rms error m", ".4f"),
            ("stated sd m", ".4f"),
            ("reported as separable", ".2f"),
        ],
    )
    for arm in ((0.0, 0.0), (0.05, 0.0), (0.0, 0.05), (-0.05, -0.05)):
        seen = []
        for seed in seeds:
            say(f"lever {arm}, seed {seed}")
            robot = Robot(delay=0.1, arm=arm, correlated=0.4e-6)
            seen.append(run_robot(*survey(robot, seed), learn_lever_arm=True).calibration)
        table.add(
            *arm,
            "0 to .3",
            _rms(np.array([c.across - arm[1] for c in seen])),
            mean(c.across_stddev for c in seen),
            _rms(np.array([c.lag - (0.1 * c.speed - arm[0]) for c in seen])),
            mean(c.lag_stddev for c in seen),
            _rms(np.array([c.along - arm[0] for c in seen])),
            mean(c.along_stddev for c in seen),
            mean(c.separable for c in seen),
        )
    left = max(row[3] for row in table.rows)
    return table, [
        Goal("Lever arm to the left: largest rms error", left, high=0.01, unit="m"),
        Goal(
            "Sum of delay and arm along the way: largest rms error",
            max(r[5] for r in table.rows),
            high=0.01,
            unit="m",
        ),
    ]


def headings(seeds: range) -> tuple[Table, list[Goal]]:
    """A constant bias in the robot's frame: the amplitude of what turns is known by driving without it."""
    table = Table(
        "What turns with the robot: a bias along its forward axis, OU noise of .4 µT, δ = 0",
        [
            ("bias µT", ".1f"),
            ("turns in truth µT", ".3f"),
            ("found µT", ".3f"),
            ("rms error of w µT", ".3f"),
            ("stated sd µT", ".3f"),
            ("reported", ".2f"),
            ("false offset", ".2f"),
            ("rms error of δ s", ".4f"),
            *_COVERED,
        ],
    )
    for bias in (0.0, 0.5, 1.0, 3.0):
        outcomes, errors, truths = [], [], []
        for seed in seeds:
            say(f"bias {bias} µT, seed {seed}")
            robot = Robot(bias=bias * 1e-6, correlated=0.4e-6)
            mapping, test = survey(robot, seed)
            plain, _ = survey(replace(robot, bias=0.0), seed)
            truth = np.linalg.lstsq(
                mapping.heading.numpy(), (mapping.y - plain.y).numpy()[:, 0] * 1e6, rcond=None
            )[0]
            outcomes.append(run_robot(mapping, test))
            c = outcomes[-1].calibration
            found = c.turning * 1e6 * np.array([np.cos(c.direction), np.sin(c.direction)])
            errors += (found - truth).tolist()
            truths.append(float(np.hypot(*truth)))
        seen = [o.calibration for o in outcomes]
        table.add(
            bias,
            mean(truths),
            mean(c.turning * 1e6 for c in seen),
            _rms(np.array(errors)),
            mean(c.turning_stddev * 1e6 for c in seen),
            mean(c.has_body_field for c in seen),
            mean(c.has_offset for c in seen),
            _rms(np.array([c.offset for c in seen])),
            *covered(outcomes),
        )
    return table, [
        Goal(
            "No bias: fraction of runs that report something that turns",
            table.rows[0][5],
            high=0.05,
        ),
        Goal("Bias of 3 µT: fraction of runs that report it", table.rows[-1][5], low=0.95),
    ]


def spikes(seeds: range) -> tuple[Table, list[Goal]]:
    """5 % of the mapping drive's samples are wrong; the test drive is clean."""
    table = Table(
        "Gross errors: 5 % of the mapping drive's samples off by so much; the test drive is clean",
        [
            ("size µT", "g"),
            ("RMSE µT", ".3f"),
            ("without µT", ".3f"),
            ("worst ratio", ".3f"),
            ("mean ratio", ".3f"),
            ("left out", ".3f"),
            *_COVERED,
        ],
    )
    for size in (5.0, 50.0, 500.0):
        ratios, outcomes, clean = [], [], []
        for seed in seeds:
            say(f"spikes of {size} µT, seed {seed}")
            mapping, test = survey(Robot(correlated=0.4e-6, delay=0.1), seed)
            clean.append(run_robot(mapping, test).rmse)
            outcomes.append(run_robot(add_spikes(mapping, 0.05, size * 1e-6, seed), test))
            ratios.append(outcomes[-1].rmse / clean[-1])
        table.add(
            size,
            mean(o.rmse for o in outcomes),
            mean(clean),
            max(ratios),
            mean(ratios),
            mean(o.gross for o in outcomes) / len(mapping),
            *covered(outcomes),
        )
    return table, [
        Goal(
            "5 % gross errors: largest mean ratio of RMSE", max(r[4] for r in table.rows), high=1.10
        ),
        Goal("5 % gross errors: least 95 % coverage", min(r[8] for r in table.rows), low=0.90),
    ]


def run(quick: bool, environment: dict) -> Part:
    """All tables; GP_MAPPING_SEEDS is the number of seeds (default 20; quick: 2)."""
    count = 2 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "20"))
    tables, goals = [], []
    for part in (offsets, headings, spikes, levers, changed_worlds, unchanged_worlds):
        table, more = part(
            range(count if part is offsets else min(count, 4 if part is unchanged_worlds else 10))
        )
        tables.append(table)
        goals += more
        print(table.markdown(), flush=True)
    try:
        more_tables, more = honesty_recordings.tables(quick)
        tables, goals = tables + more_tables, goals + more
    except RecordingsAbsent as error:
        say(f"the tables on recordings are left out: {error}")
    environment["seeds"] = count
    return Part("honesty", goals, tables, environment)
