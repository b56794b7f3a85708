"""Places and motions from outside, checked: a wrong shape would be broadcast, NaN answered."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["motion_of", "places_of"]


def places_of(x, dimensions: int) -> Tensor:
    """Places as a tensor (N, D) float64 without a gradient, on the device where they are.

    Args:
        x: tensor, array or nested list.
        dimensions: D of the map.

    Raises:
        ValueError: x has another shape, or a place is not finite.
    """
    rows = _rows("places", x, None, dimensions)
    # the sum first, which is quick; it may be infinite of finite numbers
    if not math.isfinite(float(rows.sum())):
        bad = (~rows.isfinite()).any(1).nonzero().flatten().tolist()
        if bad:
            raise ValueError(
                f"place {bad[0]} is {tuple(rows[bad[0]].tolist())}, expected finite numbers "
                f"({len(bad)} of {len(rows)} places have others)"
            )
    return rows


def motion_of(x: Tensor, velocity, heading) -> tuple[Tensor | None, Tensor | None]:
    """Velocities (N, D) and headings (N, 2) at places x (N, D), each a tensor, or None as given.

    Raises:
        ValueError: one of them has another shape.
    """
    return (
        None if velocity is None else _rows("velocities", velocity, len(x), x.shape[1]),
        None if heading is None else _rows("headings", heading, len(x), 2),
    )


def _rows(name: str, value, count: int | None, width: int) -> Tensor:
    """A value as (count, width) float64; with None any count is right."""
    rows = torch.as_tensor(value, dtype=torch.float64).detach()
    if rows.ndim != 2 or rows.shape[1] != width or count not in (None, len(rows)):
        raise ValueError(
            f"{name} have shape {tuple(rows.shape)}, expected ({'N' if count is None else count}, "
            f"{width}): one row of {width} each"
        )
    return rows
