"""512 × 512 mean and standard deviation at M = 400: in full, after each batch of 100, and what the shortcuts cost."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from benchmark.costs.cost import SETTINGS
from benchmark.tables import Goal, Part, Table
from benchmark.timing import median, timed
from benchmark.worlds import RandomField, lawnmower
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["run"]

_CELLS = 512
_RESOLUTION = 0.0125  # m: a room of 6.4 m
_MARGIN = 0.5


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"render: {text}", file=sys.stderr, flush=True)


def room(quick: bool) -> tuple[MapSession, list]:
    """A session that has driven once over a room; the batches of a second drive, across the lanes of the first."""
    cells, resolution = (64, 0.05) if quick else (_CELLS, _RESOLUTION)
    low, high = 0.5, cells * resolution - 0.5
    settings = MapSettings(
        **SETTINGS
        | {"resolution": resolution, "margin": _MARGIN - 1e-6, "max_inducing": 60 if quick else 400}
    )
    session, field, generator = (
        MapSession(settings),
        RandomField(3),
        torch.Generator().manual_seed(3),
    )
    first = field.measure(lawnmower(low, high, 0.5 if quick else 0.3, 0.0108), generator)
    session.ingest(first)
    session.break_pass()
    second = field.measure(lawnmower(low, high, 0.3).flip(1), generator)
    return session, [second[k : k + 100] for k in range(0, 1000 if quick else 20000, 100)]


def errors(session: MapSession, grid: FieldGrid) -> tuple[Tensor, Tensor]:
    """Of the drawn mean, in predictive standard deviations, and of the drawn stddev, relative; all cells."""
    direct = session.predict(grid.centres())
    predictive = direct.measurement_variance[:, 0].sqrt()
    mean = (grid.mean.reshape(-1) - direct.mean[:, 0]).abs() / predictive
    return mean, (grid.stddev.reshape(-1) / direct.stddev[:, 0] - 1.0).abs()


def quantiles(values: Tensor) -> list[float]:
    """Root mean square, 99 %, largest."""
    ordered = values.sort().values
    return [
        float(values.square().mean().sqrt()),
        float(ordered[int(0.99 * len(ordered))]),
        float(ordered[-1]),
    ]


def full(session: MapSession, repeats: int) -> list[float]:
    """Seconds to draw everything, the renderer having forgotten what it drew."""
    seconds = []
    for _ in range(repeats):
        session.renderer.__init__(session.settings)
        seconds.append(timed(session.render))
    return seconds


def run(quick: bool, environment: dict) -> Part:
    """Both tables."""
    say("driving")
    session, batches = room(quick)
    say("in full")
    whole = full(session, 2 if quick else 7)
    everything = session.renderer.points_drawn
    grid = session.render()
    name = f"{grid.shape[1]} × {grid.shape[0]}"
    rows = [("in full", errors(session, grid))]
    say("after batches of 100")
    some, absorbing, shares = [], [], []
    for batch in batches:
        absorbing.append(timed(lambda batch=batch: session.ingest(batch)))
        some.append(timed(session.render))
        shares.append(session.renderer.points_drawn / everything)
    partly = [s for s, share in zip(some, shares) if share < 1.0]
    wholly = [s for s, share in zip(some, shares) if share >= 1.0]
    grid = session.render()
    say("directly")
    rows.append((f"after {len(batches)} batches, each drawn", errors(session, grid)))
    direct = timed(lambda: session.predict(grid.centres()))
    ordered = sorted(partly)
    cost = Table(
        f"{name} mean and standard deviation, M = {len(session.inducing)}, one thread, processor time",
        [
            ("what", ""),
            ("median ms", ".1f"),
            ("90 % ms", ".1f"),
            ("worst ms", ".1f"),
            ("drawn anew", ".2f"),
            ("runs", "d"),
        ],
    )
    cost.add("in full", 1e3 * median(whole), None, 1e3 * max(whole), 1.0, len(whole))
    cost.add(
        "after 100 raw samples (36 cm of path), what changed",
        1e3 * median(partly),
        1e3 * ordered[int(0.9 * len(partly))],
        1e3 * ordered[-1],
        median(shares),
        len(partly),
    )
    if wholly:
        label = "after 100 raw samples, z chosen again"
        cost.add(label, 1e3 * median(wholly), None, 1e3 * max(wholly), 1.0, len(wholly))
    cost.add("predict at every cell, for comparison", 1e3 * direct, None, None, 1.0, 1)
    cost.add(
        "absorbing the 100 samples",
        1e3 * median(absorbing),
        None,
        1e3 * max(absorbing),
        None,
        len(some),
    )
    cost.notes = [
        "θ given: a change of θ, or inducing inputs chosen again, draws all. Drawn anew: fraction of the "
        "lattice that was evaluated, median."
    ]
    loss = Table(
        f"Drawn {name} against predict at every cell",
        [
            ("drawing", ""),
            ("mean, rms", ".4f"),
            ("99 %", ".4f"),
            ("largest", ".4f"),
            ("stddev, rms", ".4f"),
            ("99 %", ".4f"),
            ("largest", ".4f"),
        ],
    )
    for label, (mean, stddev) in rows:
        loss.add(label, *quantiles(mean), *quantiles(stddev))
    loss.notes = [
        "Mean: |error| in predictive standard deviations. Stddev: relative error of the latent field's."
    ]
    goals = [
        Goal(f"{name}, in full", median(whole), high=0.5, unit="s"),
        Goal(
            f"{name}, after 100 samples, what changed: median",
            1e3 * median(partly),
            high=100.0,
            unit="ms",
        ),
        Goal(
            f"{name}, after 100 samples, what changed: worst",
            1e3 * ordered[-1],
            high=100.0,
            unit="ms",
        ),
    ]
    for label, (mean, stddev) in rows:
        goals += [
            Goal(
                f"drawn {label}: mean, 99 % of cells, in predictive sd",
                quantiles(mean)[1],
                high=0.02,
            ),
            Goal(f"drawn {label}: mean, largest, in predictive sd", quantiles(mean)[2], high=0.02),
            Goal(
                f"drawn {label}: stddev, 99 % of cells, relative", quantiles(stddev)[1], high=0.02
            ),
            Goal(f"drawn {label}: stddev, largest, relative", quantiles(stddev)[2], high=0.02),
        ]
    return Part("render", goals, [cost, loss], environment)
