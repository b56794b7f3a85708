"""Defaults that make no sense for classes and counts give way to those of a latent field."""

import pytest

from gp_mapping import MapSettings
from gp_mapping.settings.latent import latent_starts


@pytest.mark.parametrize(
    ("likelihood", "spread", "constant", "robust", "cells", "bits"),
    [
        ("poisson", 1.0, 5.0, True, None, None),
        ("bernoulli", 2.0, 2.0, False, None, None),
        ("softmax", 2.0, 2.0, False, False, 0.1),
        ("dirichlet", 3.0, 3.0, False, False, None),
    ],
)
def test_each_likelihood_has_its_own(likelihood, spread, constant, robust, cells, bits):
    starts = latent_starts(likelihood)
    assert starts["signal_stddev"] == spread and starts["constant_stddev"] == constant
    assert starts["field_scale"] == starts["noise_stddev"] == 1.0
    assert starts["robust"] is robust and starts["predictive_noise"] is False
    assert starts.get("cells") is cells and starts.get("inducing_information") == bits


def test_a_metric_field_keeps_the_defaults_and_a_given_value_is_kept():
    assert latent_starts("gaussian") == {}
    assert MapSettings().signal_stddev != 1.0
    assert MapSettings(likelihood="poisson").signal_stddev == 1.0
    assert MapSettings(likelihood="poisson", signal_stddev=0.7).signal_stddev == 0.7
