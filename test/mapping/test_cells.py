"""Cells along a pass: how long, how old, what is left out of them."""

import copy

import numpy as np
import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.cells import CellAverager, RawRows, anscombe
from gp_mapping.mapping.raw_batch import join_raw


def cells_of(x, y, stamp, length=0.1, duration=1.0, sensor=None, averager=None, flush=True):
    averager = averager or CellAverager(length, duration)
    out = [averager.add(list(a), list(b), float(t), sensor) for a, b, t in zip(x, y, stamp)]
    out = [c for c in out if c is not None]
    last = averager.flush() if flush else None
    return averager, out + ([last] if last is not None else [])


def straight(n=500, speed=0.2, rate=50.0, start=1.5e9, noise=0.16, seed=0):
    stamp = start + np.arange(n) / rate
    x = np.stack([speed * np.arange(n) / rate, np.zeros(n)], 1)
    y = 48 + 3 * x[:, :1] + np.random.default_rng(seed).normal(0, noise, (n, 1))
    return x, y, stamp


@pytest.mark.parametrize("speed, expected", [(0.2, "length"), (0.02, "duration"), (5.0, "single")])
def test_cells_are_at_most_so_long_and_so_old(speed, expected):
    x, y, stamp = straight(speed=speed)
    _, cells = cells_of(x, y, stamp)
    count = np.array([float(c.count) for c in cells])
    assert count.sum() == 500, "a sample lost, or twice"
    starts = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(int)
    for cell, i, n in zip(cells, starts, count.astype(int)):
        part = slice(i, i + n)
        assert np.allclose(cell.x, x[part].mean(0), rtol=0, atol=1e-9)
        assert np.allclose(cell.y, y[part].mean(0), rtol=0, atol=1e-9)
        assert abs(float(cell.stamp) - stamp[part].mean()) < 1e-6
        assert (
            np.linalg.norm(x[part][-1] - x[i]) <= 0.1 * (1 + 1e-5)
            and stamp[part][-1] - stamp[i] <= 1.0 + 1e-5
        )
    middle = count[1:-1]
    if expected == "length":
        assert (middle >= 25).all() and (middle <= 27).all()  # 0.1 m at 4 mm a sample, both ends in
    elif expected == "duration":
        assert (middle >= 50).all() and (middle <= 52).all()
    else:
        assert (count <= 2).all()


def test_velocity_of_a_cell():
    x, y, stamp = straight()
    _, cells = cells_of(x, y, stamp)
    for cell in cells[:-1]:
        assert np.allclose(cell.velocity, [[0.2, 0.0]], atol=1e-6)


def test_the_extent_of_a_cell():
    """How far its samples lie from its middle along the way: of n a step apart, step √((n² − 1)/12)."""
    x, y, stamp = straight()
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    for places in (x, 5.0 + x @ turn.T):
        _, cells = cells_of(places, y, stamp)
        for cell in cells[:-1]:
            expected = 0.004 * np.sqrt((float(cell.count) ** 2 - 1) / 12)
            assert float(cell.extent) == pytest.approx(expected, rel=1e-6)
    _, cells = cells_of(x[::30], y[::30], stamp[::30])
    assert all(float(cell.extent) == 0.0 for cell in cells if float(cell.count) == 1)
    _, (standing,) = cells_of(x[:1].repeat(20, 0), y[:20], stamp[:20])
    assert float(standing.extent) == 0.0


@pytest.mark.parametrize("glitch", [None, 40])
def test_velocity_of_a_sensor_that_is_slower_than_cells(glitch):
    """One sample a cell: how the robot goes is known from the samples beside it, also beside a glitch of the pose."""
    stamp = 100.0 + np.arange(100.0)
    x = np.stack([0.8 * np.arange(100.0), np.zeros(100)], 1)
    if glitch is not None:
        x[glitch, 1] = 500.0
    averager, cells = cells_of(x, np.ones((100, 1)), stamp)
    assert len(cells) == 100
    for i, cell in enumerate(cells):
        if i != glitch:
            assert np.allclose(cell.velocity, [[0.8, 0.0]]), i
    averager.begin_pass()
    _, cells = cells_of([[900.0, 0.0]], [[1.0]], [200.0], averager=averager)
    assert float(cells[-1].velocity.norm()) == 0.0, (
        "in a new pass nothing is known of how it came there"
    )


