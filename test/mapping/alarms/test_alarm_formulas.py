"""What an alarm weighs, each by its formula: scipy's densities, dense matrices, sums over a grid."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from gp_mapping.core.types import Samples
from gp_mapping.mapping.alarms import error_run, poses_or_change
from gp_mapping.mapping.alarms.error_run import Displaced, ErrorRun
from gp_mapping.mapping.alarms.kept_posteriors import KeptPosterior
from gp_mapping.mapping.alarms.new_ground import contradiction
from gp_mapping.mapping.alarms.poses_or_change import Run, leap_of, poses_against_change
from gp_mapping.mapping.scoring.change import Change, log_ratio

LENGTH = 0.8  # m
CHANCE = np.random.default_rng(5)
X = np.stack([np.arange(6) * 0.3, 0.2 * CHANCE.standard_normal(6)], 1)


def run_of(predict, y, leap=None, step=0.3):
    return Run(X, y, predict, leap, step)


@pytest.mark.parametrize(("longest", "leaps"), [(3.0, False), (3.01, True)])
def test_a_step_beyond_three_usual_ones_is_a_leap(longest, leaps):
    steps = np.array([[1.0, 0.0], [0.0, -1.0], [0.6 * longest, 0.8 * longest], [0.0, 1.0]])
    x = np.concatenate([np.zeros((1, 2)), steps.cumsum(0)])
    leap, usual = leap_of(x)
    assert usual == pytest.approx(1.0)
    assert (leap is None) != leaps and (not leaps or leap == pytest.approx(steps[2]))
    assert leap_of(x[:1]) == (None, 0.0)


def test_a_change_has_the_evidence_of_its_gaussian():
    """Of three sizes and four widths, everywhere or about a cell: as likely each as the other."""
    error = CHANCE.standard_normal((6, 2))
    variance = 0.1 + CHANCE.random(6)
    size = float((error**2).mean())
    apart = np.linalg.norm(X[:, None] - X, axis=2)
    everywhere, somewhere = [], []
    for width in (0.2, 0.4, 0.8, 1.6):
        r = math.sqrt(5.0) * apart / width
        kernel = (1.0 + r + r**2 / 3.0) * np.exp(-r)
        for factor in (0.5, 1.0, 2.0):
            for centre in (None, *range(6)):
                g = np.ones(6) if centre is None else np.exp(-0.5 * (apart[centre] / width) ** 2)
                covariance = np.diag(variance) + factor**2 * size * np.outer(g, g) * kernel
                told = multivariate_normal(np.zeros(6), covariance).logpdf(error.T).sum()
                (everywhere if centre is None else somewhere).append(told + 6 * math.log(math.tau))
    wanted = np.log(0.5 * np.exp(everywhere).mean() + 0.5 * np.exp(somewhere).mean())
    assert poses_or_change._change(X, error, variance, LENGTH) == pytest.approx(wanted)


def test_values_have_their_likelihood_at_each_pose():
    mean, variance = CHANCE.standard_normal((3, 6, 2)), 0.1 + CHANCE.random((3, 6))
    y = CHANCE.standard_normal((6, 2))
    told = norm(mean, np.sqrt(variance)[:, :, None]).logpdf(y).sum((1, 2)) + 6 * math.log(math.tau)
    assert poses_or_change._likelihood(y, mean, variance) == pytest.approx(told)


def prior(d, turn=0.0, leap=None, step=0.3):
    run = run_of(None, None, leap, step)
    return poses_or_change._prior(run, np.array([*d, turn]), LENGTH)


def test_a_displacement_is_as_probable_at_each_scale_between_a_tenth_of_a_lengthscale_and_ten():
    """Of the turn it is a Gaussian of .3 rad; after a leap half of it lies where that came from."""
    logs = np.linspace(math.log(0.08), math.log(8.0), 2001)
    ring = [2.0 * math.pi * r**2 * math.exp(prior((0.6 * r, 0.8 * r))) for r in np.exp(logs)[1:-1]]
    assert max(ring) == pytest.approx(min(ring))
    at_none = norm(0.0, 0.3).pdf(0.0)
    assert ring[0] * (logs[-1] - logs[0]) == pytest.approx(at_none)
    assert prior((0.01, 0.0)) == prior((0.0, 0.0)) == pytest.approx(prior((0.08, 0.0)))
    assert prior((8.01, 0.0)) == -math.inf < prior((7.99, 0.0))
    one, two = prior((1.0, 0.0), 0.6), prior((1.0, 0.0))
    assert one - two == pytest.approx(norm(0.0, 0.3).logpdf(0.6) - norm(0.0, 0.3).logpdf(0.0))

    leap, d = np.array([2.0, -1.0]), np.array([-1.8, 0.9])
    back = multivariate_normal(-leap, 0.3**2 * np.eye(2)).pdf(d) * at_none
    wanted = math.log(0.5 * math.exp(prior(d)) + 0.5 * back)
    assert prior(d, leap=leap) == pytest.approx(wanted)
    assert prior((9.0, 0.0), leap=leap) == pytest.approx(
        math.log(0.5 * at_none) + multivariate_normal(-leap, 0.3**2 * np.eye(2)).logpdf((9.0, 0.0))
    )
    assert math.isfinite(prior(-leap, leap=leap, step=0.0)), "a robot that stood"


def test_cells_move_and_turn_about_their_middle():
    """By φ times a quarter turn, anticlockwise."""
    poses = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.0], [0.5, 0.0, 1e-3]])
    told = poses_or_change._moved(run_of(None, None), poses).reshape(3, 6, 2)
    assert told[0] == pytest.approx(X) and told[1] == pytest.approx(X + np.array([1.0, -2.0]))
    turn = np.array([[math.cos(1e-3), -math.sin(1e-3)], [math.sin(1e-3), math.cos(1e-3)]])
    middle = X.mean(0)
    assert told[2] == pytest.approx((X - middle) @ turn.T + middle + [0.5, 0.0], abs=2e-6)


def hill(places):
    """A map with a shape, the surer the nearer to the origin."""
    x, y = places.T
    mean = np.stack([np.sin(1.5 * x) + 0.4 * y**2, np.cos(2.0 * y + x)], 1)
    return mean, 0.01 + 0.002 * (x**2 + y**2)


def test_the_best_of_many_displacements_are_followed():
    """Of seven radii and twelve directions, by likelihood and |d|⁻²; the way back of a leap first."""
    y = hill(X + np.array([0.3, -0.4]))[0]
    told = {}
    for radius in (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0):
        for k in range(12):
            d = (
                radius
                * LENGTH
                * np.array([math.cos(k * math.tau / 12), math.sin(k * math.tau / 12)])
            )
            mean, variance = hill(X + d)
            told[tuple(d)] = norm(mean, np.sqrt(variance)[:, None]).logpdf(y).sum()
            told[tuple(d)] -= 2.0 * math.log(math.hypot(*d))
    best = sorted(told, key=told.__getitem__)[::-1][:3]
    starts = poses_or_change._starts(run_of(hill, y), LENGTH)
    assert np.array(starts) == pytest.approx(np.array(best))
    leap = np.array([2.0, 1.0])
    first, *others = poses_or_change._starts(run_of(hill, y, leap), LENGTH)
    assert first == pytest.approx(-leap) and np.array(others) == pytest.approx(np.array(best))


def test_in_a_plane_the_evidence_of_poses_is_that_of_the_gaussian_in_closed_form():
    """Its maximum is of least squares; from there Laplace's integral."""
    slopes, d = np.array([[1.0, 0.3], [-0.2, 2.0]]), np.array([0.4, -0.3])
    noise = 0.4

    def plane(places):
        return places @ slopes, np.full(len(places), noise**2)

    y = plane(X + d)[0] + noise * CHANCE.standard_normal((6, 2))
    value, pose = poses_or_change._followed(run_of(plane, y), np.array([0.2, 0.0]), LENGTH)

    # of each number the derivative by (d, φ)
    aside = (X - X.mean(0))[:, ::-1] * [-1.0, 1.0]
    design = np.concatenate([np.tile(np.eye(2), (6, 1, 1)), aside[:, None]], 1) @ slopes
    design = design.transpose(0, 2, 1).reshape(12, 3)
    precision = design.T @ design / noise**2 + np.diag([0.0, 0.0, 1.0 / 0.3**2])
    wanted = np.linalg.solve(precision, design.T @ (y - X @ slopes).reshape(-1) / noise**2)
    assert pose == pytest.approx(wanted, abs=1e-4)

    left = (y - X @ slopes).reshape(-1) - design @ wanted
    told = norm(0.0, noise).logpdf(left).sum() + 6 * math.log(math.tau)
    far = np.diag([1.0 / (10.0 * LENGTH) ** 2] * 2 + [0.0])
    volume = 1.5 * math.log(math.tau) - 0.5 * np.linalg.slogdet(precision + far)[1]
    assert value == pytest.approx(told + prior(wanted[:2], wanted[2]) + volume, abs=1e-3)


