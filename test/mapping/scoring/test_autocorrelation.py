"""The integrated autocorrelation time: that of series whose own is known."""

import numpy as np
import pytest

from gp_mapping.mapping.scoring.autocorrelation import autocorrelation_time


def persistent(share, n, seed):
    """A first-order autoregression: of each value that share is left in the next."""
    rng, out = np.random.default_rng(seed), np.zeros(n)
    for i, step in enumerate(rng.normal(0, (1 - share**2) ** 0.5, n)):
        out[i] = share * out[i - 1] + step
    return out


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_it_is_an_autoregressions_own(share):
    found = np.mean([autocorrelation_time(3.0 + persistent(share, 2500, k)) for k in range(10)])
    assert found == pytest.approx((1 + share) / (1 - share), rel=0.15)


def test_it_is_never_less_than_one_and_knows_what_says_nothing():
    alternating = np.where(np.arange(100) % 2, 1.0, -1.0)
    for values in (np.zeros(0), np.ones(3), np.ones(50), alternating):
        with np.errstate(all="raise"):
            assert autocorrelation_time(values) == 1.0