def test_two_samples_of_one_moment_tell_no_velocity():
    """The second of two with one stamp: what is known is the way to the next."""
    x = [[0.0, 0.0], [0.8, 0.0], [1.6, 0.0]]
    _, cells = cells_of(x, np.ones((3, 1)), [5.0, 5.0, 6.0])
    assert [cell.velocity.tolist() for cell in cells] == [[[0.0, 0.0]], [[0.8, 0.0]], [[0.8, 0.0]]]


def test_velocity_of_a_sensor_that_is_slower_than_cells_resumes():
    stamp, x = np.arange(20.0), np.stack([np.arange(20.0), np.zeros(20)], 1)
    first, early = cells_of(x[:10], np.ones((10, 1)), stamp[:10], flush=False)
    second = CellAverager(0.1, 1.0)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    _, late = cells_of(x[10:], np.ones((10, 1)), stamp[10:], averager=second)
    assert all(np.allclose(cell.velocity, [[1.0, 0.0]]) for cell in [*early, *late])


def test_a_standing_robot_says_one_thing():
    """Up to ten durations in one cell, since nothing new is seen; pose noise of a millimetre is no movement."""
    rng = np.random.default_rng(0)
    stamp = 100 + np.arange(2000) / 50.0  # 40 s
    x = np.array([[3.0, 4.0]]) + rng.normal(0, 0.001, (2000, 2))
    _, cells = cells_of(x, 48 + rng.normal(0, 0.2, (2000, 1)), stamp)
    assert 4 <= len(cells) <= 5
    assert sum(float(c.count) for c in cells) == pytest.approx(2000, rel=0.02)


def test_standing_then_driving_does_not_smear():
    stand, drive = np.zeros((250, 2)), straight(250)[0] + [0.004, 0]
    x = np.concatenate([stand, drive])
    _, cells = cells_of(x, x[:, :1], np.arange(500) / 50.0)
    for cell in cells[2:]:
        assert float(cell.count) <= 27


def test_a_gap_in_time_closes_the_cell_and_so_does_time_that_goes_back():
    x, y, stamp = straight(40)
    stamp[15:] += 5.0
    _, cells = cells_of(x, y, stamp)
    assert [int(c.count) for c in cells] == [15, 25]
    x, y, stamp = straight(40)
    stamp[20:] -= 3.0
    _, cells = cells_of(x, y, stamp)
    assert [int(c.count) for c in cells] == [20, 20]


def test_white_variance_is_found_from_differences():
    """The field's slope and the slow error between passes are in it only a little."""
    x, y, stamp = straight(5000, noise=0.3)
    drift = np.cumsum(np.random.default_rng(1).normal(0, 0.02, (5000, 1)), 0)
    averager, cells = cells_of(x, y + drift, stamp)
    assert averager.white_variance == pytest.approx(0.09, rel=0.1)
    assert float(cells[-1].sensor_variance) == pytest.approx(averager.white_variance, rel=0.05)
    assert float(cells[0].sensor_variance) >= 0.0
    assert CellAverager(0.1, 1.0).white_variance == 0.0
    # what the sensor says of itself is believed
    _, told = cells_of(x, y, stamp, sensor=0.5)
    assert all(float(c.sensor_variance) == 0.5 for c in told)


def test_samples_that_state_no_variance_say_nothing_of_it():
    """One message decides neither for the others of its cell nor for other cells."""
    x, y, stamp = straight(600, noise=0.3)
    rows = list(zip(x.tolist(), y.tolist(), stamp.tolist()))

    def cells(stated) -> tuple[CellAverager, list[float]]:
        averager = CellAverager(0.1, 1.0)
        closed = [averager.add(*row, stated(i)) for i, row in enumerate(rows)]
        return averager, [float(cell.sensor_variance) for cell in closed if cell is not None]

    never, zero = cells(lambda i: None), cells(lambda i: 0.0)
    assert zero[1] == never[1] and zero[0].single_variance == never[0].single_variance
    few = cells(lambda i: 1e-9 if i % 50 == 0 else 0.0)
    assert few[1] == pytest.approx(never[1], rel=1e-12)
    assert few[0].single_variance == pytest.approx(0.09, rel=0.2)
    assert cells(lambda i: 0.5 if i % 3 else 0.0)[1] == [0.5] * len(never[1])


