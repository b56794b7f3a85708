"""How a map takes in samples: forgetting, learning, and samples that it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.registry import build_map
from gp_mapping.core.stored import Room
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.errors import MapFullError, NumericalError, one_line
from gp_mapping.settings.mapping import MapSettings

__all__ = ["REFUSALS", "absorb_batch", "forget_elapsed", "learn_pending", "new_map", "stamp_of"]

# Exceptions by which a map refuses what would spoil it; one that is full raises MapFullError.
REFUSALS = NumericalError, ArithmeticError, torch.linalg.LinAlgError

_FORGOTTEN = 1e-12  # fraction of the data's weight that is left when all of it is forgotten
_SHOWN = 60  # characters of what a model returned


def new_map(settings: MapSettings, room: Room | None, centre=None) -> FieldMap:
    """Make an empty map that spreads long work over the samples to come.

    Args:
        settings: with a number for each automatic start.
        room: where parts of the map go that are not needed now; they stay in memory if None.
        centre: (C,) prior mean, SI, where it is known.
    """
    field = build_map(settings, room, **({} if centre is None else {"centre": centre}))
    field.in_slices(True)
    return field


def learn_pending(field: FieldMap) -> None:
    """Let a map do all of the learning that it has put off."""
    while field.refine(math.inf):
        pass


def absorb_batch(
    field: FieldMap, batch: Samples, refuse: Callable[[Samples, Exception], None]
) -> Iterator[tuple[Samples, UpdateReport]]:
    """Let a map take in as much of a batch as it will, and learn; a refused batch is halved.

    Args:
        field: the map.
        batch: of any length.
        refuse: called with each single sample that the map refuses, and the reason.

    Yields:
        Each part that the map took, with its report, before the map learns from it: where learning
        raises, the part is in the map.

    Raises:
        Exception: any other that the map raises; the samples that it worked on are refused.
    """
    try:
        report = _update(field, batch)
    except (MapFullError, *REFUSALS) as error:
        if len(batch) > 1:
            half = len(batch) // 2
            yield from absorb_batch(field, batch[:half], refuse)
            yield from absorb_batch(field, batch[half:], refuse)
        else:
            refuse(batch, error)
        return
    except Exception as error:  # a model of another package may raise anything
        refuse(batch, error)
        raise

    # outside of the try: what learning raises is no refusal of the batch, which is in the map now
    yield batch, report
    learn_pending(field)


def _update(field: FieldMap, batch: Samples) -> UpdateReport:
    """Update a map, and see that it says what it did: one that does not may not have done it.

    Raises:
        TypeError: it returned something else than a report.
        Exception: whatever the map raises.
    """
    update = field.update
    report: object = update(batch)
    if not isinstance(report, UpdateReport):
        raise TypeError(
            f"{update.__module__}.{update.__qualname__} returned {one_line(repr(report), _SHOWN)}, and has to "
            "return an UpdateReport"
        )
    return report


def forget_elapsed(
    field: FieldMap, tau: float, before: float | None, batch: Samples
) -> float | None:
    """Let a map forget for the time since a stamp, whatever lay between.

    Args:
        field: the map.
        tau: time constant of forgetting, s; 0: nothing is forgotten.
        before: stamp up to which it has forgotten, s; None before the first.
        batch: its last stamp is the new one.

    Returns:
        The stamp up to which the map has forgotten now, s.
    """
    stamp = stamp_of(batch)
    if before is not None and stamp is not None:
        forget_for(field, tau, stamp - before)
    return before if stamp is None else stamp


def forget_for(field: FieldMap, tau: float, seconds: float) -> float:
    """Let a map forget for some time; return the fraction of its data's weight that is left.

    Args:
        field: the map.
        tau: time constant of forgetting, s; 0: nothing is forgotten.
        seconds: that have gone by; none where they are negative.
    """
    if tau <= 0.0 or seconds <= 0.0:
        return 1.0
    left = max(math.exp(-seconds / tau), _FORGOTTEN)
    field.forget(left)
    return left


def stamp_of(batch: Samples) -> float | None:
    """Stamp of the last sample of a batch, s; None where samples have none."""
    return None if batch.stamp is None else float(batch.stamp[-1])
