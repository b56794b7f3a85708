"""Which cells a fit takes: all but those that saw a place as it was before it changed."""

import pytest
import torch

from gp_mapping.commands.fit.fitting import unchanged_cells
from gp_mapping.core.types import Samples
from gp_mapping.mapping.scoring.change import Change
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

CELL, REACH, RECENT = 0.1, 0.55, 10  # m, m, cells in score_distance


def kept(sizes: list[int], at: float, stamp: float) -> list[int]:
    """Numbers of the cells that stay, of a straight drive in batches of those sizes.

    at: place of the change along it, m.  stamp: of the change; a cell's is its number.
    """
    n = sum(sizes)
    x = torch.stack([CELL * torch.arange(n).double(), torch.zeros(n, dtype=torch.float64)], 1)
    cells = Samples(x, 4e-5 + 1e-6 * x[:, :1].sin(), stamp=torch.arange(n).double())
    session = MapSession(
        MapSettings(
            lengthscale=REACH,
            learn_hyperparameters=False,
            learn_time_offset=False,
            cell_length=CELL,
            score_distance=RECENT * CELL,
        )
    )
    session.ingest(cells)
    session.finish()
    session.taken = list(map(cells.__getitem__, _slices(sizes)))
    session.scores.changes.append(Change(at, 0.0, stamp, 1e-6))
    return [round(float(stamp)) for part in unchanged_cells(session) for stamp in part.stamp]


def _slices(sizes: list[int]) -> list[slice]:
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes)]


@pytest.mark.parametrize("sizes", [[1] * 8, [8], [5, 3]])
def test_a_short_drive_is_all_recent(sizes):
    """Fewer cells than score_distance holds."""
    assert kept(sizes, 0.0, 7.0) == list(range(8))


@pytest.mark.parametrize("sizes", [[1] * 30, [9] + [1] * 21, [25, 5], [30], [15, 15]])
def test_single_cells_are_left_out_whatever_batch_they_came_in(sizes):
    """Of 30 cells those within the reach of the change and before it, but for the newest ten of them."""
    assert kept(sizes, 0.3, 25.0) == list(range(9, 30))  # 0 … 8 lie near enough
    assert kept(sizes, 1.8, 25.0) == [*range(13), *range(16, 30)]  # 13 … 23, of which 16 … 25 stay
    assert kept(sizes, 0.3, 4.0) == list(range(30))  # when it changed there were five


def test_where_all_of_a_batch_is_outdated_nothing_of_it_is_left():
    assert kept([4] + [1] * 26, 0.0, 29.0) == list(range(6, 30))
