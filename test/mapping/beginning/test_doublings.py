"""What the first cells tell: when starts are found anew (gp_mapping.mapping.beginning.start), and a sensor's step."""

import numpy as np
import pytest
import torch

from gp_mapping.core.hyper.first_guess import first_guess
from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning import start as beginning
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.settings.mapping import MapSettings

N = 300
X = torch.stack([0.1 * torch.arange(N), 0.3 * torch.sin(0.02 * torch.arange(N))], 1).double()
Y = 48e-6 + 5e-6 * torch.sin(2.0 * X[:, :1]) + 1e-7 * torch.cos(91.0 * X[:, :1])
CELLS = Samples(X, Y)


def test_each_time_that_their_number_has_doubled_until_there_are_enough():
    start = Start(MapSettings())
    assert start.set_first_cells(CELLS[:9])
    again = [n + 1 for n in range(9, N) if start.add(CELLS[n])]
    assert again == [16, 32, 64, 128]


@pytest.mark.parametrize("step", [1, 5, 23])
def test_they_are_those_of_all_cells_so_far(step):
    start, settings = Start(MapSettings(signal_stddev=7e-6)), None
    start.set_first_cells(CELLS[:9])
    for i in range(9, 60, step):
        if start.add(CELLS[i : i + step]):
            settings, _ = start.found
            n, kernel = i + step, settings.kernel
            assert kernel == "matern52" or n > 32, "of fewer cells it is not told"
            guess = first_guess(X[:n], Y[:n], kernel, MapSettings().field_scale)
            assert settings.lengthscale == pytest.approx(guess.lengthscale)
            assert settings.signal_stddev == 7e-6, "that was given"
            assert sum(map(len, start.cells)) == i + step
            assert start.was_guess == (i + step <= 32)
    assert settings is not None


def test_cells_of_a_robot_that_stands_count_for_less():
    """They know neither lengthscale nor signal; their number is bounded all the same."""
    start, stands = Start(MapSettings()), Samples(X[:1].expand(2000, 2), Y[:1].expand(2000, 1))
    assert start.set_first_cells(stands[:9])
    for n in range(9, 25):
        assert not start.add(stands[n])
    again = [n + 1 for n in range(1, N) if start.add(CELLS[n])]
    assert again == [4, 8, 16, 32, 64, 128]

    start = Start(MapSettings())
    start.set_first_cells(stands[:9])
    again = [n + 1 for n in range(9, 2000) if start.add(stands[n])]
    assert again == [32, 64, 128, 256, 512, 1024]


def test_where_all_is_given_or_it_is_closed_nothing_is_looked_for():
    given = MapSettings(lengthscale=0.5, signal_stddev=1e-5, noise_stddev=1e-6)
    for start in (Start(given), Start(MapSettings())):
        start.close()
        assert not start.set_first_cells(CELLS[:9]) and not start.add(CELLS[9:40])
        assert start.cells == []


def test_the_step_of_a_sensor_is_the_smallest_between_its_raw_values_also_of_two_batches():
    """Means of several samples show none."""

    def step_of(*batches, count=1.0):
        first = FirstValues(MapSettings())
        for values in batches:
            n = len(values)
            first.check_warm_up(
                Samples(
                    torch.zeros(n, 2), torch.tensor(values).double()[:, None], count=[count] * n
                )
            )
        return first.state_dict()["resolution"]

    assert step_of([1.0], [3.0], [3.0]) == step_of([1.0, 3.0]) == 2.0
    assert step_of([1.0, 3.0], [4.5, 9.0]) == 1.5
    assert step_of([1.0, 3.0], [4.0, 4.25]) == 0.25
    assert step_of([5.0]) == step_of([1.0], [3.0], count=4.0) == float("inf")


@pytest.mark.parametrize(
    "settings, told, latent",
    [
        (MapSettings(likelihood="poisson"), [0.0, 3.0, -1.0], np.log([0.5, 3.5, 0.5])),
        (MapSettings(likelihood="softmax", classes=3), [2.0, 1.0, 2.0], [1.0, -1.0, 1.0]),
        (MapSettings(likelihood="bernoulli", threshold=1.5), [1.0, 2.0, 1.5], [-1.0, 1.0, -1.0]),
        (MapSettings(), [0.0, 3.0, -1.0], [0.0, 3.0, -1.0]),
    ],
)
def test_starts_are_guessed_from_what_the_latent_field_would_have(settings, told, latent):
    places = [[0.1 * i, 0.0] for i in range(3)]
    x, y = beginning._values([Samples(places, [[v] for v in told])], settings)  # noqa: SLF001
    assert x.tolist() == places and y.shape == (3, 1)
    assert y[:, 0].tolist() == pytest.approx(list(latent))
