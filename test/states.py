"""States of maps and sessions, compared bit for bit."""

import torch

from gp_mapping.core.stored import StoredState


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, StoredState):
        return same(a.get(), b.get())
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def differences(a, b, where="state"):
    """Paths at which two state dicts are not exactly the same."""
    a, b = (part.get() if isinstance(part, StoredState) else part for part in (a, b))
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [d for key in a for d in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (p, q) in enumerate(zip(a, b)) for d in differences(p, q, f"{where}[{i}]")]
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    else:
        same = type(a) is type(b) and (a == b or (a != a and b != b))
    return [] if same else [where]