def test_gauss_newton_steps_from_slopes_over_a_fiftieth_of_a_lengthscale():
    """Damped by a thousandth of the diagonal, by less after each that is better, by ten times more else."""
    slopes, variance, asked = np.array([[1.0, 0.3], [-0.2, 2.0]]), 0.1 + CHANCE.random(6), []
    y = CHANCE.standard_normal((6, 2))

    def once(places):
        asked.append(places.reshape(4, 6, 2))
        worse = 0.0 if len(asked) == 1 else 1e3
        return places @ slopes + worse, np.tile(variance, 4) * np.repeat([1.0, 2.0, 3.0, 4.0], 6)

    start = np.array([0.2, -0.1])
    _, pose = poses_or_change._followed(run_of(once, y), start, LENGTH)
    assert pose == pytest.approx([0.2, -0.1, 0.0]) and len(asked) == 6
    aside = (X - X.mean(0))[:, ::-1] * [-1.0, 1.0]
    turn = 0.02 * LENGTH / np.linalg.norm(aside, axis=1).max()
    for k, nudge in enumerate(([0.016, 0.0], [0.0, 0.016], turn * aside)):
        assert asked[0][k + 1] - asked[0][0] == pytest.approx(np.broadcast_to(nudge, (6, 2)))

    design = np.concatenate([np.tile(np.eye(2), (6, 1, 1)), aside[:, None]], 1) @ slopes
    design = design.transpose(0, 2, 1).reshape(12, 3)
    weight = np.repeat(1.0 / variance, 2)
    prior = np.diag([1e-6 / LENGTH**2, 1e-6 / LENGTH**2, 1.0 / 0.3**2])
    precision = design.T @ (weight[:, None] * design) + prior
    left = (y - (X + start) @ slopes).reshape(-1)
    gradient = design.T @ (weight * left) - prior @ [*start, 0.0]
    for k in range(5):
        damped = precision + 0.3e-3 * 10.0**k * np.diag(np.diagonal(precision))
        step = np.linalg.solve(damped, gradient)
        told = asked[k + 1][0] - X - start
        assert told.mean(0) == pytest.approx(step[:2], rel=1e-7)
        assert told - told.mean(0) == pytest.approx(step[2] * aside, rel=1e-7)


