"""Wild cells before a map can judge: less than twelve standard deviations, so that none waits."""

import math

import numpy as np
import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.beginning.wild import in_runs, weakened
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.world import DipoleWorld, WorldSettings

MICRO = 1e-6
SETTINGS = MapSettings(lengthscale=0.0, signal_stddev=0.0, noise_stddev=0.0)


def cells(seed, wild=(), size=0.0, count=64):
    """Cells of two lanes through a field of 8 µT and 0.8 m, with 0.5 µT of noise."""
    g = torch.Generator().manual_seed(seed)
    along = 0.1 * torch.arange(count, dtype=torch.float64)
    lane = (along >= 0.05 * count).double()
    x = torch.stack([torch.where(lane > 0, 0.1 * count - 0.1 - along, along), 0.3 * lane], 1)
    waves = torch.randn(200, 2, dtype=torch.float64, generator=g) / 0.8
    phase = 2 * math.pi * torch.rand(200, dtype=torch.float64, generator=g)
    y = 48.0 + 0.8 * torch.cos(x @ waves.mT + phase).sum(1)
    y = y + 0.5 * torch.randn(count, dtype=torch.float64, generator=g)
    y[list(wild)] += size
    return [
        Samples(x[i : i + 1], MICRO * y[i : i + 1], count=[1.0], sensor_variance=[0.0])
        for i in range(count)
    ]


def started(batches):
    """Starts of these cells."""
    start = Start(SETTINGS)
    start.set_first_cells(Samples.concatenate(batches[:9]))
    for batch in batches[9:]:
        if start.add(batch):
            start.adopt_found(start.cells)
    return start


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wild", [(20,), (24, 25)])
def test_wild_cells_are_weakened_and_make_no_noise(seed, wild):
    """Six standard deviations of the field; their neighbours stay as they are."""
    clean, start = started(cells(seed)), started(cells(seed, wild, 50.0))
    assert clean.weakened == 0 and start.weakened == len(wild)
    ratio = start.resolved.noise_stddev / clean.resolved.noise_stddev
    assert 0.6 < ratio < 1.7
    joined = Samples.concatenate(start.cells)
    weak = (joined.sensor_variance > (5.0 * MICRO) ** 2).nonzero()[:, 0].tolist()
    assert weak == list(wild)


@pytest.mark.parametrize("seed", range(4))
def test_many_wild_cells_do_not_hide_one_another(seed):
    """One of eight, large and small: the noise that the large ones make is not the field's."""
    wild = [3, 11, 18, 26, 37, 44, 50, 59]
    size = torch.tensor([60.0, -25.0, 50.0, 25.0, -60.0, 30.0, -50.0, 25.0])
    clean, start = started(cells(seed)), started(cells(seed, wild, size))
    joined = Samples.concatenate(start.cells)
    weak = (joined.sensor_variance > (5.0 * MICRO) ** 2).nonzero()[:, 0].tolist()
    assert weak == wild
    assert 0.5 < start.resolved.noise_stddev / clean.resolved.noise_stddev < 2.0


@pytest.mark.parametrize("seed", [2, 7])
def test_narrow_sources_are_the_field(seed):
    """Dipoles .3 m below the sensor: some of their cells are suspect while starts are rough."""
    x = [
        [0.1 * (i if k % 2 == 0 else 39 - i) - 2, 0.4 * k - 2] for k in range(4) for i in range(40)
    ]
    world = DipoleWorld.random(WorldSettings(seed=seed))
    field = np.linalg.norm(world.field(np.array([[*place, 0.0] for place in x])), axis=1)
    field += 0.2e-6 * np.random.default_rng(seed).standard_normal(len(x))
    batches = [
        Samples([place], [[y]], count=[1.0], sensor_variance=[0.0]) for place, y in zip(x, field)
    ]
    assert started(batches).weakened == 0


def test_the_newest_cell_waits_for_others():
    """Nothing has confirmed it yet, and nothing contradicted."""
    assert started(cells(1, (31,), 50.0, 32)).weakened == 0


def test_without_robust_all_count_alike():
    """As the setting says."""
    start = Start(MapSettings(lengthscale=0.0, signal_stddev=0.0, noise_stddev=0.0, robust=False))
    for batch in cells(1, (20,), 50.0, 40):
        start.add(batch)
    assert start.weakened == 0 and all(float(c.sensor_variance) == 0.0 for c in start.cells)


def test_three_wild_cells_in_a_row_are_the_field():
    for marks, kept in (("1101", "0000"), ("0111", "0111"), ("111011", "111000"), ("11", "00")):
        wild = torch.tensor([mark == "1" for mark in marks])
        assert in_runs(wild).tolist() == [mark == "1" for mark in kept]


def test_a_weight_is_the_variance_of_a_sensor_that_is_added():
    """A cell of n samples with a weight of 1/5 is told with n · 4 σ² more."""
    batches = [
        Samples([[0.0, 0.0]], [[1.0]], count=[4.0]),
        Samples([[1.0, 0.0], [2.0, 0.0]], [[1.0], [2.0]]),
        Samples([[3.0, 0.0]], [[1.0]], sensor_variance=[90.0]),
    ]
    out = weakened(batches, torch.tensor([0.2, 1.0, 0.5, 0.2], dtype=torch.float64), 3.0)
    assert out[0].sensor_variance.tolist() == pytest.approx([4 * 9 * 4.0])
    assert out[1].sensor_variance.tolist() == pytest.approx([0.0, 9.0])
    assert out[2].sensor_variance.tolist() == [90.0], "it is known to be worse"
    assert weakened(batches[:1], torch.ones(1).double(), 3.0)[0] is batches[0]


def test_of_a_robot_that_stands_for_long_few_cells_are_asked_at_once(monkeypatch):
    """Wild ones are found among them all the same."""
    plain, asked, wild = torch.linalg.cholesky_ex, [], [50, 300, 440]
    y = 48.0 + 0.5 * torch.randn(520, 1, generator=torch.Generator().manual_seed(0)).double()
    y[wild] += 50.0

    def counted(matrix):
        asked.append(len(matrix))
        return plain(matrix)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", counted)
    still = Samples(
        torch.zeros(520, 2), MICRO * y, count=torch.ones(520), sensor_variance=torch.zeros(520)
    )
    start = started([still[i] for i in range(520)])
    joined = Samples.concatenate(start.cells[:512])
    weak = joined.sensor_variance.nonzero()[:, 0].tolist()
    # one place tells little of the noise: one in a hundred of the others may look wild
    assert set(wild) <= set(weak) and len(weak) < 9 and max(asked) == 256
