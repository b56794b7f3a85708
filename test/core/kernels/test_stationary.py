"""Kernels against the formulas written in NumPy; gradients where they are delicate; near points far away."""

import dataclasses

import numpy as np
import pytest
import torch
from core_data import correlation
from pretended_card import CARD, pretended_card

from gp_mapping.core.kernels import stationary
from gp_mapping.core.kernels.stationary import (
    RBF,
    Constant,
    Kernel,
    Stationary,
    Sum,
    distances,
    make_kernel,
    scaled_square_distance,
    single_square_distance,
)

NAMES = ["rbf", "matern12", "matern32", "matern52", "matern72", "matern92"]
A = torch.from_numpy(np.random.default_rng(0).uniform(-2, 2, (30, 2)))
B = torch.from_numpy(np.random.default_rng(1).uniform(-2, 2, (20, 2)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lengthscale", [0.7, [0.3, 1.9]])
def test_formula(name, lengthscale):
    kernel = make_kernel(name, 4.0, torch.tensor(lengthscale, dtype=torch.float64))
    r = np.sqrt((((A.numpy()[:, None] - B.numpy()[None]) / np.asarray(lengthscale)) ** 2).sum(-1))
    expected = torch.from_numpy(4.0 * correlation(name, r))
    assert torch.allclose(kernel(A, B), expected, rtol=1e-13, atol=1e-13)
    assert torch.allclose(kernel.diag(A), kernel(A, A).diagonal(), rtol=1e-13)
    assert kernel(A, B[:0]).shape == (30, 0) and kernel.diag(A[:0]).shape == (0,)

    lengths = torch.tensor(lengthscale, dtype=torch.float64, requires_grad=True)
    recorded, plain = (kernel.correlations(A, B, each) for each in (lengths, lengths.detach()))
    assert torch.allclose(4.0 * recorded, expected, rtol=1e-13, atol=1e-13)
    assert torch.allclose(4.0 * plain, expected, rtol=1e-13, atol=1e-13)
    assert recorded.requires_grad and not plain.requires_grad

    of_b, before = kernel.correlations_with(B), B.clone()
    assert torch.allclose(4.0 * of_b(A), expected, rtol=1e-13, atol=1e-13)
    assert torch.allclose(4.0 * of_b(A[:7]), expected[:7], rtol=1e-13, atol=1e-13)
    assert torch.equal(B, before) and of_b(A[:0]).shape == (0, 20)


@pytest.mark.parametrize("name", NAMES)
def test_positive_definite_and_symmetric(name):
    gram = make_kernel(name, 1.0, 0.5)(A, A)
    assert torch.equal(gram, gram.mT) and float(torch.linalg.eigvalsh(gram)[0]) > 0


@pytest.mark.parametrize("name", NAMES)
def test_gradient_by_differences_and_finite_where_points_meet(name):
    log_length = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    places = torch.cat([A[:6], A[:2]])  # two of them twice

    def value(log_length):
        kernel = type(make_kernel(name, 1.0, 1.0))
        square = scaled_square_distance(places, places, torch.exp(log_length))
        return kernel.correlation(square).square().sum()

    value(log_length).backward()
    step = 1e-6
    up, down = (value(torch.tensor(0.1 + d, dtype=torch.float64)) for d in (step, -step))
    numeric = (up - down) / (2 * step)
    assert torch.isfinite(log_length.grad) and float(log_length.grad) == pytest.approx(
        float(numeric), rel=1e-4
    )


@pytest.mark.parametrize(
    "kernel",
    [
        Constant(4.0),
        make_kernel("matern52", 4.0, 0.5),
        Sum((Constant(1.0), make_kernel("rbf", 2.0, 1.0))),
    ],
    ids=["constant", "one", "sum"],
)
def test_a_kernel_is_not_changed_in_place(kernel):
    """Whoever keeps one keeps what it was."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.variance = 9.0


def test_near_points_far_from_the_origin_keep_their_digits():
    """|a|² + |b|² − 2ab would lose everything at 1e6 m."""
    a = torch.tensor([[1e6, -1e6]], dtype=torch.float64)
    b = a + 2.0**-10
    assert (
        float(scaled_square_distance(a, b, torch.tensor(0.5).double())) == 2 * (2.0**-10 / 0.5) ** 2
    )


def test_sums_and_constants():
    kernel = make_kernel("rbf", 2.0, 1.0) + Constant(9.0)
    assert isinstance(kernel, Sum)
    assert torch.allclose(kernel(A, B), make_kernel("rbf", 2.0, 1.0)(A, B) + 9.0)
    assert torch.equal(kernel.diag(A), torch.full((30,), 11.0, dtype=torch.float64))
    three = kernel + Constant(1.0)
    assert torch.allclose(three.diag(A), torch.full((30,), 12.0, dtype=torch.float64))
    with pytest.raises(ValueError, match="at least one"):
        Sum(())(A, B)


def test_precision_follows_the_input():
    for dtype in (torch.float32, torch.float64):
        assert make_kernel("matern52", 2.0, 0.5)(A.to(dtype), B.to(dtype)).dtype == dtype


@pytest.mark.parametrize(
    "name, variance, lengthscale, words",
    [
        ("cubic", 1.0, 1.0, "'cubic' is not one of 'rbf'"),
        ("rbf", 0.0, 1.0, "variance"),
        ("rbf", np.nan, 1.0, "variance"),
        ("rbf", 1.0, -1.0, "lengthscale"),
        ("rbf", 1.0, [1.0, np.inf], "lengthscale"),
    ],
)
def test_bad_kernels_are_refused(name, variance, lengthscale, words):
    with pytest.raises(ValueError, match=words):
        make_kernel(name, variance, lengthscale)


def test_the_abstract_ones_say_so():
    with pytest.raises(TypeError, match="does not define"):
        Kernel()(A, B)
    with pytest.raises(TypeError, match="does not define"):
        Kernel().diag(A)
    with pytest.raises(TypeError, match="use RBF"):
        Stationary(1.0, 1.0)(A, B)


def test_squared_distances_in_float32_are_exact_near_also_far_from_the_origin():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(n, 2, dtype=torch.float64, generator=generator) + 1e5 for n in (30, 20))
    lengthscale = torch.tensor([0.3, 0.5], dtype=torch.float64)
    told = single_square_distance(a, b, lengthscale)
    wanted = scaled_square_distance(a, b, lengthscale)
    assert told.dtype == torch.float32
    torch.testing.assert_close(told.double(), wanted, rtol=1e-5, atol=1e-9)
    rounded = scaled_square_distance(a.float(), b.float(), lengthscale.float())
    assert (rounded - wanted).abs().max() > 1e-2, "simply rounded they would be wrong"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_card_computes_is_the_kernel(name):
    kernel = make_kernel(name, 2.0, 0.7)
    code = type(kernel).card_code.replace("T(", "float(")
    square = torch.linspace(0.0, 9.0, 50, dtype=torch.float64)
    names = {"s": square, "exp": torch.exp, "sqrt": torch.sqrt, "float": float}
    torch.testing.assert_close(eval(code, names), kernel.correlation(square), rtol=1e-14, atol=0)


def test_a_kernel_that_inherits_does_not_take_the_formula_of_another(monkeypatch, device):
    class Cut(RBF):
        @staticmethod
        def from_distance(r):
            return (r < 1.0).to(r)

        @staticmethod
        def correlation(square):
            return (square < 1.0).to(square)

    x = torch.tensor([[0.0, 0.0], [0.5, 0.0], [2.0, 0.0]], dtype=torch.float64)
    near = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert Cut(1.0, 1.0)(x.to(device), x.to(device)).tolist() == near

    codes = []
    monkeypatch.setattr(stationary, "fused_covariances", lambda code, *_: codes.append(code))
    with pretended_card():
        assert Cut(1.0, 1.0)(x.to(CARD), x.to(CARD)).tolist() == near
        assert not codes
        RBF(1.0, 1.0)(x.to(CARD), x.to(CARD))
    assert codes == [RBF.card_code]


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_alike_on_every_device_and_in_both_precisions(name, device):
    generator = torch.Generator().manual_seed(1)
    for dimensions in (1, 2, 3):
        kernel = make_kernel(name, 2.0, 0.7)
        a, b = (100.0 + torch.rand(n, dimensions, generator=generator).double() for n in (30, 20))
        wanted = 2.0 * kernel.correlation((a[:, None] - b).square().sum(2) / 0.49)
        a, b = a.to(device), b.to(device)
        torch.testing.assert_close(kernel(a, b).cpu(), wanted, rtol=1e-10, atol=1e-12)
        single = kernel.single(a, b)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double().cpu(), wanted, rtol=1e-5, atol=1e-6)


def test_distances_on_a_card_are_those_here():
    a, b = torch.rand(3, 7, 2).double(), torch.rand(3, 5, 2).double()
    with pretended_card():
        there = distances(a.to(CARD), b.to(CARD)).cpu()
    torch.testing.assert_close(there, torch.cdist(a, b), rtol=1e-7, atol=1e-9)