def test_a_gross_error_is_left_out_of_its_cell():
    x, y, stamp = straight(300)
    y[100] += 500.0
    averager, cells = cells_of(x, y, stamp)
    assert max(float(c.y) for c in cells) < 60 and averager.gross == 1
    averager, cells = cells_of(x, y, stamp, averager=CellAverager(0.1, 1.0, robust=False))
    assert max(float(c.y) for c in cells) > 60 and averager.gross == 0


@pytest.mark.parametrize("away, gross", [(8.0, 0), (10.0, 1)])
def test_a_gross_error_is_six_robust_standard_deviations_away(away, gross):
    """While no white noise is known: of a cell whose median distance is 1, 6 × 1.4826 = 8.9."""
    y = np.array([0.0, 1.0, -1.0, 1.0, -1.0, 0.0, 1.0, -1.0, away])
    averager, _ = cells_of(np.zeros((9, 2)), 100.0 + y[:, None], np.arange(9) / 50.0)
    assert averager.gross == gross


def test_the_next_number_of_a_sensor_that_rounds_is_no_gross_error():
    """A number that is the same nearly always has no spread; two steps away is one."""
    x, y, stamp = straight(noise=0.0)
    y = np.full_like(y, 20.0)
    y[7::40] = 21.0
    averager, cells = cells_of(x, y, stamp)
    assert averager.gross == 0 and averager.resolution == 1.0
    y[27::40] = 23.0
    assert cells_of(x, y, stamp)[0].gross == len(y[27::40])


def test_a_cell_reaches_as_far_as_it_is_long():
    """A sample at exactly that distance is in it, wherever the origin lies."""
    for origin in np.random.default_rng(0).uniform(-1e3, 1e3, 20):
        x = np.stack([origin + np.array([0.0, 0.05, 0.1, 0.15]), np.zeros(4)], 1)
        _, cells = cells_of(x, np.ones((4, 1)), 0.1 * np.arange(4.0), duration=10.0)
        assert [cell.count.item() for cell in cells] == [3.0, 1.0]


def test_a_field_that_really_changes_is_no_gross_error():
    x, y, stamp = straight(500, noise=0.05)
    averager, _ = cells_of(x, y + 20 * np.tanh((x[:, :1] - 1) / 0.03), stamp)
    assert averager.gross < 15


def test_coordinates_far_away_and_epoch_stamps_keep_their_digits():
    x, y, stamp = straight(100)
    _, near = cells_of(x, y, stamp - 1.5e9)
    _, far = cells_of(x + 1e6, y, stamp)
    assert [float(c.count) for c in near] == [float(c.count) for c in far]
    for a, b in zip(near, far):
        assert np.allclose(b.x - 1e6, a.x, rtol=0, atol=1e-9) and np.allclose(b.y, a.y, rtol=1e-12)
        assert abs(float(b.stamp) - 1.5e9 - float(a.stamp)) < 1e-6


def test_cells_resume():
    x, y, stamp = straight(1000)
    straight_through, cells = cells_of(x, y, stamp, flush=False)
    first, early = cells_of(x[:333], y[:333], stamp[:333], flush=False)
    state, second = copy.deepcopy(first.state_dict()), CellAverager(0.1, 1.0)
    second.load_state_dict(state)
    kept = copy.deepcopy(state)
    _, late = cells_of(x[333:], y[333:], stamp[333:], averager=second, flush=False)
    assert len(cells) == len(early + late)
    for a, b in zip(cells, early + late):
        assert (
            torch.equal(a.x, b.x)
            and torch.equal(a.y, b.y)
            and torch.equal(a.sensor_variance, b.sensor_variance)
        )
    assert second.state_dict() == straight_through.state_dict() and state == kept
    assert CellAverager(0.1, 1.0).flush() is None


