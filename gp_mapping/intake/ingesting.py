"""From an intake into a map, for node and command line alike: whatever a batch holds, only the culprit is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from gp_mapping.core.types import Samples
from gp_mapping.intake.drops import DropCounter, DropReason

__all__ = ["Pool", "ingest_batches", "ingest_remaining"]


class Pool(Protocol):
    """Who takes samples in: a mapping session. `raw_count` it has used, `refused` it has refused, of those so far."""

    raw_count: int
    refused: int

    def ingest(self, samples: Samples) -> object: ...

    def break_pass(self) -> None: ...

    def finish(self) -> None: ...


def ingest_batches(
    batches: Iterable[tuple[bool, Samples]],
    session: Pool,
    drops: DropCounter,
    on_error: Callable[[Exception, int], None] | None = None,
) -> Iterator[Samples]:
    """Each batch of `Intake.batches` after the session has taken it in.

    Every sample is used or counted: received = used + dropped by reason + waiting. What the session refuses is a drop
    with reason REFUSED. Where it raises, the sample it was at is lost, and the rest of the batch goes on.

    on_error: told, while it is handled, what was raised and how many samples that has cost; None: REFUSED as well.
    """

    def lost(error: Exception, count: int) -> None:
        if on_error is None:
            drops.count(DropReason.REFUSED, count)
        else:
            on_error(error, count)

    for new_pass, samples in batches:
        refused = session.refused
        if new_pass:
            try:
                session.break_pass()
            except Exception as error:  # the pass before it is over all the same
                lost(error, 0)
        rest = samples
        while len(rest):
            before = session.raw_count + session.refused
            try:
                session.ingest(rest)
                break
            except (
                Exception
            ) as error:  # whatever it is, what comes after it shall be mapped; nothing is hidden
                through = session.raw_count + session.refused - before
                lost(
                    error, 0 if through else 1
                )  # it raised before it had counted the sample, or afterwards
                rest = rest[max(through, 1) :]
        _count_refused(drops, session.refused - refused)
        yield samples


def ingest_remaining(session: Pool, drops: DropCounter) -> None:
    """The end: what the session still holds open, or has put off."""
    refused = session.refused
    session.finish()
    _count_refused(drops, session.refused - refused)


def _count_refused(drops: DropCounter, more: int) -> None:
    """So many more have been refused; fewer, where a session has begun again with some of them (warm_up.py)."""
    if more >= 0:
        drops.count(DropReason.REFUSED, more)
    else:
        drops.take_back(DropReason.REFUSED, min(-more, drops[DropReason.REFUSED]))
