"""What maps with sites say of measurements: the noise of a new one, and the density of some that came."""

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, exact_gp, feed, samples
from scipy import stats

from gp_mapping import Samples, create_map

X, Y = drive(60)
NEW, VALUES = drive(20, seed=4)


def test_the_noise_of_a_new_measurement_is_that_of_the_settings():
    field = create_map("dual_svgp", **SETTINGS)
    feed(field, samples(X, np.hstack([Y, Y + 3.0])), 20)
    assert field.noise_variance().tolist() == pytest.approx([UT**2] * 2, rel=1e-6, abs=0.0)


@pytest.mark.parametrize("scale, own", [(1e-6, None), (1.0, None), (1e-6, 4.0)])
def test_the_density_of_measurements_is_that_of_the_exact_gp(scale, own):
    """In nats of SI values whatever unit the map counts in; what a sample knows of its own noise counts."""
    field = create_map(
        "dual_svgp",
        **SETTINGS | {"inducing_inputs": X, "centre": [48 * UT] * 2, "field_scale": scale},
    )
    feed(field, samples(X, np.hstack([Y, Y + 3.0])), 20)
    known = {} if own is None else {"noise_variance": np.full(20, own)}
    told = field.log_predictive(samples(NEW, np.hstack([VALUES, VALUES + 2.0]), **known)).numpy()
    expected = np.zeros(20)
    for y, value in ((Y, VALUES), (Y + 3.0, VALUES + 2.0)):
        mean, spread = exact_gp(X, y - 48.0, np.ones(60), NEW, length=0.5, signal=10.0)
        variance = np.diag(spread) + (own or 1.0)
        expected += stats.norm.logpdf(
            UT * value[:, 0], UT * (48.0 + mean[:, 0]), UT * variance**0.5
        )
    assert told == pytest.approx(expected, abs=1e-4)


def test_the_density_of_counts_has_no_unit():
    """Σ over all counts is one."""
    field = create_map(
        "dual_svgp",
        likelihood="poisson",
        **{
            **SETTINGS,
            "signal_stddev": 1.0,
            "constant_stddev": 1.0,
            "noise_stddev": 0.0,
            "field_scale": 1.0,
        },
    )
    field.update(Samples(X[:10], np.full((10, 1), 3.0)))
    place = torch.from_numpy(X[4:5]).expand(60, -1)
    told = field.log_predictive(Samples(place, torch.arange(60.0).double()[:, None]))
    assert float(told.exp().sum()) == pytest.approx(1.0, abs=1e-6) and 0 < int(told.argmax()) < 6
