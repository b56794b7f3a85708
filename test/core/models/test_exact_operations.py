"""What is done with the oracle, and what a robot adds to it, against its formulas in NumPy: others are tested by it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, THETA, UT, close, covariance, drive, exact_gp, in_ut, samples

from gp_mapping import create_map
from gp_mapping.core.models.exact import ExactGP

N = 90
X, Y = drive(N)
RNG = np.random.default_rng(1)
XS, V, VS = RNG.uniform(-0.5, 3.5, (30, 2)), RNG.normal(0, 0.3, (N, 2)), RNG.normal(0, 0.3, (30, 2))
VS[:5] *= 0.02  # hardly moving: no heading to speak of
H, HS = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 0.03) for v in (V, VS))
PLACES = torch.from_numpy(XS)
ROBOT = {"heading_stddev": 1.5 * UT, "time_offset": 0.2, "bias_stddev": 3 * UT}
OF = np.arange(N) // 30


def built(part=slice(None), centre=48.0, **settings) -> ExactGP:
    field = create_map("exact", centre=[centre * UT], **(SETTINGS | settings))
    field.update(samples(X[part], Y[part]))
    return field


def agrees(field, x, y, noise=1.0, xs=XS):
    """Mean and variance of the exact GP of those samples, about 48."""
    mean, variance = in_ut(field.predict(torch.from_numpy(xs)))
    expected = exact_gp(x, y - 48, noise * np.ones(len(x)), xs, **THETA)
    close(mean - 48, expected[0], 1e-8)
    close(variance[:, 0], np.diag(expected[1]), 1e-8)


def robots(of=OF, part=slice(None)) -> ExactGP:
    """A map of samples of a robot that turns, is late, and has a constant in each pass."""
    field = create_map("exact", centre=[48 * UT], **(SETTINGS | ROBOT))
    field.update(
        samples(
            X[part], Y[part], velocity=V[part], heading=H[part], pass_number=of[part].astype(float)
        )
    )
    return field


def joint(of=OF):
    """K + Σ (N, N) of such samples, and k(X, X*) (N, K) of the field and the robot."""
    moved, there = X - 0.2 * V, XS - 0.2 * VS
    gram = (
        covariance(moved, moved, **THETA)
        + 400.0
        + 2.25 * H @ H.T
        + 9.0 * (of[:, None] == of)
        + np.eye(len(of))
    )
    return gram, covariance(moved, there, **THETA) + 400.0 + 2.25 * H @ HS.T


@pytest.mark.parametrize("number", [None, 1.0, 7.0])
def test_what_a_robot_measures_passing_a_place(number):
    """Its own field, where it was when it measured, and the constant of its pass, known or to come."""
    gram, k = joint()
    k = k + (0.0 if number is None else 9.0 * (number == OF)[:, None])
    velocity, heading = torch.from_numpy(VS), torch.from_numpy(HS)
    field = robots()
    told = (
        field.predict(PLACES, velocity, heading)
        if number is None
        else field.predict_in_pass(PLACES, number, velocity, heading)
    )
    close(in_ut(told)[0] - 48, k.T @ np.linalg.solve(gram, Y - 48), 1e-9)
    prior = 500.0 + 2.25 * (HS**2).sum(1) + (0.0 if number is None else 9.0)
    close(in_ut(told)[1][:, 0], prior - (k * np.linalg.solve(gram, k)).sum(0), 1e-9)


def test_the_constants_of_passes_with_their_standard_deviations():
    assert built().biases() == []
    z, told = (OF[:, None] == np.arange(3)).astype(float), robots().biases()
    gram, _ = joint()
    spread = 9.0 * np.eye(3) - 81.0 * z.T @ np.linalg.solve(gram, z)
    apart = np.eye(3) - 1.0 / 3.0
    assert [b.number for b in told] == [0.0, 1.0, 2.0]
    close(
        [float(b.mean) / UT for b in told], 9.0 * (z.T @ np.linalg.solve(gram, Y - 48))[:, 0], 1e-9
    )
    close([float(b.stddev) / UT for b in told], np.sqrt(np.diag(spread)), 1e-8)
    close(
        [float(b.stddev_apart) / UT for b in told], np.sqrt(np.diag(apart @ spread @ apart)), 1e-8
    )


def test_how_much_passes_differ_is_learned():
    field = create_map("exact", **(SETTINGS | {"learn_hyperparameters": True}))
    before = field.theta.bias_stddev
    of = np.arange(N) // 15
    field.update(
        samples(
            X,
            Y + np.array([3.0, -8.0, 5.0, 12.0, -1.0, -6.0])[of, None],
            pass_number=of.astype(float),
        )
    )
    assert field.theta.bias_stddev > 10 * before
    assert field.refine() is False and field.learning_steps >= 1


def test_covariances_are_the_prior_less_what_is_explained():
    field, a, b = built(), PLACES[:7], PLACES[5:]
    left, right = field.explained(a), field.explained(b)
    prior = field.posterior.prior_covariance(a, b)
    close(prior / UT**2, covariance(XS[:7], XS[5:], **THETA) + 400.0, 1e-12)
    close((prior - left.mT @ right) / UT**2, field.covariance(a, b) / UT**2, 1e-9)
    close(field.remembered_places(), X, 1e-12)


def test_forgetting_all_a_little_and_a_place_but_for_the_newest():
    field = built()
    agrees(field, X, Y)
    field.forget(0.25)
    agrees(field, X, Y, 4.0)
    field, near = built(), np.hypot(*(X - X[-1]).T) <= 0.5
    assert field.forget_near(torch.from_numpy(X[:1]), 0.5, 2 * N) == 0
    agrees(field, X, Y)
    assert near[:-5].any()
    near[-5:] = False
    assert field.forget_near(torch.from_numpy(X[-1:]), 0.5, 5) == near.sum()
    agrees(field, X[~near], Y[~near])
    epoch = field.epoch
    assert field.forget_near(torch.tensor([[90.0, 90.0]]), 0.5, 0) == 0 and field.epoch == epoch
    empty = create_map("exact", **SETTINGS)
    empty.forget(0.5)
    assert empty.forget_near(PLACES, 0.5, 0) == 0


def test_forgotten_everywhere_it_knows_what_it_knew_before_and_goes_on():
    field, prior = built(), built().prior()
    assert field.forget_near(PLACES, 100.0, 0) == N and field.samples == 0
    told = field.predict(PLACES)
    assert torch.equal(told.mean, prior.mean.expand(30, 1))
    close(told.variance, prior.variance.expand(30, 1), 1e-12)
    assert not field.refine() and field.forget_near(PLACES, 100.0, 0) == 0
    field.update(samples(X, Y))
    agrees(field, X, Y)


def test_two_maps_about_other_centres_are_the_map_of_both():
    one, other = built(slice(0, 50), max_exact_samples=N), built(slice(50, N), centre=45.0)
    agrees(one, X[:50], Y[:50])
    one.merge(other)
    agrees(one, X, Y)
    empty = create_map("exact", centre=[48 * UT], max_exact_samples=N, **SETTINGS)
    empty.merge(one)
    agrees(empty, X, Y)
    with pytest.raises(ValueError, match=f"{N} \\+ 1 samples exceed max_exact_samples {N}"):
        empty.merge(built(slice(0, 1)))


def test_passes_of_two_robots_are_others_when_their_maps_are_merged():
    of = OF.copy()
    of[45:] = np.arange(45) // 15  # both count from 0
    one, other = robots(of, slice(0, 45)), robots(of, slice(45, N))
    one.merge(other)
    of[45:] += 10
    gram, k = joint(of)
    told = one.predict(PLACES, torch.from_numpy(VS), torch.from_numpy(HS))
    close(in_ut(told)[0] - 48, k.T @ np.linalg.solve(gram, Y - 48), 1e-8)


def test_moved_it_says_there_what_it_said_here():
    """With the velocities and headings of its samples; not where the kernel knows directions."""
    turn = torch.tensor([[math.cos(0.7), -math.sin(0.7)], [math.sin(0.7), math.cos(0.7)]]).double()
    shift, velocity, heading = (
        torch.tensor([12.0, -7.0]).double(),
        torch.from_numpy(VS),
        torch.from_numpy(HS),
    )
    for by in (turn, torch.eye(2).double()):
        field = robots()
        before = field.predict(PLACES, velocity, heading)
        field.move(by, shift)
        after = field.predict(PLACES @ by.mT + shift, velocity @ by.mT, heading @ by.mT)
        close(after.mean, before.mean, 1e-8)
        close(after.variance, before.variance, 1e-8)
    create_map("exact", **SETTINGS).move(turn, shift)
    two = create_map("exact", **SETTINGS)
    two.update(samples(X, np.hstack([Y, Y])))
    high = create_map("exact", **SETTINGS)
    high.update(samples(np.pad(X, ((0, 0), (0, 1))), Y))
    for field in (built(anisotropy=2.0), two, high):
        with pytest.raises(ValueError, match="shifted, not turned"):
            field.move(turn, shift)


def test_another_theta_and_samples_of_known_noise():
    field = create_map("exact", centre=[48 * UT], **SETTINGS)
    noise = np.random.default_rng(2).uniform(0.2, 2.0, N)
    field.update(samples(X[:60], Y[:60], noise_variance=noise[:60]))
    agrees(field, X[:60], Y[:60], noise[:60])
    report = field.update(samples(X[60:], Y[60:]))
    assert (report.used, report.samples, report.added) == (N - 60, N, N - 60)
    noise[60:] = 1.0
    agrees(field, X, Y, noise)
    assert field.adopt(replace(field.theta, noise_stddev=1.5))
    noise[60:] = 2.25
    expected = exact_gp(X, Y - 48, noise, XS, **THETA)
    close(in_ut(field.predict(PLACES))[0] - 48, expected[0], 1e-8)
    told = field.fantasize(PLACES[:1])
    told.forget(0.5)
    assert field.samples == N and told.samples == N + 1
    close(in_ut(field.predict(PLACES))[0] - 48, expected[0], 1e-8)


def test_a_pose_that_is_uncertain_adds_the_slope_of_what_is_known_to_the_noise():
    """As a first batch it adds nothing: there is no slope yet."""
    field = create_map("exact", centre=[48 * UT], max_exact_samples=N, **SETTINGS)
    field.update(samples(X[:60], Y[:60], position_variance=np.full(60, 0.01) / UT**2))
    agrees(field, X[:60], Y[:60])
    at = torch.from_numpy(X[60:])
    step = 1e-5 * torch.eye(2).double()
    slope = torch.cat(
        [(field.predict(at + e).mean - field.predict(at - e).mean) / (2e-5 * UT) for e in step], 1
    )
    field.update(samples(X[60:], Y[60:], position_variance=np.full(N - 60, 0.01) / UT**2))
    noise = np.concatenate([np.ones(60), 1.0 + 0.01 * slope.square().sum(1).numpy()])
    expected = exact_gp(X, Y - 48, noise, XS, **THETA)
    close(in_ut(field.snapshot().predict(PLACES))[0] - 48, expected[0], 1e-6)
