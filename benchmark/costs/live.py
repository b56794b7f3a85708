"""What a live map takes of a core: a 50 or 100 Hz sensor and a 128 × 128 map drawn at 10 Hz, θ learned online.

The first table is the mapping thread's share: MapSession.ingest in small batches as they come, and MapSession.render
every 0.1 s of sensor time. The others, where rclpy is installed, are all of the node, with messages over DDS, and the
way of a large drawing to the wire.
"""

from __future__ import annotations

import importlib.util
import sys

import torch

from benchmark.tables import Goal, Part, Table
from benchmark.timing import median, timed
from benchmark.worlds import RandomField, lawnmower
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["run"]

_CELLS, _DRAWINGS = 128, 10  # cells along a side; drawings a second


def drive(rate: int, speed: float, seconds: float) -> tuple[list[float], list[float], MapSession]:
    """Processor time of each 0.1 s of ingesting, and of each drawing."""
    resolution = 0.05
    low, high = 0.5, _CELLS * resolution - 0.5
    path = lawnmower(low, high, 0.25, speed / rate)
    samples = RandomField(4).measure(path[: int(rate * seconds)], torch.Generator().manual_seed(4))
    session = MapSession(MapSettings(resolution=resolution, margin=0.5 - 1e-6))
    corners = torch.tensor([[low, low], [high, high]], dtype=torch.float64)
    session.ingest(
        RandomField(4).measure(corners, torch.Generator().manual_seed(5))
    )  # the window is the room at once
    session.break_pass()
    ingesting, drawing, step = [], [], rate // _DRAWINGS
    for start in range(0, len(samples) - step + 1, step):
        part = samples[start : start + step]
        ingesting.append(timed(lambda part=part: session.ingest(part)))
        drawing.append(timed(session.render))
    return ingesting, drawing, session


def run(quick: bool, environment: dict) -> Part:
    """A table of the mapping thread and, where rclpy is installed, one of the node."""
    table = Table(
        f"A live map: {_CELLS} × {_CELLS} drawn {_DRAWINGS} times a second, M ≤ 400, θ learned online",
        [
            ("sensor", ""),
            ("minutes", ".1f"),
            ("M", "d"),
            ("fraction of a core", ".3f"),
            ("the last minute", ".3f"),
            ("ingest, ms per 0.1 s", ".2f"),
            ("worst", ".1f"),
            ("drawing, median ms", ".2f"),
            ("worst", ".1f"),
        ],
    )
    goals, minute = [], 60 * _DRAWINGS
    for rate, speed, seconds in ((50, 0.18, 180.0), (100, 0.36, 330.0)):
        print(f"live: {rate} Hz", file=sys.stderr, flush=True)
        ingesting, drawing, session = drive(rate, speed, 20.0 if quick else seconds)
        both = [a + b for a, b in zip(ingesting, drawing)]
        share, last = (
            sum(both) / len(both) * _DRAWINGS,
            sum(both[-minute:]) / len(both[-minute:]) * _DRAWINGS,
        )
        table.add(
            f"{rate} Hz, {speed} m/s",
            len(both) / minute,
            len(session.inducing),
            share,
            last,
            1e3 * median(ingesting),
            1e3 * max(ingesting),
            1e3 * median(drawing),
            1e3 * max(drawing),
        )
        name = f"live, {rate} Hz and {_CELLS} × {_CELLS} at {_DRAWINGS} Hz: fraction of a core (mapping only)"
        goals.append(Goal(name, share, high=0.5))
    table.notes = [
        "One thread, processor time of MapSession.ingest and MapSession.render over sensor time; no "
        "messages in it."
    ]
    tables = [table]
    if importlib.util.find_spec("rclpy") is None:
        print(
            "live: rclpy is not installed, so that the node itself is not measured; see README.md",
            file=sys.stderr,
        )
    else:
        from benchmark.costs import live_node, publish

        for part in (live_node, publish):
            new, found = part.report(quick)
            goals, tables = goals + new, [*tables, found]
    return Part("live", goals, tables, environment)
