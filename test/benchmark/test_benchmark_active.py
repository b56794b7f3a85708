"""The functions and acquisitions of `benchmark active` against what is known of them."""

import math
from types import SimpleNamespace

import pytest
import torch

from benchmark.papers.active import FUNCTIONS, batch, expected_improvement, upper_confidence_bound
from gp_mapping.core.registry import create_map
from gp_mapping.core.types import Prediction, Samples


@pytest.mark.parametrize(
    "name, at", [("Branin", [(math.pi + 5) / 15, 2.275 / 15]), ("Ackley", [0.6, 0.35])]
)
def test_functions_are_standardised_and_have_their_maximum_where_it_is_known(name, at):
    lattice = torch.linspace(0, 1, 200, dtype=torch.float64)
    values = FUNCTIONS[name](torch.cartesian_prod(lattice, lattice))
    assert abs(float(values.mean())) < 0.1 and abs(float(values.std()) - 1) < 0.1
    best = float(FUNCTIONS[name](torch.tensor([at], dtype=torch.float64)))
    assert best >= float(values.max()) - 1e-9 and best - float(values.max()) < 0.1


def test_acquisitions_are_the_expectations_they_stand_for():
    mean, variance = torch.tensor([[0.0], [1.0], [0.8]]), torch.tensor([[4.0], [0.01], [0.25]])
    field = SimpleNamespace(
        predict=lambda x: Prediction(mean.double(), variance.double(), variance.double())
    )
    draws = mean[:, 0] + variance[:, 0].sqrt() * torch.randn(
        400_000, 3, generator=torch.Generator().manual_seed(0)
    )
    by_chance = (draws - 1.0).clamp_min(0).mean(0).double()
    assert torch.allclose(expected_improvement(field, None), by_chance, atol=0.005)
    assert torch.allclose(
        upper_confidence_bound(field, None), torch.tensor([4.0, 1.2, 1.8]).double()
    )


def test_a_batch_spreads():
    """The second place is chosen as if the first had been measured."""
    line = torch.stack([torch.linspace(0, 4, 81), torch.zeros(81)], 1).double()
    field = create_map(
        "dual_svgp",
        lengthscale=0.5,
        field_scale=1.0,
        signal_stddev=1.0,
        noise_stddev=0.1,
        learn_hyperparameters=False,
    )
    field.update(Samples(line[:5], torch.zeros(5, 1)))
    chosen = line[batch(field, line, 3, lambda now, x: now.predict(x).variance[:, 0])]
    assert float(torch.pdist(chosen).min()) > 0.5
