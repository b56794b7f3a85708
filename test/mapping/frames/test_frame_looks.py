"""When a watch looks for another frame, what it gives a search, and what it forgets."""

import math

import pytest
import torch
from drifting import done

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.stepwise import Stepwise
from gp_mapping.mapping.frames import watch
from gp_mapping.mapping.frames.matching import Moved
from gp_mapping.mapping.frames.search import ALIKE, APART, MOVED, Break
from gp_mapping.mapping.frames.watch import FrameWatch
from gp_mapping.settings.mapping import MapSettings

LENGTH = 2.0
FOUND = Break(MOVED, 2, 5.0, Moved(1.0, 2.0, 0.5), 0.1, 0.01, 0.0, 12.0)


def cell(k, row=None):
    """A row at a place along x, which tells three times its number, each second."""
    row = torch.tensor([float(k)], dtype=torch.float64) if row is None else row
    x = torch.stack([0.2 * row, 0.0 * row], 1)
    return Samples(x, 3.0 * row, stamp=10.0 + row, heading=torch.tensor([[0.6, 0.8]] * len(row)))


class Search(Stepwise):
    """Ends after twenty steps; keeps what it was given."""

    made: list
    finds = None

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made.append(arguments)

    def _search(self):
        yield from range(20)
        return self.finds


@pytest.fixture
def made(monkeypatch):
    """Of each search that was begun its arguments; blocks are a row long."""
    out: list = []
    monkeypatch.setattr(watch, "FrameSearch", type("Made", (Search,), {"made": out}))
    return out


def watched(passes, settings=None, look=True):
    """A watch of passes of so many rows, and how many rows there were when a search was begun."""
    out, begun, count = FrameWatch(settings or MapSettings()), [], 0
    for number, rows in enumerate(passes, 1):
        for _ in range(rows):
            out.add(cell(count), number)
            count += 1
            if look:
                before = out.state_dict()["begun"]
                out.look(lambda: LENGTH)
                begun += [count] if out.state_dict()["begun"] != before else []
    return out, begun


def test_it_looks_when_rows_can_tell_and_there_are_half_as_many_more(made, monkeypatch):
    """Not before there is a second pass, or 64 rows in all."""
    monkeypatch.setattr(watch, "_ENOUGH", math.inf)  # not by the way of a pass
    out, begun = watched((60, 90))
    assert begun == [64, 96, 144] and watched((100, 1))[1] == [101]
    assert len(made) == 4 and [len(track.y) for track, *_ in made] == [*begun_rows(begun), 51]
    out.add(cell(150), 2)
    done(out.looking_last(lambda: None))  # there is no map
    assert len(made) == 4
    done(out.looking_last(lambda: LENGTH))
    assert [last for *_, last in made] == [False] * 4 + [True] and not out.is_looking
    done(out.looking_last(lambda: LENGTH))
    assert len(made) == 5, "nothing has come since"


def begun_rows(begun):
    """Blocks of .4 m in so many rows of .2 m, in two passes of which the first has sixty."""
    return [30 + math.ceil((count - 60) / 2) for count in begun]


def test_a_few_steps_are_done_with_each_cell(made):
    out, _ = watched((60, 4))
    steps = [out.state_dict()["steps"]]
    for k in range(64, 67):
        out.add(cell(k), 2)
        out.look(lambda: LENGTH)
        steps.append(out.state_dict()["steps"])
    assert steps == [8, 16, None, None] and not out.is_looking


@pytest.mark.parametrize("turns", [0.0, 0.1])
def test_a_search_is_given_what_was_measured_and_how(made, turns):
    watched((60, 4), MapSettings(heading_stddev=turns, kernel="matern32"))
    ((track, length, kernel, last),) = made
    assert (length, kernel, last) == (LENGTH, "matern32", False)
    first = torch.arange(30).double() * 2 + 0.5  # of two rows each
    assert torch.allclose(track.x[:30], torch.stack([0.2 * first, 0.0 * first], 1))
    assert torch.allclose(track.y[:30], 3.0 * first)
    assert torch.allclose(track.stamp[:30], 10.0 + first)
    assert track.passes.tolist() == [1] * 30 + [2] * 2
    looks = torch.tensor([0.6, 0.8], dtype=torch.float64).expand(32, 2)
    assert track.heading is None if not turns else torch.allclose(track.heading, looks)


def test_what_is_found_counts_until_the_next_look(made, monkeypatch):
    for finds, contradicted in (
        ([FOUND], True),
        ([FOUND._replace(kind=ALIKE)], False),
        (None, False),
    ):
        monkeypatch.setattr(watch.FrameSearch, "finds", finds)
        out, _ = watched((60, 10))
        assert out.breaks == (finds or []) and len(out.notes()) == len(out.breaks)
        assert out.is_contradicted == contradicted
    out.breaks = [FOUND]
    out.add(cell(70), 2)
    done(out.looking_last(lambda: LENGTH))
    assert out.breaks == []


def test_other_cells_in_place_of_those_so_far_are_all_that_counts(made):
    """A search that has begun ends, and it is looked anew."""
    out, _ = watched((60, 5))
    assert out.is_looking
    out.replace([(cell(0, torch.arange(5.0).double()), 3), (cell(9), 3)])
    state = out.state_dict()
    assert state["kept"][:, [0, 2, 3, 4]].tolist() == [
        [pytest.approx(0.2 * k), 3.0 * k, 10.0 + k, 3.0] for k in (0, 1, 2, 3, 4, 9)
    ]
    assert state["own"] == pytest.approx(1.8) and state["looked"] == 0 and not out.is_looking
    out.stop_looking()
    out.replace([(cell(0), 1)])
    assert out.state_dict()["kept"] is None


def test_what_came_before_a_stamp_is_forgotten(made):
    out, _ = watched((3, 4), look=False)
    out.forget_before(12.0)
    assert out.state_dict()["kept"][:, 3].tolist() == [12.0, 13.0, 14.0, 15.0, 16.0]
    out.stop_looking()
    out.forget_before(14.0)
    out.add(cell(9), 2)
    assert out.state_dict()["kept"] is None and out.state_dict()["steps"] is None


def test_of_more_rows_than_are_kept_the_last_look_had_as_many_fewer(made, monkeypatch):
    """So that the next one comes when there is half as much again; a search that has begun ends."""
    monkeypatch.setattr(watch, "_MOST", 100)
    monkeypatch.setattr(watch, "_ENOUGH", math.inf)
    out, begun = watched((60, 41))
    assert begun == [64, 96] and out.state_dict()["looked"] == 48 and not out.is_looking
    assert len(out.state_dict()["kept"]) == 30 + 21


def test_a_saved_watch_is_as_it_was_and_of_counts_nothing_is_looked_at(made):
    out, _ = watched((60, 5))
    out.breaks = [FOUND, FOUND._replace(kind=APART)]
    again = FrameWatch(MapSettings())
    again.load_state_dict(out.state_dict())
    for name, value in again.state_dict().items():
        was = out.state_dict()[name]
        assert torch.equal(value, was) if name == "kept" else value == was
    out.stop_looking()
    again.load_state_dict(out.state_dict())
    assert again.state_dict()["kept"] is None and again.breaks == out.breaks
    counts, _ = watched((60, 5), MapSettings(likelihood="poisson"))
    assert counts.state_dict()["kept"] is None
