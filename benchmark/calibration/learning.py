"""What learning on the way loses against the maximum of the evidence of all cells; starts and priors that are off."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmark.calibration.surveys import SIDE, WORLDS, along
from benchmark.drawn import ProcessField, lanes
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.hyper.evidence import evidence_score, negative_log_evidence
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.offline.stored_cells import StoredCells
from gp_mapping.settings.mapping import MapSettings

__all__ = ["LENGTHS", "STARTS", "TABLES", "run"]

TABLES = ("starts", "worlds")
LENGTHS = (0.2, 0.6, 2.0, 6.0, 20.0)  # m, of the fields
SPREAD, NOISE, LEVEL = 10e-6, 0.5e-6, 48e-6  # T: of the fields, of each cell, and their mean
SPEED = 0.5  # m/s at the shortest lengthscale
STARTS = {
    "right": {},
    **{
        f"{name} {words}": {setting: factor}
        for name, setting in (("ℓ", "lengthscale"), ("s", "signal_stddev"), ("σ", "noise_stddev"))
        for words, factor in (("/ 10", 0.1), ("× 10", 10.0))
    },
}
_NEW = 300  # places that nobody has been to
_LEARNED = (0, 1, 2, 4)  # of Theta.vector(): ℓ, s, σ, δ


@dataclass(frozen=True)
class Learned:
    """A map's cells and hyper-parameters. held: what was never to be learned of them."""

    cells: StoredCells
    theta: Theta

    @staticmethod
    def of(session: MapSession) -> Learned:
        """From a session that has kept what it took."""
        theta = session.map.theta
        return Learned(
            StoredCells.from_batches(session.taken, session.started_settings.field_scale, theta),
            theta,
        )

    def evidence(self, vector: Tensor) -> float:
        """log p(y) of all cells, nats."""
        return -len(self.cells) * float(negative_log_evidence(self.theta, vector, *self._columns()))

    def _columns(self) -> list[Tensor]:
        data = self.cells.learning_data(self.theta)
        names = ("x", "velocity", "heading", "y", "extra", "pass_number", "extent")
        return [data[name] for name in names]

    def highest(self, start: Tensor) -> Tensor:
        """Where the evidence is greatest: Fisher scoring on all cells, damped until it climbs."""
        vector, best, damping = start, self.evidence(start), 1e-3
        free, which = [i in _LEARNED for i in range(7)], list(_LEARNED)
        for _ in range(60):
            gradient, information = evidence_score(self.theta, vector, free, *self._columns())
            gradient, information, before = gradient[which], information[which][:, which], best
            for _ in range(12):
                step = torch.zeros(7, dtype=torch.float64)
                step[which] = torch.linalg.solve(
                    information + damping * torch.diag(information.diagonal() + 0.1), gradient
                )
                found = self.evidence(vector - step) if float(step.abs().max()) < 2.0 else -math.inf
                if found > best:
                    vector, best, damping = vector - step, found, damping / 4.0
                    break
                damping *= 4.0
            if best - before < 1e-3:
                break
        return vector

    def told(self, vector: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and stddev (N,) of the field at x (N, 2) by the exact GP of these cells at θ = vector, SI."""
        theta, cells = self.theta.with_vector(vector), self.cells
        places, kernel = cells.places(theta), theta.kernel()
        covariance = kernel(places, places) + torch.diag(cells.variance(theta))
        rows = theta.feature_rows(places, cells.heading)
        covariance = covariance + rows.mT @ rows + (b := cells.constants(theta)).mT @ b
        at = x - cells.scaling.origin
        across = theta.feature_rows(at, None)
        cross = kernel(places, at) + rows.mT @ across
        factor = torch.linalg.cholesky(covariance)
        half = torch.linalg.solve_triangular(factor, cross, upper=False)
        mean = half.mT @ torch.linalg.solve_triangular(factor, cells.y, upper=False)
        variance = theta.signal_stddev**2 + across.square().sum(0) - half.square().sum(0)
        scaling = cells.scaling
        return mean[:, 0] * scaling.scale + scaling.centre[0], variance.clamp_min(
            0.0
        ).sqrt() * scaling.scale


def say(text: str) -> None:
    print(f"learning: {text}", file=sys.stderr, flush=True)


def mapped(data: Samples, settings: MapSettings) -> tuple[MapSession, float]:
    """One map, whatever its extent, that keeps its cells; and how long it took, ms of the processor for each cell."""
    session = MapSession(replace(settings, tiles=False))
    session.taken, begun = [], time.process_time()
    for piece in data.x.new_tensor(range(len(data))).long().split(20):
        session.ingest(data[piece])
    session.finish()
    return session, 1e3 * (time.process_time() - begun) / max(1, session.cell_count)


def _nlpd(mean: Tensor, stddev: Tensor, truth: Tensor, noise: float) -> float:
    """Of new measurements whose noise is known, mean over it: what θ says of unvisited places, nats."""
    variance = stddev.square() + noise**2
    expected = (truth - mean).square() + noise**2
    return float((0.5 * (2 * math.pi * variance).log() + 0.5 * expected / variance).mean())


def starts(seeds: range, sizes: tuple[int, ...]) -> tuple[list[Table], list[Goal]]:
    """Stationary fields; start and prior right, and each of ℓ, s, σ wrong by ten either way."""
    tables, goals = [], []
    for count in sizes:
        table = Table(
            f"{count} cells in the order of a drive: evidence that learning loses, nats",
            [
                ("ℓ of the field, m", "g"),
                *((name, ".1f") for name in STARTS),
                ("largest", ".1f"),
                ("NLPD above the true θ's, mean", ".3f"),
                ("largest", ".3f"),
                ("ms a cell", ".1f"),
            ],
        )
        worst, above = 0.0, 0.0
        for length in LENGTHS:
            lost, apart, cost = [], [], []
            for seed in seeds:
                say(f"{count} cells, ℓ {length:g} m, seed {seed}")
                rows = [_start(length, count, seed, wrong) for wrong in STARTS.values()]
                best = max(
                    (row[0] for row in rows),
                    key=lambda learned: learned.evidence(learned.theta.vector()),
                )
                most = best.evidence(best.highest(best.theta.vector()))
                lost.append([most - row[0].evidence(row[0].theta.vector()) for row in rows])
                apart.append([row[1] for row in rows])
                cost += [row[2] for row in rows]
            lost, apart = torch.tensor(lost), torch.tensor(apart)
            table.add(
                length,
                *lost.mean(0).tolist(),
                float(lost.max()),
                float(apart.mean()),
                float(apart.max()),
                sum(cost) / len(cost),
            )
            worst, above = max(worst, float(lost.max())), max(above, float(apart.mean(0).max()))
        table.notes = [
            f"{len(seeds)} draws of a Matérn-5/2 process for each row, {1e6 * SPREAD:g} µT, noise "
            f"{1e6 * NOISE:g} µT a cell, lanes ℓ/2 apart, the real session with everything at its defaults "
            "but the start that the column names, which is the prior's median, too. Lost: against the "
            "maximum over ℓ, s, σ and the time offset. NLPD: the exact GP of the map's cells, at the "
            f"learned θ and at the true one, of the field with that noise at {_NEW} unvisited places."
        ]
        tables.append(table)
        goals += [
            Goal(f"Learning: most evidence lost, {count} cells", worst, high=3.0, unit="nats"),
            Goal(
                f"Learning: NLPD above the true θ's, {count} cells, worst row",
                above,
                high=0.02,
                unit="nats",
            ),
        ]
    return tables, goals


def _start(
    length: float, count: int, seed: int, wrong: dict[str, float]
) -> tuple[Learned, float, float]:
    """What was learned, NLPD above the true θ's, ms a cell."""
    step = max(0.15, 0.15 * length)  # a cell of 10 cm holds one, at corners, too
    lane = max(0.2, 0.5 * length)
    side = math.sqrt(count * step * lane)
    x = lanes(side, 2 * side, lane, step)[:count]
    field, generator = (
        ProcessField(length, seed, LEVEL, SPREAD),
        torch.Generator().manual_seed(seed),
    )
    noise = NOISE * torch.randn(len(x), 1, dtype=torch.float64, generator=generator)
    data = Samples(
        x,
        field(x) + noise,
        stamp=torch.arange(len(x), dtype=torch.float64) * step / max(SPEED, length),
    )
    truth = {"lengthscale": length, "signal_stddev": SPREAD, "noise_stddev": NOISE}
    session, cost = mapped(
        data, MapSettings(**{k: v * wrong.get(k, 1.0) for k, v in truth.items()})
    )
    learned = Learned.of(session)
    low, high = x.amin(0), x.amax(0)
    places = low + (high - low) * torch.rand(_NEW, 2, dtype=torch.float64, generator=generator)
    vector = learned.theta.vector()
    oracle, scale = vector.clone(), learned.cells.scaling.scale
    oracle[:3] = torch.tensor(
        [math.log(length), 2 * math.log(SPREAD / scale), 2 * math.log(NOISE / scale)]
    )
    oracle[4] = 0.0
    at = field(places)[:, 0]
    above = _nlpd(*learned.told(vector, places), at, NOISE) - _nlpd(
        *learned.told(oracle, places), at, NOISE
    )
    return learned, above, cost


def worlds(seeds: range) -> tuple[list[Table], list[Goal]]:
    """Fields that no stationary prior fits; nothing set."""
    table = Table(
        "Fields of all kinds, nothing set: evidence lost, and the field within .3 m of the path",
        [
            ("field", ""),
            ("cells", ".0f"),
            ("lost, nats", ".1f"),
            ("largest", ".1f"),
            ("absolute δ learned, ms (true: 0)", ".1f"),
            ("largest", ".1f"),
            ("RMSE µT", ".2f"),
            ("in 95 %", ".3f"),
            ("at the maximum: RMSE µT", ".2f"),
            ("in 95 %", ".3f"),
            ("ms a cell", ".1f"),
        ],
    )
    lost = {}
    for name, world in WORLDS.items():
        rows = []
        for seed in seeds:
            say(f"{name}, seed {seed}")
            field, x = world(seed), along(_way(), SPEED / 50.0)
            generator = torch.Generator().manual_seed(seed)
            noise = 0.3e-6 * torch.randn(len(x), 1, dtype=torch.float64, generator=generator)
            data = Samples(
                x, field(x) + noise, stamp=torch.arange(len(x), dtype=torch.float64) / 50.0
            )
            session, cost = mapped(data, MapSettings())
            learned = Learned.of(session)
            vector = learned.theta.vector()
            best = learned.highest(vector)
            places = x[torch.randint(len(x), (_NEW,), generator=generator)]
            places = places + 0.6 * (
                torch.rand(_NEW, 2, dtype=torch.float64, generator=generator) - 0.5
            )
            truth, row = field(places)[:, 0], []
            told = session.predict(places)
            for mean, stddev in ((told.mean[:, 0], told.stddev[:, 0]), learned.told(best, places)):
                error = mean - truth
                row += [
                    1e6 * float(error.square().mean().sqrt()),
                    float((error.abs() <= 1.96 * stddev).double().mean()),
                ]
            gap = learned.evidence(best) - learned.evidence(vector)
            rows.append([session.cell_count, gap, 1e3 * abs(float(vector[4])), *row, cost])
        mean, most = torch.tensor(rows).mean(0).tolist(), torch.tensor(rows).amax(0).tolist()
        table.add(name, mean[0], mean[1], most[1], mean[2], most[2], *mean[3:])
        lost[name] = mean[1]
    table.notes = [
        f"{len(seeds)} worlds of each kind, {SIDE:g} m wide; lanes of 5.6 m, .9 m apart, at {SPEED:g} m/s "
        "and 50 Hz, white noise .3 µT. The last pair is the exact GP of the same cells at the "
        "maximum of their evidence: what one stationary prior can say of such a field."
    ]
    return [table], [
        Goal(
            "Learning: evidence lost in fields of all kinds, worst mean",
            max(lost.values()),
            high=3.0,
            unit="nats",
        )
    ]


def _way() -> Tensor:
    corners = []
    for k in range(7):
        ends = (0.2, SIDE - 0.2) if k % 2 == 0 else (SIDE - 0.2, 0.2)
        corners += [[ends[0], 0.3 + 0.9 * k], [ends[1], 0.3 + 0.9 * k]]
    return torch.tensor(corners, dtype=torch.float64)


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """The tables `only`; GP_MAPPING_SEEDS is the number of worlds of each (default 20; quick: 1, few cells)."""
    seeds = range(1 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "20")))
    made = {
        "starts": lambda: starts(seeds, (150,) if quick else (500, 2000)),
        "worlds": lambda: worlds(seeds),
    }
    found = [made[name]() for name in only]
    where["seeds"] = len(seeds)
    return Part(
        "learning",
        [goal for _, goals in found for goal in goals],
        [table for tables, _ in found for table in tables],
        where,
    )
