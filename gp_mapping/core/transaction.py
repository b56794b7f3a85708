"""Transactions: a map that refuses an update is afterwards what it was before, bit for bit.

    with transaction(field_map):
        …       # an exception puts everything back; at the end all numbers are checked to be finite

What is only ever replaced (references, numbers, posteriors) is put back by remembering the
references. What is changed in place belongs to a `Revertible` that copies it before the first
write: D and r of the sites, the rows of the memory that are written, the nodes of a lattice that a
batch touches. So a successful batch costs one copy of what it changes at most, and nothing for what
it does not; D and r are mostly written when the transaction ends, and need none.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.errors import NumericalError

__all__ = ["Revertible", "require_finite", "taken_back", "transaction"]


class Revertible:
    """An object whose changes since `mark` can be undone.

    A subclass that writes in place adds `_keep`, which copies what is about to be written, and
    `_put_back`. Everything else is handled here: attributes that are replaced, generators, learners
    and other Revertibles inside.
    """

    _before: dict | None = None  # the attributes at `mark`; None outside a transaction

    @property
    def marked(self) -> bool:
        """Whether it is part of a transaction that has not ended."""
        return self._before is not None

    def mark(self) -> None:
        """Remember the attributes as they are now."""
        self._before = dict(self.__dict__)
        # the classes are mostly known: without a call for each attribute, of each update
        known = _CHANGING.get
        self._parts = [
            _Part(value)
            for value in self._before.values()
            if (_changes(value) if (changes := known(type(value))) is None else changes)
        ]

    def revert(self) -> None:
        """Restore everything as it was at `mark`."""
        before, parts = self._before, self._parts
        self._put_back()  # first: it needs the attributes of now
        for part in parts:
            part.revert()

        self.__dict__.clear()
        self.__dict__.update(before)

    def release(self) -> None:
        """Keep the changes."""
        for part in self._parts:
            part.release()
        del self._parts, self._before

    def forget_mark(self) -> None:
        """Take a copy of an object that is in a transaction out of that transaction."""
        self.__dict__.pop("_before", None)
        self.__dict__.pop("_parts", None)

    def check(self) -> None:
        """Raise NumericalError where a number is not finite after the change."""
        for value in self.__dict__.values():
            if isinstance(value, Revertible):
                value.check()

    def _put_back(self) -> None:
        """Undo what was written in place."""


class _Part:
    """One attribute of a Revertible whose value may change in place, and how it is put back."""

    def __init__(self, value):
        self.value, self.kept = value, None
        if isinstance(value, Revertible):
            value.mark()
        elif isinstance(value, torch.Generator):
            self.kept = value.get_state()
        elif isinstance(value, dict):
            self.kept = dict(value)
        else:
            self.kept = dict(value.__dict__)

    def revert(self) -> None:
        """Make the part what it was."""
        value, kept = self.value, self.kept
        if isinstance(value, Revertible):
            value.revert()
        elif isinstance(value, torch.Generator):
            value.set_state(kept)
        else:
            target = value if isinstance(value, dict) else value.__dict__
            target.clear()
            target.update(kept)

    def release(self) -> None:
        """Drop what `revert` would need."""
        if isinstance(self.value, Revertible):
            self.value.release()


_CHANGING: dict[type, bool] = {}  # of each class met so far


def _changes(value) -> bool:
    """Whether a value may change in place: dicts, generators, objects of this package."""
    kind = type(value)
    changes = _CHANGING.get(kind)
    if changes is None:
        params = getattr(kind, "__dataclass_params__", None)
        ours = kind.__module__.startswith("gp_mapping.") and hasattr(value, "__dict__")
        changes = issubclass(kind, Revertible | torch.Generator | dict) or (
            ours and not (params and params.frozen)
        )
        _CHANGING[kind] = changes
    return changes


class transaction:
    """Keep all changes of `owner` in the block, or none.

    Args:
        owner: what the block changes.

    Raises:
        NumericalError: a number is not finite after the block.
        BaseException: whatever the block raises. In both cases the owner is as it was.
    """

    def __init__(self, owner: Revertible):
        self._owner = owner
        # part of a larger transaction, which puts everything back, and checks everything, which
        # would be looked at twice
        self._is_part = False

    def __enter__(self) -> None:
        self._is_part = self._owner.marked
        if not self._is_part:
            self._owner.mark()

    def __exit__(self, kind, error, trace) -> None:
        if self._is_part:
            return
        owner = self._owner
        if kind is not None:
            owner.revert()
            return
        try:
            owner.check()
        except BaseException:
            owner.revert()
            raise
        owner.release()


@contextmanager
def taken_back(owner: object) -> Iterator[None]:
    """Keep all changes of `owner` in the block, or none, by a copy that is made before.

    For what is done seldom and changes more than a transaction could put back: tiles that come and
    go, or a session with all that is beside its map.

    Args:
        owner: what the block changes.

    Raises:
        BaseException: whatever the block raises; the owner is as it was.
    """
    # methods of the owner that its parts hold are not copied with another owner
    before = copy.deepcopy(owner.__dict__, {id(owner): owner})
    try:
        yield
    except BaseException:
        owner.__dict__.clear()
        owner.__dict__.update(before)
        raise


def require_finite(what: str, *parts: Tensor) -> None:
    """Check that tensors are finite.

    Args:
        what: their name in the message.
        parts: the tensors.

    Raises:
        NumericalError: one of them has NaN or infinity, or numbers whose sum is not finite.
    """
    sums = [part.sum() for part in parts]
    if is_synchronous(parts[0].device):
        total = sum(map(float, sums))
    else:  # one number, for which a card is waited for once
        total = float(sum(sums))
    if not math.isfinite(total):
        raise NumericalError(
            f"{what} would not be finite; the update is refused and the map is as it was"
        )
