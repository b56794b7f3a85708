"""`gp-mapping import magnetic-csv FOLDER --trials 1 2 3 5 --output BAG`: recordings become rosbag2 bags."""

from __future__ import annotations

import argparse
import math

from gp_mapping.recording.magnetic_csv import available_trials, read_trial, write_trials

__all__ = ["add_arguments", "run"]


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The formats are subcommands of their own; so far there is one."""
    formats = parser.add_subparsers(dest="format", required=True, metavar="FORMAT")
    csv = formats.add_parser("magnetic-csv", help="the layout of AaltoML/magnetic-data: K-time.csv, K-loc.csv, …")
    csv.add_argument("folder", metavar="FOLDER", help="folder with K-time.csv (s), K-loc.csv (x, y in m), K-mag.csv")
    csv.add_argument("--trials", nargs="+", metavar="K", help="which ones, in this order (default: all)")
    csv.add_argument("--output", required=True, metavar="BAG", help="folder of the new bag")
    csv.add_argument("--to-tesla", type=_positive, default=1e-6, metavar="FACTOR",
                     help="one unit of K-mag.csv in tesla (default: 1e-6, microtesla)")
    csv.add_argument("--storage", choices=("mcap", "sqlite3"), default="mcap")
    csv.add_argument("--gap", type=_positive, default=60.0, metavar="SECONDS", help="between two trials (default: 60)")


def run(args: argparse.Namespace) -> int:
    """Read everything first, so that a bad trial leaves no bag behind."""
    names = args.trials or available_trials(args.folder) or ["1"]  # none: reading trial 1 says what is missing
    trials = [read_trial(args.folder, name, args.to_tesla) for name in names]
    count = write_trials(trials, args.output, args.storage, args.gap)
    for trial in trials:
        skipped = f", {trial.skipped} rows left out (NaN or infinite)" if trial.skipped else ""
        print(f"trial {trial.name}: {len(trial.time)} measurements in {trial.time[-1] - trial.time[0]:.1f} s{skipped}")
    print(f"{args.output}: {count} messages, /magnetic_field (tesla) and /odometry")
    return 0
