"""Work that is done many times on a card, launched there as one.

A card is given one operation at a time, each a few microseconds of the processor's; a step of many
small ones takes as long as it takes to give them. Recorded once, as a CUDA graph, all of a step is
given at once. Elsewhere the work is done as it stands.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Replay", "record"]

# Calls before the work is recorded: recording takes as long as a few of them, and what torch and
# the card's libraries set up at a first call cannot be recorded.
_FIRST = 3
_failed: list[str] = []  # why recording is not tried again


def record(work: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """Work that was done before, recorded; the recording does not do it.

    Args:
        work: it has neither arguments nor results, waits for nothing, and changes tensors in place,
            the same ones each time.
        device: of these tensors.

    Returns:
        A function that does the work: the work itself where it cannot be recorded, which takes
        longer; a warning says so once.
    """
    if device.type != "cuda" or _failed:
        return work
    try:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    except torch.cuda.OutOfMemoryError:
        return work  # there may be room the next time
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # torch's word for: no such device, driver or graph
        _failed.append(str(error))
        warnings.warn(
            f"steps on the card are given one by one, since torch cannot record them: {error}",
            stacklevel=2,
        )
        return work
    return graph.replay


class Replay:
    """A function of tensors, recorded at its fourth call where it is one of tensors on a card.

    Results are tensors of their own. A copy of a replay has recorded nothing.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._given: list[Tensor] = []
        self._results: list[Tensor] = []
        self._replay: Callable[[], object] | None = None

    def __deepcopy__(self, memo: dict) -> Replay:
        return Replay()

    def __reduce__(self) -> tuple:
        return Replay, ()

    def __call__(
        self, function: Callable[..., Sequence[Tensor]], given: Sequence[Tensor]
    ) -> list[Tensor]:
        """Call a function, or replay it.

        Args:
            function: the same at each call; it waits for nothing, and changes nothing.
            given: its arguments, of the same shapes at each call and on one device.

        Returns:
            Its results.
        """
        self._calls += 1
        if given[0].device.type != "cuda" or self._calls <= _FIRST:
            return list(function(*given))

        if self._replay is None:
            self._given = [value.clone() for value in given]
            self._replay = record(self._recorded(function), given[0].device)
        torch._foreach_copy_(self._given, list(given))
        self._replay()
        fresh = [torch.empty_like(value) for value in self._results]
        torch._foreach_copy_(fresh, self._results)
        return fresh

    def _recorded(self, function: Callable[..., Sequence[Tensor]]) -> Callable[[], None]:
        """The work that is recorded: from and to tensors that stay."""

        def work() -> None:
            self._results = list(function(*self._given))

        return work
