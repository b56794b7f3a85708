"""A map in another frame is the map of the moved data.

Of maps with inducing inputs that is gp_mapping.core.models.dual_svgp.sending, with tiles
gp_mapping.core.models.tiled.sending.
"""

import math

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, samples
from core_data import drive as drive_of

from gp_mapping import Samples, create_map
from gp_mapping.core.registry import model_names

SHIFT = torch.tensor([12.0, -7.0], dtype=torch.float64)
PLACES = torch.from_numpy(np.random.default_rng(5).uniform(-0.5, 3.5, (60, 2)))
HEADING = {"heading_stddev": 2 * UT, "time_offset": 0.2}
BIASES = {"bias_stddev": 1 * UT}


def turn_of(yaw: float):
    return torch.tensor(
        [[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]], dtype=torch.float64
    )


def drive(n: int = 160, channels: int = 1) -> Samples:
    x, y = drive_of(n, channels=channels)
    rng = np.random.default_rng(1)
    velocity = torch.from_numpy(rng.normal(0.0, 0.3, x.shape))
    heading = velocity / velocity.norm(dim=1, keepdim=True)
    batch = samples(x, y)
    return Samples(
        batch.x,
        batch.y,
        velocity=velocity,
        heading=heading,
        pass_number=torch.arange(n).double().div(40).floor(),
    )


def moved(batch: Samples, turn, vector: bool = False) -> Samples:
    y = batch.y.clone()
    if vector:
        y[:, :2] = y[:, :2] @ turn.mT
    return Samples(
        batch.x @ turn.mT + SHIFT,
        y,
        velocity=batch.velocity @ turn.mT,
        heading=batch.heading @ turn.mT,
        pass_number=batch.pass_number,
    )


def fed(model: str, batch: Samples, **settings):
    field = create_map(model, **(SETTINGS | settings))
    for start in range(0, len(batch), 20):
        field.update(batch[start : start + 20])
    return field


def alike(one, other, turn, tolerance: float = 1e-6, vector: bool = False):
    """`one`, moved, against the map of moved data."""
    x = PLACES @ turn.mT + SHIFT
    a, b = one.predict(x), other.predict(x)
    sd = b.variance.sqrt()
    assert float(((a.mean - b.mean).abs() / sd).max()) < tolerance
    assert float((a.variance.sqrt() / sd - 1.0).abs().max()) < tolerance


@pytest.mark.parametrize("memory_size", [2000, 40])
@pytest.mark.parametrize("settings", [{}, HEADING, BIASES | HEADING, {"long_share": 0.3}], ids=str)
@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp", "dtc", "fitc", "exact"])
def test_turned_it_is_the_map_of_the_turned_data(model, settings, memory_size):
    turn, batch = turn_of(0.7), drive()
    z = torch.cartesian_prod(*2 * [torch.arange(-0.2, 3.4, 0.35, dtype=torch.float64)])
    fixed = (
        [{"inducing_inputs": z}, {"inducing_inputs": z @ turn.mT + SHIFT}]
        if model == "dual_svgp"
        else [{}, {}]
    )
    one = fed(model, batch, memory_size=memory_size, **settings, **fixed[0])
    other = fed(model, moved(batch, turn), memory_size=memory_size, **settings, **fixed[1])
    one.predict(PLACES)  # with an answer of before the turn, which may not be kept
    epoch = one.epoch
    one.move(turn, SHIFT)
    assert one.epoch > epoch, "whoever draws it draws all of it"
    alike(one, other, turn, 1e-6 if fixed[0] else 1e-5)
    more = moved(drive(60), turn)  # and goes on there
    one.update(more)
    other.update(more)
    alike(one, other, turn, 1e-5)


@pytest.mark.parametrize("model", model_names())
def test_shifted_it_is_the_map_of_the_shifted_data(model):
    turn, batch = (
        torch.eye(2, dtype=torch.float64),
        drive(channels=3 if model == "curl_free" else 1),
    )
    one, other = fed(model, batch), fed(model, moved(batch, turn))
    epoch = one.epoch
    one.move(turn, SHIFT)
    assert one.epoch > epoch, "whoever draws it draws all of it"
    alike(one, other, turn, 1e-4 if model == "wiski" else 1e-6)  # that one solves to a tolerance
    more = moved(drive(60, channels=batch.y.shape[1]), turn)  # and goes on there, also from a file
    again = create_map(model, **SETTINGS)
    again.load_state_dict(one.state_dict())
    for field in (one, other, again):
        field.update(more)
    alike(one, other, turn, 0.05 if model == "wiski" else 1e-5)
    alike(again, one, turn, 0.05 if model == "wiski" else 1e-6)


def test_a_vector_turns_with_its_frame():
    turn, batch = turn_of(-2.0), drive(channels=3)
    there = moved(batch, turn, vector=True)
    centre = (
        batch.y[:20].median(0).values
    )  # of each component by itself, so that it would be another one there
    one = fed("dual_svgp", batch, centre=centre.tolist())
    centre[:2] = turn @ centre[:2]
    other = fed("dual_svgp", there, centre=centre.tolist())
    one.move(turn, SHIFT)
    alike(one, other, turn)


@pytest.mark.parametrize(
    ("model", "settings", "channels"),
    [
        ("dual_svgp", {"anisotropy": 2.0}, 1),
        ("dual_svgp", {}, 2),
        ("pic", {}, 1),
        ("wiski", {}, 1),
        ("curl_free", {}, 3),
    ],
)
def test_what_cannot_be_turned_says_so_and_stays(model, settings, channels):
    batch = drive(channels=channels)
    field = fed(model, batch, **settings)
    before = field.predict(PLACES)
    with pytest.raises(ValueError, match="turned") as error:
        field.move(turn_of(0.3), SHIFT)
    assert "\n" not in str(error.value)
    after = field.predict(PLACES)
    assert torch.equal(before.mean, after.mean) and torch.equal(before.variance, after.variance)
