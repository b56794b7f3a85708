"""A step of the learner is what its formulas say: each against the same formula in NumPy, one number at a time."""

import math

import numpy as np
import pytest
import torch

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta

THETA = Theta(0.5, 2.0, 0.4, 3.0, heading_stddev=0.7, lever_arm_along=0.01)
PRIOR = Theta(0.8, 1.0, 0.3, 3.0, heading_stddev=0.5, time_offset=0.02)
SCALE = np.array([1.0, 2.0, 3.0, 1.0, 0.2, 0.05, 0.05])  # of the prior
RNG = np.random.default_rng(4)


def made(cls=HyperLearner, free=(True,) * 7, theta=THETA, **others) -> HyperLearner:
    learner = cls(theta, PRIOR, free=free, **others)
    learner.use_minibatches()
    return learner


class Told(HyperLearner):
    """Is told a gradient and an information instead of computing them from samples."""

    LEAST, NEIGHBOURS = 20, 30

    def score(self, vector, data, near):
        self.near = near
        return data["gradient"].clone(), data["information"].clone()


def data_of(n: int, scale: float = 1.0) -> dict:
    root = RNG.normal(size=(7, 7))
    line = torch.arange(n, dtype=torch.float64)
    return {
        "x": torch.stack([0.003 * line, 0.0 * line], 1),
        "order": line,
        "gradient": torch.from_numpy(scale * RNG.normal(size=7)),
        "information": torch.from_numpy(root @ root.T + 5.0 * np.eye(7)),
    }


def weight_of_prior(vector: np.ndarray) -> np.ndarray:
    """P of the Student-t with four degrees of freedom, of the offset and the arm the Gaussian's."""
    z = (vector - PRIOR.vector().numpy()) / SCALE
    weight = 5.0 / (4.0 + z**2)
    weight[4:7] = 1.0
    return weight / SCALE**2


def test_steps_of_a_stream_are_newtons_with_what_was_known_fading():
    """Λ ← DΛD + F + wP, v ← v − Λ⁻¹(g + wP(v − v₀)), γ = 3/(t + 6), t by two at a reversal."""
    learner, generator = made(Told), torch.Generator().manual_seed(1)
    n, metric, rounds, turns = 60, np.zeros((7, 7)), np.zeros(7), np.zeros(7)
    vector, last = THETA.vector().numpy(), np.zeros(7)
    for k in range(6):
        data = data_of(n, 0.3)
        assert learner.step(data, generator)
        used = len(learner.near)
        # those near, a random choice of which may stand for all in reach
        stands_for = {20: (20,), 30: (30, n)}.get(used, (used,))
        ends = []
        for count in stands_for:
            w = np.full(7, count / n)
            w[2] = used / n
            fade = np.sqrt(1.0 - np.maximum(3.0 / (turns + 6.0), 0.02))
            prior = w * weight_of_prior(vector)
            new = fade[:, None] * metric * fade + data["information"].numpy() + np.diag(prior)
            slope = data["gradient"].numpy() + prior * (vector - PRIOR.vector().numpy())
            ends.append((new, fade**2 * rounds + w, np.linalg.solve(new, slope)))
        fits = [i for i, end in enumerate(ends) if np.allclose(learner.metric, end[0], rtol=1e-12)]
        assert len(fits) == 1, k
        metric, rounds, move = ends[fits[0]]
        assert np.abs(move / np.array(learner.LONGEST)).max() < 1.0  # within what may be moved
        vector = vector - move
        turns += 2.0 * (np.sign(move) * last < 0)
        last = np.sign(move)
        assert np.allclose(learner.vector, vector, rtol=1e-12), k
        assert np.allclose(learner.rounds, rounds, rtol=1e-12), k
        assert np.array_equal(learner.turns, turns) and learner.steps == k + 1
    assert turns.max() > 0 and learner.pending == -6.0
    assert np.allclose(learner.precision(), metric / np.sqrt(np.outer(rounds, rounds)), rtol=1e-12)


