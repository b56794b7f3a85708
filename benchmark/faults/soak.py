"""24 simulated hours with a full map: memory, file descriptors, threads and time per sample stay flat.

A robot goes up and down one hall for a day; its sensor tells a value each second, with white noise. The
field is rougher than the budget can follow, so that it is full from the first hour on.
survived: none of the four grew by more than 5 % between the first and the last quarter after the map was
full. Processor time is in units of a fixed job done at the same time, and of each quarter the least tenth counts: a
machine that others share is now faster, now slower, and what they take only adds. lost: measurements not in the map.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmark.faults.lifecycle import resources
from benchmark.faults.live import LiveMapper, field_at, place_at
from benchmark.faults.rows import Row

__all__ = ["measured", "run"]

HOURS, RATE = 24.0, 1.0  # h, Hz
STEP = 600.0  # s of the drive between two looks
BUDGET = 40  # inducing inputs: fewer than the field wants, and no tile to put more into
NOISE = 0.2e-6  # T
JOB = 15000  # repetitions of a fixed job, some tenths of a second


def measured(t: float) -> float:
    """What the sensor tells t seconds into the drive, tesla."""
    x, y = place_at(t)
    rough = 3e-6 * math.sin(7.0 * x + 1.0) * math.sin(6.0 * y) + 1.5e-6 * math.cos(
        11.0 * x - 9.0 * y
    )
    return field_at(x, y) + rough + random.Random(round(t * RATE)).gauss(0.0, NOISE)


def fixed_job() -> float:
    """Processor seconds of a fixed piece of work of the kind that a map does: small matrices, called from Python."""
    matrix = torch.eye(BUDGET, dtype=torch.float64) + 0.01
    before = time.process_time()
    for _ in range(JOB):
        matrix = matrix + 1e-9 * torch.linalg.cholesky(matrix)
    return time.process_time() - before


def _least(values: tuple[float, ...]) -> float:
    """What a tenth of them is below."""
    return sorted(values)[len(values) // 10]


def run(quick: bool) -> list[Row]:
    """One day (twenty minutes where quick), as fast as the node takes it."""
    hours, looks, milliseconds = HOURS if not quick else 1.0 / 3.0, [], []
    with tempfile.TemporaryDirectory() as folder:
        with LiveMapper(
            Path(folder),
            max_inducing=BUDGET,
            tiles=False,
            pass_gap=5.0,
            max_pose_gap=3.0,
            autosave_period=60.0,
            max_wait=3600.0,
        ) as mapper:
            sent, at = 0, 0.0
            while at < hours * 3600.0:
                before, beside = mapper.process.processor_seconds(), fixed_job()
                sent += mapper.drive(at, STEP, RATE, speed=1e9, value=measured)
                at += STEP
                mapper.settle(sent, 600.0)
                spent = mapper.process.processor_seconds() - before
                looks.append((*resources(mapper.process.pid), spent, beside + fixed_job()))
                milliseconds.append(1e3 * spent / (STEP * RATE))
            used, uncounted = int(mapper.number("samples")), mapper.unaccounted(sent)
            changes, inputs = int(mapper.number("changes")), int(mapper.number("inducing"))
            full = int(mapper.number("budget_full"))
    quarter = max(1, len(looks) // 4)
    *columns, spent, jobs = zip(*looks)
    grown = [
        statistics.median(column[-quarter:]) / statistics.median(column[quarter : 2 * quarter])
        - 1.0
        for column in columns
    ]
    before, after = (
        _least(spent[part]) / _least(jobs[part])
        for part in (slice(quarter, 2 * quarter), slice(-quarter, None))
    )
    grown.append(after / before - 1.0)
    names = ("threads", "file descriptors", "memory", "processor time a sample")
    text = ", ".join(f"{name} {100 * g:+.1f} %" for name, g in zip(names, grown))
    flat = all(g <= 0.05 for g in grown)
    return [
        Row(
            f"{hours:g} h at {RATE:g} Hz",
            1,
            int(flat),
            max(0, sent - used - 1),
            uncounted,
            None,
            f"{sent} measurements, {inputs} of {BUDGET} inducing inputs, {full} times full; {text} "
            f"({statistics.median(milliseconds):.1f} ms); {changes} changes reported, of a field without",
        )
    ]
