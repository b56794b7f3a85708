"""What is on the robot acts wherever it drives: what one stretch of the way tells alone names nothing."""

import math

import pytest
import torch
from drifting import LENGTH, done, lanes, passes, way

from gp_mapping.mapping.drift.evidence import DriftSearch
from gp_mapping.mapping.drift.told import Told, is_told_everywhere
from gp_mapping.mapping.drift.track_evidence import RATIOS, SURE

STEP = LENGTH / 5.0  # m, between blocks


def told(*gains):
    """Evidence of so many nats more than `NONE` in stretches of ten blocks each."""
    return Told.of(torch.tensor(gains, dtype=torch.float64).repeat_interleave(10) / 10.0)


NONE = told(*[0.0] * 12)


def test_evidence_is_the_sum_of_what_each_stretch_adds_given_those_before_it():
    """At the best scale of all."""
    track = way(passes(1, [lanes(4.0, 2.0, 1.0, STEP)]))
    search = DriftSearch(track, LENGTH, "matern52")
    covariance = search._field(2) + 0.03**2 * search.eye  # noqa: SLF001
    evidence = search._evidence(covariance.clone())  # noqa: SLF001
    y, n = search.y[:, 0], len(search.y)
    s2 = float(y @ torch.linalg.solve(covariance, y)) / n

    def log_density(k):
        """Of the first k blocks."""
        normal = torch.distributions.MultivariateNormal(y.new_zeros(k), s2 * covariance[:k, :k])
        return float(normal.log_prob(y[:k])) + 0.5 * k * (1.0 + math.log(2.0 * math.pi))

    assert evidence == pytest.approx(log_density(n), abs=1e-6)
    ends = torch.arange(n).tensor_split(len(evidence.parts))
    wanted = [log_density(int(e[-1]) + 1) - (log_density(int(e[0])) if e[0] else 0) for e in ends]
    assert evidence.parts.tolist() == pytest.approx(wanted, abs=1e-6)


def test_all_of_the_way_tells():
    assert is_told_everywhere(told(*[1.0, 3.0] * 6), NONE)
    assert not is_told_everywhere(NONE, told(*[1.0, 3.0] * 6))


@pytest.mark.parametrize("elsewhere", [0.0, -1.0, 0.5])
def test_one_stretch_alone_does_not_tell(elsewhere):
    """However many nats it has, and whether it is the first or the last."""
    gains = [40.0, *[elsewhere] * 11]
    assert not is_told_everywhere(told(*gains), NONE)
    assert not is_told_everywhere(told(*gains[::-1]), NONE)


def test_gains_here_and_losses_there_tell_nothing():
    """Their sum is 12 nats: more than SURE, and little beside what they scatter."""
    gains = [9.0, -7.0] * 6
    assert sum(gains) > SURE and not is_told_everywhere(told(*gains), NONE)


@pytest.mark.parametrize("height", [0.0, 2.0])
def test_a_magnet_beside_the_way_makes_no_field_longer_along_one_axis(height):
    """It was worth 22 nats to that: without it, one lengthscale and noise suit all blocks."""
    x = lanes(8.0, 6.0, 1.0, STEP)
    apart = (x - x.new_tensor([8.0, 3.0])).square().sum(1)
    track = way(passes(2, [x]))
    track = track._replace(y=track.y + height * torch.exp(-apart / 0.32))
    search = DriftSearch(track, LENGTH, "matern52")
    ratios = []
    holds = search._holds  # noqa: SLF001

    def noted(named):
        ratios.append(search.anisotropy)
        return (yield from holds(named))

    search._holds = noted  # noqa: SLF001
    assert search.finish() is None and search.anisotropy == 1.0
    assert ratios == ([0.5] if height else [])  # by plain evidence it would be named


@pytest.mark.parametrize("height", [0.0, 3.0])
def test_a_wild_block_gets_the_noise_that_makes_it_one_standard_deviation_off(height):
    """As far as all others tell; no other block gets any."""
    track = way(passes(2, [lanes(4.0, 2.0, 1.0, STEP)]))
    track.y[12] += height
    search = DriftSearch(track, LENGTH, "matern52")
    search._alone = (2, 2)  # noqa: SLF001
    nothing = torch.zeros(len(track.y), dtype=torch.float64)
    value, own = done(search._forgiving(search._field, nothing))  # noqa: SLF001
    assert own.nonzero()[:, 0].tolist() == ([12] if height else [])
    plain, _ = done(search._best(search._field))  # noqa: SLF001
    assert value > plain + 8.0 if height else value == plain
    if height:
        _, (i, j) = done(search._best(lambda i: search._field(i) + own.diag()))  # noqa: SLF001
        noise = own + RATIOS[j] ** 2
        inverse = torch.linalg.inv(search._field(i) + noise.diag())  # noqa: SLF001
        weights = (inverse @ search.y)[:, 0]
        s2 = float(search.y[:, 0] @ weights) / len(weights)
        assert float(weights[12].square() / inverse[12, 12] / s2) == pytest.approx(1.0, abs=0.1)


def test_where_parts_are_not_known_nats_decide():
    assert is_told_everywhere(2.0, 1.0) and not is_told_everywhere(told(1.0, 1.0), math.inf)
