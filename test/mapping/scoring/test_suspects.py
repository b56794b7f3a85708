"""Cells that the map did not expect, told apart by what comes after them (mapping/scoring/suspects.py)."""

from dataclasses import replace

import pytest
import torch

from gp_mapping import Samples
from gp_mapping.mapping.scoring.suspects import Judged, Suspects

MOST = 8  # cells that wait, as docs/how_it_works.md has it


def judged(k: int, residual: float, place: float, gate: float) -> Judged:
    """Cell k, with that residual; suspect where it is beyond the gate."""
    cell = Samples([[place, 0.0]], [[float(k)]], sensor_variance=0.01, count=2.0)
    weak = replace(cell, sensor_variance=torch.ones(1)) if abs(residual) > gate else cell
    return Judged(cell, weak, [residual])


def looked_at(residuals, places=None, gates=None):
    """Which cells were weakened, in which order all came out, and how many waited at most."""
    suspects, out, wrong, most = Suspects(1.0), [], 0, 0
    for k, residual in enumerate(residuals):
        place = float(k) if places is None else places[k]
        verdict = suspects.look(judged(k, residual, place, 5.0 if gates is None else gates[k]))
        out += verdict.cells
        wrong += verdict.weakened
        most = max(most, len(suspects))
        assert len(out) + len(suspects) == k + 1 and suspects.samples == 2 * len(suspects)
        # a resume in the middle changes nothing
        again = Suspects(1.0)
        again.load_state_dict(suspects.state_dict())
        suspects = again
    verdict = suspects.release()
    out, wrong = [*out, *verdict.cells], wrong + verdict.weakened
    weak = [int(cell.y) for cell in out if float(cell.sensor_variance) == 1.0]
    assert len(weak) == wrong and len(suspects) == 0
    return weak, [int(cell.y) for cell in out], most


@pytest.mark.parametrize(
    "residuals, weak",
    [
        ([0.3, -1.0, 4.0, 0.5], []),  # nothing unexpected
        ([0.0, 40.0, 1.0, 0.5], [1]),  # a spike
        ([0.0, 40.0, 0.0, -9.0, 0.0], [1, 3]),
        ([0.0, 40.0, -40.0, 35.0, 0.0], [1, 2, 3]),  # a burst of errors
        ([0.0, 40.0, 38.0, 0.0, 41.0, 0.0], [1, 2, 4]),
        ([0.0, 40.0, 38.0, 41.0, 39.0, 0.5], [1, 2, 3, 4]),  # a burst of one error
        ([0.0, 9.0, 22.0, 37.0, 20.0, 11.0, 5.5, 3.0, 1.0], []),  # a peak, there and back
        ([0.0, 9.0, 22.0, 37.0, 18.0, 3.0, 1.0], [1, 2, 3, 4]),  # and back at once
        ([0.0, 9.0, 22.0, 37.0, 24.0, 7.0, 1.0, 0.0], []),  # with a foot steeper than half
        ([0.0, 9.0, 22.0, 37.0, 24.0, 1.0], [1, 2, 3, 4]),  # at once from where it is high
        ([0.0, 24.0, 37.0, 22.0, 9.0, 1.0], [1, 2, 3, 4]),  # there at once, and slowly back
        ([0.0, 30.0, 60.0, 30.0, 0.0], []),  # three at least, as of all that go on
        ([0.0, 30.0, 30.0, 0.0], [1, 2]),
        ([0.0, 18.0, 36.0, -30.0, 0.0], [1, 2, 3]),
        ([-40.0, 30.0, 0.0], [0, 1]),
        ([0.0, 6.0, 4.5, 4.0, 0.0], []),  # those that confirm are none themselves
        ([0.0, 6.0, 4.5, 0.0], [1]),  # two are not enough
        ([0.0, 40.0], [1]),  # nothing comes any more
    ],
)
def test_the_next_cells_tell_an_edge_from_an_error(residuals, weak):
    got, order, _ = looked_at(residuals)
    assert got == weak and order == list(range(len(residuals)))


def test_an_edge_is_the_field_once_the_map_does_not_know_better():
    """The farther on, the less the map knows: 40 is too much for it up to the fourth cell."""
    for last, weak in ((30.0, [1, 2, 3]), (50.0, [])):
        gates = [5.0, 10.0, 20.0, 30.0, last, 5.0]
        assert looked_at([0.0, 40.0, 38.0, 41.0, 39.0, 0.0], gates=gates)[0][:3] == weak
    # an error just before an edge is one still
    gates = [5.0, 5.0, 20.0, 50.0, 50.0]
    assert looked_at([-40.0, 30.0, 31.0, 29.0, 0.0], gates=gates)[0] == [0]


def test_so_many_that_go_on_are_the_field_where_the_robot_moves():
    """A robot that stands confirms nothing; a tenth of a cell is no way."""
    values = [40.0] * (MOST + 1) + [0.0]
    assert looked_at(values) == ([], list(range(MOST + 2)), MOST)
    assert looked_at([40.0] * MOST + [0.0])[0] == list(range(MOST))
    for step, wrong in ((0.0, MOST + 1), (0.11, 0)):
        places = [1.0 + step * k for k in range(MOST + 1)] + [9.0]
        weak, order, most = looked_at(values, places)
        assert len(weak) == wrong and order == list(range(MOST + 2)) and most == MOST
    # three cells that the map is not sure to be wrong, of two places
    assert looked_at([40.0, 41.0, 39.0, 0.0], [1.0, 1.05, 2.0, 3.0], [5.0, 5.0, 50.0, 5.0])[0]


def test_what_no_map_has_judged_is_confirmed_by_nothing_and_confirms_nothing():
    suspects, first = Suspects(1.0), judged(0, 40.0, 0.0, 5.0)
    cell = judged(1, 0.0, 1.0, 5.0).cell
    assert not suspects.look(first).cells
    verdict = suspects.look(Judged(cell, cell, None))
    assert [int(each.y) for each in verdict.cells] == [0, 1] and verdict.weakened == 1
    assert verdict.cells[1] is cell and not len(suspects)


@pytest.mark.parametrize("second, waits", [([0.0, 30.0, 0.0], 1), ([25.0, 12.0, -3.0], 2)])
def test_vectors_are_compared_as_vectors(second, waits):
    """Two of the same size in two directions do not go on."""
    suspects = Suspects(1.0)
    for residual in ([30.0, 0.0, 0.0], second):
        suspects.look(replace(judged(0, 40.0, 0.0, 5.0), residual=residual))
    assert len(suspects) == waits
