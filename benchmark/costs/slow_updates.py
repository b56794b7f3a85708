"""What single updates cost along a drive, and what the slow ones did: processor time of one thread, by cause.

Each named function is timed around its calls, less what the named functions inside it take; an update's cause is the
one that took most of it. The floor is measured between the updates of the same run (cost.py).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from benchmark.costs.cost import BATCH
from benchmark.costs.scale import LENGTHSCALE, MEAN, NOISE, RATE, SPREAD, lawnmower, path_of
from benchmark.protocol import TRAIN, trials
from benchmark.tables import Part, Table
from benchmark.worlds import RandomField
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.dual_svgp.rebuild import Rebuild
from gp_mapping.core.models.dual_svgp.rebuilding import Rebuilding
from gp_mapping.core.models.tiled.model import TiledMap
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.restarted import RestartedMap
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["TABLES", "Measured", "drive", "run"]

TABLES = ("survey", "road", "recordings")
SLOW = 0.05  # s
_CAUSES = (
    (TiledMap, "open_tile"),
    (TiledMap, "split_into_tiles"),
    (TiledMap, "shelve_tiles"),
    (Tile, "absorb_seed"),
    (Tile, "adopt_learned"),
    (Rebuilding, "begin_rebuild"),
    (Rebuilding, "advance_rebuild"),
    (Rebuild, "freeze"),
    (Tile, "stored"),
    (DualSVGP, "absorb"),
    (DualSVGP, "append"),
    (HyperLearner, "step"),
    (OneStepAhead, "score"),
    (OneStepAhead, "detect_change"),
    (OneStepAhead, "keep_posterior"),
    (OneStepAhead, "judge"),
    (RestartedMap, "feed"),
    (MapSession, "_open_with"),
    (Start, "add"),
)


@dataclass
class Measured:
    """Seconds of each call; the slow ones with what they did; seconds of each cause; floor: of single batches."""

    calls: list[float] = field(default_factory=list)
    slow: list[tuple[float, int, dict]] = field(
        default_factory=list
    )  # seconds, first sample, cause -> seconds
    total: Counter = field(default_factory=Counter)
    floor: list[float] = field(default_factory=list)
    session: MapSession | None = None

    def quantile(self, share: float) -> float:
        return sorted(self.calls)[min(len(self.calls) - 1, int(share * len(self.calls)))]


@contextmanager
def attributed() -> Iterator[dict[str, float]]:
    """In the block each cause adds its own seconds to the dict; who measures clears it."""
    spent: dict[str, float] = {}
    inside: list[float] = []  # what the causes within each open one took
    before = []
    for owner, name in _CAUSES:
        before.append((owner, name, owner.__dict__[name]))
        setattr(
            owner, name, _timed(getattr(owner, name), f"{owner.__name__}.{name}", spent, inside)
        )
    try:
        yield spent
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def _timed(
    function: Callable, label: str, spent: dict[str, float], inside: list[float]
) -> Callable:
    def timed(*arguments, **named):
        begin = time.thread_time()
        inside.append(0.0)
        try:
            return function(*arguments, **named)
        finally:
            took = time.thread_time() - begin
            spent[label] = spent.get(label, 0.0) + took - inside.pop()
            if inside:
                inside[-1] += took

    return timed


def _floor(size: int) -> Callable[[], None]:
    """L⁻¹B of 100 samples and D += VVᵀ at M = size: the least that an update of 100 samples does."""
    factor = (
        torch.eye(size, dtype=torch.float64)
        + 0.01 * torch.ones(size, size, dtype=torch.float64).tril()
    )
    factor, right = factor.mT.contiguous().mT, torch.randn(size, BATCH, dtype=torch.float64)
    precision = torch.eye(size, dtype=torch.float64)

    def once() -> None:
        white = torch.linalg.solve_triangular(factor, right, upper=False)
        precision.addmm_(white, white.mT).mul_(0.5)

    return once


def drive(parts: list[Samples], together: int = 10, **settings) -> Measured:
    """A session fed with passes, `together` raw samples a call: at most about one cell."""
    session, told = MapSession(MapSettings(**settings)), Measured()
    floor = _floor(400)
    floor()
    with attributed() as spent:
        for part in parts:
            session.break_pass()
            for start in range(0, len(part), together):
                spent.clear()
                begin = time.thread_time()
                session.ingest(part[start : start + together])
                took = time.thread_time() - begin
                told.calls.append(took)
                told.total.update(spent)
                if took > SLOW:
                    told.slow.append((took, start, dict(spent)))
                if len(told.calls) % 20 == 0:
                    begin = time.thread_time()
                    floor()
                    told.floor.append(time.thread_time() - begin)
    told.session = session
    return told


def _simulated(corners: list, speed: float, seed: int) -> list[Samples]:
    path, generator = path_of(corners, speed), torch.Generator().manual_seed(seed)
    values = MEAN + (RandomField(3, LENGTHSCALE, 1000)(path) - MEAN) * (SPREAD / 12.0)
    values = values + NOISE * torch.randn(len(path), 1, dtype=torch.float64, generator=generator)
    return [Samples(path, values, stamp=1.0 + torch.arange(len(path), dtype=torch.float64) / RATE)]


def _drives(quick: bool, only: tuple[str, ...]) -> Iterator[tuple[str, list[Samples], int, dict]]:
    small = {"max_inducing": 60, "memory_size": 400} if quick else {}
    side = 2.0 if quick else 12.0
    if "survey" in only:
        yield (
            f"survey of {side:g} × {side:g} m",
            _simulated(lawnmower(side, side), 0.5, 1),
            10,
            small,
        )
    if "road" in only:
        length = 10.0 if quick else 200.0
        yield (
            f"road of {length:g} m",
            _simulated([(0.0, 0.0), (0.8 * length, 0.6 * length)], 5.0, 2),
            1,
            small,
        )
    if "recordings" in only:
        yield "four recordings", trials(TRAIN, quick), 10, small


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """How the cost of calls is distributed, and what makes the slow ones slow."""
    costs = Table(
        "One call with at most one cell, everything learned, defaults",
        [
            ("", ""),
            ("cells", "d"),
            ("tiles", "d"),
            ("ms per s of data", ".1f"),
            ("ms a cell", ".1f"),
            ("floor, ms", ".2f"),
            ("median ms", ".1f"),
            ("99 %", ".1f"),
            ("99.9 %", ".1f"),
            ("worst", ".0f"),
            ("worst, in floors", ".0f"),
            ("above 50 ms", "d"),
            ("above 100 ms", "d"),
        ],
    )
    causes = Table(
        "What calls above 50 ms did most of the time",
        [("", ""), ("cause", ""), ("calls", "d"), ("of all time", ".3f"), ("worst ms", ".0f")],
    )
    for name, parts, together, settings in _drives(quick, only):
        print(f"slow_updates: {name}", file=sys.stderr, flush=True)
        told = drive(parts, together, **settings)
        total, worst = sum(told.calls), max(told.calls)
        floor = sorted(told.floor)[len(told.floor) // 2] if told.floor else float("nan")
        cells = told.session.cell_count
        costs.add(
            name,
            cells,
            told.session.report().get("tiles", 1),
            1e3 * total / (sum(map(len, parts)) / RATE),
            1e3 * total / max(1, cells),
            1e3 * floor,
            *(1e3 * told.quantile(q) for q in (0.5, 0.99, 0.999)),
            1e3 * worst,
            worst / floor,
            len(told.slow),
            sum(t > 0.1 for t in told.calls),
        )
        by: dict[str, list[float]] = {}
        for took, _, spent in told.slow:
            by.setdefault(max(spent, key=spent.get), []).append(took)
        for cause in sorted(told.total, key=told.total.get, reverse=True)[:8]:
            slow = by.get(cause, [])
            causes.add(
                name, cause, len(slow), told.total[cause] / total, 1e3 * max(slow, default=0.0)
            )
    return Part("slow_updates", [], [costs, causes], where)
