"""Passes whose sensor has another bias each time: is a map of them as good as one that was told the biases?"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmark.drawn import DrawnField, lanes
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["TABLES", "WORLDS", "World", "run"]

LENGTH, SPREAD, NOISE, LEVEL = (
    0.6,
    10e-6,
    0.3e-6,
    45e-6,
)  # m, T: of the field, the white noise, and its mean
RATE, SPEED, PAUSE = 20.0, 0.5, 60.0  # Hz, m/s; s between passes
_EXACT = 4  # every so many measurements go to the exact GP


@dataclass(frozen=True)
class World:
    """stddev: of the passes' biases, T.  warming: s, time constant with which each decays to 0; 0: it stays.

    segment: s, bias_time of the map.  gap: m, between lanes.

    bands: passes lie beside each other, and each shares one lane with the next; else each crosses all others.
    """

    stddev: float
    passes: int = 5
    width: float = 4.0
    depth: float = 3.0
    warming: float = 0.0
    segment: float = 0.0
    gap: float = 0.8
    bands: bool = False

    def drives(self, seed: int) -> tuple[list[Samples], list[Tensor]]:
        """The passes, and the bias of each measurement (N, 1)."""
        generator = torch.Generator().manual_seed(500 + seed)
        field, drives, biases, start = self.field(seed), [], [], 0.0
        for k in range(self.passes):
            x = self.path(k)
            stamp = start + torch.arange(len(x), dtype=torch.float64) / RATE
            bias = self.stddev * torch.randn(1, dtype=torch.float64, generator=generator).expand(
                len(x), 1
            )
            if self.warming:
                bias = bias * torch.exp(-(stamp - start) / self.warming)[:, None]
            noise = NOISE * torch.randn(len(x), 1, dtype=torch.float64, generator=generator)
            drives.append(Samples(x, field(x) + bias + noise, stamp=stamp))
            biases.append(bias)
            start = float(stamp[-1]) + PAUSE
        return drives, biases

    def path(self, k: int) -> Tensor:
        """Positions (N, 2) of pass k."""
        if self.bands:
            band = self.depth / self.passes
            return lanes(self.width, band, self.gap, SPEED / RATE) + torch.tensor([0.0, k * band])

        turned = k % 2 == 1
        ends = (self.depth, self.width) if turned else (self.width, self.depth)
        x = lanes(*ends, self.gap, SPEED / RATE) + torch.tensor([0.0, 0.3 * (k // 2) % self.gap])
        return x.flip(1) if turned else x

    def field(self, seed: int) -> DrawnField:
        """The field of that seed."""
        return DrawnField(LENGTH, seed, LEVEL, SPREAD)


WORLDS = {
    "no bias": World(0.0),
    "1 µT": World(1e-6),
    "4 µT": World(4e-6),
    "20 µT": World(20e-6),
    "4 µT in 12 passes": World(4e-6, 12),
    "4 µT in bands of 72 m²": World(4e-6, 6, 10.0, 7.2, gap=0.4, bands=True),
    "4 µT warming up": World(4e-6, warming=30.0),
    "4 µT warming up with bias_time 5 s": World(4e-6, warming=30.0, segment=5.0),
}


TABLES = tuple(WORLDS)


class Told(NamedTuple):
    """A map's answers at places: RMSE of the field and beside its level, share of it and of measurements in 95 %."""

    rmse: float
    shape: float
    field: float
    measured: float
    nlpd: float


def mapped(drives: list[Samples], **settings) -> MapSession:
    """The map of passes one after the other."""
    session = MapSession(MapSettings(**settings))
    for drive in drives:
        session.break_pass()
        session.ingest(drive)
    session.finish()
    return session


def told(mean: Tensor, variance: Tensor, noise: Tensor, truth: Tensor, fresh: Tensor) -> Told:
    """Scores of (N, 1) means, variances of the field and of what a measurement has beside."""
    error, total = mean - truth, variance + noise
    square = (fresh - mean).square() / total
    return Told(
        float(error.square().mean().sqrt()),
        float((error - error.mean()).square().mean().sqrt()),
        float((error.abs() <= 1.96 * variance.sqrt()).double().mean()),
        float((square <= 1.96**2).double().mean()),
        float(0.5 * ((2 * torch.pi * total * 1e12).log() + square).mean()),
    )


def exact(world: World, drives: list[Samples], x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (N, 1) of the exact GP with the world's hyper-parameters and the kernel term s_b² δ(p, p′)."""
    parts = [drive[torch.arange(0, len(drive), _EXACT)] for drive in drives]
    places, y = torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]) * 1e6
    of = torch.cat([torch.full((len(p),), float(k)) for k, p in enumerate(parts)])
    spread, noise, bias = SPREAD * 1e6, NOISE * 1e6, world.stddev * 1e6
    kernel, level, centre = make_kernel("matern52", spread**2, LENGTH), 9.0 * spread**2, y.median()
    gram = kernel(places, places) + level + bias**2 * (of[:, None] == of[None])
    gram.diagonal().add_(noise**2 / _EXACT)
    factor, cross = torch.linalg.cholesky(gram), kernel(places, x) + level
    half = torch.linalg.solve_triangular(factor, cross, upper=False)
    mean = centre + half.mT @ torch.linalg.solve_triangular(factor, y - centre, upper=False)
    return mean * 1e-6, (spread**2 + level - half.square().sum(0))[:, None] * 1e-12


