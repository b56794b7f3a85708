"""A snapshot of what is counted by squares: no heap of small lists that Python then looks through for garbage."""

import gc
import time
from types import SimpleNamespace

import numpy as np
import torch

from gp_mapping.mapping.motion.extent import Extent
from gp_mapping.mapping.scoring.change import ChangeDetector
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.tables import Squares, rows_of, table_of


def full() -> list:
    """Each of them at its bound."""
    extent, local, detector = Extent(), LocalScale(0.3), ChangeDetector(0.5)
    x = np.stack(np.meshgrid(np.arange(150.0), np.arange(140.0)), -1).reshape(-1, 2)
    for place in x.tolist():
        extent.add([10.0 * v for v in place], True)
        detector.add([0.5 * v for v in place], 0.3, 1.0, 0.0, 0.0)
    local.add(torch.from_numpy(0.3 * x + 0.15), torch.ones(len(x)))
    assert len(local) == 20_000
    return [extent, local, detector]


def test_a_snapshot_at_all_bounds_is_quick_and_makes_no_garbage_to_look_for():
    counted, looked, spent = full(), [], []

    def watch(phase: str, info: dict) -> None:
        looked.append(info["generation"])

    often = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's own, as where maps are made
    gc.collect()
    gc.callbacks.append(watch)
    try:
        for _ in range(10):
            began = time.thread_time()
            states = [each.state_dict() for each in counted]
            spent.append(time.thread_time() - began)
    finally:
        gc.callbacks.remove(watch)
        gc.set_threshold(*often)
    assert looked.count(2) <= 2, (
        "Python has looked through all that there is"
    )  # begun and ended: once
    nested = {(float(i), float(j)): [0.0] * 8 for i in range(150) for j in range(140)}
    began = time.thread_time()
    torch.tensor([[*square, *values] for square, values in nested.items()], dtype=torch.float64)
    # three tables cost less than a quarter of one of them as nested lists; on a machine of its own, less than 6 ms
    assert min(spent) < 0.22 * (time.thread_time() - began), spent

    for each, state in zip(counted, states):
        again = type(each)(1.0) if not isinstance(each, Extent) else Extent()
        again.load_state_dict(state)
        assert {
            name: torch.equal(value, state[name])
            if isinstance(value, torch.Tensor)
            else value == state[name]
            for name, value in again.state_dict().items()
        } == dict.fromkeys(state, True)


def test_tables_and_the_lists_of_older_files_are_read_alike():
    rows = {(3, -4): [1.0, 2.5], (-1, 0): [0.0, -7.0]}
    names = "here", "all"
    table = table_of({key: SimpleNamespace(here=a, all=b) for key, (a, b) in rows.items()}, names)
    assert (
        table.tolist() == [[3.0, -4.0, 1.0, 2.5], [-1.0, 0.0, 0.0, -7.0]]
        and table.dtype == torch.float64
    )
    assert dict(rows_of(table)) == dict(rows_of([[3, -4, 1, 2.5], [-1, 0, 0, -7]])) == rows
    assert table_of({}, names).shape == (0, 4) and list(rows_of(table_of({}, names))) == []


def test_what_is_loaded_takes_the_place_of_all_that_was_there():
    squares = Squares(1)
    for i in range(5):
        squares.put((i, 0), [float(i)])
    assert squares.pop((3, 0)) == [3.0] and squares.pop((3, 0)) is None and len(squares) == 4
    assert squares.numbers_of([(4.0, 0.0), (3.0, 0.0), (1, 0)]).tolist() == [[4.0], [0.0], [1.0]]
    squares.load([[7, 7, 70.0], [8, 8, 80.0]])
    for i in range(2):
        squares.put((i, 1), [float(i)])
    assert dict(rows_of(squares.table())) == {
        (7, 7): [70.0],
        (8, 8): [80.0],
        (0, 1): [0.0],
        (1, 1): [1.0],
    }


def test_the_oldest_goes_first():
    squares = Squares(1)
    for i in range(4):
        squares.put((i, 0), [float(i)])
    squares.put((0, 0), [9.0])  # known already: it keeps its place
    assert squares.pop_oldest() == [9.0] and squares.pop_oldest() == [1.0]
    assert list(squares) == [(2, 0), (3, 0)] and (0, 0) not in squares
    squares.put((4, 0), [4.0])  # into a row that was used before
    assert squares.table().tolist() == [[2.0, 0.0, 2.0], [3.0, 0.0, 3.0], [4.0, 0.0, 4.0]]
