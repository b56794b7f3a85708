"""When starts are found anew from the first cells, and from which (gp_mapping.mapping.beginning.start)."""

import pytest
import torch

from gp_mapping.core.hyper.first_guess import first_guess
from gp_mapping.core.types import Samples
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
            guess = first_guess(X[: i + step], Y[: i + step], "matern52", MapSettings().field_scale)
            assert settings.lengthscale == pytest.approx(guess.lengthscale)
            assert settings.signal_stddev == 7e-6, "that was given"
            assert sum(map(len, start.cells)) == i + step
            assert start.was_guess == (i + step <= 32)
    assert settings is not None


def test_where_all_is_given_or_it_is_closed_nothing_is_looked_for():
    given = MapSettings(lengthscale=0.5, signal_stddev=1e-5, noise_stddev=1e-6)
    for start in (Start(given), Start(MapSettings())):
        start.close()
        assert not start.set_first_cells(CELLS[:9]) and not start.add(CELLS[9:40])
        assert start.cells == []
