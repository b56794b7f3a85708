"""Starts from the data: any sensor, nothing set; the same map however the samples are cut; a wild first value."""

import functools
import math
from dataclasses import replace

import pytest
import torch
from survey_paths import lawnmower, waves

from gp_mapping import MapSettings, Samples
from gp_mapping.core.hyper.first_guess import first_guess
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.sensors import map_settings_for

# sensor, mean, spread, noise (its unit), lengthscale, lane, side, step (m)
KINDS = [
    ("temperature", 21.0, 2.8, 0.15, 12.0, 5.0, 30.0, 1.3),
    ("scalar", -65.0, 9.0, 2.5, 5.0, 2.5, 20.0, 1.1),
    ("relative_humidity", 0.45, 0.08, 0.01, 8.0, 4.0, 24.0, 1.0),
    ("scalar", 3e-9, 2e-9, 1e-10, 2.0, 1.0, 8.0, 0.45),
    ("fluid_pressure", 101325.0, 5.0, 0.5, 20.0, 8.0, 40.0, 2.0),
    ("illuminance", 300.0, 100.0, 10.0, 3.0, 2.0, 12.0, 0.5),
]


def driven(mean, spread, noise, length, lane, side, step, seed):
    """A drive, and the field it was driven in."""
    field, x = waves(length, seed), lawnmower(side, lane, step)
    white = torch.randn(
        len(x), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    y = mean + spread * field(x) + noise * white
    return Samples(
        x, y, stamp=torch.arange(len(x), dtype=torch.float64)
    ), lambda at: mean + spread * field(at)


def fed(settings, drive, cut=10**9):
    session = MapSession(settings)
    for i in range(0, len(drive), cut):
        session.ingest(drive[i : i + cut])
    session.flush()
    return session


@pytest.mark.parametrize("sensor, mean, spread, noise, length, lane, side, step", KINDS)
def test_nothing_but_the_sensor(sensor, mean, spread, noise, length, lane, side, step):
    """RMSE within a tenth of that of an exact map that knows the truth, coverage within .02."""
    own, right = [], []
    known = {
        "model": "exact",
        "lengthscale": length,
        "signal_stddev": spread,
        "noise_stddev": noise,
        "constant_stddev": 3.0 * spread,
        "heading_stddev": 0.0,
        "cells": False,
        "learn_hyperparameters": False,
        "learn_bias": False,
        "learn_time_offset": False,
    }
    for seed in (1, 2):  # of one world coverage at 400 places scatters by more than that
        drive, field = driven(mean, spread, noise, length, lane, side, step, seed)
        g = torch.Generator().manual_seed(seed)
        places = side * torch.rand(400, 2, dtype=torch.float64, generator=g)
        fresh = field(places) + noise * torch.randn(400, 1, dtype=torch.float64, generator=g)
        for settings, rows in (({}, own), (known, right)):
            told = fed(map_settings_for(sensor, MapSettings(**settings)), drive).predict(places)
            inside = (
                ((fresh - told.mean).abs() <= 1.96 * told.measurement_variance.sqrt())
                .double()
                .mean()
            )
            rows.append((float((told.mean - field(places)).square().mean()), float(inside)))
    (error, inside), (best, usual) = (torch.tensor(rows).mean(0).tolist() for rows in (own, right))
    assert math.sqrt(error) <= 1.1 * math.sqrt(best), (own, right)
    assert abs(inside - usual) <= 0.02, (own, right)


OPEN = MapSettings(field_scale=1.0)


@functools.cache
def small_drive():
    return driven(21.0, 2.8, 0.15, 6.0, 3.0, 18.0, 1.0, 3)[0]


@functools.cache
def whole() -> MapSession:
    """Of the small drive, at once and without a stop; no test changes it."""
    return fed(OPEN, small_drive())


@functools.cache
def wild_drive():
    return driven(45.0, 6.0, 0.3, 3.0, 1.5, 12.0, 0.7, 4)


@functools.cache
def clean() -> MapSession:
    """Of the drive whose first value is to be wild, as it is; no test changes it."""
    return fed(OPEN, wild_drive()[0])


def test_the_same_samples_give_the_same_map_however_they_are_cut():
    """One by one, and many at once; starts are found in either."""
    drive, again, i = small_drive(), MapSession(OPEN), 0
    for cut in (*[1] * 20, 50, *[1] * 30, len(drive)):
        again.ingest(drive[i : i + cut])
        i += cut
    again.flush()
    assert torch.equal(again.predict(drive.x).mean, whole().predict(drive.x).mean)
    assert again.report()["hyperparameters"] == whole().report()["hyperparameters"]


def test_a_start_that_was_interrupted_goes_on_exactly():
    """Wherever it was, and as often as it may be."""
    drive, session, before = small_drive(), MapSession(OPEN), 0
    for at in (2, 13, 70, 125):
        session.ingest(drive[before:at])
        session, before = MapSession.from_state_dict(session.state_dict()), at
    session.ingest(drive[before:])
    session.flush()
    assert torch.equal(session.predict(drive.x).mean, whole().predict(drive.x).mean)
    assert torch.equal(session.predict(drive.x).variance, whole().predict(drive.x).variance)


@pytest.mark.parametrize("wild", [1000.0, 1e6])
def test_a_wild_first_value_is_no_centre_and_no_spread(wild):
    """Once 128 cells are there, the map is as good as without it."""
    drive, field = wild_drive()
    y = drive.y.clone()
    y[0] = wild
    spoiled = fed(OPEN, Samples(drive.x, y, stamp=drive.stamp))
    away = (drive.x - drive.x[0]).norm(dim=1) > 6.0  # two lengthscales from where it was told
    errors = [
        float((s.predict(drive.x[away]).mean - field(drive.x[away])).square().mean().sqrt())
        for s in (spoiled, clean())
    ]
    assert errors[0] <= 1.2 * errors[1] + 0.05, errors
    assert spoiled.report()["hyperparameters"]["signal_stddev"] < 20.0


def test_a_number_given_is_kept():
    drive, _ = driven(21.0, 2.8, 0.15, 6.0, 3.0, 18.0, 1.0, 3)
    session = fed(MapSettings(field_scale=1.0, lengthscale=4.0, learn_hyperparameters=False), drive)
    told = session.report()["hyperparameters"]
    assert told["lengthscale"] == pytest.approx(4.0) and 1.0 < told["signal_stddev"] < 8.0
    assert 0.05 < told["noise_stddev"] < 0.5


def test_guess_follows_units_and_a_dead_sensor_is_no_error():
    x = lawnmower(6.0, 2.0, 0.5)
    y = 40.0 + 5.0 * waves(2.0, 1)(x)
    plain, small = first_guess(x, y), first_guess(x, 1e-9 * y)
    assert small.lengthscale == pytest.approx(plain.lengthscale) and small.signal == pytest.approx(
        1e-9 * plain.signal
    )
    for values in (torch.full_like(y, 3.0), torch.zeros_like(y)):
        dead = first_guess(x, values)
        assert all(math.isfinite(v) and v > 0 for v in dead[:3]), dead
        assert math.isfinite(
            float(fed(MapSettings(field_scale=1.0), Samples(x, values)).predict(x).mean.sum())
        )
    assert first_guess(x[:1], y[:1]).signal > 1.0  # one value: wide


@pytest.mark.parametrize("seed", [0])
def test_a_robot_that_stands_first_learns_from_its_drive(seed, recwarn):
    """Five minutes at 2 Hz: scores from starts of one place made a noise three times too large."""
    kind = "temperature", 21.0, 2.0, 0.1, 5.0, 1.5, 6.0, 0.25
    drive, _ = driven(*kind[1:3], kind[3], kind[4], *kind[5:], seed)
    noise = torch.randn(600, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    standing = Samples(drive.x[:1].expand(600, 2), drive.y[:1] + 0.1 * noise)
    both = Samples.concatenate([standing, drive], common=True)
    stamp = 0.5 * torch.arange(len(both), dtype=torch.float64)
    session = fed(map_settings_for("temperature", MapSettings()), replace(both, stamp=stamp), 50)
    assert 0.07 < session.report()["noise_stddev"] < 0.14
    assert not [w for w in recwarn if "another unit" in str(w.message)]
