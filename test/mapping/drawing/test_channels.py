"""What a map of several channels shows: one as it is, of a vector the norm, of classes the most likely one."""

import pytest
import torch

from gp_mapping.mapping.drawing.channels import layer_names, show

MEAN = torch.tensor(
    [[[0.1, 0.6], [0.2, 3.0]], [[0.7, 0.3], [0.3, 4.0]], [[0.2, 0.1], [0.5, 0.0]]],
    dtype=torch.float64,
)  # (3, 2, 2)
VARIANCE = torch.tensor(
    [[[1.0, 4.0], [9.0, 0.25]], [[16.0, 1.0], [1.0, 0.25]], [[4.0, 1.0], [25.0, 0.25]]],
    dtype=torch.float64,
)


@pytest.mark.parametrize(
    "channels, plain, classes",
    [
        (1, (), ("0",)),
        (3, ("x", "y", "z"), ("0", "1", "2")),
        (4, ("0", "1", "2", "3"), ("0", "1", "2", "3")),
    ],
)
def test_layers_are_called_by_axes_or_by_classes(channels, plain, classes):
    assert (
        layer_names(channels) == layer_names(channels, False) == plain
        and layer_names(channels, True) == classes
    )


def test_one_channel_is_shown_as_it_is():
    shown = show(MEAN[:1], VARIANCE[:1] - 2.0)  # a variance below nothing is a rounding error
    assert torch.equal(shown.mean, MEAN[0])
    expected = torch.tensor([[0.0, 2.0], [7.0, 0.0]], dtype=torch.float64).sqrt()
    torch.testing.assert_close(shown.stddev, expected, rtol=1e-15, atol=0.0)
    assert shown.mean_each is shown.stddev_each is shown.classes is None


def test_of_classes_the_most_likely_one_is_shown():
    shown = show(MEAN, VARIANCE, classes=True)
    assert shown.classes.tolist() == [[1, 0], [2, 1]] and shown.mean.tolist() == [
        [0.7, 0.6],
        [0.5, 4.0],
    ]
    assert shown.stddev.tolist() == [[4.0, 2.0], [5.0, 0.5]] and torch.equal(shown.mean_each, MEAN)


def test_of_a_vector_the_norm_is_shown():
    shown = show(MEAN, VARIANCE)
    assert float(shown.mean[1, 1]) == pytest.approx(5.0) and float(
        shown.stddev[1, 1]
    ) == pytest.approx(0.5, rel=0.02)
    assert torch.equal(shown.mean_each, MEAN) and torch.equal(shown.stddev_each, VARIANCE**0.5)
    assert shown.classes is None and show(MEAN, VARIANCE, excess=0.75).stddev[1, 1] > 0.9
