"""When a drift is looked for: at so many blocks of a fifth of a lengthscale, and at the end where much is new."""

import torch
from drifting import LENGTH, crossing, done, passes

from gp_mapping.core.types import Samples
from gp_mapping.mapping.drift.kept import KeptCells
from gp_mapping.mapping.drift.watch import DriftWatch
from gp_mapping.settings.mapping import MapSettings

BLOCK = LENGTH / 5.0
STEADY = passes(0, crossing(0.5 * BLOCK))


def looked(way: list[Samples], last: bool = True) -> list[int]:
    """At how many blocks a steady sensor's drift was looked for; cells are half a block long."""
    watch, out = DriftWatch(MapSettings(), looks=True), [0]

    def look(last: bool) -> None:
        assert not (
            done(watch.looking_last(lambda: LENGTH)) if last else watch.look(lambda: LENGTH)
        )
        if (blocks := watch.state_dict()["looked"]) != out[-1]:
            out.append(blocks)

    for number, part in enumerate(way):
        for i in range(len(part)):
            watch.add(part[i : i + 1], number + 1)
            look(False)
    if last:
        look(True)
    return out[1:]


def test_it_is_looked_for_at_each_hundred_of_blocks():
    """Each sixteenth cell asks whether it is time."""
    at = looked(STEADY)
    assert len(at) == 3, "since the last look too little is new"
    assert all(due <= blocks < due + 8 for due, blocks in zip((100, 200, 300), at))


def test_at_the_end_it_is_looked_for_where_blocks_can_tell_and_a_fifth_is_new():
    (whole,) = STEADY[:1]
    assert looked([whole[:120]]) == []
    assert looked([whole[:140]], last=False) == []
    assert 64 <= looked([whole[:140]])[0] < 72
    first, end = looked([whole[:330]])
    assert 100 <= first < 108 and 155 <= end <= 165


def test_kept_cells_are_few_tables():
    kept = KeptCells()
    for i in range(200):
        kept.add(Samples([[0.1 * i, 0.0]], [float(i)], stamp=[float(i)]), 1)
    tables, numbers = kept.tables()
    assert [len(table) for table in tables] == [64, 64, 64, 8] and kept.rows == 200
    assert torch.equal(numbers, torch.ones(200, dtype=numbers.dtype))
