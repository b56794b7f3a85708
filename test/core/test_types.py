"""Samples and predictions check themselves once, and say what is wrong."""

import dataclasses

import numpy as np
import pytest
import torch

from gp_mapping import Prediction, Samples, UpdateReport


def test_arrays_lists_and_tensors_become_float64_tensors():
    s = Samples(
        [[1, 2], [3, 4]], np.array([5.0, 6.0], dtype=np.float32), noise_variance=2, stamp=[0.0, 1.0]
    )
    assert s.x.dtype == s.y.dtype == torch.float64 and s.y.shape == (2, 1)
    assert s.noise_variance.tolist() == [2.0, 2.0] and s.stamp.tolist() == [0.0, 1.0]
    assert s.count is None and s.sensor_variance is None and s.velocity is None and len(s) == 2
    none = Samples(
        torch.zeros(0, 3), torch.zeros(0, 2), noise_variance=[], count=[], sensor_variance=[]
    )
    assert none.x.shape == (0, 3)


def test_frozen():
    s = Samples([[0.0, 0.0]], [1.0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.x = torch.zeros(1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        UpdateReport(1, 1, 1, 1).used = 2


@pytest.mark.parametrize(
    "x, y, columns, words",
    [
        ([[0.0, 0.0]], [1.0, 2.0], {}, "do not agree"),
        ([0.0, 0.0], [1.0, 2.0], {}, "do not agree"),
        ([[0.0, 0.0]], [[[1.0]]], {}, "do not agree"),
        ([[0.0, 0.0]], [1.0], {"stamp": [0.0, 1.0]}, r"stamp has shape \(2,\), expected \(1,\)"),
        ([[0.0, 0.0]], [1.0], {"noise_variance": [[1.0]]}, "noise_variance has shape"),
        ([[0.0, 0.0]], [1.0], {"velocity": [[1.0]]}, "velocity has shape"),
        ([[0.0, 0.0], [0.0, np.nan]], [1.0, 1.0], {}, "x is not finite at sample 1"),
        ([[0.0, 0.0]], [np.inf], {}, "y is not finite at sample 0"),
        ([[0.0, 0.0]], [1.0], {"stamp": np.nan}, "stamp is not finite"),
        ([[0.0, 0.0]], [1.0], {"velocity": [[np.nan, 0.0]]}, "velocity is not finite"),
        ([[0.0, 0.0]], [1.0], {"noise_variance": 0.0}, "noise_variance must be positive"),
        ([[0.0, 0.0]], [1.0], {"noise_variance": -1.0}, "noise_variance must be positive"),
        ([[0.0, 0.0]], [1.0], {"count": 0}, "count must be positive"),
        ([[0.0, 0.0]], [1.0], {"sensor_variance": -1e-12}, "sensor_variance must not be negative"),
    ],
)
def test_what_does_not_fit_is_refused(x, y, columns, words):
    with pytest.raises(ValueError, match=words):
        Samples(x, y, **columns)


def test_a_known_perfect_sensor_is_allowed():
    assert Samples([[0.0, 0.0]], [1.0], sensor_variance=0.0).sensor_variance.tolist() == [0.0]


def test_picking_keeps_the_columns_together():
    n = torch.arange(5.0, dtype=torch.float64)
    s = Samples(
        torch.stack([n, -n], 1),
        n,
        noise_variance=n + 1,
        stamp=n,
        count=n + 1,
        sensor_variance=n,
        velocity=torch.stack([n, n], 1),
    )
    picks = (
        (slice(1, 3), [1, 2]),
        (4, [4]),
        (-1, [4]),
        (torch.tensor([3, 0]), [3, 0]),
        (n > 2, [3, 4]),
    )
    for index, expected in picks:
        part = s[index]
        expected = torch.tensor(expected, dtype=torch.float64)
        assert torch.equal(part.y[:, 0], expected) and torch.equal(part.stamp, expected)
        assert torch.equal(part.noise_variance, expected + 1) and torch.equal(
            part.velocity[:, 0], expected
        )
        assert torch.equal(part.x[:, 1], -expected) and torch.equal(part.sensor_variance, expected)
    assert len(s[:0]) == 0


def test_concatenate():
    s = Samples([[0.0, 1.0], [2.0, 3.0]], [4.0, 5.0], stamp=[6.0, 7.0])
    both = Samples.concatenate([s[:1], s[1:]])
    assert torch.equal(both.x, s.x) and torch.equal(both.stamp, s.stamp) and both.count is None
    with pytest.raises(ValueError, match="stamp is present in some"):
        Samples.concatenate([s, Samples([[0.0, 0.0]], [1.0])])


def test_raw_samples_are_counted_where_each_is_an_average():
    cells = {"x": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], "y": [1.0, 2.0, 3.0]}
    assert Samples(**cells).raw_count == 3
    assert Samples(**cells, count=[4.0, 1.0, 7.0]).raw_count == 12


def test_prediction_adds_the_noise():
    p = Prediction(
        torch.zeros(2, 2), torch.tensor([[4.0, 9.0], [-1e-30, 1.0]]), torch.tensor([1.0, 2.0])
    )
    assert p.stddev.tolist() == [[2.0, 3.0], [0.0, 1.0]]
    assert p.measurement_variance.tolist() == [[5.0, 11.0], [1.0, 3.0]]


@pytest.mark.parametrize(
    "make", [torch.complex, lambda real, imaginary: (real + 1j * imaginary).numpy()]
)
def test_complex_values_are_refused(make):
    """Their imaginary parts were dropped, with a warning of torch's at the most."""
    values = make(torch.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match="complex64, expected real ones"):
        Samples(torch.zeros(3, 2), values)