@pytest.mark.parametrize("far", [1.0, -1.0])
def test_no_entry_moves_beyond_what_it_may_and_the_others_are_at_their_best_given_it(far):
    learner, data = made(Told), data_of(60, 0.2)
    data["gradient"][1] = far * 1e3
    before = learner.vector.clone()
    assert learner.step(data, torch.Generator().manual_seed(0))
    move, longest = (before - learner.vector).numpy(), np.array(learner.LONGEST)
    held = np.abs(move) >= longest * (1 - 1e-12)
    assert held[1] and not held.all() and (np.abs(move) <= longest * (1 + 1e-9)).all()
    near = len(learner.near)
    slopes = []
    for count in (near, 60):  # the number that they stand for
        w = np.full(7, count / 60)
        w[2] = near / 60
        prior = w * weight_of_prior(before.numpy())
        slope = data["gradient"].numpy() + prior * (before - PRIOR.vector()).numpy()
        slopes.append(learner.metric.numpy() @ move - slope)
    assert min(np.abs(rest[~held]).max() for rest in slopes) < 1e-9


def test_what_is_not_learned_is_solved_for_as_if_it_were_known():
    free = (True, False, True, True, False, True, False)
    learner, data = made(Told, free=free), data_of(20, 0.2)
    before = learner.vector.clone()
    assert learner.step(data, torch.Generator().manual_seed(0))
    move, mask = (before - learner.vector).numpy(), np.array(free)
    prior = weight_of_prior(before.numpy())
    slope = data["gradient"].numpy() + prior * (before - PRIOR.vector()).numpy()
    metric = data["information"].numpy() + np.diag(prior)
    assert np.allclose(move[mask], np.linalg.solve(metric[mask][:, mask], slope[mask]))
    assert (move[~mask] == 0.0).all()


def test_the_log_prior_is_students_and_of_the_offset_gauss():
    free = (True, True, False, True, True, True, False)
    learner = made(free=free)
    vector = torch.from_numpy(PRIOR.vector().numpy() + SCALE * RNG.normal(size=7) * 2.0)
    z = (vector - PRIOR.vector()).numpy() / SCALE
    each = np.where(np.isin(np.arange(7), (4, 5, 6)), -0.5 * z**2, -2.5 * np.log1p(z**2 / 4.0))
    assert learner.log_prior(vector) == pytest.approx(each[np.array(free)].sum(), rel=1e-12)


def test_limits_are_six_scales_of_the_prior_or_the_start():
    learner = made(theta=Theta(0.8 * math.exp(7.0), 1.0, 0.3, 3.0, heading_stddev=0.5))
    middle = PRIOR.vector()
    for i in range(7):
        for sign in (-1.0, 1.0):
            at = middle.clone()
            # the lengthscale began above, at seven scales
            most = 7.0 if (i, sign) == (0, 1.0) else 6.0
            at[i] += sign * SCALE[i] * most * 0.999
            at[2] = max(float(at[2]), float(at[1]) - 10.0)
            assert learner.is_within_limits(at), (i, sign)
            at[i] = middle[i] + sign * SCALE[i] * most * 1.001
            assert not learner.is_within_limits(at), (i, sign)
    # σ/s is at least 1e-5
    for ratio, allowed in ((1.01e-5, True), (0.99e-5, False)):
        at = middle.clone()
        at[1], at[2] = 4.0, 4.0 + 2.0 * math.log(ratio)
        assert learner.is_within_limits(at) == allowed


