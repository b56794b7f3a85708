"""Clocks: paired runs, medians, and what the machine was doing meanwhile."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import torch

__all__ = ["environment", "median", "paired", "resident_bytes", "timed"]

median = statistics.median


def timed(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Seconds that the work took. By default of this process' CPU: on one thread this is the time on an idle core,
    also where others want the same one."""
    start = clock()
    work()
    return clock() - start


def paired(
    works: dict[str, Callable[[], object]], repeats: int, clock=time.process_time
) -> dict[str, list[float]]:
    """Each work in turn, `repeats` times over: what disturbs one disturbs the others."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(timed(work, clock))
    return seconds


def resident_bytes(what: str = "VmRSS") -> int:
    """This process' resident memory now (VmRSS) or at its peak (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {what}; memory is measured on Linux only")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        "unknown processor",
    )


def _commit() -> str:
    """The commit, and whether the package in the working tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "gp_mapping", "benchmark")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def environment(quick: bool) -> dict:
    """Where and when: what a reader needs to judge a number."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch": torch.__version__.split("+")[0],
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
        "commit": _commit(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "quick": quick,
    }
