"""Likelihoods of the passes' constants, multiplied, divided and integrated: against dense Gaussians.

Of gp_mapping.core.sparse.pass_evidence.
"""

import numpy as np
import pytest
import torch

from gp_mapping.core.hyper.bias import SEGMENT
from gp_mapping.core.sparse.pass_evidence import PassEvidence

RNG = np.random.default_rng(6)


def drawn(numbers: tuple[float, ...], channels: int = 2) -> PassEvidence:
    root = RNG.normal(size=(len(numbers),) * 2)
    return PassEvidence(
        numbers,
        torch.from_numpy(root @ root.T),
        torch.from_numpy(RNG.normal(size=(len(numbers), channels))),
    )


A, B = drawn((0.0, 1.0, 4.0)), drawn((1.0, 7.0, 0.0))
ALL = (0.0, 1.0, 4.0, 7.0)


def wide(part: PassEvidence, numbers=ALL) -> tuple[np.ndarray, np.ndarray]:
    """N and v with a row for each of the numbers, 0 for those of which it says nothing."""
    precision, linear = np.zeros((len(numbers),) * 2), np.zeros((len(numbers), 2))
    at = [numbers.index(number) for number in part.numbers]
    precision[np.ix_(at, at)], linear[at] = part.precision.numpy(), part.linear.numpy()
    return precision, linear


def assert_is(got: PassEvidence, precision, linear, numbers=ALL) -> None:
    for mine, wanted in zip(wide(got, numbers), (precision, linear)):
        assert np.allclose(mine, wanted, atol=1e-10)


def test_products_and_quotients_are_sums_under_the_passes_numbers():
    (n_a, v_a), (n_b, v_b) = wide(A), wide(B)
    assert_is(A.plus(B), n_a + n_b, v_a + v_b)
    assert_is(A.plus(B, -1.0), n_a - n_b, v_a - v_b)
    assert_is(PassEvidence.product((A, B, A)), 2 * n_a + n_b, 2 * v_a + v_b)
    assert_is(A.scale(0.3), 0.3 * n_a, 0.3 * v_a)
    nothing = PassEvidence.none(2, "cpu")
    assert (
        len(nothing) == 0 and nothing.linear.shape == (0, 2) and nothing.precision.shape == (0, 0)
    )
    assert A.plus(nothing) is A and PassEvidence.product(()) is None
    assert_is(nothing.plus(A), n_a, v_a)
    assert_is(A.without(nothing, 1.0), n_a, v_a)
    assert_is(PassEvidence.product((A, B)).without(B, 1.0), n_a, v_a)
    assert A.renumber(10.0).numbers == (10.0, 11.0, 14.0)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    assert_is(A.turn(turn), n_a, v_a @ turn.numpy().T)
    again = PassEvidence.from_state_dict(A.state_dict(), "cpu")
    assert again.numbers == A.numbers
    assert_is(again, n_a, v_a)


def test_a_quotient_that_would_curve_upwards_says_nothing_there():
    """The part with a positive curvature stays, with what it says; of a pass that is not here, nothing."""
    own = A.integrated_out({4.0}, 2.0)
    (n_a, v_a), (n_b, v_b) = wide(own), wide(B)
    values, vectors = np.linalg.eigh(n_b - n_a)
    up = values > 1e-12
    assert up.any() and not up.all()
    part = vectors[:, up]
    assert_is(B.without(A, 2.0), (part * values[up]) @ part.T, part @ part.T @ (v_b - v_a))


def test_differences_are_what_is_left_when_all_may_be_shifted_together():
    """One more constant with a flat prior is added to all, and integrated out."""
    n, v = wide(A, A.numbers)
    ones = np.ones((3, 1))
    flat = 1e9
    common = n @ ones @ np.linalg.inv(ones.T @ n @ ones + 1.0 / flat)
    got = A.of_differences()
    assert np.allclose(got.precision, n - common @ ones.T @ n, atol=1e-6)
    assert np.allclose(got.linear, v - common @ ones.T @ v, atol=1e-6)
    assert np.allclose(got.precision.sum(0), 0.0, atol=1e-10)
    nothing = A.scale(0.0)
    assert nothing.of_differences() is nothing