def test_a_small_spike_on_a_slope_is_left_out():
    """5 µT on a field that rises by 6 µT along every cell: found beside its neighbours, not against the cell."""
    rng = np.random.default_rng(4)
    averager, n = CellAverager(0.1, 1.0), 2000
    hit = rng.random(n) < 0.05
    truth = 48 + 60 * 0.0036 * np.arange(n)
    y = truth + rng.normal(0, 0.16, n) + 5.0 * hit * rng.choice([-1, 1], n)
    cells = [
        c for i in range(n) if (c := averager.add([0.0036 * i, 0.0], [y[i]], 0.02 * i)) is not None
    ]
    error = np.array([float(c.y) - 48 - 60 * float(c.x[0, 0]) for c in cells])
    assert 0.9 * hit.sum() < averager.gross < 1.2 * hit.sum()
    assert np.sqrt((error**2).mean()) < 0.12 and averager.white_variance < 3 * 0.16**2


# ---- cells of a few samples ------------------------------------------------------------------------------------------


def few(n=2000, a_cell=4, noise=0.02, seed=5, away=None):
    """So many samples in each cell of .1 m, of a field that rises and falls; `away`: fraction of spikes up to 15."""
    rng = np.random.default_rng(seed)
    x = np.stack([0.1 / a_cell * np.arange(n), np.zeros(n)], 1)
    hit = rng.random(n) < (away or 0.0)
    spikes = np.where(hit, rng.uniform(-15, 15, n), rng.normal(0, noise, n))
    y = 0.1 * np.sin(x[:, :1]) + spikes[:, None]
    return x, y, 0.1 * np.arange(n), int(hit.sum())


@pytest.mark.parametrize("a_cell", [2, 3, 4])
def test_spikes_are_seen_among_few_samples(a_cell):
    """By the cells before; each made the white noise a fifth larger than it was, for ever: ten times in a drive."""
    x, y, stamp, spikes = few(a_cell=a_cell, away=0.03)
    averager, cells = cells_of(x, y, stamp, length=0.0999)
    error = np.array([float(c.y) - 0.1 * np.sin(float(c.x[0, 0])) for c in cells[3:]])
    assert abs(averager.gross - spikes) < 0.15 * spikes
    assert averager.white_variance == pytest.approx(0.02**2, rel=0.4)
    assert (np.abs(error) > 0.2).mean() < 0.005
    clean, _ = cells_of(*few(a_cell=a_cell)[:3], length=0.0999)
    assert clean.gross <= 2


def test_noise_that_grows_for_good_becomes_usual_among_few_samples():
    quiet, loud = few(1000, noise=0.02), few(1000, noise=0.4, seed=6)
    y, stamp = np.concatenate([quiet[1], loud[1]]), 0.1 * np.arange(2000)
    x = np.stack([0.025 * np.arange(2000), np.zeros(2000)], 1)
    averager, _ = cells_of(x, y, stamp, length=0.0999)
    assert averager.white_variance > 0.3 * 0.4**2 and averager.gross < 60


@pytest.mark.parametrize("a_cell", [2, 3, 4])
def test_an_edge_of_the_field_is_seen_with_few_samples(a_cell):
    x, y, stamp, _ = few(400, a_cell)
    averager, cells = cells_of(x, y + 3.0 * (x[:, :1] > 5.0), stamp, length=0.0999)
    beyond = [c for c in cells if float(c.x[0, 0]) > 5.2]
    assert averager.gross <= 3
    assert all(abs(float(c.y) - 3.0 - 0.1 * np.sin(float(c.x[0, 0]))) < 0.1 for c in beyond)


