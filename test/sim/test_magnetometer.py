"""The magnetometer's errors have the statistics that its settings state."""

import math

import numpy as np
import pytest

from gp_mapping.sim.magnetometer import Magnetometer, MagnetometerSettings

QUIET = {"noise_stddev": 0.0, "bias_x": 0.0, "bias_y": 0.0, "bias_z": 0.0, "correlated_stddev": 0.0}
TRUE = np.array([1e-5, -2e-5, 4e-5])


def record(n=40000, dt=0.02, seed=0, field=lambda t: TRUE, **changes):
    sensor = Magnetometer(MagnetometerSettings(**{**QUIET, **changes}), np.random.default_rng(seed))
    out = np.empty((n, 3))
    for k in range(n):
        sensor.observe(k * dt, field(k * dt))
        out[k] = sensor.measure(k * dt)
    return out, sensor


def test_without_errors_it_reports_the_field():
    out, _ = record(10)
    np.testing.assert_array_equal(out, np.tile(TRUE, (10, 1)))


def test_white_noise_is_white_and_as_large_as_stated():
    error = record(noise_stddev=2e-7)[0] - TRUE
    assert error.std(axis=0) == pytest.approx(2e-7, rel=0.03)
    assert np.abs(error.mean(axis=0)).max() < 4 * 2e-7 / math.sqrt(len(error))
    for k in (1, 2, 10):
        assert np.abs((error[:-k] * error[k:]).mean(axis=0)).max() < 4 * 4e-14 / math.sqrt(
            len(error)
        )


def test_correlated_error_is_an_ornstein_uhlenbeck_process():
    tau, dt = 0.5, 0.02
    error = record(n=50000, correlated_stddev=4e-7, correlation_time=tau)[0] - TRUE
    assert error.std(axis=0) == pytest.approx(4e-7, rel=0.06)
    for lag in (dt, 0.2, 0.5, 1.0):
        k = round(lag / dt)
        r = (error[:-k] * error[k:]).mean() / error.var()
        assert r == pytest.approx(math.exp(-lag / tau), abs=0.05)


def test_correlated_error_does_not_depend_on_the_rate():
    for dt in (0.005, 0.1):
        error = record(n=30000, dt=dt, correlated_stddev=4e-7, correlation_time=0.2)[0] - TRUE
        assert error.std() == pytest.approx(4e-7, rel=0.08)


def test_bias_is_added():
    out, _ = record(3, bias_x=1e-6, bias_y=-2e-6, bias_z=3e-6)
    np.testing.assert_allclose(out - TRUE, np.tile([1e-6, -2e-6, 3e-6], (3, 1)), atol=1e-18)


def test_lag_reports_the_past():
    out, _ = record(100, lag=0.13, field=lambda t: np.array([t, 2 * t, 0.0]))
    t = np.arange(100) * 0.02
    np.testing.assert_allclose(out[:, 0], np.maximum(t - 0.13, 0.0), atol=1e-12)
    np.testing.assert_allclose(out[:, 1], 2 * out[:, 0], atol=1e-12)


def test_faults_come_as_often_as_asked_and_are_counted():
    out, sensor = record(20000, nan_probability=0.01, spike_probability=0.02, spike_size=5e-4)
    nan, spike = np.isnan(out).any(axis=1), (np.abs(np.nan_to_num(out - TRUE)) > 4e-4).any(axis=1)
    assert nan.sum() == sensor.faults["nan"] == pytest.approx(200, abs=60)
    assert sensor.faults["spike"] == pytest.approx(400, abs=80)
    assert 0 <= sensor.faults["spike"] - spike.sum() < 20  # a NaN may hide the spike on its axis
    assert (np.isnan(out).sum(axis=1) <= 1).all()


def test_a_fault_leaves_the_other_measurements_as_they_were():
    plain, _ = record(2000, noise_stddev=2e-7, correlated_stddev=4e-7)
    faulty, _ = record(2000, noise_stddev=2e-7, correlated_stddev=4e-7, nan_probability=0.1)
    good = ~np.isnan(faulty)
    np.testing.assert_array_equal(plain[good], faulty[good])


def test_measuring_before_observing_is_an_error():
    sensor = Magnetometer(MagnetometerSettings(), np.random.default_rng(0))
    with pytest.raises(ValueError, match="observe"):
        sensor.measure(0.0)
    sensor.observe(0.0, TRUE)
    with pytest.raises(ValueError, match="observe"):
        sensor.measure(0.1)
