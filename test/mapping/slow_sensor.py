"""Drives along lanes through a random field with a sensor that is slow, or whose stamps are late."""

import math

import torch

from gp_mapping import Samples
from gp_mapping.mapping.response.track import Track

RATE = 5.0  # Hz, of `drive`


def lawnmower(step=0.4, width=8.0, depth=6.0, lane=1.0):
    """Places along lanes in x."""
    rows = []
    for k in range(round(depth / lane) + 1):
        x = torch.arange(0.0, width, step, dtype=torch.float64)
        x = x if k % 2 == 0 else x.flip(0)
        rows.append(torch.stack([x, torch.full_like(x, k * lane)], 1))
    return torch.cat(rows)


def field(x, seed, length=2.0):
    """A draw of a Matérn-5/2 process by random waves."""
    g = torch.Generator().manual_seed(seed)
    chi = torch.randn(2000, 5, dtype=torch.float64, generator=g).square().sum(1, keepdim=True)
    waves = torch.randn(2000, 2, dtype=torch.float64, generator=g) * (5.0 / chi).sqrt() / length
    phase = 2 * math.pi * torch.rand(2000, dtype=torch.float64, generator=g)
    return (2.0 / 2000) ** 0.5 * torch.cos(x @ waves.mT + phase).sum(1)


def track(seed, tau=0.0, delay=0.0, noise=0.02, length=2.0, x=None, elapsed=0.8):
    """A drive at 0.5 m/s with a sensor of that time constant, whose stamps are late."""
    x = lawnmower() if x is None else x
    fine = 20  # steps between two blocks
    ways = torch.linspace(0.0, len(x) - 1.0, fine * (len(x) - 1) + 1, dtype=torch.float64)
    low = ways.floor().long().clamp(max=len(x) - 2)
    places = x[low] + (ways - low)[:, None] * (x[low + 1] - x[low])
    told = field(places, seed, length)
    if tau:
        a, value, out = math.exp(-elapsed / fine / tau), float(told[0]), []
        for f in told.tolist():
            value = a * value + (1 - a) * f
            out.append(value)
        told = torch.tensor(out, dtype=torch.float64)
    late = round(delay / elapsed * fine)
    told = torch.cat([told[:1].expand(late), told])[: len(told)][::fine]
    generator = torch.Generator().manual_seed(seed)
    begins = torch.zeros(len(x), dtype=torch.bool)
    begins[0] = True
    stamps = elapsed * torch.arange(len(x), dtype=torch.float64)
    noisy = told + noise * torch.randn(len(x), dtype=torch.float64, generator=generator)
    return Track(x, 20.0 + noisy, stamps, begins)


def drive(seed, tau, depth=6.0):
    """A thermometer of that time constant, at 0.5 m/s along lanes, so many metres deep."""
    x = lawnmower(step=0.5 / RATE, depth=depth)
    value, told = None, []
    a = math.exp(-1.0 / RATE / tau) if tau else 0.0
    for f in (21.0 + 1.5 * field(x, seed)).tolist():
        value = f if value is None else a * value + (1.0 - a) * f
        told.append(value)
    y = torch.tensor(told, dtype=torch.float64)
    y += 0.05 * torch.randn(
        len(x), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return Samples(x, y, stamp=100.0 + torch.arange(len(x), dtype=torch.float64) / RATE)