@pytest.mark.parametrize("a_cell", [2, 4, 12])
def test_a_slope_is_no_noise_and_no_error(a_cell):
    """A field that changes from sample to sample by three times the noise and more, and turns round: a saw."""
    n, rng = 3000, np.random.default_rng(7)
    x = np.stack([0.1 / a_cell * np.arange(n), np.zeros(n)], 1)
    slope = 0.2 * a_cell / 0.1 * np.where(np.arange(n) % (100 * a_cell) < 50 * a_cell, 1.0, -1.0)
    truth = np.cumsum(slope * 0.1 / a_cell)
    stamp = 0.1 * np.arange(n) + rng.uniform(-0.001, 0.001, n)
    y = truth + rng.normal(0.0, 0.05, n)
    averager, _ = cells_of(x, y[:, None], stamp, length=0.0999)
    assert averager.white_variance == pytest.approx(0.05**2, rel=0.35)
    assert averager.gross <= 2


# ---- what a driver states of its own noise ---------------------------------------------------------------------------


def _stating(
    variance: dict[int, float],
    position: dict[int, float] | None = None,
    n: int = 600,
    usual: float = 1e-2,
):
    """Cells of a drive whose samples state `usual` but for some, and are placed to .01 m² but for some."""
    averager, (x, y, stamp) = CellAverager(0.1, 1.0), straight(n)
    out = [
        averager.add(
            list(a), list(b), float(t), variance.get(i, usual), None, (position or {}).get(i, 0.01)
        )
        for i, (a, b, t) in enumerate(zip(x, y, stamp))
    ]
    return averager, [cell for cell in [*out, averager.flush()] if cell is not None]


@pytest.mark.parametrize("absurd", [1e4, 1e100, 1e-200])
@pytest.mark.parametrize(
    "where", [range(0, 600, 50), range(3), (299,)], ids=["each cell", "the first", "one"]
)
def test_an_absurd_variance_is_not_that_of_its_cell_nor_of_the_sensor(absurd, where):
    """A finite one that no bound refuses: what the others of its cell say counts as before."""
    averager, told = _stating(dict.fromkeys(where, absurd))
    usual, plain = _stating({})
    assert len(told) == len(plain)
    for a, b in zip(told, plain):
        assert 0.7 < float(a.sensor_variance) / float(b.sensor_variance) < 1.3
        assert abs(float(a.y) - float(b.y)) < 0.1 and float(a.count) >= float(b.count) - 3
    assert 0.8 < averager.averaged_variance / usual.averaged_variance < 1.25
    assert averager.gross == (len(list(where)) if absurd > 1 else 0), "left out, and counted"


def test_a_pose_that_knows_nothing_does_not_take_its_cell_along():
    _, told = _stating({}, dict.fromkeys(range(5, 600, 50), 9e7))
    assert max(float(cell.position_variance) for cell in told) < 0.02


def test_a_cell_of_nothing_but_an_absurd_variance_is_not_the_sensors_noise():
    """A slow sensor: each cell is one sample, and says itself that it knows nothing."""
    averager = CellAverager(0.1, 1.0)
    cells = [
        averager.add([0.5 * i, 0.0], [48.0], float(i), 1e4 if i % 40 == 0 else 1e-2)
        for i in range(200)
    ]
    assert float(cells[41].sensor_variance) == 1e4 and float(cells[42].sensor_variance) == 1e-2
    assert averager.single_variance < 0.05


def test_a_driver_that_states_more_from_now_on_is_believed():
    averager = CellAverager(0.1, 1.0)
    for i in range(300):
        averager.add([0.5 * i, 0.0], [48.0], float(i), 1e-2 if i < 100 else 4.0)
    assert averager.single_variance > 2.0
    again = CellAverager(0.1, 1.0)
    again.load_state_dict(copy.deepcopy(averager.state_dict()))
    assert again.state_dict() == averager.state_dict()


@pytest.mark.parametrize("rate", [50.0, 1.0])
def test_velocity_of_raw_samples_is_that_of_their_own_lane(rate):
    """Without cells: 25 samples up one lane and down the next, and a glitch of the pose in one of them."""
    there = np.minimum(np.arange(25.0), 24.0 - np.arange(25.0)) / rate
    x = torch.tensor(np.stack([there, 0.0 * there], 1))
    raw = [Samples(x[i : i + 1], [[1.0]], stamp=[100.0 + i / rate]) for i in range(25)]
    velocity = join_raw(raw).velocity
    far = 1 if rate == 1.0 else 12
    assert torch.allclose(velocity[: 13 - far, 0], torch.ones(1, dtype=torch.float64))
    assert torch.allclose(velocity[12 + far :, 0], -torch.ones(1, dtype=torch.float64))
    if rate == 1.0:
        raw[6] = Samples(x[6:7] + 500.0, [[1.0]], stamp=[106.0])
        assert float(join_raw(raw).velocity[[0, 3, 5, 7, 9]].norm(dim=1).max()) < 1.1
    assert float(join_raw(raw[:1]).velocity.norm()) == 0.0


