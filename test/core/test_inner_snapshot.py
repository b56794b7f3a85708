"""What snapshots share, of one whose answers are formulas: SI outside, slopes of the mean, the robot's way."""

import math

import pytest
import torch
from core_data import SETTINGS, drive, feed, samples

from gp_mapping import create_map
from gp_mapping.core.hyper.theta import Theta, heading_from_velocity
from gp_mapping.core.inner_snapshot import InnerSnapshot, gradient_of
from gp_mapping.core.scaling import Scaling

ORIGIN, CENTRE, SCALE = (
    torch.tensor([400.0, -30.0]).double(),
    torch.tensor([5.0, -2.0]).double(),
    1e-3,
)
PLACES = torch.tensor([[0.3, 1.2], [-0.7, 0.4], [2.0, -1.0]], dtype=torch.float64)


class Waves(InnerSnapshot):
    """Mean (sin x cos y, x²), variance 2 + cos y; a heading adds itself."""

    theta = Theta(1.0, 1.0, 0.3, 1.0, time_offset=0.2)
    scaling = Scaling(ORIGIN, CENTRE, SCALE)
    noise_variance = 0.09

    def predict_inner(self, x, heading=None):
        mean = torch.stack([x[:, 0].sin() * x[:, 1].cos(), x[:, 0] ** 2], 1)
        return mean + (0.0 if heading is None else heading), 2.0 + x[:, 1].cos()


def test_the_gradient_is_that_of_the_mean():
    """∂(sin x cos y) = (cos x cos y, −sin x sin y) and ∂x² = (2x, 0); of what is flat it is 0."""
    x, y = PLACES.T
    expected = torch.stack(
        [
            torch.stack([x.cos() * y.cos(), -x.sin() * y.sin()], 1),
            torch.stack([2.0 * x, 0.0 * y], 1),
        ],
        1,
    )
    assert torch.allclose(Waves().gradient(PLACES), expected, rtol=1e-12)
    flat = gradient_of(lambda places: torch.ones(len(places), 4, dtype=torch.float64), PLACES)
    assert flat.shape == (3, 4, 2) and not flat.any()


def test_it_is_asked_and_answers_in_si():
    told = Waves().predict(PLACES + ORIGIN)
    mean, variance = Waves().predict_inner(PLACES)
    assert torch.allclose(told.mean, mean * SCALE + CENTRE, rtol=1e-12)
    assert torch.allclose(
        told.variance, (variance * SCALE**2)[:, None].expand(-1, 2), rtol=1e-12, atol=0.0
    )
    assert (
        told.noise_variance.tolist() == pytest.approx([0.09 * SCALE**2] * 2)
        and Waves().bias_evidence() is None
    )


def test_with_a_velocity_it_is_what_the_robot_measures_on_its_way():
    """The place δ v before, and what turns with the robot."""
    velocity = torch.tensor([[0.5, 0.0], [0.0, -0.3], [0.4, 0.3]], dtype=torch.float64)
    told = Waves().predict(PLACES + ORIGIN, velocity)
    mean, _ = Waves().predict_inner(PLACES - 0.2 * velocity, heading_from_velocity(velocity))
    assert torch.allclose(told.mean, mean * SCALE + CENTRE, rtol=1e-12)


@pytest.mark.parametrize("model", ["dual_svgp", "exact", "wiski", "solve_gp", "sor", "pitc", "pic"])
def test_the_gradient_of_a_map_is_that_of_its_predictions(model):
    field = create_map(model, **SETTINGS)
    x, y = drive(120)
    feed(field, samples(x, y), 40)
    at, step = torch.tensor([[1.2, 0.9], [0.7, 1.6]], dtype=torch.float64), 1e-5
    slope = field.posterior.gradient(field.scaling.inner_x(at))[:, 0] * field.scaling.scale
    for d in range(2):
        ends = [
            field.predict(at + sign * step * torch.eye(2, dtype=torch.float64)[d]).mean[:, 0]
            for sign in (1, -1)
        ]
        assert torch.allclose(
            slope[:, d], (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-4 * math.sqrt(1e-10)
        )
