"""SOLVE-GP's claim on streaming maps: near an SVGP with M + M₂ inputs for about twice the cost of one with M?

`python -m benchmark solve_gp [--quick] [--only recordings,survey,large]` prints the tables of docs/models.md. One
thread, processor time.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from benchmark import worlds
from benchmark.protocol import LENGTHSCALE, NOISE, SIGNAL, TEST, TRAIN, trials
from benchmark.tables import Part, Table
from benchmark.timing import median, paired, timed
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.solve_gp.mean import solve_blocks
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.types import Samples

__all__ = ["TABLES", "run"]

TABLES = ("recordings", "survey", "large")
UNIT = 1e-6  # T
GRID = 64  # cells along each side of the grid that is timed
SIZES = (
    (100, 0),
    (100, 100),
    (200, 0),
    (100, 200),
    (200, 100),
    (200, 200),
    (100, 400),
    (400, 0),
    (200, 400),
    (400, 200),
    (400, 400),
    (100, 700),
    (800, 0),
)
LARGE = ((400, 800), (800, 400), (800, 800), (1600, 0))


def say(text: str) -> None:
    print(f"solve_gp: {text}", file=sys.stderr, flush=True)


def build(theta: Theta, first: int, second: int, tolerance: float):
    settings = {"tolerance": tolerance, "memory_size": 2000, "scale": UNIT}
    if not second:
        return DualSVGP(theta, max_inducing=first, **settings)
    return SolveGP(theta, max_inducing=first, max_orthogonal=second, **settings)


def score(prediction, y: torch.Tensor, noise: float) -> tuple[float, float, float]:
    """RMSE µT, NLPD per sample of y in µT, share in 95 %. noise: variance of one measurement, µT²."""
    error = (y - prediction.mean) / UNIT
    total = prediction.variance / UNIT**2 + noise
    nlpd = 0.5 * (error.square() / total + torch.log(2 * torch.pi * total)).mean()
    inside = (error.abs() < 1.959964 * total.sqrt()).double().mean()
    return float(error.square().mean().sqrt()), float(nlpd), float(inside)


def measure(field, batches: list[Samples], test: Samples, noise: float) -> list:
    """Stream, and score: inputs, RMSE, NLPD, share in 95 %, ms a batch, ms a single cell, ms a grid, steps."""
    seconds, steps = [], []
    for batch in batches:
        seconds.append(timed(lambda b=batch: (field.update(b), field.posterior)))
        steps.append(getattr(field, "solve_steps", 0))
    low, high = test.x.min(0).values, test.x.max(0).values
    axes = [
        torch.linspace(float(a), float(b), GRID, dtype=torch.float64) for a, b in zip(low, high)
    ]
    grid = torch.cartesian_prod(*axes)
    drawn = [timed(lambda: field.predict(grid)) for _ in range(3)]
    scores = score(field.predict(test.x), test.y, noise)
    # cell by cell, as a live map is fed: places that it knows, so that nothing but the update is timed
    single = [timed(lambda b=b: (field.update(b[0]), field.posterior)) for b in batches[-15:]]
    late = seconds[len(seconds) // 2 :]
    return [
        len(field.basis),
        *scores,
        *(1e3 * median(part) for part in (late, single, drawn)),
        float(np.mean(steps[len(steps) // 2 :])) if isinstance(field, SolveGP) else None,
    ]


def posterior_costs(field: SolveGP, cell: Samples) -> list:
    """ms of factoring and solving for the mean after one more cell: SVGP on z, SOLVE-GP, and SVGP on z and o."""
    start = field.posterior.weights
    field.update(cell)
    precision, linear, split = field.sites.precision, field.sites.linear, field.split
    start = torch.cat([start, start.new_zeros((len(linear) - len(start), start.shape[1]))])
    steps = []

    def whole(rows: int) -> None:
        torch.cholesky_solve(linear[:rows], cholesky(precision[:rows, :rows])[0])

    def blocks() -> None:
        factors = [
            cholesky(block)[0] for block in (precision[:split, :split], precision[split:, split:])
        ]
        steps.append(
            solve_blocks(precision, linear, *factors, start, field.solve_tolerance, 1000)[1]
        )

    works = {"first": lambda: whole(split), "both": blocks, "all": lambda: whole(len(linear))}
    return [*(1e3 * median(s) for s in paired(works, 7).values()), float(np.mean(steps))]


def table(
    title: str,
    theta: Theta,
    batches: list[Samples],
    test: Samples,
    noise: float,
    tolerance: float,
    sizes,
) -> list[Table]:
    alone = Table(
        "The posterior alone, after one more cell: factors and mean, ms",
        [
            ("M", "d"),
            ("M₂", "d"),
            ("inputs", "d"),
            ("SVGP, M", ".2f"),
            ("SOLVE-GP, M + M₂", ".2f"),
            ("SVGP, M + M₂", ".2f"),
            ("CG steps", ".0f"),
        ],
    )
    new = Table(
        title,
        [
            ("M", "d"),
            ("M₂", "d"),
            ("inputs", "d"),
            ("RMSE µT", ".3f"),
            ("NLPD", ".3f"),
            ("in 95 %", ".3f"),
            ("ms a batch", ".1f"),
            ("ms a cell", ".1f"),
            (f"ms a grid, {GRID}²", ".0f"),
            ("CG steps", ".1f"),
        ],
    )
    for first, second in sizes:
        field = build(theta, first, second, tolerance)
        row = measure(field, batches, test, noise)
        new.add(first, second, *row)
        say(f"{title.split(':')[0]}, {first} + {second}: NLPD {row[2]:.3f}, {row[4]:.1f} ms")
        if second:
            alone.add(first, second, len(field.basis), *posterior_costs(field, batches[-20][0]))
        if (first, second) == (400, 400):
            new.add(
                first,
                second,
                len(field.basis),
                *score(replace(field.posterior, orthogonal=None).predict(test.x), test.y, noise),
                *4 * (None,),
            )
            new.notes.append(
                "The second row of 400 + 400 is ODVGP: the same map whose S_v stays the prior's."
            )
    return [new, alone]


def averaged(raw: Samples, count: int) -> Samples:
    """Means of `count` samples after each other."""
    n = len(raw) // count
    return Samples(*(part[: n * count].reshape(n, count, -1).mean(1) for part in (raw.x, raw.y)))


def protocol_p(quick: bool) -> list[Table]:
    theta = Theta(LENGTHSCALE, SIGNAL**0.5, NOISE**0.5, 20.0)
    cells = [averaged(part, 25) for part in trials(TRAIN, quick)]
    batches = [part[i : i + 4] for part in cells for i in range(0, len(part), 4)]
    test = trials((TEST,), quick)[0]
    return table(
        "Protocol P: trials 1, 2, 3, 5 in batches of 100 samples, averaged to 4 cells; tested on 4",
        theta,
        batches,
        test[::5],
        NOISE,
        0.002,
        SIZES[:4] if quick else SIZES,
    )


def survey(quick: bool, sizes=SIZES) -> list[Table]:
    """300 000 samples on lanes 0.1 m apart over 8 m × 8 m, averaged by 40 into cells."""
    count, side, average = (30_000, 2.5, 40) if quick else (300_000, 8.0, 40)
    field, g = worlds.RandomField(3), torch.Generator().manual_seed(4)
    lanes = round(side / 0.1)
    path = worlds.lawnmower(0.0, side, 0.1, ((lanes + 1) * side + side) / count)
    path = path[torch.linspace(0, len(path) - 1, count).round().long()]
    raw = field.measure(path, g)
    cells = averaged(raw, average)
    cells = replace(
        cells,
        count=torch.full((len(cells),), float(average)),
        sensor_variance=torch.full((len(cells),), 0.25e-12),
    )
    test = field.measure(side * torch.rand(4000, 2, dtype=torch.float64, generator=g), g)
    batches = [cells[i : i + 100] for i in range(0, len(cells), 100)]
    theta = Theta(worlds.LENGTHSCALE, 12.0, 0.15, 20.0)
    return table(
        f"Survey: {count} samples over {side:g} m × {side:g} m in batches of 100 cells",
        theta,
        batches,
        test,
        0.25,
        0.005,
        sizes[:2] if quick else sizes,
    )


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """large: sizes of the survey that take minutes each. RecordingsAbsent where they are wanted and not here."""
    made = {"recordings": protocol_p, "survey": survey, "large": partial(survey, sizes=LARGE)}
    return Part("solve_gp", [], [table for name in only for table in made[name](quick)], where)