def test_a_quieter_start_than_float64_solves_may_stay_but_none_gets_quieter():
    quiet = Theta(0.5, 2.0, 2e-6, 3.0)
    learner, data = Told(quiet, quiet), data_of(20)
    learner.use_minibatches()
    assert learner.is_within_limits(quiet.vector())
    at = quiet.vector()
    at[2] -= 0.01
    assert not learner.is_within_limits(at)
    data["gradient"] = torch.tensor([0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    data["information"] = torch.eye(7, dtype=torch.float64)
    assert learner.step(data, torch.Generator().manual_seed(0))
    assert learner.theta.noise_stddev == pytest.approx(2e-6)


def test_a_neighbourhood_is_what_lies_in_reach_or_the_nearest():
    """A line of 4000 places: half the time the nearest, else a choice of all in reach; at least LEAST."""
    line = torch.arange(4000, dtype=torch.float64)
    x, learner = torch.stack([0.001 * line, 0.0 * line], 1), made(Told)
    generator = torch.Generator().manual_seed(0)
    widths, recent, compact = [], 0, 0
    for _ in range(300):
        near, stands_for = learner.neighbourhood(x, line, generator)
        assert len(near) == len(near.unique()) == 30
        width = float(x[near, 0].max() - x[near, 0].min())
        recent += bool(x[near, 0].mean() > 3.9)
        if stands_for == 30:
            compact += 1
            # thirty places side by side
            assert width == pytest.approx(0.029)
        else:
            # all that lies within the reach, or four times that, of the centre, which the end cuts off
            assert stands_for > 1000 and width <= (stands_for + 1) * 0.001
            widths.append(stands_for)
    # a metre on either side, or at an end of the line on one; a tenth of them four times as far
    assert 120 < compact < 180 and min(widths) >= 1001
    assert max(width for width in widths if width < 4000) == 2001
    assert 0.03 < widths.count(4000) / len(widths) < 0.2
    # a quarter of the centres are among the newest forty, a hundredth would be by chance
    assert 0.10 < recent / compact < 0.36

    # the shorter the lengthscale the fewer, but LEAST
    learner.theta = Theta(1e-5, 2.0, 0.4, 3.0)
    near, stands_for = learner.neighbourhood(x, line, generator)
    assert stands_for == len(near) == 20 and float(x[near, 0].max() - x[near, 0].min()) < 0.0201
    near, stands_for = learner.neighbourhood(x[:7], line[:7], generator)
    assert stands_for == len(near) == 7


def test_after_all_samples_at_once_a_step_is_short():
    """What `fit` has found is known to the information of all samples, and steps average from there."""
    learner, information = made(free=(True,) * 5 + (False, False)), data_of(5)["information"]
    found = Theta(0.8 * math.exp(6.5), 1.5, 0.2, 3.0, heading_stddev=0.5)
    learner.pending = 7.0
    learner.continue_from(found, information)
    assert learner.theta == found and learner.streams and learner.pending == 0.0
    assert torch.allclose(
        learner.precision(), information + torch.diag(1 / torch.tensor(SCALE) ** 2)
    )
    assert learner.forgetting.tolist() == pytest.approx([3.0 / 156.0] * 7, abs=0.001)
    assert learner.is_within_limits(learner.vector)
    covariance = learner.covariance().numpy()
    assert np.allclose(covariance[:5, :5], np.linalg.inv(learner.precision()[:5, :5].numpy()))
    assert not covariance[5:].any() and not covariance[:, 5:].any()


def test_the_covariance_is_computed_once_a_step_and_anew_after_the_next():
    """A drawing asks for it several times; a step of either kind changes Λ, R, or both."""
    learner, data = made(Told), data_of(60)
    for _ in range(2):
        learner.step(data, torch.Generator().manual_seed(1))
        covariance = learner.covariance()
        assert learner.covariance() is covariance
        assert torch.allclose(covariance, torch.linalg.inv(learner.precision()))
    learner.rounds = 4.0 * learner.rounds
    assert torch.allclose(learner.covariance(), 4.0 * covariance)


def test_steps_are_queued_by_the_root_of_what_came_and_no_more_than_forty():
    learner = made()
    learner.schedule(100)
    assert learner.pending == pytest.approx(2.0) and learner.seen == 100
    learner.schedule(25)
    assert learner.pending == pytest.approx(3.0) and learner.seen == 125
    learner.schedule(10**6)
    assert learner.pending == 40.0
