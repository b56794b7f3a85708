"""Reads a bag and averages its samples with the package that is on the path, and prints what that took, as JSON.

Run by benchmark/costs/reading.py, with this package and with that of an earlier commit, whose modules had other names.
"""

import gc
import hashlib
import json
import sys
import time

import torch

from gp_mapping.core.types import Samples
from gp_mapping.intake import Intake
from gp_mapping.mapping.session import MapSession

try:
    from gp_mapping.mapping.beginning.renewing import RenewableMap
    from gp_mapping.recording.replay import plan_bags, samples_of
    from gp_mapping.settings.intake import IntakeSettings
    from gp_mapping.settings.mapping import MapSettings
except ImportError:  # 0.1.0
    from gp_mapping.commands.drive import plan_bags, samples_of
    from gp_mapping.core.config import MapSettings

    from gp_mapping.intake import IntakeSettings

    RenewableMap = None


def _take_instead_of_map(session: MapSession, cells: list[Samples]) -> None:
    """Let a list take the session's cells: the map itself is another benchmark's."""
    if RenewableMap is None:
        session._absorb = cells.append  # noqa: SLF001  version 0.1.0 has no other place
    else:
        RenewableMap.admit = lambda _, cell: cells.append(cell)


def main(bag: str) -> None:
    """bag: what to read."""
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what was imported is not looked through again: that is no part of reading
    settings = IntakeSettings()
    plans, intake = (
        plan_bags([bag], settings, {"measurement": None, "pose": None}),
        Intake(settings),
    )
    start = time.process_time()
    batches = list(samples_of(plans, intake, "reading"))
    reading = time.process_time() - start

    session, cells = MapSession(MapSettings()), []
    _take_instead_of_map(session, cells)
    start = time.process_time()
    for new_pass, samples in batches:
        if new_pass:
            session.break_pass()
        session.ingest(samples)
    averaging = time.process_time() - start

    together = Samples.concatenate(cells)
    columns = [
        together.x,
        together.y,
        together.stamp[:, None],
        together.count[:, None],
        together.sensor_variance[:, None],
    ]
    drops = intake.drops.as_dict()
    print(
        json.dumps(
            {
                "reading": reading / sum(intake.received.values()),
                "averaging": averaging / intake.samples,
                "samples": intake.samples,
                "drops": drops,
                "cells": torch.cat(columns, 1).tolist(),
                "bits": hashlib.sha256(
                    b"".join(s.y.numpy().tobytes() for _, s in batches)
                ).hexdigest(),
            },
            allow_nan=False,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
