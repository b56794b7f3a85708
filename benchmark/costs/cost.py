"""Cost of a batch of 100 samples: against M beside a floor, with lazily grown z, against n, and with two threads."""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor

from benchmark.costs import cost_learning
from benchmark.tables import Goal, Part, Table
from benchmark.timing import median, paired, resident_bytes, timed
from benchmark.worlds import (
    LENGTHSCALE,
    STEP,
    RandomField,
    fixed_inputs,
    lawnmower,
    scattered,
    side_for,
)
from gp_mapping import create_map
from gp_mapping.core.types import Samples

__all__ = ["run", "tensor_bytes"]

BATCH = 100
_POOL = 16  # batches prepared beforehand and used in turn
_GOALS_MS = {400: 6.0, 1000: 35.0}
SETTINGS = {
    "lengthscale": LENGTHSCALE,
    "signal_stddev": 12e-6,
    "noise_stddev": 0.5e-6,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
}


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"cost: {text}", file=sys.stderr, flush=True)


class Stream:
    """A map with M fixed inducing inputs in a random field, and batches of 100 for it."""

    def __init__(self, inducing: int, seed: int = 0, **settings):
        self.generator = torch.Generator().manual_seed(seed)
        self.field, self.side = RandomField(seed), side_for(inducing)
        self.z = fixed_inputs(inducing, self.generator, settings.get("device", "cpu"))
        self.map = create_map("dual_svgp", inducing_inputs=self.z, **(SETTINGS | settings))
        self.pool = [self.samples(BATCH) for _ in range(_POOL)]
        self.turn = 0

    def samples(self, count: int) -> Samples:
        return scattered(self.field, count, self.side, self.generator)

    def batch(self) -> None:
        """Absorb 100 samples and factor: what a map costs that is asked after every batch."""
        self.map.update(self.pool[self.turn % _POOL])
        self.map.posterior  # noqa: B018 the property factors
        self.turn += 1


class Floor:
    """The least that such an update can do: L⁻¹B for a batch, and D += VVᵀ. 3 M² · 100 flops."""

    def __init__(self, factor: Tensor):
        m = len(factor)
        self.factor = (
            factor.mT.contiguous().mT
        )  # column-major, as LAPACK wants it: the faster of the two
        self.right = [torch.randn(m, BATCH, dtype=torch.float64) for _ in range(_POOL)]
        self.precision, self.turn = torch.eye(m, dtype=torch.float64), 0

    def batch(self) -> None:
        white = torch.linalg.solve_triangular(
            self.factor, self.right[self.turn % _POOL], upper=False
        )
        self.precision.addmm_(white, white.mT)
        self.turn += 1


