"""The map of the first cells: made of all of them, or the map before stays as it was."""

import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.errors import MapFullError, NumericalError
from gp_mapping.mapping.beginning.first_map import map_first_cells
from gp_mapping.mapping.beginning.restarted import RestartedMap
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.feeding import forget_elapsed, new_map

GIVEN = {"lengthscale": 1.0, "signal_stddev": 2.0, "noise_stddev": 0.1, "constant_stddev": 9.0}
COUNT = 6
WILD = 3


def settings_of(**more) -> MapSettings:
    return MapSettings(model="exact", field_scale=1.0, learn_hyperparameters=False, **more)


def cells(count: int = COUNT) -> Samples:
    along = torch.arange(count, dtype=torch.float64)
    return Samples(torch.stack([along, 0 * along], 1), along.sin()[:, None], stamp=along)


def made(settings, more_to_come=False, refusing=None, monkeypatch=None):
    """The new map, the map before of all cells but the newest, and its start."""
    start, before = Start(settings), new_map(settings, None)
    blank, first = before.state_dict(), cells()
    before.update(first[:-1])
    update = type(before).update

    def refuses(field, batch):
        if bool((batch.x[:, 0] == WILD).any()):
            raise refusing
        return update(field, batch)

    if refusing is not None:
        monkeypatch.setattr(type(before), "update", refuses)
    arguments = (first, start, before, blank, lambda s, c: new_map(s, None, c), more_to_come)
    return map_first_cells(*arguments), before, start


def test_with_all_given_the_same_map_is_filled_again():
    new, before, start = made(settings_of(**GIVEN), more_to_come=True)
    assert new.map is before and before.samples == COUNT and not new.found
    assert new.start is not start and not new.refused and new.report.samples == COUNT
    alone = new_map(settings_of(**GIVEN), None)
    alone.update(cells())
    there = cells().x + 0.3
    torch.testing.assert_close(
        new.map.predict(there).mean, alone.predict(there).mean, rtol=0, atol=0
    )


def test_starts_left_open_make_another_map_and_leave_the_start_before():
    new, before, start = made(settings_of())
    assert new.found and new.map is not before and before.samples == COUNT - 1
    assert start.resolved.lengthscale == 0.0 < new.start.resolved.lengthscale
    assert not start.cells and [len(part) for part in new.start.cells] == [COUNT]


def test_with_forgetting_each_cell_enters_with_its_age():
    settings = settings_of(**GIVEN, forgetting_time=2.0)
    new, before, _ = made(settings)
    assert new.map is not before and [len(part) for part in new.taken] == [1] * COUNT
    aged, stamp = new_map(settings, None, cells().y.median(0).values), None
    for i in range(COUNT):
        stamp = forget_elapsed(aged, 2.0, stamp, cells()[i : i + 1])
        aged.update(cells()[i : i + 1])
    there = cells().x
    torch.testing.assert_close(new.map.predict(there).variance, aged.predict(there).variance)


@pytest.mark.parametrize("given", [GIVEN, {}], ids=["given", "open"])
def test_a_refused_cell_leaves_the_map_before_while_more_are_to_come(given, monkeypatch):
    wild = NumericalError("a pivot is NaN")
    new, before, start = made(settings_of(**given), True, wild, monkeypatch)
    assert new is None and before.samples == COUNT - 1 and not start.cells


@pytest.mark.parametrize(
    ("more_to_come", "why"), [(False, NumericalError("wild")), (True, MapFullError("full"))]
)
@pytest.mark.parametrize("given", [GIVEN, {}], ids=["given", "open"])
def test_the_last_cell_or_a_full_map_settles_which_are_left_out(
    given, more_to_come, why, monkeypatch
):
    new, *_ = made(settings_of(**given), more_to_come, why, monkeypatch)
    assert [float(cell.x[0, 0]) for cell, _ in new.refused] == [WILD]
    assert sum(map(len, new.taken)) == COUNT - 1 == new.map.samples
    if not given:
        assert sum(map(len, new.start.cells)) == COUNT - 1


def test_an_error_of_another_kind_leaves_the_map_before(monkeypatch):
    start, settings = Start(settings_of(**GIVEN)), settings_of(**GIVEN)
    before = new_map(settings, None)
    blank = before.state_dict()
    before.update(cells()[:-1])

    def fails(field, budget_s):
        raise OSError("the disk is full")

    monkeypatch.setattr(type(before), "refine", fails)
    with pytest.raises(OSError, match="disk"):
        map_first_cells(cells(), start, before, blank, None, False)
    assert before.samples == COUNT - 1


def test_a_restarted_map_takes_eight_batches_at_a_time_and_ages_them(monkeypatch):
    settings, batches = settings_of(**GIVEN, forgetting_time=2.0), cells(12)
    batches = [batches[i : i + 1] for i in range(12)]
    again, refused = RestartedMap(new_map(settings, None), rough=False), []
    assert not again.feed(batches, 2.0, lambda *why: refused.append(why))
    assert again.used == 8 and again.last_stamp == 7.0

    again = RestartedMap.restored(again.state_dict(), new_map(settings, None))
    assert again.feed(batches, 2.0, lambda *why: refused.append(why))
    assert again.used == len(again.taken) == 12 and again.last_stamp == 11.0 and not refused

    aged, stamp = new_map(settings, None), None
    for batch in batches:
        stamp = forget_elapsed(aged, 2.0, stamp, batch)
        aged.update(batch)
    there = cells(12).x
    torch.testing.assert_close(again.map.predict(there).variance, aged.predict(there).variance)