def test_a_plain_map_tells_no_more_of_a_displacement_than_its_prior():
    """What no slope tells spreads over ten lengthscales, and no farther."""

    def level(places):
        return np.zeros((len(places), 1)), np.ones(len(places))

    run = run_of(level, np.zeros((6, 1)))
    value, pose = poses_or_change._followed(run, np.array([0.4, 0.0]), LENGTH)
    far = 2.0 * math.log(10.0 * LENGTH) + math.log(0.3)
    told = prior(pose[:2], pose[2]) + 1.5 * math.log(math.tau) + far
    assert value == pytest.approx(told, abs=1e-3) and abs(pose[2]) < 1e-9
    nothing = run_of(lambda places: (np.full((len(places), 1), np.nan), level(places)[1]), run.y)
    assert poses_or_change._followed(nothing, np.zeros(2), LENGTH)[0] == -math.inf


def test_poses_are_weighed_against_a_change_as_a_sum_over_a_grid_does():
    """Over displacements and turns about the maximum; d leads from the stated to the mapped place."""
    d = np.array([0.35, -0.3])
    y = hill(X + d)[0] + 0.1 * CHANCE.standard_normal((6, 2))
    run = run_of(hill, y)
    gain, off = poses_against_change(run, LENGTH)
    assert off == pytest.approx(d, abs=0.15)

    axis = np.linspace(-0.4, 0.4, 17)
    first, second, turn = (g.reshape(-1) for g in np.meshgrid(axis, axis, axis, indexing="ij"))
    poses = np.stack([off[0] + first, off[1] + second, turn], 1)
    mean, variance = hill(poses_or_change._moved(run, poses))
    mean, variance = mean.reshape(-1, 6, 2), variance.reshape(-1, 6, 1)
    told = norm(mean, np.sqrt(variance)).logpdf(y).sum((1, 2)) + 6 * math.log(math.tau)
    told += [prior(pose[:2], pose[2]) for pose in poses]
    whole = np.logaddexp.reduce(told) + 3 * math.log(axis[1] - axis[0])
    change = poses_or_change._change(X, y - hill(X)[0], hill(X)[1], LENGTH)
    assert gain == pytest.approx(whole - change, abs=0.5)


