"""Which samples of a pass are gross errors, and which are an edge of the field."""

import numpy as np
import pytest

from gp_mapping.mapping.averaging import gross_errors
from gp_mapping.mapping.averaging.gross_errors import far_from_median, is_narrow, wild_samples

N = 14


def wild(values, least=1.0, period=0.1) -> set[int]:
    y = [[float(v)] for v in values]
    return wild_samples(y, [period * k for k in range(len(y))], least)[0]


def noisy(seed: int, slope: float = 0.0) -> np.ndarray:
    return 50.0 + slope * np.arange(N) + np.random.default_rng(seed).normal(0.0, 1.0, N)


@pytest.mark.parametrize("slope", [0.0, 8.0, -30.0])
@pytest.mark.parametrize("size", [100.0, -300.0, 1e9])
def test_errors_alone_and_in_pairs_are_found_wherever_they_are(size, slope):
    for k in range(3, N - 3):
        one, alike, unlike, far = (noisy(k, slope) for _ in range(4))
        one[k] += size
        alike[k : k + 2] += size
        unlike[k : k + 2] += size, -size
        far[[k, k + 2]] += size
        assert wild(noisy(k, slope)) == set()
        assert wild(one) == {k}
        assert wild(alike) == wild(unlike) == {k, k + 1}
        assert wild(far) == {k, k + 2}


def test_an_edge_costs_nothing():
    """A step after any sample, one with a sample on its way, a peak passed at speed, one's beginning."""
    for k in range(2, N - 1):
        step, way = noisy(k), noisy(k)
        step[k:] += 60.0
        way[k - 1] += 25.0
        way[k:] += 60.0
        assert wild(step) == wild(way) == set()
    along = (np.arange(N) - 7.0) / 3.0
    assert wild(noisy(0) + 300.0 * (1.0 - 0.5 * along**2) / (1.0 + along**2) ** 2.5) == set()
    seen = noisy(1)
    seen[-3:] += 15.0, 80.0, 150.0
    assert wild(seen) == set()
    # an error after it does not take it along
    seen[-1] = -500.0
    assert wild(seen) == {N - 1}


def test_where_no_two_are_far_apart_nothing_could_be_left_out():
    """The shortcut is a bound, not a judgement: without it the answer is the same."""
    rng, tried = np.random.default_rng(5), 0
    for _ in range(200):
        y = rng.uniform(0.0, 6.0, (N, 2)) * (rng.random((N, 1)) < 0.5)
        stamp = np.cumsum(rng.choice([1e-6, 0.1, 1.0], N)).tolist()
        if is_narrow(y.tolist(), 1.0):
            channels = [gross_errors._scaled(column, stamp, 1.0) for column in y.T.tolist()]  # noqa: SLF001
            costs = gross_errors._least_costs(channels, stamp)  # noqa: SLF001
            assert gross_errors._staying(*costs) == [*range(N)]  # noqa: SLF001
            tried += 1
    assert tried > 100


def test_all_channels_are_looked_at():
    y = np.stack([noisy(1), noisy(2)], 1)
    y[6, 1] += 40.0
    assert wild_samples(y.tolist(), np.arange(float(N)).tolist(), 1.0) == ({6}, {6})
    assert wild_samples(y[:9].tolist(), np.arange(9.0).tolist(), 1.0) == ({6}, {6})


def test_what_is_wild_without_the_last_one_is_told_as_well():
    y = noisy(3)
    y[-2:] += 60.0
    assert wild_samples(y[:, None].tolist(), np.arange(float(N)).tolist(), 1.0) == (set(), {N - 2})


def test_a_walk_goes_farther_in_the_time_that_errors_take():
    """Of n steps in one the variance is n times as large: 9 standard deviations are wild in one, not in two."""
    quiet = np.zeros(N)
    quiet[-1] = 9.0
    assert wild(quiet) == {N - 1}
    for errors in ([1e3], [1e3, -1e3]):
        between = quiet.copy()
        between[-1 - len(errors) : -1] = errors
        assert wild(between) == {*range(N - 1 - len(errors), N - 1)}


def test_far_is_six_deviations_from_the_median_in_any_channel():
    """Deviations of a normal, by the median of |y − median|, and no smaller than the least one."""
    around = [-2.0, -1.0, 0.0, 1.0, 2.0] * 3  # their median absolute deviation is 1
    for beyond, found in ((6.0 * 1.4826 - 0.01, set()), (6.0 * 1.4826 + 0.01, {15})):
        for sign in (1.0, -1.0):
            column = [*around, sign * beyond]
            assert far_from_median([[40.0 + value] for value in column], 0.1) == found
            assert far_from_median([[7.0, 40.0 + value] for value in column], 0.1) == found
    level = [[0.0]] * 9
    assert far_from_median([*level, [2.9]], 0.5) == set()
    assert far_from_median([*level, [3.1]], 0.5) == {9}