def test_cells_of_a_sensor_that_rounds_err_together():
    """Samples of one number, and cells of one number in a row, are no more sure than one of them."""
    cells = CellAverager(0.1, 1.0)
    noisy = CellAverager(0.1, 1.0)
    rng = np.random.default_rng(0)
    made, mixed = [], []
    for k in range(600):
        x, t = [0.01 * k, 0.0], 0.02 * k
        value = 20.0 + 0.01 * k  # half a degree to the next number takes five metres
        for averager, out, noise in ((cells, made, 0.0), (noisy, mixed, rng.normal(0.0, 0.5))):
            closed = averager.add(x, [float(np.round(2.0 * (value + noise)) / 2.0)], t)
            out += [] if closed is None else [closed]
    extra = [float(cell.sensor_variance / cell.count) for cell in made[20:]]
    assert max(extra) > 3 * 0.5**2 / 12.0 and min(extra) < 1e-3
    # where noise moves the number, its average is no rounded number any more
    assert max(float(c.sensor_variance / c.count) for c in mixed[20:]) < 0.06


def test_the_transform_of_counts_has_a_standard_deviation_of_one():
    assert anscombe(0.625) == 2.0 and anscombe([0.625, 1.875]).tolist() == [2.0, 3.0]
    counts = np.random.default_rng(0).poisson(30.0, 20_000)
    assert anscombe(counts).std() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("part", [7, 100, 600])
def test_a_full_cell_is_the_same_however_its_rows_come(part):
    """More rows than are kept: every second one is dropped, alike for one by one and many at once."""
    n = 1500
    x, y, stamp = np.zeros((n, 2)), np.random.default_rng(0).normal(48.0, 0.2, (n, 1)), np.arange(n)
    rows = RawRows(x.tolist(), y.tolist(), stamp.tolist(), *3 * [[None] * n])
    cells = []
    for step in (1, part):
        averager = CellAverager(0.1, 1e9)
        for start in range(0, n, step):
            averager.add_rows(rows, start, min(start + step, n), 0.0)
        cells.append(averager.flush())
    one, many = cells
    for name in ("x", "y", "stamp", "count"):
        assert torch.equal(getattr(one, name), getattr(many, name)), name


def test_cells_of_two_samples_tell_the_white_noise_with_those_before():
    """Which differ by the field's slope, too: by a half more than noise alone."""
    averager, cells = cells_of(*straight(n=400, speed=2.0, rate=25.0))
    assert 0.9 < np.mean([float(c.count) == 2.0 for c in cells])
    assert averager.white_variance == pytest.approx(0.16**2, rel=0.3)


# ---- gross errors on a steep field, whatever the number of samples in a cell --------------------


def _steep(a_cell, size, share=0.05, n=500):
    """A field of fifty standard deviations of the noise; which are off by ± `size` of them."""
    rng = np.random.default_rng(11)
    along = 0.1 / a_cell * np.arange(n)
    truth = 300.0 + 50.0 * np.sin(along / 0.6) + 25.0 * np.sin(along / 0.35)
    hit = rng.random(n) < share
    y = truth + rng.normal(0.0, 1.0, n) + size * hit * rng.choice([-1.0, 1.0], n)
    return np.stack([along, np.zeros(n)], 1), y[:, None], 0.04 * np.arange(n), truth, hit


