"""The noise of samples that are alone in their cells: its value, the field's share, an edge; and the map's floor.

Of gp_mapping.mapping.scoring.neighbouring_cells.
"""

import math

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.cells import CellAverager
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.scoring.neighbouring_cells import NeighbouringCells
from gp_mapping.mapping.scoring.white_noise import white_noise
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.sensors import map_settings_for

NOISE = 0.01
# a mean of n squares that overlap has the variance 35/9 σ⁴/n; three of its roots are what chance does
THREE = 3.0 * math.sqrt(35.0 / 9.0)


def way(count: int, step: float, lane: float = 20.0) -> np.ndarray:
    """(N, 2) m, up and down."""
    along = step * np.arange(count)
    turn, on = along // lane, along % lane
    return np.stack([np.where(turn % 2 == 0, on, lane - on), 2.0 * turn], 1)


def waves(x: np.ndarray, length: float, seed: int) -> np.ndarray:
    """(N,) of a draw with an RBF kernel, variance 1."""
    rng = np.random.default_rng(seed)
    w, phase = rng.standard_normal((400, 2)) / length, rng.uniform(0, 2 * np.pi, 400)
    return np.cos(x @ w.T + phase).sum(1) / math.sqrt(200)


def told(x, y, passes=0, of=None) -> NeighbouringCells:
    """What the cells tell."""
    cells = NeighbouringCells() if of is None else of
    for place, value in zip(x, y):
        cells.add(Samples(place[None], np.atleast_2d(value), count=[1.0]), passes)
    return cells


def rows(cells: NeighbouringCells) -> torch.Tensor:
    """(n, 10) what is kept."""
    return cells.state_dict()["rows"]


def noisy(f: np.ndarray, seed: int) -> np.ndarray:
    return f + NOISE * np.random.default_rng(seed + 100).standard_normal(f.shape)


def test_the_noise_is_told_whatever_the_slope():
    """Of even and uneven steps, a scalar and three components; less its own standard deviation."""
    rng = np.random.default_rng(0)
    for components, step in ((1, 0.3), (3, rng.uniform(0.1, 0.5, 600))):
        x = np.stack([np.cumsum(np.broadcast_to(step, 600)), np.zeros(600)], 1)
        cells = told(x, noisy(np.repeat(5.0 * x[:, :1], components, 1), 1))
        cells.find("matern52", 20.0, 1e-6)
        assert cells.count == pytest.approx(596, rel=0.01)
        least = 1.0 - math.sqrt(35.0 / 9.0 / cells.count)
        assert cells.variance == pytest.approx(
            least * NOISE**2, rel=THREE / math.sqrt(components * 596)
        )


def test_what_is_told_is_the_mean_square_less_its_own_standard_deviation():
    """Of noise alone on even steps: a mean of n squares e² that overlap varies by 35/9 σ⁴/n, as drawn here."""
    white = np.random.default_rng(0).standard_normal((2000, 102))
    e = white[:, 1:-1] - 0.5 * (white[:, :-2] + white[:, 2:])
    varies = 100 * (e**2 / 1.5).mean(1).var()
    assert varies == pytest.approx(35.0 / 9.0, rel=0.1)

    alike = 0
    for seed in range(4):
        cells = told(way(304, 0.3), noisy(np.zeros(304), seed))
        cells.find("matern52", 50.0, 1e-6)
        mean, n = float(rows(cells)[:, 0].mean()), cells.count
        less = mean * (1.0 - math.sqrt(varies / n))
        assert cells.variance < 1.01 * less  # and less, where what is two apart differs by more
        alike += abs(cells.variance / less - 1.0) < 0.01
    assert alike > 0


def test_what_the_field_changes_is_no_noise():
    """Half a metre apart, second differences hold a third as much of a field of 1.6 m as noise; it is taken off."""
    x = way(800, 0.5)
    for seed in range(3):
        cells = told(x, noisy(0.08 * waves(x, 1.6, seed), seed))
        cells.find("rbf", 1.6, 0.08**2)
        with_share = cells.variance
        assert with_share <= 1.1 * NOISE**2
        assert cells.count > 400 and with_share > 0.5 * NOISE**2
        # a kernel that is rougher than the field claims more than there is: the noise is too small
        cells.find("matern32", 3.0, 0.08**2)
        assert cells.variance < with_share


@pytest.mark.parametrize("seed", range(1, 4))
def test_rough_ground_and_edges_are_no_noise(seed):
    """Hyper-parameters of a smooth field, and more: waves of 0.6 m; in half of it edges each three metres, errors."""
    x, rng = way(900, 0.25), np.random.default_rng(seed)
    here = x[:, 1] > 11.0
    more = {
        "rough": 0.08 * waves(x, 0.6, seed),
        "edges": here * 0.05 * (np.cumsum(rng.random(len(x)) < 0.08) % 2),
        "errors": here * 0.3 * (rng.random(len(x)) < 0.01),
    }
    smooth = 0.08 * waves(x, 5.0, seed + 10)
    for name, added in more.items():
        cells = told(x, noisy(smooth + added, seed))
        cells.find("matern52", 8.0, 0.1**2)
        # of smooth ground beyond the kernel 16 times as much is seen at twice the step: nothing is sure then
        least = 0.0 if name == "rough" else 0.6
        assert least * NOISE**2 <= cells.variance < 1.15 * NOISE**2, name


