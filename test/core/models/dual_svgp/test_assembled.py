"""Parts of a map's data: how many samples come in together, and what a map of their sums knows."""

import pytest
import torch
from core_data import UT, close, drive, lattice, samples, titsias
from map_contract import PLACES

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp import assembled
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.scaling import Scaling

THETA = Theta(0.5, 10.0, 1.0, 20.0)
Z = lattice(0.4)
SCALING = Scaling(torch.tensor([2.0, 1.0]).double(), torch.tensor([48 * UT]).double(), UT)


def part(cells, memory_size=0):
    return assembled.part_of(
        THETA, torch.from_numpy(Z) - SCALING.origin, SCALING, cells, memory_size
    )


def test_a_part_is_titsias_however_many_samples_come_in_together(monkeypatch):
    """At z and θ as they are given, with every sample in it."""
    x, y = drive(100)
    given = {"name": "matern52", "length": 0.5, "signal": 10.0}
    mean, variance = titsias(x, y - 48.0, torch.ones(100).numpy(), Z, PLACES.numpy(), **given)
    for together in (2000, 30):
        monkeypatch.setattr(assembled, "_TOGETHER", together)
        field = part(samples(x, y))
        assert field.samples == 100 and len(field.memory) == 0
        told = field.predict(PLACES)
        close(told.mean / UT - 48.0, mean, 1e-7, "mean")
        close(told.variance[:, 0] / UT**2, variance, 1e-7, "variance")


@pytest.mark.parametrize("remembered", [100, 12])
def test_a_map_of_sums_is_that_of_all_samples(remembered):
    """Two parts, added: where all samples are remembered, the sums hold nothing else."""
    x, y = drive(100)
    whole, kept = part(samples(x, y), 100), part(samples(x[:remembered], y[:remembered]), 100)
    sites = part(samples(x[:40], y[:40])).sites
    sites.merge(part(samples(x[40:], y[40:])).sites)

    field = DualSVGP(THETA, max_inducing=7, memory_size=50, scale=UT)
    z = torch.from_numpy(Z) - SCALING.origin
    assembled.assemble(field, THETA, z, SCALING, sites, 100, kept.memory, 3.0)
    assert field.samples == 100 and field.newest_pass == 3.0 and len(field.memory) == remembered
    assert field.unremembered_empty == (remembered == 100)
    mine, its = field.predict(PLACES), whole.predict(PLACES)
    close(mine.mean, its.mean, 1e-9, "mean")
    close(mine.variance, its.variance, 1e-9, "variance")
