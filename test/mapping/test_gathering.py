"""From raw samples to cells, without any map: what holds at the end of a pass."""

import copy
import math
from collections import deque
from itertools import pairwise

import pytest
import torch
from states import differences

from gp_mapping.core.types import Samples
from gp_mapping.fleet.cells import CellMaker
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for


class Kept:
    """Keeps the values and headings of its cells; judges by the last cells alone."""

    def __init__(self, **settings):
        self.maker = CellMaker(map_settings_for("scalar", MapSettings(**settings)))
        self.gathered, self.admission = self.maker.gathered, self.maker.admission
        self.flush = self.maker.flush
        self.break_pass, self.take = self.maker.break_pass, self.maker.ingest

    def ingest(self, values, start):
        n = len(values)
        along = start + torch.arange(n).double()
        self.take(
            Samples(
                torch.stack([along, 0.0 * along], 1),
                torch.tensor(values).double()[:, None],
                stamp=along,
            )
        )
        self.flush()

    def finish(self):
        deque(self.maker.finishing(), maxlen=0)

    def stand(self, values):
        """Samples of one place, without stamps; the cell stays open."""
        self.take(
            Samples(torch.zeros(len(values), 2).double(), torch.tensor(values).double()[:, None])
        )

    def state(self):
        return self.gathered.state_dict() | self.admission.state_dict()

    def load(self, state):
        self.gathered.load_state_dict(state)
        self.admission.load_state_dict(state)

    @property
    def values(self):
        cells = self.maker.joined_cells()
        return [] if cells is None else cells.y[:, 0].tolist()

    @property
    def headings(self):
        return [row for cell in self.maker.made[1:] for row in cell.heading.tolist()]


def test_what_waits_to_be_confirmed_is_not_confirmed_by_the_next_pass():
    """Three far cells that agree are a field, in one pass; one at its end and two in the next are not."""
    quiet = [20.0 + 0.1 * (i % 7) for i in range(60)]
    whole, cut = Kept(), Kept()
    for kept in (whole, cut):
        kept.ingest([*quiet, 900.0], 0.0)
    cut.break_pass()
    for kept in (whole, cut):
        kept.ingest([905.0, 910.0], 61.0)
    assert (
        max(whole.values) > 900.0 and whole.maker.gross_errors == 0 and whole.gathered.passes == 1
    )
    assert max(cut.values) < 30.0 and cut.maker.gross_errors == 1 and cut.gathered.passes == 2
    assert (
        whole.admission.counts.used == cut.admission.counts.used == 63
        and cut.admission.counts.refused == 0
    )


def test_a_pass_goes_on_neither_from_the_place_nor_from_the_heading_of_the_one_before():
    """The robot is carried to where it stands: it has not driven there, and nobody knows yet which way it looks."""
    values = [20.0 + 0.1 * (i % 7) for i in range(60)]
    whole, cut = Kept(axle_distance=0.05), Kept(axle_distance=0.05)
    for kept in (whole, cut):
        kept.ingest(values, 0.0)
    driven = cut.gathered.path_trace.length
    cut.break_pass()
    for kept in (whole, cut):
        kept.ingest(values[:1], 60.5)
    assert (
        whole.gathered.path_trace.length > driven + 1.0 and cut.gathered.path_trace.length == driven
    )
    assert whole.headings[-1] != [0.0, 0.0] and cut.headings[-1] == [0.0, 0.0]
    assert cut.gathered.passes == whole.gathered.passes + 1


def test_a_robot_that_goes_on_from_a_saved_moment_looks_where_it_looked():
    """By the path of a point before its axle, which the next sample alone would not tell."""
    straight, resumed = Kept(axle_distance=0.3), Kept(axle_distance=0.3)
    straight.ingest([20.0 + 0.1 * (i % 7) for i in range(30)], 0.0)
    resumed.load(copy.deepcopy(straight.state()))
    for kept in (straight, resumed):
        kept.ingest([20.0, 20.1, 20.2], 30.0)
    assert resumed.headings == straight.headings[-len(resumed.headings) :]
    assert all(heading == pytest.approx([1.0, 0.0]) for heading in resumed.headings)


def test_of_the_first_cells_a_wild_one_is_left_out():
    kept = Kept()
    kept.ingest([900.0, *(20.0 + 0.1 * (i % 7) for i in range(20))], 0.0)
    assert (
        len(kept.values) == 20
        and max(kept.values) < 30.0
        and kept.maker.gross_errors == 1
        and not kept.admission.first.is_open
    )


