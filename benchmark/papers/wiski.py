"""WISKI, matrix-free: time of an update against n and grid, of a refresh against the grid, errors, and protocol P."""

from __future__ import annotations

import sys
import time

import torch

from benchmark.recordings import RecordingsAbsent
from benchmark.tables import Goal, Part, Table
from benchmark.timing import median, paired, timed
from benchmark.worlds import RandomField
from gp_mapping.core.models.wiski.model import Wiski
from gp_mapping.core.registry import create_map
from gp_mapping.core.types import Samples
from gp_mapping.settings.mapping import MapSettings

__all__ = ["run"]

BATCH = 100
_POOL = 16
LENGTHSCALE = 0.5  # m: nodes 1/16 m apart, eight in a lengthscale
SETTINGS = {
    "lengthscale": LENGTHSCALE,
    "signal_stddev": 12e-6,
    "noise_stddev": 1e-6,
    "constant_stddev": 20e-6,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
}


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"wiski: {text}", file=sys.stderr, flush=True)


def side_of(nodes: int) -> float:
    """The side (m) of a square whose samples, with the margin, fill a box of nodes × nodes."""
    return (nodes - 2 * 16 - 2) * LENGTHSCALE / 8


def passes(
    field: RandomField,
    side: float,
    generator: torch.Generator,
    gap: float = 0.25,
    step: float = 0.1,
) -> Samples:
    """Cells every `step` metres on lanes `gap` apart, over the whole square."""
    lanes, along = torch.arange(0.0, side, gap).double(), torch.arange(0.0, side, step).double()
    x = torch.cartesian_prod(lanes, along).flip(1) + 0.01
    x = x + 0.02 * torch.randn(x.shape, dtype=torch.float64, generator=generator).clamp(-0.4, 0.4)
    return Samples(
        x, field(x) + 1e-6 * torch.randn(len(x), 1, dtype=torch.float64, generator=generator)
    )


class Stream:
    """A map over a square of the given number of nodes, and batches of 100 along short stretches of path in it."""

    def __init__(self, nodes: int, seed: int = 0, **settings):
        self.generator, self.field = (
            torch.Generator().manual_seed(seed),
            RandomField(seed, LENGTHSCALE),
        )
        self.side = side_of(nodes)
        self.map: Wiski = create_map("wiski", **(SETTINGS | settings))
        self.map.update(passes(self.field, self.side, self.generator))
        self.pool = [self.stretch() for _ in range(_POOL)]
        self.turn = 0

    def stretch(self) -> Samples:
        start = (self.side - 2.0) * torch.rand(
            1, 2, dtype=torch.float64, generator=self.generator
        ) + 0.5
        x = start + torch.stack(
            [0.01 * torch.arange(BATCH).double(), torch.zeros(BATCH).double()], 1
        )
        return self.field.measure(x, self.generator)

    def batch(self) -> None:
        self.map.update(self.pool[self.turn % _POOL])
        self.turn += 1


def megabytes(field: Wiski) -> float:
    """What the sums and the memory take."""
    states = (field.grid.state_dict(), field.memory.state_dict())
    tensors = [v for state in states for v in state.values() if torch.is_tensor(v)]
    return sum(t.numel() * t.element_size() for t in tensors) / 1e6


def updates(quick: bool) -> tuple[Table, list[Goal]]:
    """100 samples, at several sizes and numbers of samples, in turn."""
    table = Table(
        "100 raw samples into the sums; nothing is solved",
        [
            ("nodes", ""),
            ("n", "d"),
            ("median ms", ".2f"),
            ("least ms", ".2f"),
            ("state, MB", ".1f"),
        ],
    )
    streams = {n: Stream(n) for n in ((96,) if quick else (128, 512))}
    old = Stream(96 if quick else 128)
    generator = torch.Generator().manual_seed(1)
    while old.map.samples < (10**4 if quick else 10**6):
        x = old.side * torch.rand(20000, 2, dtype=torch.float64, generator=generator)
        old.map.update(old.field.measure(x, generator))
    works = {n: s.batch for n, s in streams.items()} | {"old": old.batch}
    seconds = paired(works, 10 if quick else 300)
    for name, stream in [*streams.items(), ("old", old)]:
        table.add(
            " × ".join(map(str, stream.map.grid.shape)),
            stream.map.samples,
            1e3 * median(seconds[name]),
            1e3 * min(seconds[name]),
            megabytes(stream.map),
        )
    first = next(iter(streams))
    ratio = median([b / a for a, b in zip(seconds[first], seconds["old"])])
    table.notes = ["One thread, processor time, all in turn. Memory full: 2000 samples."]
    return table, [
        Goal("WISKI, 100 samples: time", 1e3 * median(seconds[first]), high=0.6, unit="ms"),
        Goal("WISKI, 100 samples: time at n = 1e6 to that at the start", ratio, high=1.2),
    ]


