"""Places and motions from outside, checked: a wrong shape would be broadcast, NaN answered."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["float_tensor", "motion_of", "need_radius", "need_units", "places_of"]


def float_tensor(value) -> Tensor:
    """Numbers from outside as a float64 tensor without a gradient.

    Args:
        value: tensor, list, or anything that is an array: also reversed, of another byte order, or
            a table's columns, which torch refuses. An array is copied.

    Raises:
        ValueError: the numbers are complex, of which the imaginary part would be dropped.
    """
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.float64 and not value.requires_grad:
            return value
        if value.is_complex():
            raise ValueError(f"numbers are {value.dtype}, expected real ones")
    elif hasattr(value, "__array__"):
        array = value.__array__()
        if array.dtype.kind == "c":
            raise ValueError(f"numbers are {array.dtype}, expected real ones")
        value = array.astype("float64", order="C")
    return torch.as_tensor(value, dtype=torch.float64).detach()


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
    """Velocities and headings as tensors, or None as given.

    Args:
        x: places (N, D).
        velocity: (N, D) m/s, tensor, array or nested list, or None.
        heading: (N, 2), unit vectors or averages of them, or None.

    Returns:
        Velocity (N, D) and heading (N, 2), float64.

    Raises:
        ValueError: one of them has another shape, or a heading is longer than 1.
    """
    if velocity is not None:
        velocity = _rows("velocities", velocity, *x.shape)
    if heading is not None:
        heading = _rows("headings", heading, x.shape[0], 2)
        need_units(heading)
    return velocity, heading


def need_units(heading: Tensor) -> None:
    """Check that headings (N, 2) are unit vectors, or shorter as averages are.

    Raises:
        ValueError: one is longer.
    """
    if len(heading) and (square := float(heading.square().sum(1).max())) > 1.002:
        raise ValueError(
            f"headings are unit vectors; the longest has length {square**0.5:.3g}: "
            "write (cos ψ, sin ψ)"
        )


def need_radius(radius: float) -> None:
    """Check a radius, m.

    Raises:
        ValueError: it is negative or NaN; within such a radius is nothing.
    """
    if not radius >= 0.0:
        raise ValueError(f"radius is {radius}, expected 0 or more metres")


def _rows(name: str, value, count: int | None, width: int) -> Tensor:
    """A value as (count, width) float64; with None any count is right."""
    rows = float_tensor(value)
    if rows.ndim != 2 or rows.shape[1] != width or count not in (None, rows.shape[0]):
        raise ValueError(
            f"{name} have shape {tuple(rows.shape)}, expected ({'N' if count is None else count}, "
            f"{width}): one row of {width} each"
        )
    return rows