def against_size(quick: bool) -> tuple[Table, list[Goal]]:
    """Fixed inducing inputs, paired with the floor; each size in several rounds."""
    table = Table(
        "100 raw samples into a map with M fixed inducing inputs, factorisation included",
        [
            ("M", "d"),
            ("ratio to floor", ".2f"),
            ("ratio of least", ".2f"),
            ("median ms", ".2f"),
            ("least ms", ".2f"),
            ("floor, median ms", ".2f"),
            ("floor, least ms", ".2f"),
            ("floor, Mflop", ".0f"),
            ("runs", "d"),
        ],
    )
    goals = []
    for inducing in (20, 40) if quick else (100, 200, 400, 1000):
        say(f"M = {inducing}, fixed z")
        stream = Stream(inducing)
        floor = Floor(_factor(stream))
        for _ in range(3):
            stream.batch()
            floor.batch()
        runs = 5 if quick else max(40, 20000 // inducing)
        seconds = paired({"map": stream.batch, "floor": floor.batch}, runs)
        ratio = median([a / b for a, b in zip(seconds["map"], seconds["floor"])])
        table.add(
            inducing,
            ratio,
            min(seconds["map"]) / min(seconds["floor"]),
            1e3 * median(seconds["map"]),
            1e3 * min(seconds["map"]),
            1e3 * median(seconds["floor"]),
            1e3 * min(seconds["floor"]),
            3 * inducing**2 * BATCH / 1e6,
            runs,
        )
        if inducing in _GOALS_MS:
            goals += [
                Goal(
                    f"100 samples, M = {inducing}: time",
                    1e3 * median(seconds["map"]),
                    high=_GOALS_MS[inducing],
                    unit="ms",
                ),
                Goal(f"100 samples, M = {inducing}: ratio to floor", ratio, high=3.0),
            ]
    table.notes = [
        "One thread, float64, processor time; map and floor in turn. Ratio: median over pairs; ratio of "
        "least: of the two minima. Floor: one triangular solve M × M on M × 100 (M² · 100 flop) and a "
        "rank-100 update of an M × M matrix (2 M² · 100 flop), by torch. The map also evaluates the "
        "kernel, weighs and stores what it remembers (M² · 100 flop), and factors (M³/3 flop)."
    ]
    return table, goals


def _factor(stream: Stream) -> Tensor:
    """chol k(z, z), from the map itself."""
    stream.batch()
    return stream.map.basis.L


def lazy(quick: bool) -> Table:
    """z grown along a drive, the budget reached on the way: growing and moving z included."""
    table = Table(
        "100 raw samples into a map that grows its inducing inputs along a drive",
        [
            ("M ≤", "d"),
            ("M at the end", "d"),
            ("batches", "d"),
            ("median ms", ".2f"),
            ("99 % ms", ".2f"),
            ("worst ms", ".2f"),
            ("the last 50, median ms", ".2f"),
            ("moves of z", "d"),
        ],
    )
    for budget in (20,) if quick else (100, 200, 400, 1000):
        say(f"M ≤ {budget}, lazy z")
        generator, field = torch.Generator().manual_seed(1), RandomField(1)
        side = 1.3 * side_for(budget)  # a little more than the budget will cover
        spacing = 0.25 if budget <= 400 else 0.5
        path = lawnmower(0.0, side, spacing, STEP if budget <= 400 else 2 * STEP)
        samples = field.measure(path[: 1000 if quick else None], generator)
        new = create_map("dual_svgp", max_inducing=budget, **SETTINGS)
        seconds, moves = [], 0

        def absorb(part: Samples, into=new):
            nonlocal moves
            moves += into.update(part).removed > 0
            into.posterior  # noqa: B018

        for start in range(0, len(samples) - BATCH, BATCH):
            part = samples[start : start + BATCH]
            seconds.append(timed(lambda part=part: absorb(part)))
        ordered = sorted(seconds)
        table.add(
            budget,
            len(new.basis),
            len(seconds),
            1e3 * median(seconds),
            1e3 * ordered[int(0.99 * len(ordered))],
            1e3 * ordered[-1],
            1e3 * median(seconds[-50:]),
            moves,
        )
    table.notes = [
        "A lawnmower over a square somewhat larger than the budget covers: M grows to the budget, then z is "
        "chosen again (a move), a twentieth fewer each time. Raw samples, no cells."
    ]
    return table


def tensor_bytes(state) -> int:
    """Bytes of all tensors in a nested state_dict."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    parts = (
        state.values()
        if isinstance(state, dict)
        else state
        if isinstance(state, (list, tuple))
        else ()
    )
    return sum(tensor_bytes(part) for part in parts)


def against_samples(quick: bool) -> tuple[Table, list[Goal]]:
    """The same map after n = 1e4 and 1e6 samples, timed in turn; and its memory."""
    inducing, few, many = (30, 2000, 20000) if quick else (400, 10**4, 10**6)
    say(f"n = {few} and {many}, M = {inducing}")
    young, old = Stream(inducing), Stream(inducing)
    report, sizes, resident = {}, {}, {}
    for name, stream, count in (("young", young, few), ("old", old, many)):
        piece = min(few, 10**4)
        for _ in range(count // piece):
            report[name] = stream.map.update(stream.samples(piece))
        stream.batch()
        sizes[name], resident[name] = tensor_bytes(stream.map.state_dict()), resident_bytes()
    seconds = paired({"young": young.batch, "old": old.batch}, 10 if quick else 150)
    table = Table(
        f"100 raw samples against n, M = {inducing} fixed",
        [
            ("n", "d"),
            ("ratio", ".3f"),
            ("median ms", ".2f"),
            ("least ms", ".2f"),
            ("state, MB", ".2f"),
            ("resident after, MB", ".0f"),
            ("remembered", "d"),
        ],
    )
    ratio = median([b / a for a, b in zip(seconds["young"], seconds["old"])])
    for name, n, r in (("young", few, 1.0), ("old", many, ratio)):
        table.add(
            n,
            r,
            1e3 * median(seconds[name]),
            1e3 * min(seconds[name]),
            sizes[name] / 1e6,
            resident[name] / 1e6,
            report[name].memory,
        )
    table.notes = [
        "Samples in pieces of 10,000 up to n, then batches of 100, both maps in turn. State: bytes of the "
        "tensors in state_dict. Resident: of the process, after each was filled (it holds both)."
    ]
    return table, [
        Goal("100 samples: time at n = 1e6 to that at n = 1e4", ratio, high=1.2),
        Goal("state at n = 1e6 to that at n = 1e4", sizes["old"] / sizes["young"], high=1.001),
    ]


def threads(quick: bool) -> Table:
    """Wall time with one and with two threads."""
    table = Table(
        "100 raw samples with one and two threads, wall time",
        [
            ("M", "d"),
            ("1 thread, least ms", ".2f"),
            ("2 threads, least ms", ".2f"),
            ("1 thread, median ms", ".2f"),
            ("2 threads, median ms", ".2f"),
        ],
    )
    for inducing in (30,) if quick else (100, 400, 1000):
        say(f"M = {inducing}, threads")
        stream, found = Stream(inducing), {1: [], 2: []}
        try:
            for _ in range(2 if quick else 5):
                for count in found:
                    torch.set_num_threads(count)
                    stream.batch()
                    found[count] += [timed(stream.batch, time.perf_counter) for _ in range(8)]
        finally:
            torch.set_num_threads(1)
        table.add(
            inducing,
            *(1e3 * min(found[k]) for k in (1, 2)),
            *(1e3 * median(found[k]) for k in (1, 2)),
        )
    table.notes = [
        "Wall time, so that whatever else the machine does is in it; see the load average above."
    ]
    return table


def run(quick: bool, environment: dict) -> Part:
    """All tables of cost."""
    first, goals = against_size(quick)
    third, more = against_samples(quick)
    tables = [first, lazy(quick), third, threads(quick), *cost_learning.tables(quick)]
    return Part("cost", goals + more, tables, environment)
