"""A bag read and its samples averaged, beside an earlier commit, paired in one run: time, and whether cells agree."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from benchmark.tables import Goal, Part, Table
from benchmark.timing import median
from gp_mapping.recording.bag_writer import BagWriter

__all__ = ["run"]

TABLES = ("mcap", "sqlite3")
_BEFORE = "8d0ea74"  # version 0.1.0
_ROOT = Path(__file__).resolve().parents[2]
_SECOND = 10**9


def write_drive(path: Path, seconds: int, storage: str) -> Path:
    """A robot at 0.3 m/s with a magnetometer and an odometry of 50 Hz each."""
    rng, start = np.random.default_rng(0), 1_700_000_000 * _SECOND
    with BagWriter(path, storage) as bag:
        for i in range(50 * seconds):
            t = i / 50
            stamp = start + i * _SECOND // 50
            yaw = 0.1 * t
            bag.odometry(
                stamp,
                (3.0 * math.sin(yaw), -3.0 * math.cos(yaw), 0.0),
                (0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2)),
            )
            bag.magnetic_field(
                stamp + 7_000_000, (2e-5 + 2e-7 * rng.normal(), 3e-6 * math.sin(yaw), 4e-5)
            )
    return path


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """Both versions in turn on the same bags, of the storages `only`; ratios of the medians."""
    table = Table(
        "Reading a bag and averaging its samples, by columns",
        [
            ("bag", ""),
            ("messages", "d"),
            ("read: before / now", ".1f"),
            ("average: before / now", ".1f"),
            ("samples equal", ""),
            ("cells apart (sd)", ".1e"),
        ],
        notes=[
            f"Before: {_BEFORE}, in which every message and every sample went through Python by itself. "
            "Processor time of one thread, the two in turn, medians."
        ],
    )
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        before = _checkout(Path(folder) / "before")
        for storage in only:
            bag = write_drive(Path(folder) / storage, 20 if quick else 300, storage)
            rounds = [
                (_measure(before, bag), _measure(_ROOT, bag)) for _ in range(1 if quick else 5)
            ]
            read, average = (
                median([old[what] for old, _ in rounds]) / median([new[what] for _, new in rounds])
                for what in ("reading", "averaging")
            )
            old, new = rounds[0]
            equal = old["bits"] == new["bits"] and old["drops"] == new["drops"]
            table.add(
                storage,
                100 * (20 if quick else 300),
                read,
                average,
                "yes" if equal else "no",
                _apart(old["cells"], new["cells"]),
            )
            goals += [
                Goal(f"read a bag ({storage}), of the time before", read, low=5.0),
                Goal(f"average its samples ({storage}), of the time before", average, low=5.0),
            ]
    return Part("reading", goals, [table], where)


def _apart(old: list[list[float]], new: list[list[float]]) -> float:
    """Largest difference of two lists of cells, in standard deviations of each column; inf where they do not match."""
    a, b = np.array(old), np.array(new)
    if a.shape != b.shape:
        return math.inf
    return float((np.abs(a - b) / np.maximum(a.std(0), 1e-300)).max())


def _checkout(folder: Path) -> Path:
    """The package as it was."""
    packed = subprocess.run(
        ["git", "archive", _BEFORE, "gp_mapping"], cwd=_ROOT, stdout=subprocess.PIPE, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _measure(tree: Path, bag: Path) -> dict:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("reading_run.py"), bag],
        check=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return json.loads(done.stdout)
