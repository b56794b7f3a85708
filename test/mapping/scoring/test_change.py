"""What counts as a change of the field: alarms in hours where nothing changes, and in the one visit where it did."""

import math

import numpy as np
import pytest
from patches import sums

from gp_mapping.mapping.scoring.change import ChangeDetector, student_weight

CELL, LANE, LANES = (
    0.1,
    40,
    8,
)  # m, cells, lanes half a metre apart: a room of 4 × 4 m in tiles of half a metre
TEN_HOURS = 108_000  # cells of 0.1 m at 0.3 m/s


def lanes(n: int) -> np.ndarray:
    """Cells (n, 2) m of a robot that goes up and down a room."""
    i = np.arange(n)
    return np.stack([(i % LANE + 0.5) * CELL, (i // LANE % LANES + 0.5) * 0.5], 1)


def slow_noise(n: int, correlation: float, seed: int) -> np.ndarray:
    """AR(1) of unit variance: .85 is a drift over two seconds."""
    rng = np.random.default_rng(seed)
    white, out = rng.standard_normal(n), np.zeros(n)
    for i in range(1, n):
        out[i] = correlation * out[i - 1] + math.sqrt(1.0 - correlation**2) * white[i]
    return out


def alarms(detector: ChangeDetector, x, residual, start: float = 0.0) -> list[int]:
    """Cells at which a change is reported; predicted is a variance of 1."""
    return [
        i
        for i, (place, r) in enumerate(zip(x.tolist(), residual.tolist()))
        if detector.add(place, r, 1.0, 0.0, start + i * CELL) is not None
    ]


@pytest.mark.parametrize(
    "correlation, variance, misfit",
    [(0.0, 1.0, 0.0), (0.85, 1.0, 0.0), (0.85, 1.5, 0.0), (0.6, 1.0, 2.0), (0.85, 1.0, 2.0)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_ten_hours_of_a_field_that_never_changes(correlation, variance, misfit, seed):
    """Noise that drifts, a variance that is stated too small, and places where the map is always wrong.

    misfit: standard deviation of what it is wrong by, in a tenth of all tiles; the same on every visit.
    """
    x = lanes(TEN_HOURS)
    rng = np.random.default_rng([seed, 1])
    wrong = misfit * rng.standard_normal((LANES, LANES)) * (rng.random((LANES, LANES)) < 0.1)
    tile = np.floor(x / 0.5).astype(int)
    error = (
        math.sqrt(variance) * slow_noise(TEN_HOURS, correlation, seed)
        + wrong[tile[:, 0], tile[:, 1]]
    )
    assert len(alarms(ChangeDetector(0.5), x, error)) <= 1


@pytest.mark.parametrize("always", [0.0, 2.0])
def test_a_change_is_found_in_one_visit_also_where_the_map_always_errs(always):
    """Five cells of one tile are 10 standard deviations off, where they had been `always` ones off on every visit."""
    n = 20 * LANE * LANES
    x, error = lanes(n), slow_noise(n, 0.3, 5)
    tile = (np.floor(x / 0.5) == [4, 3]).all(1)
    error[tile] += always
    visits = np.split(np.flatnonzero(tile), np.flatnonzero(np.diff(np.flatnonzero(tile)) > 1) + 1)
    changed = visits[-1]
    error[changed] += 10.0
    found = alarms(ChangeDetector(0.5), x, error)
    assert [i for i in found if i in changed] and not [i for i in found if i not in changed]


def test_a_change_does_not_excuse_itself():
    """Half of a long visit is over: what it has shown is not yet what is usual here."""
    detector = ChangeDetector(0.5)
    x, n = np.tile([[0.2, 0.2]], (12, 1)), 12
    assert alarms(detector, x, np.full(n, 4.0))[0] < n - 1
    assert sums(detector) == [] or sums(detector)[0][2] < 1.0


def test_after_a_change_the_new_field_is_the_field():
    detector, x = ChangeDetector(0.5), np.tile([[0.2, 0.2]], (5, 1))
    for visit in range(5):
        assert not alarms(detector, x, np.full(5, 0.5), 100.0 * visit)
    assert alarms(detector, x, np.full(5, 12.0), 1000.0)
    for visit in range(10):  # the map has learned it: small errors again
        assert not alarms(detector, x, np.full(5, 0.7), 2000.0 + 100.0 * visit)
    assert alarms(detector, x, np.full(5, -12.0), 9000.0), "and the next change is found as well"


def test_it_goes_on_from_a_file_and_from_older_ones():
    x, error = lanes(4000), slow_noise(4000, 0.5, 3)
    error[3000:3010] += 9.0
    whole, first, second = ChangeDetector(0.5), ChangeDetector(0.5), ChangeDetector(1.0)
    wanted = alarms(whole, x, error)
    found = alarms(first, x[:2995], error[:2995])
    second.load_state_dict(first.state_dict())
    found += [2995 + i for i in alarms(second, x[2995:], error[2995:], 2995 * CELL)]
    assert found == wanted and wanted
    older = ChangeDetector(1.0)
    older.load_state_dict({"size": 0.5, "tiles": [[0, 0, 29.0, 3.0, 2.0]]})
    assert older.add([0.1, 0.1], 4.0, 1.0, 7.0, 0.0) is not None


def test_a_robot_that_stands_finds_no_change_however_its_sensor_drifts():
    """An hour at a charger, whose current is in the field: all that was known around it was forgotten."""
    detector = ChangeDetector(0.5)
    assert not [k for k in range(360) if detector.add([0.2, 0.2], 4.0, 1.0, 10.0 * k, 7.0)]
    assert not sums(detector) or sums(detector)[0][2] < 0.5
    x = np.tile([[0.2, 0.2]], (12, 1))
    assert alarms(detector, x, np.full(12, 4.0), 7.1), "the next cells on the way are witnesses"


def test_a_sample_that_fits_weighs_one_and_another_as_under_a_student_t():
    assert student_weight(0.0) == student_weight(25.0) == 1.0
    assert student_weight(26.0) == pytest.approx(5.0 / 30.0)
    assert student_weight(5.0, gate=4.0, nu=3.0) == pytest.approx(4.0 / 8.0)