def test_passes_that_are_integrated_out_leave_the_marginal_likelihood():
    variance = 0.7
    n, v = wide(A, A.numbers)
    joint = np.linalg.inv(n + np.diag([0.5, 1.0 / variance, 0.5]))  # any prior of those that stay
    mean = joint @ v
    kept = A.integrated_out({1.0, 99.0}, variance)
    assert kept.numbers == (0.0, 4.0) and A.integrated_out({99.0}, variance) is A
    covariance = np.linalg.inv(kept.precision.numpy() + 0.5 * np.eye(2))
    assert np.allclose(covariance, joint[np.ix_([0, 2], [0, 2])])
    assert np.allclose(covariance @ kept.linear.numpy(), mean[[0, 2]])


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_what_is_known_of_constants_is_the_posterior_of_all_of_them(correlation):
    """Also of those that nothing was said of, and of segments of a pass, which are like their neighbours."""
    part = A if not correlation else drawn((2.0, 2.0 + SEGMENT, 2.0 + 3 * SEGMENT, 5.0))
    asked = (part.numbers[1], 5.0 if not correlation else 2.0 + 2 * SEGMENT, part.numbers[0])
    every = (*part.numbers, *(number for number in asked if number not in part.numbers))
    prior = np.array(
        [
            [
                1.3
                * (float(i == j) if not correlation else correlation ** round(abs(i - j) / SEGMENT))
                * (np.floor(i) == np.floor(j))
                for j in every
            ]
            for i in every
        ]
    )
    n, v = wide(part, every)
    covariance = np.linalg.inv(n + np.linalg.inv(prior))
    at = [every.index(number) for number in asked]
    for _ in range(2):  # the answer is kept for the next question
        mean, spread = part.prior_of(asked, 1.3, correlation)
        assert np.allclose(mean, (covariance @ v)[at]) and np.allclose(
            spread, covariance[np.ix_(at, at)]
        )
    # and another variance is another question
    assert np.allclose(
        A.prior_of(A.numbers, 0.2)[1], np.linalg.inv(wide(A, A.numbers)[0] + np.eye(3) / 0.2)
    )


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_the_divergence_is_kullback_and_leiblers(rho):
    numbers, variance = (1.0, 0.0), 1.3
    (m0, s0), (m1, s1) = (
        tuple(t.numpy() for t in part.prior_of(numbers, variance, rho)) for part in (A, B)
    )
    inverse = np.linalg.inv(s0)
    wanted = 0.5 * (np.trace(inverse @ s1) - 2 + np.log(np.linalg.det(s0) / np.linalg.det(s1)))
    wanted += np.mean([0.5 * (m1 - m0)[:, c] @ inverse @ (m1 - m0)[:, c] for c in (0, 1)])
    assert B.divergence(A, numbers, variance, rho) == pytest.approx(wanted)
    assert A.divergence(A, numbers, variance, rho) == pytest.approx(0.0, abs=1e-12)
    assert A.divergence(B, (), variance, rho) == 0.0


def test_what_is_said_of_a_segment_differs_for_the_segments_beside_it():
    first, second = 1.0, 1.0 + SEGMENT
    said, nothing = drawn((first,)), PassEvidence.none(2, "cpu")
    assert said.divergence(nothing, (second,), 1.3) == 0.0  # each has a constant of its own
    assert said.divergence(nothing, (second,), 1.3, 0.9) > 0.02


def test_of_more_passes_than_may_stay_the_oldest_are_integrated_out():
    both = PassEvidence.product((A, B))
    assert both.of_newest(4, 2.0) is both
    for kept, gone, keep in (((1.0, 4.0, 7.0), {0.0}, set()), ((0.0, 4.0, 7.0), {1.0}, {0.0})):
        left = both.of_newest(3, 2.0, keep)
        assert set(left.numbers) == set(kept)
        assert_is(left, *wide(both.integrated_out(gone, 2.0)))
