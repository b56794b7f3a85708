"""Random fields of any lengthscale, and places along paths of surveys."""

import torch


def waves(length, seed, count=400):
    """A field of unit variance with the spectrum of a Matérn-5/2 process."""
    g = torch.Generator().manual_seed(seed)
    normal = torch.randn(count, 2, dtype=torch.float64, generator=g)
    chi = torch.randn(count, 5, dtype=torch.float64, generator=g).square().sum(1, keepdim=True)
    frequency = normal * (5.0 / chi).sqrt() / length
    phase = 6.2832 * torch.rand(count, dtype=torch.float64, generator=g)
    height = (2.0 / count) ** 0.5 * torch.randn(count, 1, dtype=torch.float64, generator=g)
    return lambda x: torch.cos(x @ frequency.mT + phase) @ height


def lawnmower(side, lane, step):
    """(N, 2) places every `step` metres on the lanes of a square."""
    rows = []
    for k in range(round(side / lane) + 1):
        x = torch.arange(0.0, side + 1e-9, step, dtype=torch.float64)
        rows.append(torch.stack([x if k % 2 == 0 else side - x, torch.full_like(x, k * lane)], 1))
    return torch.cat(rows)


def even(at, step=0.02):
    """Points every `step` metres along a polygon."""
    along = torch.cat(
        [torch.zeros(1, dtype=torch.float64), (at[1:] - at[:-1]).norm(dim=1).cumsum(0)]
    )
    wanted = torch.arange(0.0, float(along[-1]), step, dtype=torch.float64)
    leg = (torch.searchsorted(along, wanted, right=True) - 1).clamp(0, len(at) - 2)
    share = ((wanted - along[leg]) / (along[leg + 1] - along[leg]))[:, None]
    return at[leg] + share * (at[leg + 1] - at[leg])
