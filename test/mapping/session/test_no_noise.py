"""A sensor without noise, as simulators have it: the map is as good as float64 makes it, and says how good that is."""

import math

import torch

from gp_mapping import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters

SPEED, WIDTH, LANES = 0.5, 4.0, 10


def field(x: torch.Tensor) -> torch.Tensor:
    """(N, 1), tesla."""
    return (45e-6 + 6e-6 * torch.sin(1.5 * x[:, 0]) * torch.cos(1.1 * x[:, 1]))[:, None]


def drive(count: int) -> torch.Tensor:
    """(N, 2): up and down a hall, a place each second."""
    along = SPEED * torch.arange(count, dtype=torch.float64)
    lane, on = along.div(WIDTH, rounding_mode="floor"), along % WIDTH
    row = lane % (2 * LANES - 2)
    row = torch.where(row < LANES, row, 2 * LANES - 2 - row)
    return torch.stack([torch.where(lane % 2 == 0, on, WIDTH - on), 0.3 * row], 1)


def test_a_field_that_never_changes_is_not_said_to():
    x = drive(400)  # almost three times through the hall
    y = field(x)
    session = MapSession(Parameters.build({"max_inducing": 200, "memory_size": 200}).map)
    stamps = 1e9 + torch.arange(len(x), dtype=torch.float64)
    for part in torch.arange(len(x)).split(60):
        session.ingest(Samples(x[part], y[part], stamp=stamps[part]))
    session.flush()
    report, at = (
        session.report(),
        torch.rand(400, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        * torch.tensor([4.0, 2.7]),
    )
    assert report["changes"] == 0 and report["gross_errors"] == 0
    told = report["hyperparameters"]
    assert told["noise_stddev"] > 0.9e-5 * told["signal_stddev"]
    p = session.predict(at)
    error = (p.mean - field(at)).abs()
    assert float(error.square().mean().sqrt()) < 0.005 * 6e-6
    inside = (error <= 1.96 * (p.variance + p.noise_variance).sqrt()).double().mean()
    assert float(inside) > 0.9 and math.isfinite(told["lengthscale"])
