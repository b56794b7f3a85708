"""Sums of a tree that are kept as they grow: the same sums, and little is done twice, whenever who makes them dies."""

import itertools
import random
from operator import add

import pytest

from gp_mapping.fleet import kept
from gp_mapping.fleet.engine import LocalEngine
from gp_mapping.fleet.kept import kept_tree


class Death(BaseException):
    """Of a worker: nothing in a step may catch it."""


def tree_of(count, leaf, join, folder, closed=None):
    stem = None if folder is None else folder / "tile"
    leaves = [(leaf, i) for i in range(count)]
    return kept_tree(LocalEngine(), "leaf", leaves, ("join", join), stem, closed)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 8, 13])
def test_a_sum_that_is_cut_off_goes_on_where_it_was(tmp_path, monkeypatch, count):
    """Each life has nothing but the files, and dies over its third step."""
    monkeypatch.setattr(kept, "_PERIOD", 0.0)
    done, left = [], [0]

    def worked(value):
        left[0] -= 1
        if left[0] < 0:
            raise Death
        done.append(tuple(value))
        return value

    for _ in range(30):
        handle = tree_of(count, lambda i: worked([i]), lambda a, b: worked(a + b), tmp_path)
        left[0] = 2
        try:
            part = handle.value
            break
        except Death:
            continue
    assert part.value == list(range(count)) and sorted(done) == sorted(set(done))
    assert len(done) == 2 * count - 1
    assert [tmp_path / f"tile.0-{count}"] == list(part.files) == list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(20))
def test_parts_that_are_lost_anywhere_are_made_again_from_what_is_there(
    tmp_path, monkeypatch, seed
):
    """As on a cluster: a step has what it needs made first, unless a worker has it in memory."""
    chance, count = random.Random(seed), random.Random(seed).randint(1, 12)
    clock = (0.6 * t for t in itertools.count())
    monkeypatch.setattr(kept.time, "thread_time", lambda: next(clock))
    closed = tmp_path / "closed"
    root = tree_of(count, lambda i: [i], add, tmp_path, closed)
    memory = {}

    def made(handle):
        """The value of a handle that has no value yet, with losses in between."""
        if id(handle) not in memory:
            arguments = [
                made(each) if isinstance(each, type(root)) else each
                for each in handle._arguments  # noqa: SLF001 as the scheduler sees it
            ]
            memory[id(handle)] = handle._call(*arguments)  # noqa: SLF001
        for lost in chance.sample(sorted(memory), len(memory) // 3):
            if lost != id(handle):
                del memory[lost]
        return memory[id(handle)]

    for _ in range(4):
        part = made(root)
        assert part.value == list(range(count))
        memory.clear()

    closed.touch()
    kept._remove_files(part)  # noqa: SLF001 as who closes it does
    assert made(root).value is None and list(tmp_path.iterdir()) == [closed]


def test_only_what_took_long_is_kept_and_nothing_without_a_folder(tmp_path, monkeypatch):
    part = tree_of(3, lambda i: [i], add, tmp_path).value
    assert part.value == [0, 1, 2] and not list(tmp_path.iterdir()) and part.files == ()

    clock = (0.4 * t for t in itertools.count())
    monkeypatch.setattr(kept.time, "thread_time", lambda: next(clock))
    part = tree_of(3, lambda i: [i], add, tmp_path).value
    assert part.value == [0, 1, 2] and [p.name for p in tmp_path.iterdir()] == ["tile.0-2"]
    assert part.files == (tmp_path / "tile.0-2",) and part.seconds == pytest.approx(0.8)
    assert tree_of(3, lambda i: [i], add, None).value.value == [0, 1, 2]


def test_a_disk_that_is_full_costs_the_file_and_not_the_sum(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_PERIOD", 0.0)
    assert tree_of(5, lambda i: [i], add, tmp_path / "not there").value.value == list(range(5))
