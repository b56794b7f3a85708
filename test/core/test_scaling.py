"""SI and the units of a map: there, back, and into a file."""

import pytest
import torch

from gp_mapping.core.scaling import Scaling

X = torch.tensor(
    [[10.4, -3.0], [1e6, 2.0], [12.6, 7.7], [11.3, 1.4], [12.2, 3.1]], dtype=torch.float64
)
Y = torch.tensor(
    [[5.0, 1.0], [7.0, -1e9], [6.0, 2.0], [9.0, 3.0], [-4.0, 4.0]], dtype=torch.float64
)


def test_origin_and_centre_are_medians_and_the_origin_lies_on_whole_metres():
    """However far one of the first lies; a centre that is given is the centre."""
    found = Scaling.from_first(X, Y, 1e-6)
    assert (
        found.origin.tolist() == [12.0, 2.0]
        and found.centre.tolist() == [6.0, 2.0]
        and found.scale == 1e-6
    )
    assert Scaling.from_first(X, Y, 2, centre=[48.0, 0.5]).centre.tolist() == [48.0, 0.5]
    with pytest.raises(ValueError, match="centre has 1 channels, y has 2"):
        Scaling.from_first(X, Y, 1.0, centre=[48.0])


def test_what_goes_in_comes_out():
    scaling = Scaling.from_first(X, Y, 0.5)
    assert scaling.inner_x(X)[3].tolist() == pytest.approx([-0.7, -0.6])
    assert scaling.inner_x([[12, 2]]).tolist() == [[0.0, 0.0]]
    inner = scaling.inner_y(Y)
    assert inner[3].tolist() == [6.0, 2.0]
    assert scaling.inner_variance(None) is None
    variance, noise = (
        scaling.inner_variance(torch.tensor([1.0, 4.0, 9.0, 1.0, 1.0]).double()),
        torch.tensor(8.0),
    )
    assert variance.tolist() == [4.0, 16.0, 36.0, 4.0, 4.0]
    told = scaling.outer(inner, variance, noise)
    assert torch.equal(told.mean, Y)
    assert told.variance.tolist() == [[1.0, 1.0], [4.0, 4.0], [9.0, 9.0], [1.0, 1.0], [1.0, 1.0]]
    assert told.noise_variance.tolist() == [2.0, 2.0] and told.mean.dtype == torch.float64


def test_its_state_is_a_copy_and_complete():
    scaling = Scaling.from_first(X, Y, 0.5)
    state = scaling.state_dict()
    again = Scaling.from_state_dict(state, "cpu")
    state["origin"] += 1.0
    again.centre[0] = 99.0
    assert scaling.origin.tolist() == again.origin.tolist() == [
        12.0,
        2.0,
    ] and scaling.centre.tolist() == [6.0, 2.0]
    assert again.scale == 0.5 and state["centre"].tolist() == [6.0, 2.0]
