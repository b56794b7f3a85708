"""From an intake into a map, for node and command line alike.

Where a batch holds a sample that the map cannot take, only that sample is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from gp_mapping.core.types import Samples
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.threads import contained, ends_process

__all__ = ["SampleSink", "ingest_batches", "ingest_remaining"]


class SampleSink(Protocol):
    """What takes samples in: a mapping session."""

    @property
    def raw_count(self) -> int:
        """Samples that it has used so far."""

    @property
    def refused(self) -> int:
        """Samples that it has refused so far."""

    def ingest(self, samples: Samples) -> object:
        """Take samples in, in order of time."""

    def break_pass(self) -> None:
        """Begin a new pass with the next sample."""

    def finishing(self) -> Iterator[None]:
        """Take in what is held open, or was put off, in steps: no more samples come."""


def ingest_batches(
    batches: Iterable[tuple[bool, Samples]],
    session: SampleSink,
    drops: DropCounter,
    on_error: Callable[[BaseException, int], None] | None = None,
) -> Iterator[Samples]:
    """Put each batch into the session, and then hand it on.

    Every sample is used or counted: received = used + dropped by reason + waiting. A sample that
    the session refuses is counted as REFUSED. Where the session raises, the sample that it was
    working on is lost, and the remainder of the batch goes on.

    Args:
        batches: as `Intake.batches` gives them: whether a new pass begins, and the samples.
        session: takes the samples in.
        drops: counts what is refused.
        on_error: called while an exception is handled, with the exception and the number of samples
            that it has cost; None: these are counted as REFUSED, and
            the exception is named.

    Yields:
        The samples of each batch.
    """

    def lost(error: BaseException, count: int) -> None:
        """Count samples that an exception has cost, or report them.

        Args:
            error: the exception, which is being handled.
            count: how many samples.
        """
        if on_error is None:
            drops.lost_by(error, count)
        else:
            on_error(error, count)

    for new_pass, samples in batches:
        # what the session refuses quietly is counted after the batch
        refused_before = session.refused
        if new_pass:
            with contained(lambda error: lost(error, 0)):  # the pass before it is over all the same
                session.break_pass()

        remaining = samples
        while len(remaining):
            counted_before = session.raw_count + session.refused
            try:
                session.ingest(remaining)
                break
            # whatever it is, the samples after it are mapped; nothing is hidden
            except BaseException as error:
                if ends_process(error):
                    raise
                counted = session.raw_count + session.refused - counted_before
                # the session raises before it counts the sample, or afterwards
                lost(error, 0 if counted else 1)
                remaining = remaining[max(counted, 1) :]

        _count_refused(drops, session.refused - refused_before)
        yield samples


def ingest_remaining(
    session: SampleSink, drops: DropCounter, late: Callable[[], bool] = lambda: False
) -> None:
    """Put in what the session still holds open, or has put off: no more batches come.

    Where that raises, the map stays as it is by then, and the exception is named.

    Args:
        session: takes it in.
        drops: counts what the session refuses meanwhile.
        late: asked between the steps; True leaves the others put off.
    """
    refused = session.refused
    with contained(lambda error: drops.lost_by(error, 0)):  # the map may have hours in it
        for _ in session.finishing():
            if late():
                break
    _count_refused(drops, session.refused - refused)


def _count_refused(drops: DropCounter, more: int) -> None:
    """Count `more` refused samples.

    A negative number: the session has begun again with some that it had refused (warm_up.py).
    """
    if more >= 0:
        drops.count(DropReason.REFUSED, more)
    else:
        drops.uncount(DropReason.REFUSED, min(-more, drops[DropReason.REFUSED]))
