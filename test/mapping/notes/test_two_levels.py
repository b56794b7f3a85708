"""Two sensors on one topic are named; fields, noise, outliers and coarse sensors are not."""

import numpy as np
import pytest
import torch
from recordings import invensense

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.notes.two_levels import TwoLevels
from gp_mapping.mapping.session import MapSession
from gp_mapping.recording.magnetic_csv import available_trials, read_trial

N = 1200
WAY = np.linspace(0.0, 24.0, N)
RANDOM = np.random.default_rng(0)


def numbers(noise: float = 0.05) -> np.ndarray:
    """Degrees along the way."""
    return 20.0 + 3.0 * np.sin(0.9 * WAY) + noise * np.random.default_rng(1).standard_normal(N)


def told(values) -> list[str]:
    levels, in_parts = TwoLevels(), TwoLevels()
    values = np.asarray(values, float).tolist()
    levels.add_all(values)
    for start in range(0, len(values), 7):
        in_parts.add_all(values[start : start + 7])
    assert levels.notes(1.0, "°C") == in_parts.notes(1.0, "°C")
    return levels.notes(1.0, "°C")


@pytest.mark.parametrize(
    "second",
    [
        np.arange(N) % 2 == 0,
        np.arange(N) % 3 == 0,  # one of 20 and one of 10 Hz
        np.random.default_rng(2).random(N) < 0.5,  # in the order in which they happen to come
        (np.arange(N) % 2 == 0) & (np.arange(N) > N // 2),  # the second is switched on later
    ],
)
@pytest.mark.parametrize("read", [lambda y: y, lambda y: np.round(2.0 * y) / 2.0])
def test_two_sensors_are_named_with_how_far_they_are_apart(second, read):
    (text,) = told(read(numbers() + 5.0 * second))
    apart = float(text.split("two levels, ")[1].split()[0])
    assert abs(apart - 5.0) < 0.3 and "°C apart" in text


@pytest.mark.parametrize(
    "values",
    [
        numbers(),
        numbers(1.0),
        RANDOM.standard_normal(20 * N),
        RANDOM.standard_cauchy(20 * N),
        np.cumsum(RANDOM.standard_normal(20 * N)),
        np.where(RANDOM.random(20 * N) < 0.1, 85.0, RANDOM.standard_normal(20 * N)),  # drop-outs
        np.where(RANDOM.random(20 * N) < 0.1, 30.0, 1.0) * RANDOM.standard_normal(20 * N),
        np.round(RANDOM.standard_normal(20 * N)),  # coarse
        np.round(0.4 * RANDOM.standard_normal(20 * N)),  # coarser: two numbers for the most part
        np.round(0.5 + 0.2 * RANDOM.standard_normal(20 * N)),  # between two of its numbers
        np.minimum(RANDOM.standard_normal(20 * N), 0.2),  # saturates
        20.0 + 5.0 * np.floor(WAY / 8.0),  # steps of the field
        np.where(np.arange(N) % 20 < 10, 20.0, 25.0) + 0.05 * RANDOM.standard_normal(N),  # stripes
    ],
)
def test_one_sensor_is_not_two(values):
    assert told(values) == []


def test_recordings_are_of_one_sensor():
    """Of each axis and the norm, at the recorded rate and at a tenth of it, fine and rounded."""
    folder = invensense()
    for name in available_trials(folder)[::2]:
        field = 1e6 * read_trial(folder, name).field
        for values in (*field.T, np.linalg.norm(field, axis=1)):
            assert told(values) == told(values[::10]) == told(np.round(values)) == []


def test_a_map_says_it_until_it_is_cleared():
    x = torch.tensor(np.stack([WAY, np.zeros(N)], 1))
    y = torch.tensor(numbers() + 5.0 * (np.arange(N) % 2))[:, None]
    session = MapSession(MapSettings(field_scale=1.0, field_unit="°C", learn_hyperparameters=False))
    session.ingest(Samples(x, y, stamp=torch.tensor(0.05 * np.arange(N)))[:300])
    assert sum("alternates between two levels" in text for text in session.warnings) == 1
    session.clear()
    assert not session.warnings
