"""A sensor that tells one number while the robot drives is said to hang; one that rounds is not."""

import numpy as np
import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.notes.repeats import Repeats
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

RATE, SPEED = 50.0, 0.5  # Hz, m/s


def drive(values: np.ndarray, speed: float = SPEED) -> Samples:
    """Values (N,) or (N, C) along a straight line."""
    t = np.arange(len(values)) / RATE
    return Samples(x=np.column_stack([speed * t, 0.0 * t]), y=values, stamp=1000.0 + t)


def told(samples: Samples, cut: int = 7) -> str:
    """What is said after all samples, which come in parts."""
    repeats = Repeats()
    for start in range(0, len(samples), cut):
        repeats.add(samples[start : start + cut])
    return " ".join(repeats.notes(1e-6, "uT"))


def field(n: int, noise: float = 1e-7) -> np.ndarray:
    x = SPEED * np.arange(n) / RATE
    return 45e-6 + 6e-6 * np.sin(1.5 * x) + noise * np.random.default_rng(0).standard_normal(n)


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_hang_is_said_while_it_lasts_and_after_it(cut):
    values = field(600)
    values[200:400] = values[200]
    assert told(drive(values[:230]), cut) == "", "0.3 m may be chance"
    said = told(drive(values[:400]), cut)
    assert f"told exactly {1e6 * values[200]:.6g} uT for 4.0 s and 2.0 m (200 measurements)" in said
    said = told(drive(values), cut)
    assert "the sensor hung (1 times, 200 measurements)" in said and "up to stamp 1008.0" in said


@pytest.mark.parametrize("cut", [7, 1000])
def test_each_hang_counts_once_the_one_before_the_sensor_was_known_too(cut):
    values = field(2000)
    for first, last in ((0, 400), (600, 900), (1200, 1700)):
        values[first:last] = values[first]
    said = told(drive(values), cut)
    assert "the sensor hung (3 times, 1200 measurements)" in said
    assert f"{1e6 * values[1200]:.6g} uT for 10.0 s and 5.0 m" in said


@pytest.mark.parametrize("value", [0.0, 47e-6])
def test_a_sensor_that_never_tells_anything_else_is_said(value):
    assert "told exactly" in told(drive(np.full(400, value)))
    assert told(drive(np.full(100, value))) == "", "2 m of a sensor that may be coarse"


def test_saturation_is_said():
    values = np.minimum(field(600), 49e-6)
    assert "exactly 49 uT" in told(drive(values))


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_number_that_creeps_is_another_number_however_the_samples_are_cut(cut):
    values = field(600)
    values[200:] = values[200] * (1.0 + 5e-10 * np.arange(400))
    assert told(drive(values), cut) == ""


def test_vectors_count_by_their_norm_for_they_turn_with_the_robot():
    angle = np.linspace(0.0, 3.0, 400)
    stuck = 45e-6 * np.column_stack([np.cos(angle), np.sin(angle), 0.0 * angle])
    assert "told exactly 45 uT" in told(drive(stuck))


def test_a_sensor_that_works_or_rounds_or_stands_is_none():
    assert told(drive(field(600))) == ""
    for levels in (1e-7, 1e-6, 5e-6):  # of a noise of 1e-7 and a field of ±6e-6
        assert told(drive(levels * np.round(field(3000) / levels))) == "", levels
    values = field(600)
    values[200:] = values[200]
    assert told(drive(values, speed=0.0)) == "", "at standstill"


def test_the_way_between_passes_is_not_driven():
    repeats = Repeats()
    for k in range(20):
        x = torch.full((3, 2), 10.0 * k, dtype=torch.float64)
        repeats.break_pass()
        repeats.add(Samples(x=x, y=torch.full((3,), 45e-6, dtype=torch.float64)))
    assert repeats.notes(1e-6, "uT") == []


def test_the_map_says_it_until_it_is_cleared_and_not_of_labels():
    session = MapSession(MapSettings(max_inducing=30))
    session.ingest(drive(np.full(400, 45e-6)))
    assert any("told exactly 45 uT" in text for text in session.warnings)
    session.clear()
    assert session.warnings == []
    labels = MapSession(MapSettings(likelihood="bernoulli", max_inducing=30))
    labels.ingest(drive(np.ones(400)))
    assert not any("told exactly" in text for text in labels.warnings)


@pytest.mark.parametrize("broken", [False, True])
def test_the_way_to_a_new_pass_is_not_driven(broken):
    """A robot that was carried 30 m, and tells for 10 cm before and after that one number."""
    values = field(210)
    values[190:] = values[190]
    samples = drive(values)
    samples.x[200:, 0] += 30.0
    session = MapSession(MapSettings(max_inducing=30, learn_hyperparameters=False))
    session.ingest(samples[:200])
    if broken:
        session.break_pass()
    session.ingest(samples[200:])
    assert any("told exactly" in text for text in session.warnings) != broken
