"""A cell of which nothing is out of the ordinary is averaged as any other cell is."""

import math

import numpy as np
import pytest

from gp_mapping.mapping import cells
from gp_mapping.mapping.averaging.usual import usual_cell
from gp_mapping.mapping.cells import CellAverager, RawRows

COUNT = 700


def drive(channels: int, seed: int = 3) -> RawRows:
    """Along a bend at about .3 m/s, far from the origin, with spikes, a stand and numbers told twice."""
    rng = np.random.default_rng(seed)
    stamp = 1.7e9 + np.cumsum(rng.uniform(0.015, 0.025, COUNT))
    angle = 0.2 * (stamp - stamp[0])
    x = np.stack([1e5 + 1.5 * np.sin(angle), 1.5 * np.cos(angle)], 1)
    x[300:330] = x[300]
    y = 48e-6 + 4e-6 * np.sin(3.0 * angle)[:, None] + 1e-7 * rng.normal(size=(COUNT, channels))
    y[100:160:20] += 5e-6
    y[400:430] = y[400]
    return RawRows(
        x.tolist(),
        y.tolist(),
        stamp.tolist(),
        [1e-14 if k < 350 else 0.0 for k in range(COUNT)],
        np.stack([np.cos(angle), np.sin(angle)], 1).tolist(),
        rng.uniform(1e-4, 2e-4, COUNT).tolist() if channels == 1 else [None] * COUNT,
    )


def averaged(rows: RawRows, **settings) -> tuple[list[dict], dict]:
    averager = CellAverager(0.1, 1.0, **settings)
    closed = [averager.add(*row) for row in zip(*rows)] + [averager.flush()]
    return [vars(cell) for cell in closed if cell is not None], averager.state_dict()


@pytest.mark.parametrize("channels, robust", [(1, True), (3, True), (1, False)])
def test_as_cells_that_are_looked_at_row_by_row(channels, robust, monkeypatch):
    rows, usual = drive(channels), []
    made, known = averaged(rows, robust=robust)
    with monkeypatch.context() as patch:
        close = CellAverager._close_usual  # noqa: SLF001  whether it is taken at all
        patch.setattr(CellAverager, "_close_usual", lambda *a: usual.append(close(*a)) or usual[-1])
        averaged(rows, robust=robust)
    assert sum(cell is not None for cell in usual) >= 0.6 * len(usual)

    monkeypatch.setattr(cells, "usual_cell", lambda *columns: None)
    expected, also = averaged(rows, robust=robust)
    assert len(made) == len(expected) and known["gross"] == also["gross"]
    for one, other in zip(made, expected):
        for name, column in other.items():
            if column is None:
                assert one[name] is None, name
            else:
                # stamps of today are told to a quarter of a microsecond
                exact = {"y": 0.0, "count": 0.0, "sensor_variance": 0.0, "stamp": 1e-6}
                assert one[name].shape == column.shape and one[name].dtype == column.dtype
                assert one[name].numpy() == pytest.approx(
                    column.numpy(), rel=1e-9, abs=exact.get(name, 1e-9)
                )
    for name in ("white", "spread"):
        assert known[name]["sum"] == pytest.approx(also[name]["sum"], rel=1e-9)
        assert known[name]["count"] == also[name]["count"]
    for name in ("resolution", "usual_alike", "step", "tail", "level"):
        assert known[name] == also[name], name


def test_what_is_out_of_the_ordinary_is_looked_at_row_by_row():
    x, y = [[0.01 * k, 0.0] for k in range(6)], [[float(k % 2)] for k in range(6)]
    stamp = [0.02 * k for k in range(6)]
    assert usual_cell(x, y, stamp, None, None, None) is not None
    assert usual_cell(x, y, stamp, [0.0] * 6, None, [1e-4] * 6) is not None
    assert usual_cell(x, y, stamp, [1.0, 0.0, 1.0, 1.0, 1.0, 1.0], None, None) is None
    assert usual_cell(x, y, stamp, None, None, [1e-4] * 5 + [26e-4]) is None
    assert usual_cell(x, y, [0.0] * 6, None, None, None) is None
    assert usual_cell(x[:2], y[:2], stamp[:2], None, None, None) is None
    assert usual_cell(x, [[1e200 * value] for (value,) in y], stamp, None, None, None) is None


def test_samples_of_one_place_have_no_extent():
    """Nor have those of a robot that is back where it began: no way leads from the first to the last."""
    y, stamp = [[float(k % 2)] for k in range(6)], [0.02 * k for k in range(6)]
    for x in ([[7.0, 1.0]] * 6, [[7.0 + min(k, 5 - k), 1.0] for k in range(6)]):
        cell = usual_cell(x, y, stamp, None, None, None)
        assert cell.velocity == [0.0, 0.0] and cell.extent == 0.0
    along = usual_cell([[7.0, 3.0 * k] for k in range(6)], y, stamp, None, None, None)
    assert along.extent == pytest.approx(3.0 * math.sqrt(35.0 / 12.0))
