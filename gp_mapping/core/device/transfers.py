"""Copies between processor and card, for which the processor does not wait.

A processor that reads a number from a card waits until the card has done all that it was given;
one that copies numbers to it waits only where the copy is a synchronous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

__all__ = [
    "add_rows",
    "any_positive",
    "as_dtype",
    "is_synchronous",
    "tensor_on",
    "to_device",
    "to_processor",
]

_FEW = 16  # so few numbers are looked at faster by Python than by torch; a cell is one row


@lru_cache(maxsize=16)  # asked with each small operation, and a device makes its name anew
def is_synchronous(device: torch.device) -> bool:
    """Whether numbers are there for the processor as soon as they are computed."""
    return device.type == "cpu"


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; one of the processor's is copied without waiting for the device."""
    if values.device == device:
        return values
    return values.to(device, non_blocking=is_synchronous(values.device))


def as_dtype(values: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor in a precision; mostly it has it, and torch takes longer to find that out."""
    return values if values.dtype == dtype else values.to(dtype)


def any_positive(values: Tensor) -> bool:
    """Whether one of these numbers is above 0."""
    if values.numel() <= _FEW:
        return any(value > 0 for value in values.flatten().tolist())
    return bool((values > 0).any())


def to_processor(values: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The same in the processor's memory, complete when this returns; what is there is no copy.

    A card writes to pages that stay where they are, at the full rate of its bus: to others it takes
    ten times as long.

    Args:
        values: of one device; None stays None.
    """
    copies, stream = [], None
    for part in values:
        if part is None or part.device.type != "cuda":
            copies.append(None if part is None else part.cpu())
            continue
        copy = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
        copies.append(copy.copy_(part, non_blocking=True))
        stream = torch.cuda.current_stream(part.device)

    # one wait for all of them
    if stream is not None:
        stream.synchronize()
    return copies


def tensor_on(device: torch.device, values: Sequence, dtype: torch.dtype) -> Tensor:
    """Numbers as a tensor on a device, without waiting for it.

    Args:
        device: of the tensor.
        values: the numbers.
        dtype: of the tensor.
    """
    return to_device(torch.tensor(values, dtype=dtype), device)


def add_rows(total: Tensor, where: Tensor, rows: Tensor) -> Tensor:
    """Add rows to those of a tensor, in place: total[where_i] += rows_i, in the same order always.

    Args:
        total: (K, …).
        where: (N,), in which a row may be named several times.
        rows: (N, …).
    """
    if is_synchronous(total.device):
        return total.index_add_(0, where, rows)
    # index_add_ would, on a card, add what goes to one row in any order
    return total.index_put_((where,), rows, accumulate=True)
