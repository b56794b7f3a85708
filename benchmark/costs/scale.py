"""Large areas: what a map of tiles costs and knows, beside one map of the same budget, as the area or the road grows.

The field has a Matérn-5/2 spectrum with ℓ = 0.6 m and a standard deviation of 10 µT; 50 Hz with white noise of 0.3 µT.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmark.tables import Goal, Part, Table
from benchmark.timing import resident_bytes
from benchmark.worlds import RandomField
from gp_mapping.core.kernels.stationary import make_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.scratch.tile_room import TileRoom
from gp_mapping.store.sessions import saved_session, take_snapshot, write_snapshot

__all__ = ["TABLES", "lawnmower", "path_of", "run"]

TABLES = ("survey", "road", "long", "far")
LENGTHSCALE, SPREAD, MEAN, NOISE, RATE = 0.6, 10.0, 45e-6, 0.3e-6, 50.0  # m, µT, T, T, Hz
LANE, WIDTH = 0.4, 20.0  # m
_TOGETHER = 10  # samples that the exact GP is given as one
_COLUMNS = [
    ("", ""),
    ("tiles", "d"),
    ("RMSE µT", ".2f"),
    ("near the path", ".2f"),
    ("oldest tenth", ".2f"),
    ("in 95 %", ".3f"),
    ("s per s of data", ".3f"),
    ("ms a cell", ".1f"),
    ("last fifth", ".1f"),
    ("worst ms", ".0f"),
    ("more memory, MB", ".0f"),
]


def path_of(corners: list[tuple[float, float]], speed: float) -> Tensor:
    """(N, 2) positions at the sensor's rate from corner to corner."""
    legs = []
    for a, b in zip(torch.tensor(corners[:-1]).double(), torch.tensor(corners[1:]).double()):
        n = max(1, round(float((b - a).norm()) * RATE / speed))
        legs.append(a + (b - a) * torch.arange(n, dtype=torch.float64)[:, None] / n)
    return torch.cat(legs)


def lawnmower(width: float, height: float) -> list[tuple[float, float]]:
    """Corners of lanes along x."""
    corners = []
    for lane in range(round(height / LANE) + 1):
        ends = (0.0, width) if lane % 2 == 0 else (width, 0.0)
        corners += [(end, lane * LANE) for end in ends]
    return corners


