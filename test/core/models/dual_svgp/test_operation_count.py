"""What a sample costs a small map is the number of torch's calls, not their size: these are counted."""

from dataclasses import replace

import pytest
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


def small_map(cells, **given):
    """A map of the first 40 cells, and its only tile."""
    settings = MapSettings(
        field_scale=1.0,
        lengthscale=0.6,
        signal_stddev=1.0,
        noise_stddev=0.05,
        learn_hyperparameters=False,
        learn_time_offset=False,
    )
    field = build_map(replace(settings, **given))
    for i in range(40):
        field.update(cells[i])
    return field, field.current_map


def test_a_sample_costs_a_small_map_few_operations(monkeypatch):
    """A tenth more than they are; taken as many samples are, one alone takes 270."""
    cells, checks, check = lane(60), [], Sites.check
    monkeypatch.setattr(Sites, "check", lambda sites: (checks.append(1), check(sites)))
    field, _ = small_map(cells, learn_time_offset=True)

    checks.clear()
    with Counting() as counted:
        for i in range(40, 60):
            field.update(cells[i])
    assert counted.count <= 20 * 240
    assert len(checks) == 20, "the sums are looked at once in a transaction"


def ask(field, cell):
    """What the map predicts of a cell, as it is asked before it takes it in."""
    return field.predict_in_pass(cell.x, 0.0, cell.velocity, cell.heading)


@pytest.mark.parametrize("theta", [{}, {"heading_stddev": 0.3}])
def test_features_of_a_cell_are_computed_once_for_question_and_update(theta):
    """The answers are the same to the bit, and the update takes fewer calls."""
    cells, counts, fields = lane(60), [], []
    for asked in (False, True):
        field, _ = small_map(cells, **theta)
        counts.append(0)
        for i in range(40, 60):
            ask(field, cells[i if asked else 0])
            with Counting() as counted:
                field.update(cells[i])
            counts[-1] += counted.count
        fields.append(field)
    assert counts[1] <= counts[0] - 20 * 8, counts
    first, second = (field.predict(cells.x) for field in fields)
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.variance, second.variance)


@pytest.mark.parametrize("change", ["place", "heading", "basis", "theta"])
def test_features_of_another_question_are_not_taken(change):
    cells = lane(60)
    field, tile = small_map(cells, heading_stddev=0.3)
    cell = cells[50]
    ask(field, cell)
    asked, basis = tile.posterior, tile.basis
    x, heading = tile.theta.prediction_inputs(
        tile.scaling.inner_x(cell.x), cell.velocity, cell.heading
    )
    torch.testing.assert_close(
        asked.features_of(basis, x, heading), basis.whitened(x, heading), rtol=0, atol=0
    )
    if change == "place":
        x = x + 1e-9
    elif change == "heading":
        heading = -heading
    elif change == "basis":
        field.update(cell)  # far from all others: it becomes an inducing input
        assert len(tile.basis) > len(asked.z)
    else:
        basis.theta = replace(basis.theta, constant_stddev=2.0 * basis.theta.constant_stddev)
    assert asked.features_of(tile.basis, x, heading) is None
