"""What a sample costs a small map is the number of torch's calls, not their size: these are counted."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gp_mapping.core.registry import build_map
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.types import Samples
from gp_mapping.settings.mapping import MapSettings


class Counting(TorchDispatchMode):
    """Counts the operations that torch is asked for."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


def lane(n):
    """n cells along a bent lane, as a robot brings them: one by one, of one pass."""
    along = 0.1 * torch.arange(n, dtype=torch.float64)
    x = torch.stack([along, 0.3 * torch.sin(along)], 1)
    return Samples(
        x,
        (20.0 + torch.sin(2.0 * along))[:, None],
        count=torch.full_like(along, 5.0),
        sensor_variance=torch.full_like(along, 1e-3),
        velocity=torch.full_like(x, 0.2),
        pass_number=torch.zeros_like(along),
        extent=torch.full_like(along, 0.03),
    )


def test_a_sample_costs_a_small_map_few_operations(monkeypatch):
    """A tenth more than they are; taken as many samples are, one alone takes 270."""
    settings = MapSettings(
        field_scale=1.0,
        lengthscale=0.6,
        signal_stddev=1.0,
        noise_stddev=0.05,
        learn_hyperparameters=False,
    )
    field, cells, checks = build_map(settings), lane(60), []
    check = Sites.check
    monkeypatch.setattr(Sites, "check", lambda sites: (checks.append(1), check(sites)))
    for i in range(40):
        field.update(cells[i])

    checks.clear()
    with Counting() as counted:
        for i in range(40, 60):
            field.update(cells[i])
    assert counted.count <= 20 * 240
    assert len(checks) == 20, "the sums are looked at once in a transaction"
