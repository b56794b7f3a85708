"""`gp-mapping import`: write a rosbag2 bag from recordings in another format.

For example: gp-mapping import magnetic-csv FOLDER --trials 1 2 3 5 --output BAG.
"""

from __future__ import annotations

import argparse

from gp_mapping.recording.magnetic_csv import available_trials, read_trial, write_trials

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Read all trials, then write the bag; returns the exit code."""
    # where no trial is found, reading trial 1 raises the error that says what is missing
    names = args.trials or available_trials(args.folder) or ["1"]

    # all are read before anything is written, so that a bad trial leaves no bag behind
    trials = [read_trial(args.folder, name, args.to_tesla) for name in names]
    count = write_trials(trials, args.output, args.storage, args.gap)

    for trial in trials:
        skipped = f", {trial.skipped} rows left out (NaN or infinite)" if trial.skipped else ""
        print(
            f"trial {trial.name}: {len(trial.time)} measurements in {trial.time[-1] - trial.time[0]:.1f} s{skipped}"
        )
    print(f"{args.output}: {count} messages, /magnetic_field (tesla) and /odometry")
    return 0
