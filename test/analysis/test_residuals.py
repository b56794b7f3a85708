"""Errors of unseen measurements: what is said of few of them."""

from dataclasses import replace

import numpy as np
import pytest

from gp_mapping import MapSettings
from gp_mapping.analysis.residuals import Residuals
from gp_mapping.analysis.residuals import residuals as residuals_of
from gp_mapping.mapping.scoring.error_shape import half_width
from gp_mapping.mapping.session import MapSession


def residuals(error, rate=10.0):
    n = len(error)
    columns = (np.arange(n) / rate, np.zeros((n, 2)), np.asarray(error, float), np.ones(n))
    return Residuals(*columns, np.zeros(n), np.zeros(n), np.full(n, np.inf))


@pytest.mark.parametrize("n", [52, 55, 70])
def test_a_correlation_of_few_pairs_is_one(n):
    """By the square of all errors it was −1.6 where the few pairs that lie 5 s apart were the largest."""
    error = np.r_[5.0, 4.0, 3.0, np.zeros(n - 6), -3.0, -4.0, -5.0]
    told = residuals(error).autocorrelation()
    assert told and all(-1.0 - 1e-12 <= v <= 1.0 + 1e-12 for v in told.values())


def test_an_error_that_stays_is_correlated_and_none_is_not_known():
    error = np.sin(np.linspace(0.0, 6.28, 600))
    assert residuals(error).autocorrelation()["0.1"] > 0.99
    assert residuals(np.zeros(60)).autocorrelation() == {}


@pytest.mark.parametrize("start", [0.0, 0.1, 1.7e9])
def test_a_slow_sensor_has_no_pairs_closer_than_its_period(start):
    """At 5 Hz some stamps fell into the next slot, and "0.1 s" was said of what lay 0.2 s apart."""
    slow = residuals(np.random.default_rng(0).standard_normal(300), rate=5.0)
    told = replace(slow, stamp=start + slow.stamp).autocorrelation()
    assert set(told) == {"0.2", "1", "2", "5"}


def test_of_no_pass_there_are_no_errors():
    told = residuals_of(MapSession(MapSettings()), [], np.zeros((1, 2)))
    assert all(len(column) == 0 for column in (told.stamp, told.x, told.error, told.which))


def test_levels_and_densities_are_those_of_students_t_where_it_is_told():
    """Errors of three degrees of freedom, whose 95 % intervals are stated right."""
    rng, n = np.random.default_rng(0), 20000
    unit = half_width(0.5, 3.0) / 0.7649  # of t: half of it lies within .7649
    normal = residuals(unit * rng.standard_t(3.0, n))
    told = replace(normal, degrees=np.full(n, 3.0))
    for level, inside in told.coverage().items():
        assert inside == pytest.approx(float(level) / 100, abs=0.01)
    assert normal.coverage()["50"] > 0.6 and normal.coverage()["95"] == told.coverage()["95"]
    assert max(told.summary()["pit"]) < 0.106 < max(normal.summary()["pit"])
    assert told.summary()["nlpd"] < normal.summary()["nlpd"] - 0.05
