"""Drives through a random field with a sensor that drifts, for tests."""

import math

import torch
from slow_sensor import field

from gp_mapping.core.types import Samples
from gp_mapping.mapping.drift.evidence import DriftTrack

SPEED, LENGTH = 0.5, 2.0  # m/s; m, of the field


def lanes(width, depth, lane, step):
    """(N, 2) places along lanes in x and the ways between them, evenly spaced."""
    corners = []
    for k in range(round(depth / lane) + 1):
        corners += [(0.0, k * lane), (width, k * lane)][:: 1 if k % 2 == 0 else -1]
    ends = torch.tensor(corners, dtype=torch.float64)
    along = torch.cat([ends.new_zeros(1), ends.diff(dim=0).norm(dim=1).cumsum(0)])
    at = torch.arange(0.0, float(along[-1]), step, dtype=torch.float64)
    leg = (torch.searchsorted(along, at, right=True) - 1).clamp(0, len(ends) - 2)
    share = ((at - along[leg]) / (along[leg + 1] - along[leg]))[:, None]
    return ends[leg] + share * (ends[leg + 1] - ends[leg])


def crossing(step, lane=1.6):
    """Two passes over 10 × 8 m, which cross each other."""
    return [lanes(10.0, 8.0, lane, step), lanes(8.0, 10.0, lane, step).flip(1)]


def drifted(stamp, stddev, seconds, warms_up, generator):
    """What the sensor adds in one pass, (N,)."""
    if warms_up:
        about = float(torch.randn(1, generator=generator, dtype=torch.float64))
        about = math.copysign(max(abs(about), 0.5), about)
        return stddev * about * torch.exp(-(stamp - stamp[0]) / seconds)
    steps = torch.randn(len(stamp), generator=generator, dtype=torch.float64).tolist()
    value, out = steps[0], [steps[0]]
    for elapsed, each in zip(stamp.diff().tolist(), steps[1:]):
        keep = math.exp(-elapsed / seconds)
        value = keep * value + math.sqrt(1.0 - keep**2) * each
        out.append(value)
    return stddev * torch.tensor(out, dtype=torch.float64)


def passes(seed, paths, drift=0.0, seconds=40.0, warms_up=False, noise=0.03, **faults):
    """Of each pass its samples: a field whose standard deviation is 1.

    Args:
        seed: of field, drift and noise.
        paths: places (N, 2) of each pass, evenly spaced.
        drift: standard deviation.
        seconds: its time scale.
        warms_up: whether it decays from the beginning of each pass.
        noise: standard deviation.
        faults: of something else: `delay` s, `tau` s, `moved` (a change of that height before
            the second pass), `wander` m.
    """
    g, out, start = torch.Generator().manual_seed(seed), [], 0.0
    for number, x in enumerate(paths):
        step = float((x[1] - x[0]).norm())
        stamp = start + step / SPEED * torch.arange(len(x), dtype=torch.float64)
        velocity = torch.cat([x[1:2] - x[:1], x.diff(dim=0)]) * SPEED / step
        places = x - faults.get("delay", 0.0) * velocity
        steps = torch.randn(len(x), 2, generator=g, dtype=torch.float64).cumsum(0)
        places = places + faults.get("wander", 0.0) * math.sqrt(step) * steps
        y = field(places, seed, LENGTH)
        if faults.get("tau"):
            keep, told = math.exp(-step / SPEED / faults["tau"]), float(y[0])
            values = []
            for each in y.tolist():
                told = keep * told + (1.0 - keep) * each
                values.append(told)
            y = torch.tensor(values, dtype=torch.float64)
        if number:
            apart = (x - x.new_tensor([5.0, 4.0])).square().sum(1)
            y = y + faults.get("moved", 0.0) * torch.exp(-apart / 4.0)
        if drift:
            y = y + drifted(stamp, drift, seconds, warms_up, g)
        y = y + noise * torch.randn(len(x), generator=g, dtype=torch.float64)
        out.append(Samples(x, 20.0 + y, stamp=stamp))
        start = float(stamp[-1]) + 60.0
    return out


def way(parts):
    """Passes as the search takes them."""
    whole = Samples.concatenate(parts)
    numbers = torch.cat([torch.full((len(part),), k + 1) for k, part in enumerate(parts)])
    return DriftTrack(whole.x, whole.y[:, 0], whole.stamp, numbers)


def done(steps):
    """What work in steps returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
