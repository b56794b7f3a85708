"""Other sensors, nothing set but `sensor`: does the map find its starts, and is it as good as from the right ones?"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from benchmark.drawn import DrawnField, ProcessField, exact_scores, lanes, scores
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.types import Samples
from gp_mapping.mapping.response.lag import step_weights
from gp_mapping.mapping.scoring.error_shape import degrees_of, half_width
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for

__all__ = ["TABLES", "WORLDS", "World", "run"]

TABLES = ("others", "slow")


@dataclass(frozen=True)
class World:
    """A sensor in a field. mean, spread, noise: in its unit.  length, lane, width, depth: m.  rate: Hz.  speed: m/s.

    counts: what is measured is drawn from a Poisson distribution of that mean, and noise is its usual spread.
    tail: whether so many samples tell so small details that a field of few waves would look smoother than it is.
    """

    sensor: str
    mean: float
    spread: float
    noise: float
    length: float
    rate: float
    speed: float
    lane: float
    width: float
    depth: float
    counts: bool = False
    tail: bool = False

    def field(self, seed: int) -> DrawnField | ProcessField:
        """The field of that seed."""
        if self.tail:
            return ProcessField(self.length, seed, self.mean, self.spread)
        return DrawnField(
            self.length,
            seed,
            self.mean,
            self.spread,
            least=0.02 * self.mean if self.counts else None,
        )

    def measure(self, truth: Tensor, generator: torch.Generator) -> Tensor:
        """(N, 1) what the sensor says where the field is `truth` (N, 1)."""
        if self.counts:
            return torch.poisson(truth, generator=generator)
        return truth + self.noise * torch.randn(
            truth.shape, dtype=torch.float64, generator=generator
        )

    def drive(self, seed: int) -> Samples:
        """One lawnmower of the area, at the sensor's own rate."""
        x = lanes(self.width, self.depth, self.lane, self.speed / self.rate)
        stamp = torch.arange(len(x), dtype=torch.float64) / self.rate
        return Samples(
            x, self.measure(self.field(seed)(x), torch.Generator().manual_seed(seed)), stamp=stamp
        )


WORLDS = {
    "temperature °C": World("temperature", 21.0, 2.8, 0.15, 12.0, 2.0, 1.0, 5.0, 40.0, 30.0),
    "humidity 1": World("relative_humidity", 0.45, 0.08, 0.01, 8.0, 1.0, 0.5, 3.0, 25.0, 20.0),
    "pressure Pa": World("fluid_pressure", 101325.0, 5.0, 1.0, 30.0, 5.0, 2.0, 10.0, 60.0, 40.0),
    "illuminance lx": World("illuminance", 300.0, 100.0, 10.0, 3.0, 2.0, 0.5, 2.0, 12.0, 10.0),
    "RSSI dBm": World("scalar", -65.0, 9.0, 2.5, 5.0, 1.0, 0.5, 2.5, 25.0, 20.0),
    "gas ppm": World("scalar", 400.0, 60.0, 5.0, 2.0, 0.2, 0.1, 1.0, 8.0, 8.0),
    "counts 1": World("scalar", 100.0, 35.0, 10.0, 5.0, 1.0, 0.4, 2.5, 25.0, 20.0, counts=True),
    "range m": World("range", 2.0, 0.4, 0.02, 1.0, 50.0, 0.5, 1.0, 6.0, 5.0, tail=True),
}


# thermometers that follow slowly: time constant, s, and noise, °C
SLOW = ((3.0, 0.05), (1.0, 0.05), (3.0, 0.15), (10.0, 0.05), (0.0, 0.05))


def mapped(world: World, drive: Samples, **settings) -> MapSession:
    """The map of one drive; nothing is set but the sensor and what is given."""
    session = MapSession(map_settings_for(world.sensor, MapSettings(**settings)))
    session.ingest(drive)
    session.finish()
    return session


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """All sensors; GP_MAPPING_SEEDS is the number of worlds of each (default 20; quick: 1)."""
    seeds = range(1 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "20")))
    where["seeds"] = len(seeds)
    tables, goals = [], []
    if "others" in only:
        table, reached = _others(seeds, list(WORLDS)[:2] if quick else list(WORLDS))
        tables, goals = [*tables, table], [*goals, *reached]
    if "slow" in only:
        table, least = _slow(seeds, SLOW[:1] if quick else SLOW)
        tables.append(table)
        goals.append(Goal("Slow sensors: least coverage of the field", least, low=0.92))
    return Part("sensors", goals, tables, where)