class _Drive:
    """A session fed with a path; numbers of it afterwards."""

    def __init__(self, path: Tensor, field: RandomField, seed: int, mark: int = 10**9, **settings):
        self.path, self.field, self.generator = path, field, torch.Generator().manual_seed(seed)
        before = resident_bytes()
        self.session, self.cells, self.seconds = (
            MapSession(MapSettings(**settings), TileRoom()),
            [],
            [],
        )
        self.memory: list[int] = []  # resident bytes after each `mark` samples
        self.values = values = self.truth(path) + NOISE * self._noise(len(path))
        stamps = 1.0 + torch.arange(len(path), dtype=torch.float64) / RATE
        for start in range(0, len(path), 10):  # at most about one cell
            part = slice(start, start + 10)
            begin = time.process_time()
            self.session.ingest(Samples(path[part], values[part], stamp=stamps[part]))
            self.seconds.append(time.process_time() - begin)
            self.cells.append(self.session.cell_count)
            if start % mark == 0:
                self.memory.append(resident_bytes())
        self.session.finish()
        self.megabytes = (resident_bytes() - before) / 1e6

    def truth(self, x: Tensor) -> Tensor:
        return MEAN + (self.field(x) - MEAN) * (SPREAD / 12.0)  # a RandomField has 12 µT

    def _noise(self, count: int) -> Tensor:
        return torch.randn(count, 1, dtype=torch.float64, generator=self.generator)

    def _error(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Error in µT at x, and whether a noisy measurement there lies in the 95 % interval."""
        told = self.session.predict(x)
        truth = self.truth(x)
        inside = (
            truth + NOISE * self._noise(len(x)) - told.mean
        ).abs() < 1.96 * told.measurement_variance.sqrt()
        return (told.mean - truth) * 1e6, inside

    def exact(self, where: Tensor) -> tuple[float, float]:
        """What the exact GP with the field's own hyper-parameters gets there: its error, µT, and the share in 95 %.

        Of means of ten samples, 10 cm of a survey, within three lengthscales of squares of half a metre: what lies
        farther away changes nothing.
        """
        n = len(self.path) // _TOGETHER * _TOGETHER
        x, y = (c[:n].reshape(-1, _TOGETHER, c.shape[1]).mean(1) for c in (self.path, self.values))
        kernel, constant = (
            make_kernel("matern52", (1e-6 * SPREAD) ** 2, LENGTHSCALE),
            (3e-6 * SPREAD) ** 2,
        )
        mean, variance = torch.empty(len(where), 1).double(), torch.empty(len(where), 1).double()
        squares = where.div(0.5).floor()
        for square in squares.unique(dim=0):
            which = (squares == square).all(1).nonzero()[:, 0]
            near = ((x - 0.5 * square).sub(0.25).abs() < 0.25 + 3.0 * LENGTHSCALE).all(1)
            noise = torch.full((int(near.sum()),), NOISE**2 / _TOGETHER, dtype=torch.float64)
            factor = torch.linalg.cholesky(kernel(x[near], x[near]) + constant + noise.diag())
            half = torch.linalg.solve_triangular(
                factor, kernel(x[near], where[which]) + constant, upper=False
            )
            white = torch.linalg.solve_triangular(factor, y[near] - MEAN, upper=False)
            mean[which] = MEAN + half.mT @ white
            variance[which, 0] = (1e-6 * SPREAD) ** 2 + constant - half.square().sum(0) + NOISE**2
        truth = self.truth(where)
        inside = (truth + NOISE * self._noise(len(where)) - mean).abs() < 1.96 * variance.sqrt()
        return float((mean - truth).square().mean().sqrt()) * 1e6, float(inside.double().mean())

    def row(self, name: str, where: Tensor) -> list:
        """One line of the table; where (N, 2): what the map is asked for."""
        error, inside = self._error(where)
        near = self.path[torch.randperm(len(self.path), generator=self.generator)[:2000]]
        first = self.path[: len(self.path) // 10][::10]
        rms = [
            float(e.square().mean().sqrt())
            for e in (error, self._error(near)[0], self._error(first)[0])
        ]
        tail = len(self.seconds) * 4 // 5
        late = sum(self.seconds[tail:]) / max(1, self.cells[-1] - self.cells[tail])
        return [
            name,
            self.session.report().get("tiles", 1),
            *rms,
            float(inside.double().mean()),
            sum(self.seconds) / (len(self.path) / RATE),
            1e3 * sum(self.seconds) / max(1, self.cells[-1]),
            1e3 * late,
            1e3 * max(self.seconds),
            self.megabytes,
        ]


def _ways(quick: bool) -> dict[str, dict]:
    small = {"max_inducing": 60, "memory_size": 400} if quick else {}
    return {"in tiles": small, "one map": small | {"tiles": False}}


def survey(quick: bool) -> tuple[Table, list[Goal]]:
    """Lanes over a growing area."""
    beside = [("exact GP, RMSE µT", ".2f"), ("in 95 %", ".3f")]
    table, goals = Table("Surveys, lanes 0.4 m apart at 0.5 m/s", _COLUMNS + beside), []
    field = RandomField(3, LENGTHSCALE, 1000)
    for area in (4.0,) if quick else (25.0, 100.0, 400.0):
        width = min(WIDTH, math.sqrt(area))
        height = area / width
        for name, settings in _ways(quick).items():
            if area > 100.0 and "tiles" in settings:
                continue  # it is spoiled at 100 m² already
            print(f"scale: survey of {area:g} m², {name}", file=sys.stderr, flush=True)
            drive = _Drive(path_of(lawnmower(width, height), 0.5), field, 1, **settings)
            corner = torch.tensor([width, height], dtype=torch.float64)
            where = corner * torch.rand(3000, 2, dtype=torch.float64, generator=drive.generator)
            row, exact = drive.row(f"{area:g} m², {name}", where), drive.exact(where)
            table.add(*row, *exact)
        if area == 400.0:
            goals = [
                Goal("survey of 400 m²: RMSE", row[2], high=0.75, unit="µT"),
                Goal(
                    "survey of 400 m²: RMSE, to that of the exact GP", row[2] / exact[0], high=1.05
                ),
                Goal("survey of 400 m²: in 95 %", row[5], low=0.92, high=0.97),
            ]
    return table, goals


def road(quick: bool) -> tuple[Table, list[Goal]]:
    """One pass of a straight road at 5 m/s."""
    table, goals, first = Table("A road at 5 m/s, one pass", _COLUMNS), [], None
    field = RandomField(4, LENGTHSCALE, 1000)
    for length in (10.0,) if quick else (50.0, 200.0, 1000.0):
        for name, settings in _ways(quick).items():
            if length > 200.0 and "tiles" in settings:
                continue
            print(f"scale: road of {length:g} m, {name}", file=sys.stderr, flush=True)
            path = path_of([(0.0, 0.0), (length * 0.8, length * 0.6)], 5.0)
            drive = _Drive(path, field, 2, **settings)
            row = drive.row(f"{length:g} m, {name}", path[::7])
            table.add(*row)
            first = row[3] if first is None else first
        if length == 1000.0:
            goals = [
                Goal(
                    "road of 1 km: near the path, to that of the first 50 m",
                    row[3] / first,
                    high=1.15,
                )
            ]
    return table, goals


def long(quick: bool) -> tuple[Table, list[Goal]]:
    """One pass of a long straight road at 5 m/s, kilometre by kilometre: whether anything grows."""
    length, piece = (40.0, 10.0) if quick else (10_000.0, 1000.0)
    table = Table(
        "A long road at 5 m/s, everything learned, tiles that are far away on disk",
        [
            ("", ""),
            ("tiles", "d"),
            ("cells", "d"),
            ("ms a cell", ".2f"),
            ("99.9 % of calls, ms", ".0f"),
            ("resident, MB", ".0f"),
        ],
    )
    print(f"scale: road of {length:g} m, by {piece:g} m", file=sys.stderr, flush=True)
    samples = round(piece / 5.0 * RATE)
    path = path_of([(0.0, 0.0), (length * 0.8, length * 0.6)], 5.0)
    drive = _Drive(
        path, RandomField(4, LENGTHSCALE, 1000), 2, mark=samples, **_ways(quick)["in tiles"]
    )
    calls, each = samples // 10, []
    for k in range(round(length / piece)):
        part = drive.seconds[k * calls : (k + 1) * calls]
        last, first = (
            drive.cells[min((k + 1) * calls, len(drive.cells)) - 1],
            drive.cells[k * calls],
        )
        each.append(1e3 * sum(part) / max(1, last - first))
        table.add(
            f"to {(k + 1) * piece:g} m",
            None,
            last,
            each[-1],
            1e3 * sorted(part)[min(len(part) - 1, int(0.999 * len(part)))],
            drive.memory[min(k + 1, len(drive.memory) - 1)] / 1e6,
        )
    table.rows[-1][1] = drive.session.report().get("tiles", 1)
    half = len(each) // 2
    late, early = (sum(part) / len(part) for part in (each[half:], each[1:half] or each[:half]))
    goals = [
        Goal("10 km of road: time a cell, last half to kilometres 2 to 5", late / early, high=1.05),
        Goal(
            "10 km of road: most memory of the process",
            max(drive.memory) / 1e6,
            high=600.0,
            unit="MB",
        ),
    ]
    return table, [] if quick else goals


def far(quick: bool) -> tuple[Table, list[Goal]]:
    """100 km of road at 5 m/s and 500 Hz, 10⁷ samples, drawn for the last 10 m of each km, saved and opened again."""
    kilometres, rows, rate, step = (0.04, 4, 500.0, 0.01) if quick else (100.0, 20, 500.0, 1.0)
    table = Table(
        "100 km of road, 10 000 000 samples of 500 Hz, one pass, everything learned",
        [
            ("", ""),
            ("samples", "d"),
            ("cells", "d"),
            ("tiles", "d"),
            ("µs a sample", ".1f"),
            ("ms a cell", ".2f"),
            ("a drawing, ms", ".0f"),
            ("RMSE µT", ".2f"),
            ("in 95 %", ".3f"),
            ("resident, MB", ".0f"),
        ],
    )
    field, generator = RandomField(4, LENGTHSCALE, 1000), torch.Generator().manual_seed(2)
    session = MapSession(
        MapSettings(cell_length=0.2, window=20.0, **_ways(quick)["in tiles"]), TileRoom()
    )
    along, done, each = torch.tensor([0.8, 0.6], dtype=torch.float64), 0, []
    for row in range(rows):
        spent = drawing = drawings = 0.0
        errors, inside, cells, first = [], [], session.cell_count, done
        for _ in range(round(kilometres / rows / step)):
            count = round(step * 1000.0 / 5.0 * rate)
            x = along * (5.0 / rate * (done + torch.arange(count, dtype=torch.float64)))[:, None]
            truth = torch.cat(
                [MEAN + (field(part) - MEAN) * (SPREAD / 12.0) for part in x.split(1000)]
            )
            y = truth + NOISE * torch.randn(count, 1, dtype=torch.float64, generator=generator)
            stamp = 1.0 + (done + torch.arange(count, dtype=torch.float64)) / rate
            begin = time.process_time()
            for start in range(0, count, 25):  # as a node has them every 0.05 s
                part = slice(start, start + 25)
                session.ingest(Samples(x[part], y[part], stamp=stamp[part]))
                if start < count - 1000:
                    continue
                spent, begin = spent + time.process_time() - begin, time.process_time()
                session.render(2000)
                if start >= count - 500:  # the window is where the robot is by then
                    drawing, drawings = drawing + time.process_time() - begin, drawings + 1
                begin = time.process_time()
            spent, done = spent + time.process_time() - begin, done + count
            told = session.predict(x[:-500:97])  # up to 5 m behind
            errors.append(told.mean - truth[:-500:97])
            new = truth[:-500:97] + NOISE * torch.randn(
                len(told.mean), 1, dtype=torch.float64, generator=generator
            )
            inside.append((new - told.mean).abs() < 1.96 * told.measurement_variance.sqrt())
        absorbed = session.cell_count - cells
        each.append(
            (1e3 * spent / max(1, absorbed), resident_bytes() / 1e6, 1e3 * drawing / drawings)
        )
        table.add(
            f"to {(row + 1) * kilometres / rows:g} km",
            done,
            session.cell_count,
            session.report().get("tiles", 1),
            1e6 * spent / (done - first),
            each[-1][0],
            each[-1][2],
            1e6 * float(torch.cat(errors).square().mean().sqrt()),
            float(torch.cat(inside).double().mean()),
            each[-1][1],
        )
        print("scale:", *table.rows[-1], file=sys.stderr, flush=True)
    half = len(each) // 2
    late, early = (np.mean(part, 0) for part in (each[half:], each[1:half]))
    goals = [
        Goal(
            "100 km of road: time a cell, second half to the first", late[0] / early[0], high=1.05
        ),
        Goal("100 km of road: a drawing, second half to the first", late[2] / early[2], high=1.05),
        Goal(
            "100 km of road: most memory of the process",
            max(e[1] for e in each),
            high=600.0,
            unit="MB",
        ),
    ]
    return table, [] if quick else [*goals, *_opened(session)]


def _opened(session: MapSession) -> list[Goal]:
    """How long the map takes to save, and to open again, with its first prediction."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        saved = write_snapshot(take_snapshot(session, (0, 0, 0)), Path(folder), {}, exports=False)
        saving, begin = time.perf_counter() - begin, time.perf_counter()
        again = saved_session(saved.paths["checkpoint"])
        again.predict(session.map.inducing_inputs()[:1])
        opening = time.perf_counter() - begin
    return [
        Goal("100 km of road: the first save", saving, unit="s"),
        Goal("100 km of road: opened again", opening, high=2.0, unit="s"),
    ]


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """Those of the tables."""
    tables, goals = [], []
    for name in only:
        table, reached = {"survey": survey, "road": road, "long": long, "far": far}[name](quick)
        tables.append(table)
        goals += reached
    return Part("scale", goals, tables, where)
