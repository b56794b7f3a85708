"""Kernels of places on a card by one operation, which reads the places and writes the matrix.

Operation by operation, differences, squares, roots and exponentials each read and write the whole
matrix, and the card waits for its memory. One generated operation, which torch compiles when it is
first used, takes a sixth of the time. Where it cannot be compiled, a sentence says so once, and the
operations do it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

__all__ = ["fused_covariances", "fused_of_halves"]

_MOST = 8  # tensors that a generated operation may read
_failed: list[str] = []


def fused_covariances(code: str, variance: float, a: Tensor, b: Tensor) -> Tensor | None:
    """s² ρ between places on a card, (N, K).

    Args:
        code: ρ in CUDA's C++, of a number `s`, which is r², and of its type `T`.
        variance: s².
        a: (N, D), in lengthscales.
        b: (K, D), in lengthscales.

    Returns:
        None where there is no such operation: not on a CUDA device, too many dimensions, or it
        cannot be compiled.
    """
    if a.device.type != "cuda" or 2 * a.shape[1] > _MOST:
        return None
    return _called(_operation(code, a.shape[1], False), [*_columns(a), *_rows(b)], variance)


def fused_of_halves(code: str, variance: float, a: list[Tensor], b: list[Tensor]) -> Tensor | None:
    """As `fused_covariances`, of coordinates that are sums of two float32 numbers.

    Args:
        code: ρ, as there.
        variance: s².
        a: for each dimension the two parts (N,) of the coordinates.
        b: likewise, (K,).
    """
    if a[0].device.type != "cuda" or len(a) + len(b) > _MOST:
        return None
    return _called(_operation(code, len(a) // 2, True), [v[:, None] for v in a] + b, variance)


def _columns(a: Tensor) -> list[Tensor]:
    return [v[:, None] for v in a.mT.contiguous()]


def _rows(b: Tensor) -> list[Tensor]:
    return list(b.mT.contiguous())


def _called(
    operation: Callable[..., Tensor], given: list[Tensor], variance: float
) -> Tensor | None:
    """The result of an operation, if it compiles."""
    if _failed:
        return None
    try:
        return operation(*given, variance=variance)
    except torch.cuda.OutOfMemoryError:
        raise  # that is no fault of the operation
    except RuntimeError as error:  # no compiler for the card in this torch
        _failed.append(str(error))
        warnings.warn(
            "kernels on the card take several operations each, since torch cannot compile one: "
            f"{str(error).splitlines()[0]}",
            stacklevel=2,
        )
        return None


@cache
def _operation(code: str, dimensions: int, halves: bool) -> Callable[..., Tensor]:
    """The operation for a correlation and so many dimensions."""
    parts = ("", "l") if halves else ("",)
    names = [f"{of}{d}{part}" for of in "ab" for d in range(dimensions) for part in parts]
    terms = []
    for d in range(dimensions):
        difference = " + ".join(f"(a{d}{part} - b{d}{part})" for part in parts)
        terms.append(f"({difference}) * ({difference})")
    return torch.cuda.jiterator._create_jit_fn(  # noqa: SLF001 the name in torch's documentation
        f"template <typename T> T covariance({', '.join(f'T {name}' for name in names)}, T variance)"
        f" {{ T s = {' + '.join(terms)}; return variance * ({code}); }}",
        variance=1.0,
    )