def _others(seeds, names: list[str]) -> tuple[Table, list[Goal]]:
    """Sensors that follow at once, and the goals that they reach."""
    table = Table(
        "Other sensors, nothing set but `sensor`: the field between the lanes, and new measurements there",
        [
            ("sensor", ""),
            ("ℓ m", "g"),
            ("found m", ".2f"),
            ("noise", "g"),
            ("found", ".3g"),
            ("RMSE / right start's", ".3f"),
            ("worst", ".3f"),
            ("RMSE / exact GP's", ".3f"),
            ("in 95 %", ".3f"),
            ("from the right start", ".3f"),
            ("exact GP's", ".3f"),
            ("least of a world", ".3f"),
            ("exact GP's", ".3f"),
            ("ms a sample", ".1f"),
        ],
    )
    worst_ratio, worst_apart, covered = 0.0, 0.0, []
    for name in names:
        world, rows = WORLDS[name], []
        for seed in seeds:
            print(f"sensors: {name}, seed {seed}", file=sys.stderr, flush=True)
            rows.append(_one(world, seed))
        mean = [sum(column) / len(rows) for column in zip(*rows)]
        length, noise, own, right, exact, inside, inside_right, inside_exact, cost = mean
        table.add(
            name,
            world.length,
            length,
            world.noise,
            noise,
            own / right,
            max(r[2] / r[3] for r in rows),
            own / exact,
            inside,
            inside_right,
            inside_exact,
            min(r[5] for r in rows),
            min(r[7] for r in rows),
            cost,
        )
        worst_ratio, covered = max(worst_ratio, own / right), [*covered, inside]
        worst_apart = max(worst_apart, abs(inside - inside_right))
    table.notes = [
        f"{len(seeds)} worlds of each sensor: draws of a Matérn-5/2 process by random Fourier features, one "
        "lawnmower each. Right start: lengthscale, signal and noise as the world was drawn. Exact GP: all "
        "measurements of the drive, with these. Places are drawn at random within the area."
    ]
    goals = [
        Goal("Sensors: worst mean ratio of RMSE to the right start's", worst_ratio, high=1.10),
        Goal("Sensors: most that coverage differs from the right start's", worst_apart, high=0.02),
        Goal("Sensors: least coverage", min(covered), low=0.92),
        Goal("Sensors: most coverage", max(covered), high=0.97),
    ]
    return table, goals


def _slow(seeds, kinds) -> tuple[Table, float]:
    """Thermometers that follow slowly, nothing set but `sensor`; the least of the mean coverages."""
    table = Table(
        "A thermometer that follows with a time constant τ, 0.5 m/s, lanes 1 m apart over 12 × 8 m, ℓ 2 m, 1.5 °C",
        [
            ("τ s", "g"),
            ("noise °C", "g"),
            ("found s", ".2f"),
            ("least", ".2f"),
            ("most", ".2f"),
            ("RMSE °C", ".3f"),
            ("taken for fast", ".3f"),
            ("exact GP, no lag", ".3f"),
            ("field in 95 %", ".3f"),
            ("in 50 %", ".2f"),
            ("least of a world", ".3f"),
            ("taken for fast", ".3f"),
            ("ms a sample", ".1f"),
            ("taken for fast", ".1f"),
        ],
    )
    covered = []
    for tau, noise in kinds:
        rows = []
        for seed in seeds:
            print(f"sensors: τ {tau:g} s, seed {seed}", file=sys.stderr, flush=True)
            rows.append(_one_slow(seed, tau, noise))
        found, own, fast, exact, inside, half, inside_fast, cost, cost_fast = (
            sum(column) / len(rows) for column in zip(*rows)
        )
        each = [row[0] for row in rows]
        least = min(row[4] for row in rows)
        numbers = found, min(each), max(each), own, fast, exact, inside, half, least
        table.add(tau, noise, *numbers, inside_fast, cost, cost_fast)
        covered.append(inside)
    table.notes = [
        f"{len(seeds)} worlds of each: draws of a Matérn-5/2 process, the noise after the lag, 10 Hz. Taken for fast: "
        "learn_response_time: never. Exact GP: of the same drive with a sensor that follows at once."
    ]
    return table, min(covered)


