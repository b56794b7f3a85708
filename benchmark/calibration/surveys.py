"""Is the map honest at every moment of a survey, and far from its path? Simulated worlds, beside the exact GP."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from benchmark.costs.following import following
from benchmark.drawn import ProcessField, lanes
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.scoring.error_shape import degrees_of, half_width, log_density
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.world import DipoleWorld, WorldSettings

__all__ = ["BANDS", "LEVELS", "PATHS", "TABLES", "WORLDS", "along", "far", "moments", "run"]

LENGTH, SPREAD, NOISE, LEVEL = (
    0.6,
    10e-6,
    0.3e-6,
    48e-6,
)  # m, T: of the smooth fields, the white noise, the mean
RATE, SPEED = 20.0, 0.5  # Hz, m/s
SIDE = 6.0  # m, of the square where fields have rough corners, dipoles, steps
MOMENTS = 8  # of each survey
NEAR = 0.3  # m from the path so far: where measurements at every moment are
BANDS = (0.0, 0.1, 0.3, 0.6, 1.0)  # m from the path
LEVELS = (0.5, 0.8, 0.95)
_QUANTILES = tuple(math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level))) for level in LEVELS)
_EXACT = 600  # measurements of a drive that the exact GP takes
TABLES = ("moments", "far", "following")


def along(corners: Tensor, step: float) -> Tensor:
    """(N, 2) places every `step` metres on the way from corner to corner (K, 2)."""
    length = torch.cat(
        [torch.zeros(1, dtype=torch.float64), (corners[1:] - corners[:-1]).norm(dim=1).cumsum(0)]
    )
    at = np.arange(0.0, float(length[-1]), step)
    return torch.from_numpy(np.stack([np.interp(at, length, corners[:, k]) for k in (0, 1)], 1))


def _spiral() -> Tensor:
    turn = torch.linspace(0.4, 2 * math.pi * 6.0, 600, dtype=torch.float64)
    return turn[:, None] * 0.5 / (2 * math.pi) * torch.stack([turn.cos(), turn.sin()], 1)


def _road() -> Tensor:
    x = torch.linspace(0.0, 60.0, 600, dtype=torch.float64)
    return torch.stack([x, 4.0 * torch.sin(x / 8.0)], 1)


PATHS: dict[str, Callable[[], Tensor]] = {
    "lawnmower": lambda: lanes(SIDE, 5.0, 0.5, SPEED / RATE),
    "spiral": lambda: along(_spiral(), SPEED / RATE),
    "road": lambda: along(_road(), SPEED / RATE),
}


@dataclass(frozen=True)
class Steps:
    """A smooth field with a straight edge, beyond which it is `height` more."""

    smooth: ProcessField
    height: float
    normal: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        beyond = ((x - SIDE / 2) @ self.normal > 0).double()[:, None]
        return self.smooth(x) + self.height * beyond


@dataclass(frozen=True)
class RoughCorner:
    """A smooth field, with a quarter of its lengthscale and as much again of its spread in a quarter of the square."""

    smooth: ProcessField
    fine: ProcessField

    def __call__(self, x: Tensor) -> Tensor:
        inside = (x > SIDE / 2).all(1).double()[:, None]
        return self.smooth(x) + inside * self.fine(x)


@dataclass(frozen=True)
class Strength:
    """|B| among dipoles, T."""

    world: DipoleWorld

    def __call__(self, x: Tensor) -> Tensor:
        places = np.column_stack([x.numpy(), np.full(len(x), self.world.settings.sensor_height)])
        return torch.from_numpy(np.linalg.norm(self.world.field(places), axis=1))[:, None]


def _step_world(seed: int) -> Steps:
    angle = torch.tensor(0.3 + seed, dtype=torch.float64)
    return Steps(
        ProcessField(1.5, seed, LEVEL, 0.5 * SPREAD),
        2 * SPREAD,
        torch.stack([angle.cos(), angle.sin()]),
    )


WORLDS: dict[str, Callable[[int], Callable[[Tensor], Tensor]]] = {
    "one lengthscale": lambda seed: ProcessField(LENGTH, seed, LEVEL, SPREAD),
    "rough corner": lambda seed: RoughCorner(
        ProcessField(2 * LENGTH, seed, LEVEL, SPREAD),
        ProcessField(LENGTH / 2, 100 + seed, 0.0, SPREAD),
    ),
    "dipoles": lambda seed: Strength(
        DipoleWorld.random(WorldSettings(seed=seed, width=SIDE, depth=SIDE))
    ),
    "steps": _step_world,
}


def drive(x: Tensor, field, seed: int) -> Samples:
    """What a robot measures at x (N, 2)."""
    generator = torch.Generator().manual_seed(seed)
    noise = NOISE * torch.randn(len(x), 1, dtype=torch.float64, generator=generator)
    return Samples(x, field(x) + noise, stamp=torch.arange(len(x), dtype=torch.float64) / RATE)


def measured(field, x: Tensor, seed: int) -> Tensor:
    """New measurements (N, 1) at x (N, 2)."""
    return field(x) + NOISE * torch.randn(
        len(x), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def standardised(session: MapSession, x: Tensor, y: Tensor) -> Tensor:
    """|error| of new measurements in stated standard deviations, (N,)."""
    told = session.predict(x)
    return ((y - told.mean).abs() / told.measurement_variance.sqrt())[:, 0]


def best(field, seed: int, noise: float = NOISE) -> tuple[float, float]:
    """ℓ (m) and s² (T²) of greatest evidence of 400 measurements drawn over the square: what an oracle would take."""
    x = SIDE * torch.rand(
        400, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    y = (measured(field, x, seed) - LEVEL) * 1e6
    y, found = y - y.mean(), (-math.inf, 0.0, 0.0)
    for length in np.geomspace(0.15, 4.0, 14).tolist():
        for spread in np.geomspace(1.0, 40.0, 10).tolist():
            kernel = make_kernel("matern52", spread**2, length)
            gram = kernel(x, x) + 100.0**2
            gram.diagonal().add_((noise * 1e6) ** 2)
            factor = torch.linalg.cholesky(gram)
            half = torch.linalg.solve_triangular(factor, y, upper=False)
            found = max(
                found,
                (-float(0.5 * half.square().sum() + factor.diagonal().log().sum()), length, spread),
            )
    return found[1], found[2]


def exact(data: Samples, x: Tensor, length: float, spread: float) -> tuple[Tensor, Tensor]:
    """Mean and variance (N, 1), µT and µT², of measurements by the exact GP with those hyper-parameters."""
    step = max(1, math.ceil(len(data) / _EXACT))
    places, y = data.x[::step], (data.y[::step] - LEVEL) * 1e6
    noise, kernel = (NOISE * 1e6) ** 2, make_kernel("matern52", spread**2, length)
    gram, cross = kernel(places, places) + 100.0**2, kernel(places, x) + 100.0**2
    gram.diagonal().add_(noise / step)
    factor = torch.linalg.cholesky(gram)
    half = torch.linalg.solve_triangular(factor, cross, upper=False)
    mean = half.mT @ torch.linalg.solve_triangular(factor, y, upper=False)
    return mean, (spread**2 + 100.0**2 - half.square().sum(0) + noise)[:, None]


def say(text: str) -> None:
    print(f"surveys: {text}", file=sys.stderr, flush=True)


def moments(seeds: range, paths=tuple(PATHS)) -> tuple[Table, list[Goal]]:
    """Coverage of new measurements at MOMENTS moments of each kind of survey."""
    table = Table(
        f"New measurements within {NEAR:g} m of the path so far, at {MOMENTS} moments: fraction in 95 %",
        [
            ("survey", ""),
            ("map", ""),
            *((f"{(k + 1) / MOMENTS:.0%}", ".3f") for k in range(MOMENTS)),
            ("least of a world", ".3f"),
        ],
    )
    every: list[float] = []
    for name in paths:
        rows, judged = [], []
        for seed in seeds:
            say(f"{name}, seed {seed}")
            field, x = ProcessField(LENGTH, seed, LEVEL, SPREAD), PATHS[name]()
            data, session, row, exact_row = drive(x, field, seed), MapSession(MapSettings()), [], []
            for part in torch.arange(len(x)).tensor_split(MOMENTS):
                for piece in part.split(20):
                    session.ingest(data[piece])
                rows_so_far = int(part[-1]) + 1
                rng = torch.Generator().manual_seed(seed)
                at = torch.randint(rows_so_far, (400,), generator=rng)
                beside = NEAR * (2 * torch.rand(400, 2, dtype=torch.float64, generator=rng) - 1)
                places = x[at] + beside
                y = measured(field, places, seed + 7)
                row.append(
                    float((standardised(session, places, y) <= _QUANTILES[-1]).double().mean())
                )
                mean, variance = exact(data[:rows_so_far], places, LENGTH, SPREAD * 1e6)
                inside = ((y - LEVEL) * 1e6 - mean).abs() <= _QUANTILES[-1] * variance.sqrt()
                exact_row.append(float(inside.double().mean()))
            rows.append(row)
            judged.append(exact_row)
        every += np.mean(rows, 0).tolist()
        for kind, told in (("map", rows), ("exact GP", judged)):
            table.add(name, kind, *np.mean(told, 0).tolist(), float(np.min(told)))
    table.notes = [
        f"{len(seeds)} worlds, lengthscale {LENGTH:g} m, {SPREAD * 1e6:g} µT, white noise {NOISE * 1e6:g} "
        "µT; all settings at their defaults. The exact GP knows the world's hyper-parameters."
    ]
    return table, [
        Goal("Surveys: least coverage of new measurements at a moment", min(every), low=0.93),
        Goal("Surveys: most coverage of new measurements at a moment", max(every), high=0.97),
    ]


def far(seeds: range, worlds=tuple(WORLDS)) -> tuple[Table, list[Goal]]:
    """Coverage by distance from the path, lanes 2 m apart."""
    names = [f"{low:g} to {high:g} m" for low, high in pairwise(BANDS)]
    table = Table(
        "Far from the path, lanes 2 m apart: fraction of new measurements in 95 % by distance, and of all",
        [
            ("field", ""),
            ("map", ""),
            ("RMSE µT", ".2f"),
            *((name, ".3f") for name in names),
            *((f"all, in {100 * level:g} %", ".3f") for level in LEVELS),
            ("NLPD", ".3f"),
        ],
    )
    bands, levels = {}, {}
    for name in worlds:
        told: dict[str, list] = {"map": [], "exact GP": []}
        for seed in seeds:
            say(f"{name}, seed {seed}")
            field, x = WORLDS[name](seed), lanes(SIDE, SIDE, 2.0, SPEED / RATE)
            data, session = drive(x, field, seed), MapSession(MapSettings())
            session.ingest(data)
            session.finish()
            places = SIDE * torch.rand(
                1200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
            )
            away, y = cKDTree(x.numpy()).query(places.numpy())[0], measured(field, places, seed + 7)
            p = session.predict(places)
            told["map"].append(
                (away, (y - p.mean) * 1e6, p.measurement_variance * 1e12, degrees_of(p))
            )
            mean, variance = exact(data, places, *best(field, seed))
            told["exact GP"].append(
                (away, (y - LEVEL) * 1e6 - mean, variance, np.full(len(places), math.inf))
            )
        for kind, rows in told.items():
            away = np.concatenate([row[0] for row in rows])
            error, variance = (torch.cat([row[k] for row in rows])[:, 0].numpy() for k in (1, 2))
            degrees = np.concatenate([row[3] for row in rows])
            size = np.abs(error) / np.sqrt(variance)
            inside = [float((size <= half_width(level, degrees)).mean()) for level in LEVELS]
            by_band = [
                float((size[(away >= low) & (away < high)] <= _QUANTILES[-1]).mean())
                for low, high in pairwise(BANDS)
            ]
            nlpd = -float(log_density(error, variance, degrees).mean())
            table.add(name, kind, float(np.sqrt((error**2).mean())), *by_band, *inside, nlpd)
            bands[name, kind], levels[name, kind] = by_band, inside
    table.notes = [
        f"{len(seeds)} worlds of each kind, {SIDE:g} m wide, 1200 places each; all settings at their "
        "defaults. The exact GP has the hyper-parameters of greatest evidence of 400 measurements drawn "
        "all over the world, which no robot has."
    ]
    apart = [max(abs(levels[name, "map"][k] - LEVELS[k]) for name in worlds) for k in (0, 1)]
    return table, [
        Goal(
            "Far: least coverage in a band",
            min(min(bands[name, "map"]) for name in worlds),
            low=0.90,
        ),
        Goal("Far: largest deviation at 50 %", apart[0], high=0.05),
        Goal("Far: largest deviation at 80 %", apart[1], high=0.05),
    ]


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """The tables `only`; GP_MAPPING_SEEDS is the number of worlds of each (default 20; quick: 1 of one kind)."""
    seeds = range(1 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "20")))
    made = {
        "moments": lambda: moments(seeds, ("road",) if quick else tuple(PATHS)),
        "far": lambda: far(seeds, ("steps",) if quick else tuple(WORLDS)),
        "following": lambda: following(seeds),
    }
    found = [made[name]() for name in only]
    where["seeds"] = len(seeds)
    return Part(
        "surveys",
        [goal for _, goals in found for goal in goals],
        [table for table, _ in found],
        where,
    )
