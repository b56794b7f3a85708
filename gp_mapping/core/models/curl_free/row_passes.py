"""Numbers of passes for rows: component c of pass p has the constant of its own 3p + c.

A sensor's constant in a pass is a vector, whose components are independent of each other a priori.
Segments of a pass, whose numbers have a fraction (hyper/bias.py), stay segments of one another,
component by component.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.kernels.curl_free import COMPONENTS
from gp_mapping.core.sparse.passes import NO_PASS

__all__ = ["component_of", "pass_of", "row_number", "row_numbers"]


def row_numbers(numbers: Tensor) -> Tensor:
    """Numbers of the constants of rows.

    Args:
        numbers: of the samples' passes (N,), negative where a sample has none.

    Returns:
        (3N,), the rows of a sample one after the other; NO_PASS where it has none.
    """
    numbers = numbers.to(torch.float64)
    whole = numbers.floor()
    component = torch.arange(COMPONENTS, dtype=torch.float64, device=numbers.device)
    rows = COMPONENTS * whole[:, None] + component + (numbers - whole)[:, None]
    return torch.where(numbers[:, None] >= 0, rows, NO_PASS).flatten()


def row_number(number: float, component: int) -> float:
    """The number of the constant of one component in one pass, or segment of a pass."""
    whole = math.floor(number)
    return COMPONENTS * whole + component + (number - whole) if number >= 0 else NO_PASS


def component_of(number: float) -> int:
    """The component whose constant has this number, which is not negative."""
    return math.floor(number) % COMPONENTS


def pass_of(number: float) -> float:
    """The pass, or segment of a pass, to which a constant of this number belongs."""
    whole = math.floor(number)
    return whole // COMPONENTS + (number - whole) if number >= 0 else NO_PASS
