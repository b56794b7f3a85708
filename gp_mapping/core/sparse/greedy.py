"""Greedy choices of inducing inputs, step by step on a processor and in blocks of steps on a card.

A processor that reads a number from a card waits until the card has done all that it was given. So
a greedy choice on a card takes several steps, each with its decisions as masks, before the
processor looks whether it has ended: STEPS before the first look, and twice as many before each
later one. Steps after the end change nothing, and both ways choose the same inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gp_mapping.core.device.replay import record
from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.core.linalg import pivoted_cholesky

__all__ = ["STEPS", "remove_inputs", "select_inputs", "select_pivots"]

_CACHED = 1 << 16  # numbers: half a MiB in float64
STEPS = 8  # of a greedy choice before the first look
_RECORDED = 100  # steps for which it pays to record one: that takes as long as some ten


def _in_blocks(most: int, step: Callable[[int, Tensor], Tensor], going: Tensor) -> int:
    """Take steps until one does nothing, and look at them in blocks.

    Args:
        most: number of steps.
        step: of its number, and whether all before it did something, (); returns whether it did.
        going: true, ().

    Returns:
        How many did something.
    """
    done, block = 0, STEPS
    while done < most:
        block = min(block, most - done)
        did = []
        for number in range(done, done + block):
            going = step(number, going)
            did.append(going)
        taken = int(torch.stack(did).sum())
        done += taken
        if taken < block:
            break
        block *= 2
    return done


def _worths(
    covariance: Tensor, candidates: Tensor, tolerance: float, precision: Tensor
) -> tuple[Tensor, Tensor]:
    """Residual variances d of candidates and their worths w = Σ_i β_i c(x_i, x)² / d (worth.py).

    Args:
        covariance: residual covariance of the candidates with all x, (n, N).
        candidates: their indices among x, (n,).
        tolerance: of d, up to which w is 0.
        precision: β, (N,).

    Returns:
        d and w, (n,) each.
    """
    own = covariance.gather(1, candidates[:, None])[:, 0]
    # on a processor by so many rows that their squares stay in its cache
    rows = (
        max(1, _CACHED // max(1, len(precision))) if is_synchronous(covariance.device) else len(own)
    )
    parts = [part.square() @ precision for part in covariance.split(rows)]
    worths = torch.cat(parts) / own.clamp_min(tolerance)
    return own, worths.masked_fill_(own <= tolerance, 0.0)


def select_inputs(
    covariance: Tensor,
    candidates: Tensor,
    tolerance: float,
    room: int,
    precision: Tensor,
    worth: float,
) -> tuple[Tensor, Tensor]:
    """Pick candidates one by one, each of the largest worth w given those before it (basis.py).

    Args:
        covariance: residual covariance of the candidates with all x, (n, N); it is overwritten.
        candidates: their indices among x, (n,).
        tolerance: least residual variance of a pick.
        room: most picks.
        precision: β, (N,).
        worth: a pick's w exceeds it.

    Returns:
        Indices among x (r,), and the picks' rows of a(x), (r, N).
    """
    select = _select_step_by_step if is_synchronous(covariance.device) else _select_in_blocks
    return select(covariance, candidates, tolerance, room, precision, worth)


def _select_step_by_step(
    covariance: Tensor,
    candidates: Tensor,
    tolerance: float,
    room: int,
    precision: Tensor,
    worth: float,
) -> tuple[Tensor, Tensor]:
    """As `select_inputs`, where each pick is read at once."""
    if candidates.shape[0] == 1:
        return _select_single(covariance, candidates, tolerance, precision, worth)

    picked, rows = [], []
    while len(picked) < room:
        own, worths = _worths(covariance, candidates, tolerance, precision)
        p = int(worths.argmax())
        if not float(worths[p]) > worth:
            break

        row = covariance[p] / own[p].sqrt()
        picked.append(int(candidates[p]))
        rows.append(row)
        covariance.addr_(row[candidates], row, alpha=-1.0)  # what remains given this pick

    if not picked:
        return candidates[:0], covariance[:0]
    return torch.tensor(picked, device=candidates.device), torch.stack(rows)


def _select_single(
    covariance: Tensor, candidate: Tensor, tolerance: float, precision: Tensor, worth: float
) -> tuple[Tensor, Tensor]:
    """As `select_inputs`, for a single candidate and room for it, which is the usual case."""
    own = float(covariance[0, int(candidate)])
    found = float(covariance.square() @ precision) / max(own, tolerance)
    if own <= tolerance or not found > worth:
        return candidate[:0], covariance[:0]
    return candidate, covariance / math.sqrt(own)


def _select_in_blocks(
    covariance: Tensor,
    candidates: Tensor,
    tolerance: float,
    room: int,
    precision: Tensor,
    worth: float,
) -> tuple[Tensor, Tensor]:
    """As `select_inputs`, on a card."""
    picked: list[Tensor] = []
    rows: list[Tensor] = []

    def step(number: int, going: Tensor) -> Tensor:
        """Pick one more, where it is worth an input."""
        own, worths = _worths(covariance, candidates, tolerance, precision)
        p = worths.argmax()[None]
        going = going & (worths[p] > worth)[0]

        row = torch.where(going, (covariance[p] / own[p].sqrt())[0], 0.0)
        picked.append(candidates[p])
        rows.append(row)
        covariance.addr_(row[candidates], row, alpha=-1.0)
        return going

    most = min(room, len(candidates))
    count = _in_blocks(most, step, covariance.new_ones((), dtype=torch.bool))
    if not count:
        return candidates[:0], covariance[:0]
    return torch.cat(picked[:count]), torch.stack(rows[:count])


def select_pivots(
    diagonal: Tensor, row_of: Callable[[Tensor | slice], Tensor], tolerance: float, rank: int
) -> tuple[Tensor, Tensor]:
    """Partial Cholesky factorisation of A with greedy pivots (linalg.py).

    Args:
        diagonal: of A, (N,).
        row_of: function of an index (1,): that row of A, (N,).
        tolerance: in A's units.
        rank: most pivots.

    Returns:
        The pivots (r,), and rows W (r, N).
    """
    if not is_synchronous(diagonal.device):
        return _pivots_in_blocks(diagonal, row_of, tolerance, rank)
    pivots, rows = pivoted_cholesky(
        len(diagonal), diagonal, lambda p: row_of(slice(p, p + 1)), tolerance, rank
    )
    return torch.tensor(pivots, dtype=torch.long), rows


def _pivots_in_blocks(
    diagonal: Tensor, row_of: Callable[[Tensor], Tensor], tolerance: float, rank: int
) -> tuple[Tensor, Tensor]:
    """As `select_pivots`, on a card: every step is the same work, so it can be recorded."""
    residual = diagonal.clone()
    most = min(rank, len(residual))
    rows = diagonal.new_zeros((most, len(residual)))
    pivots = torch.zeros(most, dtype=torch.long, device=diagonal.device)
    count, going = pivots.new_zeros(1), diagonal.new_ones((), dtype=torch.bool)
    chosen = torch.zeros_like(residual, dtype=torch.bool)

    def step() -> None:
        """Take the largest residual as a pivot, where it exceeds the tolerance."""
        p = residual.argmax()[None]
        best = residual[p]
        going.logical_and_((best > tolerance)[0])

        # rows that are still to come are 0
        row = torch.addmv(row_of(p), rows.mT, rows[:, p][:, 0], alpha=-1.0) / best.sqrt()
        row.masked_fill_(chosen, 0.0)  # the residual there is zero but for rounding
        row = torch.where(going, row, 0.0)
        rows.index_copy_(0, count, row[None])
        residual.addcmul_(row, row, value=-1.0)
        residual.index_fill_(0, p, -1.0)  # never chosen again
        chosen.index_fill_(0, p, True)
        pivots.index_copy_(0, count, p)
        count.add_(going)

    taken, done, block, do = 0, 0, STEPS, step
    while taken == done < most:
        block = min(block, most - done)
        if do is step and done and most - done >= _RECORDED:
            do = record(step, diagonal.device)
        for _ in range(block):
            do()
        done, taken, block = done + block, int(count), 2 * block
    return pivots[:taken], rows[:taken]


def remove_inputs(
    prior: Tensor,
    data: Tensor,
    alive: Tensor,
    may_stay: Callable[[int], bool],
    least: float,
    most: int,
) -> tuple[int, float]:
    """Remove inputs of least worth, as InputRemoval of worth.py; the arrays are changed.

    Args:
        prior: K⁻¹ (M, M).
        data: Λ (M, M).
        alive: which inputs remain, (M,) bool.
        may_stay: whether an input with a w of `least` may stay, after so many removals of this
            call.
        least: w of an input that may stay.
        most: removals.

    Returns:
        How many were removed, and the largest w of these; 0 of none.
    """
    worst = [prior.new_zeros(())]
    numbers = torch.arange(len(alive), device=alive.device)

    def step(number: int, going: Tensor) -> Tensor:
        """Remove one more."""
        worth = (data.diagonal() / prior.diagonal()).masked_fill(~alive, torch.inf)
        j = worth.argmin()[None]
        value = worth[j][0]
        if may_stay(number):
            going = going & ~(value >= least)

        column, row = prior[:, j][:, 0], data[:, j][:, 0]
        mean = torch.where(going, column / -column[j], 0.0)
        both = torch.stack([mean, torch.where(going, row, 0.0)], 1)
        prior.addr_(torch.where(going, column * (-1.0 / column[j]), 0.0), column)
        data.addmm_(both, torch.stack([row + row[j] * mean, mean]))

        gone = (numbers == j) & going
        for matrix in (prior, data):
            matrix.masked_fill_(gone[:, None] | gone, 0.0)
        prior.diagonal().masked_fill_(gone, 1.0)  # a divisor above that is not 0
        alive.logical_and_(~gone)
        worst[0] = torch.maximum(worst[0], torch.where(going, value, 0.0))
        return going

    count = _in_blocks(most, step, torch.ones_like(alive[0]))
    return count, float(worst[0]) if count else 0.0
