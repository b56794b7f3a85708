"""Copies between processor and card, for which the processor does not wait.

A processor that reads a number from a card waits until the card has done all that it was given;
one that copies numbers to it waits only where the copy is a synchronous one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["add_rows", "is_synchronous", "tensor_on", "to_device"]


def is_synchronous(device: torch.device) -> bool:
    """Whether numbers are there for the processor as soon as they are computed."""
    return device.type == "cpu"


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; one of the processor's is copied without waiting for the device."""
    return values.to(device, non_blocking=is_synchronous(values.device))


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