def one(world: World, seed: int, **settings) -> tuple[dict[str, Told], float, float]:
    """What each kind of map says of one world; s_b as it was learned, T; processor time over that without biases."""
    drives, biases = world.drives(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.tensor([world.width, world.depth]) * torch.rand(
        400, 2, dtype=torch.float64, generator=generator
    )
    truth = world.field(seed)(x)
    # ten passes to come measure there
    others = world.stddev * torch.randn(
        10, 1, dtype=torch.float64, generator=generator
    ).repeat_interleave(40, 0)
    fresh = truth + others + NOISE * torch.randn(400, 1, dtype=torch.float64, generator=generator)
    level = torch.stack([b.mean() for b in biases]).mean()  # which nobody can know
    corrected = [Samples(d.x, d.y - b + level, stamp=d.stamp) for d, b in zip(drives, biases)]

    answers, seconds = {}, {}
    for name, data, more in (
        ("own", drives, settings | {"bias_time": world.segment}),
        ("without", drives, {"learn_bias": False}),
        ("told", corrected, {"learn_bias": False}),
    ):
        start = time.process_time()
        session = mapped(data, **more)
        seconds[name] = time.process_time() - start
        p = session.predict(x)
        answers[name] = told(p.mean, p.variance, p.noise_variance, truth, fresh)
        if name == "own":
            found = session.report()["hyperparameters"]["bias_stddev"]
    mean, variance = exact(world, drives, x)
    answers["exact"] = told(mean, variance, torch.tensor(NOISE**2 + world.stddev**2), truth, fresh)
    return answers, found, seconds["own"] / seconds["told"]


def _mean(answers: list[dict[str, Told]], kind: str, what: str) -> float:
    return sum(getattr(each[kind], what) for each in answers) / len(answers)


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """The worlds `only`; GP_MAPPING_SEEDS is the number of each (default 20; quick: 1 of two of them, smaller)."""
    seeds = range(1 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "20")))
    worlds = {name: WORLDS[name] for name in only}
    if quick:
        worlds = {"no bias": World(0.0, 2, 2.0, 1.6), "4 µT": World(4e-6, 2, 2.0, 1.6)}
    table = Table(
        "A bias of each pass: the field, and measurements of passes to come",
        [
            ("biases", ""),
            ("found µT", ".2f"),
            ("RMSE µT", ".2f"),
            ("exact GP", ".2f"),
            ("not modelled", ".2f"),
            ("but for the level", ".3f"),
            ("biases given", ".3f"),
            ("ratio", ".3f"),
            ("field in 95 %", ".3f"),
            ("measured in 95 %", ".3f"),
            ("exact GP's", ".3f"),
            ("not modelled, field", ".3f"),
            ("time / biases given", ".2f"),
        ],
    )
    ratios, covered = {}, {}
    for name, world in worlds.items():
        rows = []
        for seed in seeds:
            print(f"biases: {name}, seed {seed}", file=sys.stderr, flush=True)
            rows.append(one(world, seed))

        mean = partial(_mean, [answers for answers, _, _ in rows])
        ratios[name] = mean("own", "shape") / mean("told", "shape")
        covered[name] = mean("own", "field"), mean("own", "measured")
        table.add(
            name,
            1e6 * sum(row[1] for row in rows) / len(rows),
            1e6 * mean("own", "rmse"),
            1e6 * mean("exact", "rmse"),
            1e6 * mean("without", "rmse"),
            1e6 * mean("own", "shape"),
            1e6 * mean("told", "shape"),
            ratios[name],
            *covered[name],
            mean("exact", "measured"),
            mean("without", "field"),
            sum(row[2] for row in rows) / len(rows),
        )
    table.notes = [
        f"{len(seeds)} worlds of each kind, {SPREAD * 1e6:g} µT of field, lengthscale {LENGTH:g} m, white "
        f"noise {NOISE * 1e6:g} µT; a pass is a lawnmower of its own; the next one crosses it, "
        "in bands it shares a lane with it. What all biases have in common cannot "
        "be separated from the field's own level: “but for the level” leaves the "
        "mean error out, and the map that was given the biases was given all but their mean. The exact GP "
        "knows the world's hyper-parameters and has the kernel term s_b² δ(p, p′)."
    ]
    where["seeds"] = len(seeds)
    with_bias = [name for name in worlds if name != "no bias"]
    every = [value for pair in covered.values() for value in pair]
    return Part(
        "biases",
        [
            *(
                Goal(f"Biases: RMSE over that of a map given them, {what}", max(found), high=high)
                for what, found, high in (
                    ("worst", [ratios[n] for n in with_bias], 1.10),
                    ("where there are none", [ratios[n] for n in worlds if n == "no bias"], 1.01),
                )
                if found
            ),
            Goal("Biases: least coverage of field or measurements", min(every), low=0.92),
            Goal("Biases: most coverage of field or measurements", max(every), high=0.97),
        ],
        [table],
        where,
    )
