"""The options of commands over many bags, and the engine that they ask for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gp_mapping.errors import UsageError
from gp_mapping.store.scratch.own_folder import OwnFolder

__all__ = ["connected_engine", "uses_workers"]

_FEWEST = 50  # cells that calibrate a robot


def uses_workers(args: argparse.Namespace) -> bool:
    """Return whether bags are read side by side."""
    return args.workers is not None or args.scheduler is not None


@contextmanager
def connected_engine(args: argparse.Namespace, output: Path) -> Iterator[tuple]:
    """Connect to the engine that the options ask for, and name it on stderr.

    Args:
        args: of the command.
        output: folder in which cells are kept while the run lasts.

    Yields:
        The engine, and the folder in which cells are kept while the run lasts; None where the
        workers are on other machines.

    Raises:
        UsageError: options do not go together, a bag is given twice, or Dask is not installed.
    """
    from gp_mapping.fleet.engine import connect_engine

    if args.workers is not None and args.scheduler is not None:
        raise UsageError(
            "--workers starts processes here, and --scheduler uses those that are there; give one of them"
        )
    if args.calibration_cells < _FEWEST:
        raise UsageError(
            f"--calibration-cells is {args.calibration_cells}, expected {_FEWEST} or more"
        )
    paths = [Path(bag).resolve() for bag in args.bags]
    twice = next((bag for i, bag in enumerate(args.bags) if paths[i] in paths[:i]), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice; its measurements would count twice")

    with connect_engine(args.workers, args.scheduler) as engine:
        print(
            f"fleet: {len(args.bags)} bag{'s' * (len(args.bags) > 1)}, {engine.about}",
            file=sys.stderr,
            flush=True,
        )
        if args.scheduler is not None:
            yield engine, None
            return

        # of this process, so that two runs into one folder do not meet
        keep = OwnFolder(output, "cells")
        try:
            yield engine, keep.path
        finally:
            keep.remove()