def _followed(field: ProcessField, tau: float, parts: int = 10) -> Tensor:
    """(N, 1) what the sensor tells at its stamps: τ ẏ + y = f, exact for f linear over a hundredth of a second."""
    places = lanes(12.0, 8.0, 1.0, 0.05 / parts)
    truth = field(places)
    if not tau:
        return truth[::parts]
    elapsed = torch.tensor(0.1 / parts, dtype=torch.float64)
    a, before, now = (float(part) for part in step_weights(elapsed, tau))
    value, told = float(truth[0]), [float(truth[0])]
    for old, new in pairwise(truth[:, 0].tolist()):
        value = a * value + before * old + now * new
        told.append(value)
    return torch.tensor(told, dtype=torch.float64)[::parts, None]


def _one_slow(seed: int, tau: float, noise: float) -> list[float]:
    """τ found; RMSE of the map, without it, of the exact GP; coverage of both; ms a sample."""
    field = ProcessField(2.0, seed, 21.0, 1.5)
    x = lanes(12.0, 8.0, 1.0, 0.05)
    generator = torch.Generator().manual_seed(seed)
    truth, stamp = field(x), 0.1 * torch.arange(len(x), dtype=torch.float64)
    white = noise * torch.randn(truth.shape, dtype=torch.float64, generator=generator)

    drive = Samples(x, _followed(field, tau) + white, stamp=stamp)

    area = torch.tensor([12.0, 8.0], dtype=torch.float64)
    places = area * torch.rand(500, 2, dtype=torch.float64, generator=generator)
    world, there = WORLDS["temperature °C"], field(places)
    maps, costs = [], []
    for learn in ("sensor", "never"):
        start = time.process_time()
        maps.append(mapped(world, drive, learn_response_time=learn))
        costs.append(1e3 * (time.process_time() - start) / len(drive))

    out = []
    for session in maps:
        told_there = session.predict(places)
        error = (there - told_there.mean) / told_there.variance.sqrt()
        degrees = degrees_of(told_there)[:, None]
        out.append(
            [
                float((there - told_there.mean).square().mean().sqrt()),
                *(
                    float((error.abs().numpy() <= half_width(level, degrees)).mean())
                    for level in (0.95, 0.5)
                ),
            ]
        )
    exact = exact_scores(
        Samples(x, truth + white, stamp=stamp), 2.0, 1.5, noise, places, field, there
    )
    (own, inside, half), (fast, inside_fast, _) = out
    found = maps[0].response.seconds
    return [found, own, fast, exact.rmse, inside, half, inside_fast, *costs]


def _one(world: World, seed: int) -> list[float]:
    """ℓ and noise found; RMSE of the map, from the right start, of the exact GP; coverage of all three; ms a sample."""
    drive, truth = world.drive(seed), world.field(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    area = torch.tensor([world.width, world.depth], dtype=torch.float64)
    places = area * torch.rand(500, 2, dtype=torch.float64, generator=generator)
    fresh = world.measure(truth(places), generator)
    start = time.process_time()
    own = mapped(world, drive)
    cost = 1e3 * (time.process_time() - start) / len(drive)
    right = mapped(
        world, drive, lengthscale=world.length, signal_stddev=world.spread, noise_stddev=world.noise
    )
    told, best = scores(own, places, truth, fresh), scores(right, places, truth, fresh)
    exact = exact_scores(drive, world.length, world.spread, world.noise, places, truth, fresh)
    return [
        own.report()["hyperparameters"]["lengthscale"],
        own.report()["noise_stddev"],
        told.rmse,
        best.rmse,
        exact.rmse,
        told.coverage,
        best.coverage,
        exact.coverage,
        cost,
    ]
