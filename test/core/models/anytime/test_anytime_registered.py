"""The six names are six models, and DTC is DualSVGP to the bit."""

import pytest
import torch
from core_data import SETTINGS, UT, drive, feed, samples
from map_contract import PLACES

from gp_mapping import create_map
from gp_mapping.core.models.anytime.model import MEMBERS


def built(name, **settings):
    field = create_map(name, **(SETTINGS | settings))
    feed(field, samples(*drive(200)), 10)
    return field


@pytest.mark.parametrize("settings", [{}, {"max_inducing": 25, "memory_size": 60}])
def test_dtc_is_dual_svgp(settings):
    a, b = built("dtc", **settings).predict(PLACES), built("dual_svgp", **settings).predict(PLACES)
    # the same equations, whose sums are formed in another order
    torch.testing.assert_close(a.mean, b.mean, rtol=0.0, atol=1e-9 * float(b.stddev.min()))
    torch.testing.assert_close(a.variance, b.variance, rtol=1e-9, atol=0.0)


def test_every_member_says_something_else():
    """SoR differs from DTC, and FIC from FITC, by the test conditional alone; the others in the mean."""
    found = {
        name: built(name, inducing_tolerance=0.3, inducing_information=0.0) for name in MEMBERS
    }
    mean = {name: field.predict(PLACES).mean for name, field in found.items()}
    assert torch.equal(mean["sor"], mean["dtc"]) and torch.equal(mean["fitc"], mean["fic"])
    for a, b in (("dtc", "fitc"), ("fitc", "pitc"), ("pitc", "pic")):
        assert float((mean[a] - mean[b]).abs().max()) > 1e-2 * UT, f"{a} and {b} agree"
    covariance = {name: found[name].covariance(PLACES, PLACES) for name in ("fitc", "fic")}
    apart = (covariance["fitc"] - covariance["fic"]) / UT**2
    assert float(apart.diagonal().abs().max()) < 1e-9 and float(apart.abs().max()) > 0.1
