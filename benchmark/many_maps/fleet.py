"""Many bags as one map: the same map with one worker, with two, and with workers killed in the middle; what each costs.

Robots drive lanes in rectangles of their own over one hall; the field has a Matérn-5/2 spectrum, ℓ 0.6 m, 50 Hz.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmark.tables import Goal, Part, Table
from benchmark.timing import resident_bytes
from benchmark.worlds import RandomField
from gp_mapping.fleet.bags import agreed_by, read_bags
from gp_mapping.fleet.engine import ClusterEngine, Engine, connect_engine
from gp_mapping.fleet.mapping import map_bags
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.settings.build import Parameters

__all__ = ["TABLES", "run"]

TABLES = ("workers", "killed")
RATE, SPEED, LANE, HALL, NOISE = 50.0, 0.5, 0.4, 12.0, 0.3e-6  # Hz, m/s, m, m, T
CALIBRATION = 300  # cells of each bag
_COLUMNS = [
    ("", ""),
    ("s", ".1f"),
    ("busiest worker, s of processor", ".1f"),
    ("all workers", ".1f"),
    ("killed", "d"),
    ("cells", "d"),
    ("tiles", "d"),
    ("client grew, MB", ".0f"),
    ("equal to the bit", ""),
]


def run(
    quick: bool,
    where: dict,
    only: tuple[str, ...] = TABLES,
    sample: int = 50_000,
    bags: int = 8,
    seed: int = 0,
    period: float = 10.0,
) -> Part:
    """sample: measurements of a bag.  bags: how many.  period: s between two kills.

    only: one worker beside two ("workers"), two workers beside two that are killed ("killed").
    """
    sample, bags = (3000, 3) if quick else (sample, bags)
    with tempfile.TemporaryDirectory(prefix="gp_mapping_fleet_") as folder:
        paths = [_bag(Path(folder), i, sample, seed) for i in range(bags)]
        size = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()) / bags
        print(
            f"fleet: {bags} bags of {sample} measurements, {size / 1e6:.1f} MB each",
            file=sys.stderr,
        )
        runs = [
            _measured(paths, workers, every)
            for table, workers, every in (("workers", 1, 0.0), ("", 2, 0.0), ("killed", 2, period))
            if table in ("", *only)
        ]
    table = Table(f"{bags} bags of {sample} measurements and {size / 1e6:.1f} MB", _COLUMNS)
    equal = [_same(runs[0].state, one.state) for one in runs]
    for one, same in zip(runs, equal):
        table.add(
            one.name,
            one.seconds,
            one.busiest,
            one.all,
            one.killed,
            one.report["cells"],
            one.report["tiles"],
            one.megabytes,
            "yes" if same else "NO",
        )
    table.notes.append(
        f"{runs[0].all / bags:.1f} s of processor for a bag, of which {CALIBRATION} cells are a map of "
        "their own."
    )
    goals = [
        Goal("runs whose map is the same to the bit, of all", sum(equal) / len(equal), low=1.0)
    ]
    if "workers" in only:
        goals.insert(
            0,
            Goal(
                "speed-up on two workers, by processor time of the busiest",
                runs[0].busiest / runs[1].busiest,
                low=1.8,
            ),
        )
    return Part("fleet", goals, [table], where)


@dataclass
class _Run:
    """seconds: by the clock.  busiest, all: s of processor of workers.  killed: how many.  megabytes: that this process
    grew by.  state: of the session."""

    name: str
    seconds: float
    busiest: float
    all: float
    killed: int
    megabytes: float
    report: dict
    state: dict


def _measured(paths: list[str], workers: int, period: float) -> _Run:
    """One map. period: s between two kills; 0 for none."""
    given, killed, over = Parameters.build({}), [], threading.Event()
    with connect_engine(workers) as engine, tempfile.TemporaryDirectory() as keep:
        memory, start, before = resident_bytes(), time.perf_counter(), _busy(engine)
        executioner = threading.Thread(target=_execute, args=(engine, period, killed, over))
        if period:
            executioner.start()
        read = read_bags(engine, paths, given, {}, Path(keep), CALIBRATION)
        made = map_bags(engine, read, agreed_by(read, given.map), given.map)
        over.set()
        if period:
            executioner.join()
        seconds = time.perf_counter() - start
        spent = [after - before.get(pid, 0.0) for pid, after in _busy(engine).items()]
        gone = sum(killed)
    name = f"{workers} worker{'s' * (workers > 1)}" + (
        f", one killed each {period:g} s" if period else ""
    )
    return _Run(
        name,
        seconds,
        max(spent),
        sum(spent) + gone,
        len(killed),
        (resident_bytes() - memory) / 1e6,
        made.session.report(),
        made.session.state_dict(),
    )


def _busy(engine: Engine) -> dict[int, float]:
    """Processor seconds so far of each worker, by process; of one that was killed, since it was started again."""
    if isinstance(engine, ClusterEngine):
        return dict(engine.client.run(_mine).values())
    return dict([_mine()])


def _mine() -> tuple[int, float]:
    # where workers are not forked, what each loads once, 3 s of processor, is not counted
    importlib.import_module("gp_mapping.fleet.drawing")
    return os.getpid(), time.process_time()


def _execute(
    engine: ClusterEngine, period: float, killed: list[float], over: threading.Event
) -> None:
    """Kill one worker after the other, drawn at random. killed: s of processor that each had used."""
    choice = random.Random(0)
    while not over.wait(period):
        pids = sorted(n.pid for n in list(engine.workers.cluster.workers.values()) if n.pid)
        with suppress(OSError, IndexError):
            pid = choice.choice(pids)
            used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            os.kill(pid, signal.SIGKILL)
            killed.append(sum(map(int, used)) / os.sysconf("SC_CLK_TCK"))


def _bag(folder: Path, number: int, sample: int, seed: int) -> str:
    """A drive along lanes of a rectangle of its own, until the measurements are made."""
    field, generator = RandomField(seed), np.random.default_rng(1000 * seed + number)
    low = generator.uniform(0.0, HALL / 2, 2)
    high = low + HALL / 2
    corners = []
    for lane in range(int((high[1] - low[1]) / LANE) + 1):
        ends = (low[0], high[0]) if lane % 2 == 0 else (high[0], low[0])
        corners += [(x, low[1] + lane * LANE) for x in ends]
    way = np.array(corners + corners[-2:0:-1])  # there, and back again
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(way, axis=0), axis=1))])
    at = (np.arange(sample) * SPEED / RATE) % along[-1]
    x = np.stack([np.interp(at, along, way[:, k]) for k in (0, 1)], 1)
    values = field(torch.from_numpy(x)).numpy()[:, 0] + NOISE * generator.standard_normal(sample)
    ahead = np.gradient(x, axis=0)
    yaw = 0.5 * np.arctan2(ahead[:, 1], ahead[:, 0])
    with BagWriter(folder / f"robot{number}") as bag:
        for i in range(sample):
            stamp = round((1e5 * (number + 1) + i / RATE) * 1e9)
            bag.odometry(stamp, (*x[i], 0.0), (0.0, 0.0, np.sin(yaw[i]), np.cos(yaw[i])))
            bag.magnetic_field(stamp, (values[i], 0.0, 0.0))
    return str(folder / f"robot{number}")


def _same(one, other) -> bool:
    """Whether two states are the same, bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if torch.is_tensor(one):
        return torch.equal(one, other)
    return one == other or (hasattr(one, "get") and _same(one.get(), other.get()))