def test_series_end_with_a_pass_and_with_a_cell_of_several_samples():
    cells, x = NeighbouringCells(), way(4, 0.3)
    for passes in range(30):
        told(x, np.zeros(4), passes, cells)
    assert not cells.is_due and not len(rows(cells))
    for _ in range(30):
        told(x, np.zeros(4), 31, cells)
        cells.add(Samples(x[:1], [[0.0]], count=[2.0]), 31)
    assert not len(rows(cells))
    cells.find("matern52", 1.0, 1.0)  # nothing is there
    assert cells.variance == 0.0
    told(way(40, 0.3), np.zeros(40), 32, cells)  # one number over and over
    assert cells.is_due
    cells.find("matern52", 1.0, 1.0)
    assert cells.variance == 0.0 and not cells.is_due


def test_memory_is_bounded_and_a_state_goes_on():
    x = way(1300, 0.3)
    y = noisy(np.zeros(1300), 7)
    whole, half = told(x, y), told(x[:700], y[:700])
    again = NeighbouringCells()
    again.load_state_dict(half.state_dict())
    told(x[700:], y[700:], 0, again)
    for cells in (whole, again):
        cells.find("matern52", 5.0, 1.0)
    assert len(rows(again)) == 1000 and again.variance == whole.variance > 0.0


def test_joined_both_count():
    quiet, loud = (told(way(904, 0.3), s * noisy(np.zeros(904), 8)) for s in (1.0, 2.0))
    loud.join(quiet)
    assert len(rows(loud)) == 1000 and loud.is_due
    squares = rows(loud)[:, 0].numpy()
    assert np.mean(squares[:500]) > 3.0 * np.mean(squares[500:])
    few = told(way(34, 0.3), noisy(np.zeros(34), 9))
    few.join(told(way(24, 0.3), noisy(np.zeros(24), 9)))
    assert len(rows(few)) == 50


def test_mates_and_neighbours_count_by_what_they_know():
    cells = told(way(604, 0.3), noisy(np.zeros(604), 1))
    assert cells.with_mates(0.0, 0.0, 0.0) == (0.0, 0.0)
    cells.find("matern52", 50.0, 1e-6)
    v = cells.variance
    assert cells.with_mates(0.0, 0.0, 3.0) == (v, v)
    assert cells.with_mates(4.0, 1.0, math.inf) == (4.0, 1.0)  # the sensor states it
    single, averaged = cells.with_mates(4.0, 1.0, cells.count)
    assert single == pytest.approx(2.0 + v / 2) and averaged == pytest.approx(single / 4)


def test_of_a_slow_sensor_the_noise_grows_as_its_answers_do():
    """(1 + a²)/(1 − a)² of what is told, for blocks of one cell."""
    settings = map_settings_for("temperature", MapSettings(response_time=4.0))
    response, averager = Response(settings), CellAverager(0.1, 1.0)
    cells = told(way(604, 0.3), noisy(np.zeros(604), 1))
    cells.find("matern52", 50.0, 1e-6)
    for k, place in enumerate(way(60, 0.3)):
        response.add(Samples(place[None], [[0.0]], count=[1.0], stamp=[1.0 * k]), 0, math.inf)
    a = math.exp(-1.0 / 4.0)
    expected = cells.variance * (1 + a**2) / (1 - a) ** 2
    assert response.white_noise(averager, cells) == pytest.approx((expected, expected))


def test_the_reported_noise_is_no_less_than_what_neighbours_tell():
    """A field of 5 m that is smoother than the kernel, a sample each half metre: without the floor .74 of the noise."""
    x = way(330, 0.5)
    y = 0.45 + 0.08 * waves(x, 5.0, 6) + NOISE * np.random.default_rng(1).standard_normal(len(x))
    starts = {"lengthscale": 5.0, "signal_stddev": 0.08, "noise_stddev": NOISE}
    starts |= {"constant_stddev": 0.24}
    session = MapSession(map_settings_for("relative_humidity", MapSettings(**starts)))
    session.ingest(Samples(x, y[:, None], stamp=1000.0 + torch.arange(len(x), dtype=torch.float64)))
    session.finish()
    floor = session.scores.white_variance
    assert floor == session.neighbours.variance > 0.75 * NOISE**2
    assert 0.88 * NOISE <= math.sqrt(session.noise_variance) <= 1.2 * NOISE
    again = MapSession.from_state_dict(session.state_dict())
    assert again.neighbours.variance == floor and len(rows(again.neighbours)) > 300


def test_of_a_gradient_differences_hold_more_of_the_field():
    """Of a curl-free vector: the component along the way changes five times as much in second differences."""
    x, rng = way(400, 0.5), np.random.default_rng(0)
    w, phase = rng.standard_normal((400, 3)) / 2.5, rng.uniform(0, 2 * np.pi, 400)
    gradient = -2.5 * np.sin(x @ w[:, :2].T + phase) @ w / math.sqrt(200)
    session = MapSession(
        MapSettings(
            model="curl_free",
            kernel="rbf",
            potential="free",
            field_scale=1.0,
            lengthscale=2.5,
            signal_stddev=0.08,
            noise_stddev=NOISE,
            heading_stddev=0.0,
            learn_hyperparameters=False,
            learn_time_offset=False,
            max_inducing=20,
            follow_changes=False,
        )
    )
    y = noisy(0.08 * gradient, 0)
    session.ingest(Samples(x[:12], y[:12], stamp=torch.arange(12, dtype=torch.float64)))
    told(x, y, 2, session.neighbours)
    single, averaged = white_noise(session, session.map)
    assert 0.6 * NOISE**2 < single == averaged <= 1.1 * NOISE**2
    session.neighbours.find("rbf", 2.5, 0.08**2)  # as of a scalar
    assert session.neighbours.variance < 0.4 * NOISE**2
