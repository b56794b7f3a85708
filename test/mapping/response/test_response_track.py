"""Where the sensor was, and how fast, between what it told."""

import torch

from gp_mapping.mapping.response.track import velocity_along


def test_a_velocity_is_that_from_the_row_before_to_the_one_after_of_a_pass():
    """Whatever the time between them; a pass of one row stands."""
    stamp = torch.tensor([0.0, 0.5, 2.0, 10.0, 10.25, 20.0], dtype=torch.float64)
    along = torch.tensor([0.0, 1.0, 4.0, 50.0, 51.0, 7.0], dtype=torch.float64)
    begins = torch.tensor([True, False, False, True, False, True])
    told = velocity_along(torch.stack([along, -along], 1), stamp, begins)
    assert told[:, 0].tolist() == [2.0, 2.0, 2.0, 4.0, 4.0, 0.0]
    assert torch.equal(told[:, 1], -told[:, 0])
