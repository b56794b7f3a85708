"""Torch calls that record no gradients, nor look whether they should, and the few that do record.

Below `torch.no_grad` each call still passes through torch's autograd layer, which takes a tenth of
the time of a map: its calls are many, and small. What is computed outside of that layer is the same
to the bit, and its tensors are ordinary ones: unlike those of `torch.inference_mode` they may be
written into, saved and differentiated by anybody later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

__all__ = ["recorded", "unrecorded"]

# Names of torch that it uses itself, and does not promise: where they are missing, so is the gain.
_OUTSIDE = getattr(torch._C, "_AutoDispatchBelowAutograd", None)  # noqa: SLF001
_CHANGED = getattr(torch._C, "_SetExcludeDispatchKeyGuard", None)  # noqa: SLF001
_AUTOGRAD = getattr(torch._C.DispatchKey, "AutogradFunctionality", None)  # noqa: SLF001
_EXCLUDED = getattr(torch._C, "_dispatch_tls_is_dispatch_key_excluded", None)  # noqa: SLF001
_KNOWN = None not in (_OUTSIDE, _CHANGED, _AUTOGRAD, _EXCLUDED)
_NOTHING_TO_DO = nullcontext()


def unrecorded(outside: bool = True) -> AbstractContextManager[None]:
    """No gradients are recorded by this thread within.

    Args:
        outside: whether calls leave the autograd layer out. Then `torch.enable_grad` has no effect
            within, but `recorded` has: False for code that may use the former.
    """
    # mostly one method of a map calls another
    if outside and not torch.is_grad_enabled() and _KNOWN and _EXCLUDED(_AUTOGRAD):
        return _NOTHING_TO_DO
    return _unrecorded(outside)


@contextmanager
def _unrecorded(outside: bool) -> Iterator[None]:
    """As `unrecorded`, wherever it is called."""
    with torch.no_grad():
        if outside and _KNOWN:
            with _OUTSIDE():
                yield
        else:
            yield


@contextmanager
def recorded() -> Iterator[None]:
    """Gradients are recorded by this thread within, also inside of `unrecorded`."""
    with torch.enable_grad():
        if _KNOWN:
            with _CHANGED(_AUTOGRAD, False):
                yield
        else:
            yield