# --- which alarms wait ------------------------------------------------------------------------------
def cell(k, heading=True, number=7.0):
    """Of two samples at (k, 2k) on average."""
    return Samples(
        [[k - 1.0, 2.0 * k], [k + 1.0, 2.0 * k]],
        [[5.0 + k], [7.0 + k]],
        velocity=[[9.0, 9.0], [0.5, 0.25 * k]],
        heading=[[1.0, 0.0], [0.6, 0.8]] if heading else None,
        pass_number=None if number is None else [number, number],
    )


ALARM = Change(1.0, 2.0, 3.0, 4.0)


def given(gain, off=(0.0, 0.0), alarms=1, waited=0, monkeypatch=None):
    """A run with a gain of poses that is given."""
    monkeypatch.setattr(error_run, "poses_against_change", lambda *_: (gain, np.array(off)))
    run = ErrorRun()
    run.add(cell(1), 30.0, None, 0)
    for k in range(alarms):
        run.add(cell(2 + k), 30.0, ALARM, 3)
    for k in range(waited - (alarms - 1)):
        run.add(cell(9 + k), 1.0, None, 3)
    return run


def decide(run, last=False):
    return run.decide(KeptPosterior(0.0, SimpleNamespace(), None), 0.1, LENGTH, last)


def test_an_alarm_waits_for_eight_cells_or_the_end_where_neither_is_sure(monkeypatch):
    """Sure is what is better by five nats; poses need a tenfold likelihood's half else."""
    for gain in (-4.9, 4.9):
        assert decide(given(gain, waited=7, monkeypatch=monkeypatch)) == []
    likelier = 0.5 * math.log(10.0)
    for waited, last in ((8, False), (0, True)):
        (change,) = decide(given(likelier - 0.01, waited=waited, monkeypatch=monkeypatch), last)
        assert change == Change(1.0, 2.0, 3.0, 4.0, sure=False)
        run = given(likelier + 0.01, (0.3, -0.2), waited=waited, monkeypatch=monkeypatch)
        assert decide(run, last) == [] and run.displaced_count == 1
        assert list(run.displaced) == [Displaced(3.0, 1.0, 2.0, -0.3, 0.2, False)]
    (change,) = decide(given(-5.0, monkeypatch=monkeypatch))
    assert change.sure
    run = given(5.0, (1.0, 2.0), alarms=2, monkeypatch=monkeypatch)
    assert decide(run) == [] == run.alarms and run.displaced[0].sure
    assert run.displaced_count == 1 and run.recent == 3
    run.add(cell(3), 1.0, None, 5)
    run.end_pass()
    assert run.state_dict()["rows"] == [] and ErrorRun().recent == 0
    assert run.recent == 5 and run.state_dict()["waited"] == 0


def test_a_change_has_to_contradict_what_was_measured_before(monkeypatch):
    """By strong evidence, and surely by five nats; what has always been there is no wrong pose."""
    strong = math.log(10.0)

    def decided(gain, changed, last=True):
        run = given(gain, (1.0, 2.0), monkeypatch=monkeypatch)
        run._contradiction = lambda *_: changed
        return decide(run, last), run.displaced_count

    assert decided(-6.0, strong - 0.01) == ([], 0) == decided(-6.0, 4.9, last=False)
    assert [each.sure for each in decided(-6.0, strong + 0.01)[0]] == [False]
    assert [each.sure for each in decided(-6.0, 5.0, last=False)[0]] == [True]
    assert [each.sure for each in decided(-4.0, 5.0)[0]] == [False]
    assert decided(6.0, 0.0, last=False) == ([], 1)
    assert decided(6.0, -5.0) == ([], 0)


