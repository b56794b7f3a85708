"""A device that is not here: tensors on torch's `meta` device that have numbers after all.

Within `pretended_card()` a tensor that is made on, or brought to, device "meta" holds an ordinary
tensor, on which every operation is done. So all of the code runs as on a graphics card, with the
results of the processor, to the bit; and, as on a card,

- an operation on tensors of both devices fails (a number alone, and indices, may come along);
- `.numpy()` of a tensor on the card fails;
- what waits for the card, what is copied to and from it, and what it computes, is counted. A copy
  waits, too, unless it is to the card and `non_blocking`.
"""

import contextlib
import functools
from collections import Counter
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gp_mapping.core import registry

__all__ = ["CARD", "Counts", "pretended_card"]

CARD = "meta"
_DEVICE = torch.device(CARD)
_WAITS = (  # the processor has to know numbers of the card, or how many there are
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "equal",
    "_linalg_eigh",
    "_linalg_check_errors",
    "bincount",
)
_JOINED = ("cat", "stack")  # of which not even a number may be of another device
_INDEXED = ("index", "index_put_", "index_put", "_index_put_impl_")


class Counts(Counter):
    """How often the card was waited for, or copied to or from.

    Attributes:
        launches: operations on tensors of the card; views of one are none.
    """

    launches = 0


class _OnCard(torch.Tensor):
    """A tensor that says it is on the card; held: the ordinary one with its numbers."""

    @staticmethod
    def __new__(cls, held):
        is_dense = held.layout == torch.strided  # else it has no strides
        return torch.Tensor._make_wrapper_subclass(  # noqa: SLF001
            cls,
            held.shape,
            strides=held.stride() if is_dense else None,
            storage_offset=held.storage_offset() if is_dense else None,
            dtype=held.dtype,
            device=_DEVICE,
        )

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"on the card: {self.held}"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} outside pretended_card()")


def _is_on_card(value) -> bool:
    return type(value) is _OnCard


def _leaves(values) -> list:
    """Values, and those in lists and tuples of them. torch's own walk takes half of the time of a test."""
    found = []
    for value in values:
        if type(value) in (list, tuple):
            found += _leaves(value)
        else:
            found.append(value)
    return found


def _changed(value, change):
    """A value, or each in lists and tuples, as `change` makes it."""
    if type(value) in (list, tuple):
        return type(value)([_changed(each, change) for each in value])
    return change(value)


def _held(value):
    return value.held if type(value) is _OnCard else value


def _put(value):
    return _OnCard(value) if torch.is_tensor(value) else value


@functools.cache
def _about(func) -> tuple[str, object, bool, bool]:
    """Name and schema of an operation, whether it changes something, and whether it is a view.

    A view gives a tensor another shape, and computes nothing.
    """
    schema = func._schema  # noqa: SLF001
    aliases = [result.alias_info for result in schema.returns]
    is_view = any(alias is not None and not alias.is_write for alias in aliases)
    return schema.name.removeprefix("aten::"), schema, schema.is_mutable, is_view


class _Operations(TorchDispatchMode):
    """Does on the held tensors what is asked of those on the card."""

    def __init__(self, counts: Counts):
        super().__init__()
        self.counts = counts

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled: to forbid it would load the compiler

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, (name, schema, is_mutable, is_view) = dict(kwargs or {}), _about(func)
        if name == "to":  # as it comes from outside of the autograd layer, which makes it a copy
            with self:
                return func.decompose(*args, **kwargs)
        flat = _leaves((*args, *kwargs.values()))
        here = [t for t in flat if torch.is_tensor(t) and not _is_on_card(t)]
        here = [t for t in here if t.ndim or name in _JOINED]
        any_there = any(map(_is_on_card, flat))
        self.counts.launches += any_there and not is_view
        copies = name in ("_to_copy", "copy_")
        if any_there and not copies:
            self._check(name, args, here)

        wanted = kwargs.get("device")
        to_card = wanted is not None and torch.device(wanted) == _DEVICE
        if to_card:
            kwargs["device"] = torch.device("cpu")
        is_there = to_card if wanted is not None else any_there
        if copies:
            is_there = _is_on_card(args[0]) if name == "copy_" else is_there
            source = args[1] if name == "copy_" else args[0]
            if _is_on_card(source) != is_there:
                self.counts["copied to the card" if is_there else "copied from the card"] += 1
                goes_on = kwargs.get("non_blocking") or (name == "copy_" and True in args[2:])
                self.counts["waits"] += not (is_there and goes_on)

        result = func(
            *_changed(args, _held), **{key: _changed(value, _held) for key, value in kwargs.items()}
        )
        if name == "_to_copy":
            result = result.clone()
        if is_mutable and any_there and torch.is_tensor(result):
            return self._written(schema, args, kwargs)
        return _changed(result, _put) if is_there else result

    def _check(self, name, args, here) -> None:
        """Fail where a card would; count what waits for it."""
        if name in _INDEXED:
            if not _is_on_card(args[0]):
                raise RuntimeError(f"{name}: a tensor here is indexed by one on the card")
            indices = [t for t in args[1] if t is not None]
            self.counts["waits"] += any(t.dtype == torch.bool for t in indices)
            self.counts["copied to the card"] += sum(not _is_on_card(t) for t in indices)
            here = [t for t in here if not any(t is index for index in indices)]
        if here:
            raise RuntimeError(f"{name}: tensors on two devices, {[tuple(t.shape) for t in here]}")
        self.counts["waits"] += name in _WAITS

    def _written(self, schema, args, kwargs):
        """The argument that an operation in place has changed."""
        for i, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                return args[i] if i < len(args) else kwargs[argument.name]
        raise AssertionError(schema)


class _Making(TorchFunctionMode):
    """Makes tensors of numbers of Python here and brings them to the card, as torch does for a card."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        first = args[0] if args else None
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            made = func(*args, **kwargs)
            return made.to(device)
        if not _is_on_card(first):
            return func(*args, **kwargs)

        if func is torch.Tensor.tolist:
            return first.cpu().tolist()
        if func is torch.Tensor.numpy:
            raise TypeError("can't convert a tensor on the card to numpy; copy it here first")
        if func is torch.Tensor.new_tensor:
            kwargs = {"dtype": first.dtype, "device": CARD} | kwargs
            device = kwargs.pop("device")
            return torch.tensor(*args[1:], **kwargs).to(device)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            key = args[1]
            key = tuple(map(_index, key)) if isinstance(key, tuple) else _index(key)
            args = (first, key, *args[2:])
        return func(*args, **kwargs)


def _index(key):
    """A list of whole numbers as the tensor on the card that torch makes of it."""
    return torch.tensor(key, dtype=torch.long).to(CARD) if isinstance(key, list) else key


@contextlib.contextmanager
def pretended_card():
    """Maps may be on device "meta" in the block. Yields how often something was counted, by name."""
    counts = Counts()

    def check(name: str) -> None:
        assert name in ("cpu", CARD), name

    with mock.patch.object(registry, "check_device", check), _Making(), _Operations(counts):
        yield counts
