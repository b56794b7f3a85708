"""`gp-mapping bench`: run the benchmark folder of the repository, where there is one."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import gp_mapping
from gp_mapping.errors import UsageError

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Run `python -m benchmark` with the given arguments; returns its exit code.

    Raises:
        UsageError: the package is not run from a clone of the repository.
    """
    root = Path(gp_mapping.__file__).resolve().parents[1]
    if not (root / "benchmark" / "__main__.py").exists():
        raise UsageError(
            "the benchmark is not installed with the package; run this in a clone of the repository, "
            "where the folder benchmark/ lies beside gp_mapping/"
        )

    return subprocess.run(
        [sys.executable, "-m", "benchmark", *args.arguments], cwd=root, check=False
    ).returncode