@pytest.mark.parametrize("share", [0.05, 0.1])
@pytest.mark.parametrize("a_cell", [1, 2, 3, 6, 12])
def test_gross_errors_are_left_out_of_cells_of_any_number_of_samples(a_cell, share):
    """A cell of one may be left out as a whole; cells are that short once a map has shortened them."""
    x, y, stamp, truth, hit = _steep(max(a_cell, 2), 50.0, share)
    averager = CellAverager(0.0999, 1e9)
    averager.length = 0.02 if a_cell == 1 else averager.length
    averager, cells = cells_of(x, y, stamp, averager=averager)
    assert 0.9 * hit.sum() <= averager.gross <= 1.02 * hit.sum() + 2
    at = np.array([float(c.x[0, 0]) for c in cells[10:]])
    error = np.array([float(c.y) for c in cells[10:]]) - np.interp(at, x[:, 0], truth)
    assert (np.abs(error) > 6.0).mean() <= 0.02


def test_what_the_next_sample_alone_speaks_for_is_in_one_cell_with_it():
    """Two alike at the end of a cell and the beginning of the next: an edge, or a pair of errors."""
    x, y, stamp, truth, _ = _steep(3, 0.0, n=300)
    clean, cells = cells_of(x, y, stamp, length=0.0999)
    assert {float(c.count) for c in cells[:-1]} == {3.0} and clean.gross == 0
    pair, edge = y.copy(), y.copy()
    pair[200:202] += 60.0
    edge[200:] += 60.0
    averager, cells = cells_of(x, pair, stamp, length=0.0999)
    assert averager.gross == 2 and sum(float(c.count) for c in cells) == 298
    averager, cells = cells_of(x, edge, stamp, length=0.0999)
    assert averager.gross == 0 and sum(float(c.count) for c in cells) == 300
    # no cell has samples of both sides of it
    truth = truth + 60.0 * (np.arange(300) >= 200)
    inside = [abs(float(c.y) - np.interp(float(c.x[0, 0]), x[:, 0], truth)) < 9.0 for c in cells]
    assert all(inside)


def test_all_that_hangs_on_the_next_sample_waits_for_it():
    """Errors that are alike, three of four: the good one between them is none, as later ones tell."""
    x, y, stamp = straight(n=80, speed=0.45, rate=25.0)
    off = y.copy()
    off[[60, 61, 63]] -= 50.0
    for first in range(8):
        clean, _ = cells_of(x[first:], y[first:], stamp[first:])
        averager, cells = cells_of(x[first:], off[first:], stamp[first:])
        assert averager.gross == 3 + clean.gross
        assert min(float(c.y) for c in cells) > 47.0


def test_the_first_cell_is_asked_by_what_it_tells_itself():
    """An edge before its last sample, while nothing else tells the noise: both sides are kept apart."""
    x, y, stamp, *_ = _steep(13, 0.0, n=60)
    y[12:] += 200.0
    averager, cells = cells_of(x, y, stamp, length=0.0999)
    assert [float(c.count) for c in cells[:2]] == [12.0, 13.0] and averager.gross == 0


def test_noise_of_readings_interpolated_to_a_higher_rate_is_no_gross_error():
    """Most of these lie between two others, and the median of the squares is far below the noise."""
    x, y, stamp = straight(n=3000)
    y = np.interp(0.6 * np.arange(3000.0), np.arange(3000.0), y[:, 0])[:, None]
    averager, _ = cells_of(x, y, stamp)
    assert averager.gross <= 1


def test_a_cell_that_waits_for_a_sample_resumes():
    x, y, stamp, *_ = _steep(2, 50.0, 0.15, n=120)
    for length in (0.0999, 0.02):
        whole = CellAverager(0.0999, 1e9)
        whole.length = length
        _, cells = cells_of(x, y, stamp, averager=whole, flush=False)
        parts, made = whole, []
        for k in range(120):
            state = {} if k == 0 else copy.deepcopy(parts.state_dict())
            parts = CellAverager(0.0999, 1e9)
            parts.length = length
            if state:
                parts.load_state_dict(state)
            made += cells_of(
                x[k : k + 1], y[k : k + 1], stamp[k : k + 1], averager=parts, flush=False
            )[1]
        assert [c.y.item() for c in made] == [c.y.item() for c in cells]
        assert parts.state_dict() == whole.state_dict()
