"""Cost of learning hyper-parameters and of their adoption, and the peak memory of a whole session."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmark.tables import Table
from benchmark.timing import median, resident_bytes, timed
from benchmark.worlds import STEP, RandomField, lawnmower, side_for
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["tables"]


def drive(
    budget: int, most: int | None, faster: int = 1, seed: int = 2, **settings
) -> tuple[MapSession, float]:
    """A session with cells that drove over about as much ground as its budget covers; its processor time.

    faster: times 0.18 m/s.  most: samples, all of the ground if None.
    """
    side = 1.2 * side_for(budget)
    path = lawnmower(0.0, side, 0.25 if faster == 1 else 0.5, faster * STEP)[:most]
    samples = RandomField(seed).measure(path, torch.Generator().manual_seed(seed))
    session = MapSession(MapSettings(max_inducing=budget, tiles=False, **settings))
    start = time.process_time()
    for part in range(0, len(samples), 100):
        session.ingest(samples[part : part + 100])
    session.finish()
    return session, time.process_time() - start


def learning(quick: bool) -> Table:
    """One learning step, and one adoption of θ, on a map after a drive; and what a drive costs in all."""
    table = Table(
        "Learning on a map after a drive with cells, θ learned online",
        [
            ("M ≤", "d"),
            ("M", "d"),
            ("remembered", "d"),
            ("step, median ms", ".2f"),
            ("adoption, median ms", ".1f"),
            ("adoption, worst ms", ".1f"),
            ("samples", "d"),
            ("drive, s", ".2f"),
            ("fraction of a core at 50 Hz", ".3f"),
        ],
    )
    for budget in (20,) if quick else (100, 400):
        print(f"cost: learning, M ≤ {budget}", file=sys.stderr, flush=True)
        session, seconds = drive(budget, 1500 if quick else None)
        size, raw = len(session.inducing), session.report()["samples"]
        steps, adoptions = pieces(session.map, 5 if quick else 40)
        table.add(
            budget,
            size,
            len(session.memory),
            1e3 * median(steps),
            1e3 * median(adoptions),
            1e3 * max(adoptions),
            raw,
            seconds,
            seconds / (raw / 50),
        )
    table.notes = [
        "A step: slope and information of the evidence of one block of remembered cells. An adoption: ℓ changed "
        "by 5 %, inducing inputs chosen again, sites transferred. The drive: all of MapSession.ingest, nothing "
        "drawn."
    ]
    return table


_PLAIN = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "heading_stddev": 0.0,
    "predictive_noise": False,
    "local_scale": False,
    "follow_changes": False,
    "robust": False,
}
_STEPS = (
    ("cells and map alone", ()),
    ("+ gross errors, changes", ("robust", "follow_changes")),
    ("+ predictive noise, local scale", ("predictive_noise", "local_scale")),
    ("+ heading, time offset", ("heading_stddev", "learn_time_offset")),
    ("+ hyper-parameters: the default", ("learn_hyperparameters",)),
)


def honesty(quick: bool) -> Table:
    """What each part of the honesty costs: one drive, its parts switched on one after the other, θ near the truth."""
    table = Table(
        "What honesty costs: the same drive at 50 Hz, parts switched on one after the other, M ≤ 400",
        [
            ("on", ""),
            ("M", "d"),
            ("samples", "d"),
            ("ms per s of data", ".2f"),
            ("more than alone", ".2f"),
        ],
    )
    default, alone = MapSettings(), None
    settings = dict(_PLAIN)
    for name, on in _STEPS:
        print(f"cost: honesty, {name}", file=sys.stderr, flush=True)
        settings |= {key: getattr(default, key) for key in on}
        times = []
        for _ in range(1 if quick else 3):
            session, seconds = drive(20 if quick else 400, 700 if quick else 15000, **settings)
            times.append(1e3 * seconds / (session.raw_count / 50))
        cost = median(times)
        alone = cost if alone is None else alone
        table.add(name, len(session.inducing), session.raw_count, cost, cost - alone)
    table.notes = [
        "Medians of three runs of the processor's time, one thread. The goal of the parts but for the "
        "hyper-parameters, which are the map's own: 3 ms per second of data."
    ]
    return table


@torch.no_grad()
def pieces(field, count: int) -> tuple[list[float], list[float]]:
    """Seconds of single learning steps without adoption, and of adoptions, a fifth as many."""
    learner, steps, adoptions = field.learner, [], []
    usual, learner.largest_change = learner.largest_change, float("inf")
    for k in range(count):
        learner.pending = 1.0
        steps.append(timed(lambda: field.refine(float("inf"))))
        if k % 5 == 0:
            theta = replace(
                field.theta, lengthscale=field.theta.lengthscale * (1.05 if k % 10 else 1 / 1.05)
            )
            adoptions.append(timed(lambda theta=theta: field.adopt(theta)))
    learner.largest_change = usual
    return steps, adoptions


def peak(quick: bool) -> Table:
    """Peak resident memory of a process that only maps, and then draws 512 × 512; a fresh process for each M."""
    table = Table(
        "Peak memory of a process that maps a drive and draws it, MB resident",
        [
            ("M ≤", "d"),
            ("M", "d"),
            ("after imports", ".0f"),
            ("peak of the drive", ".0f"),
            ("peak with a drawing", ".0f"),
            ("state_dict", ".1f"),
            ("cells of the drawing", "d"),
        ],
    )
    for budget in (20,) if quick else (100, 400, 1000):
        print(f"cost: memory, M ≤ {budget}", file=sys.stderr, flush=True)
        code = f"from benchmark.costs.cost_learning import child; child({budget}, {quick})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).resolve().parents[2],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(
                f"the process that measures memory at M ≤ {budget} failed:\n{done.stderr}"
            )
        row = json.loads(done.stdout.splitlines()[-1])
        megabytes = [row[k] / 1e6 for k in ("start", "drive", "drawing", "state")]
        table.add(budget, row["inducing"], *megabytes, row["cells"])
    return table


def child(budget: int, quick: bool) -> None:
    """In a process of its own: prints one JSON object of bytes."""
    from benchmark.costs.cost import tensor_bytes

    torch.set_num_threads(1)
    found = {"start": resident_bytes()}
    resolution = max(1.2 * side_for(budget) + 1.0, 1.0) / 511
    session, _ = drive(
        budget, 1000 if quick else 12000, 3, resolution=0.05 if quick else resolution
    )
    found |= {"inducing": len(session.inducing), "drive": resident_bytes("VmHWM")}
    found["state"] = tensor_bytes(session.state_dict())
    grid = session.render()
    found |= {"drawing": resident_bytes("VmHWM"), "cells": grid.mean.numel()}
    print(json.dumps(found, allow_nan=False))


def tables(quick: bool) -> list[Table]:
    """Learning, what honesty costs, memory."""
    return [learning(quick), honesty(quick), peak(quick)]
