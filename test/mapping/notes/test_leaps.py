"""A sensor whose unit changes on the way is named; fields, spikes and coarse sensors are not."""

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.notes.leaps import Leaps
from gp_mapping.mapping.session import MapSession

N, HALF = 1200, 600
WAY = np.linspace(0.0, 24.0, N)


def numbers(seed: int = 0) -> np.ndarray:
    """Degrees along the way."""
    noise = np.random.default_rng(seed).standard_normal(N)
    return 20.0 + 3.0 * np.sin(0.9 * WAY) + 0.05 * noise


def told(values, way=WAY) -> list[str]:
    leaps, one_by_one = Leaps(), Leaps()
    steps = np.abs(np.diff(way, prepend=way[0]))
    columns = values.tolist(), steps.tolist(), (0.1 * np.arange(N)).tolist()
    leaps.add_all(*columns)
    for row in zip(*columns):
        one_by_one.add(*row)
    assert vars(leaps) == vars(one_by_one)
    return leaps.notes(1.0, "°C")


@pytest.mark.parametrize("changed", [lambda y: y + 273.15, lambda y: 1.8 * y + 32.0])
@pytest.mark.parametrize("back", [N, 900])
def test_another_unit_is_named_with_where_it_began(changed, back):
    y = numbers()
    y[HALF:back] = changed(y[HALF:back])
    (text,) = told(y)
    assert ("once" if back == N else "2 times") in text and "first at stamp 60.0 from 16." in text
    assert f"to {y[HALF:back].min():.4g} … {y[HALF:back].max():.4g} °C" in text


def spiked(y):
    y[np.random.default_rng(1).random(N) < 0.1] = 85.0
    return y


def sources(y):
    """Steep ones, that the robot drives into and out of."""
    return y + 500.0 * np.exp(-0.5 * ((WAY[:, None] - [9.0, 15.0]) / 0.2) ** 2).sum(1)


def far_rooms(y):
    y[HALF:] = 60.0 + 0.1 * (y[HALF:] - 20.0)
    return y


@pytest.mark.parametrize(
    "field",
    [
        numbers,
        lambda: np.round(2.0 * numbers()) / 2.0,
        lambda: spiked(numbers()),
        lambda: sources(numbers()),
        lambda: np.floor(WAY / 4.0),  # labels
        lambda: 20.0 + 5.0 * np.floor(WAY / 8.0) + np.round(0.5 * np.sin(3.0 * WAY)),  # coarse
        lambda: np.where(np.arange(N) < 20, 0.0, numbers()),  # warms up
        lambda: np.random.default_rng(0).standard_cauchy(N),
    ],
)
def test_what_is_no_leap(field):
    assert told(field()) == []


def test_two_rooms_far_apart_are_two_fields():
    values, apart = far_rooms(numbers()), WAY + np.where(np.arange(N) < HALF, 0.0, 30.0)
    assert told(values) and not told(values, apart)
    assert not told(numbers(), apart)  # nor is a robot that was carried a way through the field


def test_a_map_says_it_until_it_is_cleared():
    y = numbers()
    y[HALF:] += 273.15
    x = torch.tensor(np.stack([WAY, np.zeros(N)], 1))
    starts = {"lengthscale": 2.0, "signal_stddev": 3.0, "noise_stddev": 0.3, "constant_stddev": 9.0}
    given = {"field_scale": 1.0, "field_unit": "°C", "learn_hyperparameters": False}
    session = MapSession(MapSettings(**given | starts))
    samples = Samples(x, torch.tensor(y)[:, None], stamp=torch.tensor(0.1 * np.arange(N)))
    for part in (slice(0, HALF), slice(HALF, N)):  # two bags: the second begins a pass
        session.break_pass()
        session.ingest(samples[part])
    assert sum("leaps once and stays" in text for text in session.warnings) == 1
    session.clear()
    assert not session.warnings
