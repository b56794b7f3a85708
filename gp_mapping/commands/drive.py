"""Bags -> Intake -> whoever wants the samples: the loop that `map` runs for training and for testing."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tqdm import tqdm

from gp_mapping.bag import MAGNETIC_FIELD, ODOMETRY, count_messages, read_messages
from gp_mapping.core.types import Samples
from gp_mapping.intake import Intake

__all__ = ["samples_of"]

_BATCH = 1000  # messages between two looks at what is ready; the samples do not depend on it


def samples_of(bags, intake: Intake, topics: dict[str, str | None], label: str) -> Iterator[tuple[bool, Samples]]:
    """(begins a new pass, samples) of bags in the order given, with a progress bar on stderr.

    topics: message type -> topic, None where there is only one of the type.
    """
    total = count_messages(bags, topics)
    with tqdm(total=total, desc=label, unit=" messages", file=sys.stderr, mininterval=0.3) as bar:
        for n, (_, _, message) in enumerate(read_messages(bags, topics), 1):
            kind = message.__msgtype__
            if kind == ODOMETRY:
                intake.add_odometry(message)
            elif kind == MAGNETIC_FIELD:
                intake.add_field(message)
            if n % _BATCH == 0:
                yield from intake.batches()
                bar.update(_BATCH)
        yield from intake.batches(finish=True)
        bar.update(total - bar.n)
