"""The anytime family: `python -m benchmark anytime [--quick] [--only live,recordings,survey]`.

live: each member on protocol P as a robot would run it, everything learned online.  recordings, survey: time and
predictive efficiency of the stochastic fit (Hoang et al. 2015, sec. 5): TE = time of the batch model / time of t steps,
PE = RMSE of the batch model / RMSE after t steps. Processor time on one thread.
"""

from __future__ import annotations

import sys
import time

import torch

from benchmark import worlds
from benchmark.batch import kmeans_inputs
from benchmark.calibration.honesty_recordings import mapped
from benchmark.protocol import (
    LENGTHSCALE,
    NOISE,
    SIGNAL,
    TEST,
    TRAIN,
    columns,
    evaluate,
    positions,
    row,
    trials,
)
from benchmark.tables import Part, Table
from benchmark.timing import timed
from gp_mapping.analysis.metrics import score
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.anytime.model import MEMBERS
from gp_mapping.core.sparse.basis import greedy_inputs
from gp_mapping.core.types import Samples
from gp_mapping.offline.anytime_fit import AnytimeFit

__all__ = ["TABLES", "run"]

TABLES = ("live", "recordings", "survey")
UNIT = 1e-6
STEPS = (1, 2, 5, 10, 20, 50, 100, 200)
SEEDS = (0, 1, 2)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"anytime: {text}", file=sys.stderr, flush=True)


def live(quick: bool) -> Table:
    """Protocol P from the default start: every hyper-parameter, the time offset and the heading learned online."""
    train, test = trials(TRAIN, quick), trials([TEST], quick)[0]
    table = Table(
        "Protocol P, live, everything learned online",
        [*columns("model"), ("ms a cell", ".1f"), ("changes found", "d")],
    )
    for name in ("dual_svgp", *MEMBERS):
        start = time.process_time()
        session = mapped(train, model=name)
        seconds = time.process_time() - start
        result = evaluate(session, positions(train), test)
        table.add(
            *row(name, len(session.inducing), result, seconds),
            1e3 * seconds / session.cell_count,
            session.scores.change_count,
        )
        say(
            f"{name}: RMSE {result['rmse_ut']:.3f}, in 95 % {result['coverage']:.3f}, {seconds:.0f} s"
        )
    return table


def errors(model: AnytimeFit, test: Samples, noise: float) -> dict:
    """Scores of a fit on the test samples; noise: µT²."""
    prediction = model.predict(test.x)
    return score((test.y - prediction.mean) / UNIT, prediction.variance / UNIT**2 + noise)


def efficiency(
    title: str,
    theta: Theta,
    train: Samples,
    test: Samples,
    z,
    noise: float,
    side: float,
    most: int,
    quick: bool,
) -> Table:
    """TE and PE of each member after t steps, |S| = 1, mean over seeds. PITC's and PIC's blocks are tiles."""
    table = Table(
        title,
        [
            ("model", ""),
            ("blocks", "d"),
            ("t", ""),
            ("s", ".2f"),
            ("RMSE µT", ".3f"),
            ("NLPD", ".3f"),
            ("in 95 %", ".3f"),
            ("TE", ".1f"),
            ("PE", ".3f"),
        ],
    )
    for name in ("dtc", "fitc", "pitc", "pic"):
        blocks = side if MEMBERS[name].residual == "block" else None
        fits = [
            AnytimeFit(name, theta, train, z, side=blocks, most=most, scale=UNIT, seed=seed)
            for seed in (SEEDS[:1] if quick else SEEDS)
        ]
        seconds = timed(fits[0].batch)
        whole = errors(fits[0], test, noise)
        table.add(
            name,
            len(fits[0].blocks),
            "batch",
            seconds,
            whole["rmse_ut"],
            whole["nlpd"],
            whole["coverage"],
            1.0,
            1.0,
        )
        say(f"{title.split(':')[0]}, {name}: batch {seconds:.1f} s, RMSE {whole['rmse_ut']:.3f}")
        fits[0].excess.zero_()
        fits[0].linear.zero_()
        spent, done = 0.0, 0
        for t in STEPS[:4] if quick else STEPS:
            spent += sum(timed(lambda fit=fit: fit.step(t - done)) for fit in fits) / len(fits)  # noqa: B023
            done = t
            found = [errors(fit, test, noise) for fit in fits]
            mean = {
                key: sum(f[key] for f in found) / len(found)
                for key in ("rmse_ut", "nlpd", "coverage")
            }
            table.add(
                name,
                len(fits[0].blocks),
                str(t),
                spent,
                mean["rmse_ut"],
                mean["nlpd"],
                mean["coverage"],
                seconds / spent,
                whole["rmse_ut"] / mean["rmse_ut"],
            )
            say(f"{name}, {t} steps: RMSE {mean['rmse_ut']:.3f}, TE {seconds / spent:.1f}")
    table.notes.append(
        "dtc and fitc draw blocks of samples from everywhere; pitc and pic draw tiles. PIC's prediction "
        "also factors the tiles that it is asked for, which is not in s."
    )
    return table


def recordings(quick: bool) -> Table:
    """Trials 1, 2, 3, 5 as raw samples, test on every 5th of 4; θ given, z by k-means."""
    parts = trials(TRAIN, quick)
    train = Samples.concatenate(parts)
    theta = Theta(LENGTHSCALE, SIGNAL**0.5, NOISE**0.5, 20.0)
    z = kmeans_inputs(train.x, 40 if quick else 200, seed=0)
    return efficiency(
        f"Recordings: {len(train)} raw samples, M = {len(z)}",
        theta,
        train,
        trials([TEST], quick)[0][::5],
        z,
        NOISE,
        0.5,
        300,
        quick,
    )


def survey(quick: bool) -> Table:
    """Samples everywhere over a square, inducing inputs about a lengthscale apart."""
    count, side, inducing = (20_000, 2.0, 30) if quick else (150_000, 6.0, 225)
    field, g = worlds.RandomField(3), torch.Generator().manual_seed(4)
    train, test = (worlds.scattered(field, n, side, g) for n in (count, 4000))
    theta = Theta(worlds.LENGTHSCALE, 12.0, 0.5, 20.0)
    some = train.x[: 8 * inducing]
    z = some[greedy_inputs(theta.kernel(), some, 0.0, inducing)]
    title = f"Survey: {count} samples over {side:g} m × {side:g} m, M = {len(z)}"
    return efficiency(title, theta, train, test, z, 0.25, 0.3, 400, quick)


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """RecordingsAbsent where live or recordings are wanted and there are none."""
    made = {"live": live, "recordings": recordings, "survey": survey}
    return Part("anytime", [], [made[name](quick) for name in only], where)