def test_after_a_hundred_cells_whoever_takes_them_judges():
    """A reader of bags has no map that would have to settle: what is far does not wait any more."""
    kept = Kept()
    kept.ingest([20.0 + 0.1 * (i % 7) for i in range(101)], 0.0)
    kept.ingest([900.0], 101.0)
    assert kept.values[-1] == 900.0 and kept.maker.gross_errors == 0


@pytest.mark.parametrize("end", ["finish", "break_pass"])
def test_at_the_end_and_at_a_gap_the_open_cell_is_handed_over(end):
    kept = Kept()
    kept.stand([20.0, 21.0, 22.0])
    assert kept.values == []
    getattr(kept, end)()
    assert kept.values == [21.0]


def test_samples_without_stamps_come_fifty_times_a_second():
    """A robot that stands: sixty seconds of them are six cells of ten seconds."""
    kept = Kept(cell_duration=1.0)
    kept.stand([20.0] * 3000)
    kept.finish()
    assert kept.admission.counts.used == 3000 and len(kept.values) == 6


@pytest.mark.parametrize("known", [True, False])
def test_passes_go_on_with_their_numbers_and_in_a_file_from_before_they_had_any_begin_anew(known):
    first, second = (Kept(bias_stddev=0.5) for _ in range(2))
    for i in range(3):
        first.ingest([20.0 + i], 100.0 * i)
        first.break_pass()
    state = first.state()
    if not known:
        del state["bias"]
    second.load(state)
    second.ingest([20.0], 900.0)
    assert second.admission.bias.number == (3.0 if known else 0.0) and second.gathered.passes == 4


@pytest.mark.parametrize("cells", [True, False])
@pytest.mark.parametrize("cuts", [(), (1,), (3, 4, 60), tuple(range(0, 160, 7))])
def test_what_no_map_can_take_leaves_the_cells_of_the_rest_as_they_are(cells, cuts):
    """Wherever it comes, also first in a call, in a row or as what would close a cell."""
    n, bad = 160, (0, 5, 6, 41, 80, 81, 82, 120, 159)
    along = 0.013 * torch.arange(n).double()
    x = torch.stack([along, 0.0 * along], 1)
    y = 48e-6 + 1e-6 * torch.sin(3.0 * along)[:, None]
    x[list(bad), 1] = 2e9  # at no place of this earth
    good = [i for i in range(n) if i not in bad]
    whole, rest = Kept(cells=cells), Kept(cells=cells)
    stream = Samples(x, y, stamp=0.02 * torch.arange(n).double())
    ends = [0, *cuts, n]
    for a, b in pairwise(ends):
        if b > a:
            whole.take(stream[a:b])
    rest.take(stream[torch.tensor(good)])
    for kept in (whole, rest):
        kept.flush()
    assert whole.admission.counts.refused == len(bad) and rest.admission.counts.refused == 0
    assert whole.admission.counts.used == rest.admission.counts.used == len(good)
    assert len(whole.values) > 5 and whole.values == pytest.approx(rest.values, rel=1e-12)


def test_a_refused_sample_does_not_say_how_far_the_robot_has_moved():
    """It stands, for ten times as long as a cell that is driven: what is refused lies beside it."""
    n, bad = 200, (3, 50, 51, 120)
    x = torch.zeros(n, 2).double()
    y = torch.full((n, 1), 48e-6).double() + 1e-9 * torch.arange(n).double()[:, None]
    x[list(bad), 0], y[list(bad)] = 0.03, 1e120  # beside it, and no value
    stream = Samples(x, y, stamp=0.02 * torch.arange(n).double())
    whole, rest = Kept(), Kept()
    whole.take(stream)
    rest.take(stream[torch.tensor([i for i in range(n) if i not in bad])])
    for kept in (whole, rest):
        kept.flush()
    assert whole.admission.counts.refused == len(bad) and whole.values == pytest.approx(
        rest.values, rel=1e-12
    )


@pytest.mark.parametrize(
    "settings", [{}, {"learn_response_time": "always"}, {"response_time": 2.0}], ids=str
)
def test_a_state_comes_back_whole(settings):
    """Of all that it is made of: what came back only in part went on otherwise, much later."""
    kept, again = Kept(**settings), Kept(**settings)
    kept.ingest([20.0 + 0.3 * math.sin(k) for k in range(60)], 0.0)
    kept.break_pass()
    kept.ingest([21.0, 21.0, 20.5], 70.0)
    kept.stand([20.4, 20.6])
    fresh, state = Kept(**settings).state(), kept.state()
    again.load(copy.deepcopy(state))
    assert not differences(again.state(), state)
    assert len({name.split(".")[1] for name in differences(fresh, state)}) > 4
