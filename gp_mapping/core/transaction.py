"""All or nothing: a map that has to refuse an update is afterwards what it was before, bit for bit.

    with transaction(field_map):
        …                    # an exception puts everything back; what is left at the end is checked to be finite

What is only ever replaced (references, numbers, posteriors) is put back by remembering the references. What is changed
in place belongs to a `Revertible` that copies it before the first write: D and r of the sites, the rows of the memory
that are written, the nodes of a lattice that a batch touches. So a batch that goes well pays for one copy of what it
changes, and nothing for what it does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gp_mapping.errors import NumericalError

__all__ = ["Revertible", "require_finite", "transaction"]


class Revertible:
    """Something whose changes since `mark` can be taken back.

    A subclass that writes in place adds `_keep` (copy what is about to be written) and `_put_back`; everything else,
    attributes that are replaced, generators, learners and other Revertibles inside, is followed here.
    """

    _before: dict | None = None  # the attributes at `mark`; None outside a transaction

    @property
    def marked(self) -> bool:
        """Whether it is part of a transaction that has not ended."""
        return self._before is not None

    def mark(self) -> None:
        """Remember how things stand."""
        self._before = dict(self.__dict__)
        self._parts = [_Part(value) for value in self._before.values() if _changes(value)]

    def revert(self) -> None:
        """Everything as it was at `mark`."""
        before, parts = self._before, self._parts
        self._put_back()
        for part in parts:
            part.revert()
        self.__dict__.clear()
        self.__dict__.update(before)

    def release(self) -> None:
        """What was changed stays."""
        for part in self._parts:
            part.release()
        del self._parts, self._before

    def forget_mark(self) -> None:
        """For a copy that was made in a transaction of the original's: it is no part of that."""
        self.__dict__.pop("_before", None)
        self.__dict__.pop("_parts", None)

    def check(self) -> None:
        """NumericalError where a number that the change has left behind is not finite."""
        for value in self.__dict__.values():
            if isinstance(value, Revertible):
                value.check()

    def _put_back(self) -> None:
        """Undo what was written in place."""


class _Part:
    """One attribute of a Revertible, and how it is put back."""

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
        if isinstance(self.value, Revertible):
            self.value.release()


_CHANGING: dict[type, bool] = {}  # of each class met so far


def _changes(value) -> bool:
    """Whether an attribute's value may change without being replaced: what this package keeps in objects does."""
    kind = type(value)
    known = _CHANGING.get(kind)
    if known is None:
        frozen = getattr(kind, "__dataclass_params__", None)
        ours = kind.__module__.startswith("gp_mapping.") and hasattr(value, "__dict__")
        known = issubclass(kind, Revertible | torch.Generator | dict) or (
            ours and not (frozen and frozen.frozen)
        )
        _CHANGING[kind] = known
    return known


@contextmanager
def transaction(owner: Revertible) -> Iterator[None]:
    """Changes of `owner` in the block stay all of them, or none.

    Raises whatever the block raises; NumericalError where what it has left behind is not finite. The owner is then as
    it was.
    """
    if owner.marked:  # part of a larger one, which puts back what this one would
        yield
        owner.check()
        return

    owner.mark()
    try:
        yield
        owner.check()
    except BaseException:
        owner.revert()
        raise
    owner.release()


def require_finite(what: str, *parts: Tensor) -> None:
    """NumericalError where one of the parts holds NaN or infinity, or numbers whose sum does. what: for the message."""
    if not math.isfinite(sum(float(part.sum()) for part in parts)):
        raise NumericalError(
            f"{what} would not be finite; the update is refused and the map is as it was"
        )
