"""Searches that wait: so many steps at a time, and when they are due by the blocks so far."""

import pytest
from drifting import done

from gp_mapping.mapping.beginning.search_watch import Schedule, SearchWatch
from gp_mapping.mapping.beginning.stepwise import PendingSearch, Stepwise


class Count(Stepwise):
    """Ends after so many steps with twice their number."""

    def __init__(self, steps):
        super().__init__(steps)

    def _search(self):
        (steps,) = self._arguments
        yield from range(steps)
        return 2 * steps


def test_a_pending_search_does_so_many_steps_and_tells_what_it_found_at_the_end():
    search = PendingSearch(Count(5))
    assert not search.advance(3) and (search.steps, search.found) == (3, None)
    assert not search.advance(2) and search.steps == 5
    assert search.advance(1) and (search.steps, search.found) == (5, 10)
    nothing = PendingSearch(None)
    assert nothing.advance(0) and (nothing.steps, nothing.found) == (0, None)


class Watch(SearchWatch):
    """Keeps what was begun: at how many cells, of the whole way, for the last time."""

    schedule = Schedule((10, 20, 30), 4, 40, 2.0, steps=2, every=2, new=1.5)

    def __init__(self):
        super().__init__([])
        self.begun, self.adopted = [], []

    def add(self, way=1.0):
        self._kept.append(0)
        self._way += way

    def _make_search(self, kept, length, whole, final):
        self.begun.append((len(kept), length, whole, final))
        return PendingSearch(Count(3))

    def _is_whole(self, check):
        return check == 20

    def _adopt(self, search, last):
        self.adopted.append((search.found, last))
        return last

    @property
    def is_over(self):
        return self._kept is None


def drive(count, length=2.0, last=True, way=1.0):
    """With so many cells a metre apart: a block each where the lengthscale is two metres."""
    watch = Watch()
    for _ in range(count):
        watch.add(way)
        assert not watch.look(lambda: length)
    return watch, last and done(watch.looking_last(lambda: length))


def test_it_is_due_at_each_number_of_blocks_and_where_all_room_is_taken():
    """Two steps with each cell, and each second cell asks."""
    watch, _ = drive(60, last=False)
    checks = [(10, 2.0, False, False), (20, 2.0, True, False), (30, 2.0, True, True)]
    assert watch.begun[:3] == checks and watch.adopted[:3] == [(6, False)] * 3
    assert watch.begun[3][0] == 32, "its owner keeps nothing more after the last one"
    assert drive(19, way=2.0, last=False)[0].begun == [(10, 2.0, False, False)], "no block has less"
    slow, _ = drive(42, way=0.25, last=False)
    assert slow.begun[0] == (40, 2.0, True, True)


@pytest.mark.parametrize(
    ("cells", "begun"),
    [
        (3, []),
        (4, [(4, 2.0, True, False)]),
        (14, [(10, 2.0, False, False)]),
        (15, [(10, 2.0, False, False), (15, 2.0, True, False)]),
        (20, [(10, 2.0, False, False), (20, 2.0, True, False)]),
    ],
)
def test_at_the_end_it_is_due_where_half_as_much_is_new(cells, begun):
    watch, found = drive(cells)
    assert watch.begun == begun and found == bool(len(begun) > (cells >= 10))


def test_without_a_map_it_waits_until_no_more_is_kept():
    watch = drive(39, length=None, last=False)[0]
    assert not watch.is_over and not watch.begun
    assert drive(40, length=None, last=False)[0].is_over
    assert not done(watch.finishing_search())
    begun = drive(10, last=False)[0]
    assert done(begun.finishing_search()) and begun.adopted == [(6, True)]