def test_errors_contradict_the_earlier_place_that_they_foretell_most_wrongly():
    """Of four widths and three sizes, each as probable as the errors of the run say."""
    error, variance = CHANCE.standard_normal((6, 2)), 0.1 + CHANCE.random(6)
    earlier = X[2:5] + np.array([0.02, 0.1])
    places = np.concatenate([X, earlier])
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    one, two = np.zeros(3), np.zeros(3)
    for width in (0.1, 0.2, 0.4, 0.8):
        r = math.sqrt(5.0) * apart / width
        for factor in (0.5, 1.0, 2.0):
            c = factor**2 * float((error**2).mean()) * (1.0 + r + r**2 / 3.0) * np.exp(-r)
            c += np.diag([*variance, 0.3, 0.3, 0.3])
            told = multivariate_normal(np.zeros(6), c[:6, :6]).logpdf(error.T).sum()
            for k in range(3):
                row = np.linalg.solve(c[:6, :6], c[:6, 6 + k])
                spread = math.sqrt(c[6 + k, 6 + k] - row @ c[:6, 6 + k])
                there = norm(row @ error, spread).logpdf(0.0).sum()
                not_there = norm(0.0, math.sqrt(c[6 + k, 6 + k])).logpdf([0.0, 0.0]).sum()
                one[k] += math.exp(told + not_there)
                two[k] += math.exp(told + there)
    wanted = float(np.log(one / two).max())
    assert contradiction(X, error, variance, earlier, 0.3, LENGTH, 0.1) == pytest.approx(wanted)
    assert contradiction(X, error, variance, earlier[:0], 0.3, LENGTH, 0.1) == 0.0
    far = np.concatenate([np.full((60, 2), 99.0), earlier])
    assert contradiction(X, error, variance, far, 0.3, LENGTH, 0.1) == pytest.approx(
        max(wanted, 0.0)
    )


def test_a_run_begins_where_the_sum_of_its_ratios_is_largest():
    """What is predicted there has the noise of a measurement, too; of the newest cell's pass."""
    run = ErrorRun()
    for k, square in enumerate((0.0, 0.0, None, 22.0, 0.5, 25.0)):
        run.add(cell(float(k), number=float(k)), square, None, 0)
    asked = {}

    class Old:
        def predict_in_pass(self, places, number, velocity, heading):
            asked.update(number=number, velocity=velocity, heading=heading)
            mean = places.sum(1, keepdim=True)
            return SimpleNamespace(
                mean=mean, variance=torch.stack([mean[:, 0], 3.0 * mean[:, 0]], 1)
            )

    sums = np.cumsum(
        [log_ratio(s) if s is not None else 0.0 for s in (25.0, 0.5, 22.0, None, 0.0, 0.0)]
    )
    begin = 5 - int(sums.argmax())
    told = run._run(Old(), 0.25)
    assert begin == 3 and told.x.tolist() == [[float(k), 2.0 * k] for k in range(begin, 6)]
    assert told.y.tolist() == [[6.0 + k] for k in range(begin, 6)]
    assert told.leap is None and told.step == pytest.approx(math.sqrt(5.0))
    twice = np.concatenate([told.x, told.x + 1.0])
    mean, variance = told.predict(twice)
    assert mean[:, 0] == pytest.approx(twice.sum(1))
    assert variance == pytest.approx(2.0 * twice.sum(1) + 0.25)
    n = len(told.x)
    assert asked["number"] == 5.0 and asked["heading"].tolist() == [[0.6, 0.8]] * (2 * n)
    assert asked["velocity"].tolist() == [[0.5, 0.25 * k] for k in range(begin, 6)] * 2
    run.add(cell(6.0, heading=False), 0.0, None, 0)
    run._run(Old(), 0.25).predict(X[:1].repeat(7 - begin, 0))
    assert (
        asked["heading"] is None
        and error_run.number_of(cell(1.0, number=None)) == error_run.NO_PASS
    )


def test_sixteen_cells_and_a_hundred_displacements_are_kept():
    run = ErrorRun()
    for k in range(20):
        run.add(cell(float(k)), 1.0, None, 0)
    assert [row["x"][0] for row in run.state_dict()["rows"]] == [float(k) for k in range(4, 20)]
    other = ErrorRun()
    for k in range(120):
        other.displaced.append(Displaced(float(k), 0.0, 0.0, 0.0, 0.0, True))
    other.displaced_count, run.displaced_count = 130, 3
    run.join(other)
    assert [each.stamp for each in run.displaced] == [float(k) for k in range(20, 120)]
    assert run.displaced_count == 133