def refreshes(quick: bool) -> tuple[Table, list[Goal]]:
    """The mean from nothing, and after 100 more samples; its error against a solution to 1e-6."""
    table = Table(
        "A refresh: the mean on the whole grid, and what the posterior keeps",
        [
            ("nodes", ""),
            ("samples", "d"),
            ("from nothing, s", ".2f"),
            ("iterations", "d"),
            ("after 100 samples, s", ".2f"),
            ("iterations then", "d"),
            ("error, posterior sd", ".4f"),
        ],
    )
    goals = []
    for nodes in (64,) if quick else (64, 128, 256):
        say(f"refresh at {nodes}")
        stream = Stream(nodes)
        field = stream.map
        cold = timed(field.refresh)
        first = field.iterations
        stream.batch()
        warm = timed(field.refresh)
        then, base = field.iterations, field.base
        field.tolerance = 1e-6
        true, _ = field.solve_refresh().result()
        places = stream.side * torch.rand(400, 2, dtype=torch.float64, generator=stream.generator)
        error = float(
            (
                (base.mean(places) - true.mean(places)).abs()[:, 0] / true.variance(places).sqrt()
            ).max()
        )
        table.add(
            " × ".join(map(str, field.grid.shape)), field.samples, cold, first, warm, then, error
        )
        if nodes == 128:
            goals = [
                Goal("WISKI, refresh at 128²: from nothing", cold, high=1.2, unit="s"),
                Goal("WISKI, refresh at 128²: error of the mean, posterior sd", error, high=0.05),
            ]
    return table, goals


def against_exact(quick: bool) -> tuple[Table, list[Goal]]:
    """Mean and standard deviation of map and exact GP, on cells and on raw samples."""
    table = Table(
        "Against the exact GP on the same samples, at 1000 random places",
        [
            ("samples", ""),
            ("n", "d"),
            ("noise µT", ".1f"),
            ("mean, rms in sd", ".3f"),
            ("mean, worst", ".3f"),
            ("sd, rms %", ".2f"),
            ("sd, worst %", ".2f"),
            ("drawing 512 × 512, s", ".2f"),
        ],
    )
    worst = []
    side = 2.0 if quick else 4.0
    for name, gap, step, noise in (
        ("cells, .1 m", 0.3, 0.1, 1.0),
        ("cells, .1 m", 0.3, 0.1, 0.3),
        ("raw, .02 m", 0.4, 0.02, 1.0),
    ):
        say(f"against the exact GP: {name}, {noise} µT")
        generator = torch.Generator().manual_seed(2)
        samples = passes(RandomField(2, LENGTHSCALE), side, generator, gap, step)
        settings = SETTINGS | {"noise_stddev": noise * 1e-6}
        maps = [create_map(model, **settings) for model in ("wiski", "exact")]
        for field in maps:
            field.update(samples)
        places = side * torch.rand(1000, 2, dtype=torch.float64, generator=generator)
        a, b = (field.predict(places) for field in maps)
        mean = ((a.mean - b.mean) / b.stddev).abs()
        ratio = 100 * (a.stddev / b.stddev - 1).abs()
        many = torch.cartesian_prod(*[torch.linspace(0, side, 512).double()] * 2)[::16]
        drawing = 16 * timed(lambda field=maps[0], at=many: field.predict(at))
        table.add(
            name,
            len(samples),
            noise,
            float(mean.square().mean().sqrt()),
            float(mean.max()),
            float(ratio.square().mean().sqrt()),
            float(ratio.max()),
            drawing,
        )
        worst.append(float(ratio.square().mean().sqrt()))
    table.notes = [
        "The mean's error is that of the solver (≤ .05 sd) and of interpolating the kernel at eight nodes "
        "in a lengthscale, which weighs more the less noise there is. Drawing: mean and sd, from a "
        "sixteenth of the places; the renderer asks for far fewer."
    ]
    return table, [
        Goal("WISKI, standard deviation against the exact GP: rms", max(worst), high=1.0, unit="%")
    ]


def protocol(quick: bool) -> tuple[Table, list[Goal]]:
    """Trials 1, 2, 3, 5 in order, tested on 4, everything learned online; dual_svgp beside it."""
    from benchmark.calibration.honesty_recordings import mapped
    from benchmark.protocol import TEST, TRAIN, positions, trials
    from gp_mapping.analysis.residuals import residuals

    table = Table(
        "Protocol P, everything learned online",
        [
            ("model", ""),
            ("RMSE µT", ".3f"),
            ("NLPD", ".3f"),
            ("in 95 %", ".3f"),
            ("mapping, s", ".1f"),
            ("ms a cell", ".1f"),
        ],
    )
    train, test, goals = trials(TRAIN, quick), trials([TEST], quick), []
    for model in ("wiski", "dual_svgp"):
        say(f"protocol P, {model}")
        start = time.process_time()
        session = mapped(train, model=model)
        seconds = time.process_time() - start
        found = residuals(session, test, positions(train)).summary()
        table.add(
            model,
            found["rmse_ut"],
            found["nlpd"],
            found["coverage"],
            seconds,
            1e3 * seconds / session.cell_count,
        )
        if model == "wiski":
            goals = [
                Goal("WISKI, protocol P, θ learned: RMSE", found["rmse_ut"], high=3.2, unit="µT"),
                Goal(
                    "WISKI, protocol P, θ learned: in 95 %", found["coverage"], low=0.88, high=0.98
                ),
            ]
    table.notes = [
        "Of the processor: cells, learning, scores and refreshes together. refresh_samples: "
        f"{MapSettings().refresh_samples}."
    ]
    return table, goals


def run(quick: bool, environment: dict) -> Part:
    """All tables; protocol P where the recordings are."""
    tables, goals = [], []
    for part in (updates, refreshes, against_exact, protocol):
        try:
            table, more = part(quick)
        except RecordingsAbsent as error:
            say(str(error))
            continue
        tables.append(table)
        goals += more
    return Part("wiski", goals, tables, environment)
