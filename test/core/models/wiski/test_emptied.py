"""A lattice from which all samples have gone is as one that has had none: any θ suits it.

Of gp_mapping.core.models.wiski.bounded.
"""

from dataclasses import replace

import pytest
import torch
from core_data import SETTINGS, drive, samples

from gp_mapping import create_map


@pytest.mark.parametrize("times", [0.3, 4.0])
def test_it_is_mapped_again_as_by_a_new_map(times):
    batch = samples(*drive(60))
    field = create_map("wiski", **SETTINGS)
    field.update(batch)
    assert field.forget_near(batch.x[:1], 1e3, 0) == len(batch)
    theta = replace(field.theta, lengthscale=times * field.theta.lengthscale)
    assert field.adopt(theta)

    longer = SETTINGS | {"lengthscale": times * SETTINGS["lengthscale"]}
    fresh = create_map("wiski", **longer)
    for one in (field, fresh):
        one.update(batch)
    assert field.grid.spacing == fresh.grid.spacing
    told, expected = field.predict(batch.x + 0.1), fresh.predict(batch.x + 0.1)
    torch.testing.assert_close(told.mean, expected.mean, rtol=1e-3, atol=1e-8)
    torch.testing.assert_close(told.variance, expected.variance, rtol=1e-2, atol=0.0)
