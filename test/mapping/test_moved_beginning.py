"""A map that is moved while it begins goes on as if its first cells had been measured in the new frame."""

import math

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping import moving
from gp_mapping.mapping.moving import move_session, rotation
from gp_mapping.mapping.session import MapSession

UT, N, YAW = 1e-6, 70, 0.7
SHIFT = torch.tensor([3.0, -4.0], dtype=torch.float64)


def drive(channels: int = 1) -> Samples:
    """A slow sensor on lanes: each cell is one sample."""
    away = 0.25 * np.arange(N)
    lane = np.floor(away / 4.0)
    along = away - 4.0 * lane
    x = np.stack([np.where(lane % 2 == 0, along, 4.0 - along), 0.5 * lane], 1)
    f = np.sin(1.1 * x[:, :1]) * np.cos(0.9 * x[:, 1:])
    y = 45.0 + 6.0 * f + 0.3 * np.random.default_rng(0).standard_normal((N, 1))
    if channels == 3:
        y = np.concatenate([30.0 + 5.0 * f, 2.0 * f, -y], 1)
    return Samples(x, UT * y, stamp=torch.arange(N).double() * 0.5)


def there(samples: Samples, yaw: float = YAW) -> Samples:
    """The same, measured in the new frame."""
    turn, y = rotation(yaw), samples.y.clone()
    if y.shape[1] == 3:
        y[:, :2] = y[:, :2] @ turn.mT
    return Samples(samples.x @ turn.mT + SHIFT, y, stamp=samples.stamp)


def session_of(samples: Samples, **settings) -> MapSession:
    given = {"learn_hyperparameters": False, "learn_time_offset": False, "cell_length": 0.2}
    session = MapSession(MapSettings(**(given | settings)))
    session.ingest(samples)
    session.break_pass()
    return session


def apart(one: MapSession, other: MapSession, x) -> float:
    """Standard deviations by which two maps differ at most."""
    p, q = one.map.predict(x), other.map.predict(x)
    return float(((p.mean - q.mean).abs() / q.stddev).max() + (p.stddev / q.stddev - 1).abs().max())


@pytest.mark.parametrize("at", [5, 20, 40])
@pytest.mark.parametrize("model", ["dual_svgp", "exact"])
def test_no_cell_is_forgotten(at, model):
    """Among the first nine, of which the map is made with each, and among those of which it is made again."""
    samples = drive()
    goes = move_session(session_of(samples[:at], model=model), *SHIFT.tolist(), YAW)
    stays = session_of(there(samples)[:at], model=model)
    stays.finish_starts()
    for session in (goes, stays):
        session.ingest(there(samples)[at:])
        session.finish()
    assert goes.cell_count == stays.cell_count == N == goes.raw_count
    assert goes.started_settings.lengthscale == pytest.approx(
        stays.started_settings.lengthscale, rel=1e-6
    )
    assert apart(goes, stays, there(samples).x) < 1e-4


def test_a_vector_turns_with_the_frame_in_the_first_cells_too():
    """What later cells are compared with, as well: none of them is far, and none waits."""
    samples, yaw = drive(3), 2.5
    for at in (5, 30):
        session = move_session(session_of(samples[:at]), *SHIFT.tolist(), yaw)
        session.ingest(there(samples, yaw)[at:])
        session.finish()
        assert session.cell_count == N and session.gross_errors == 0
        away = session.predict(there(samples, yaw).x).mean - there(samples, yaw).y
        assert float(away.abs().max()) < 2.0 * UT


def test_a_sensor_that_has_not_begun_to_measure_is_found_out_after_the_move():
    samples = drive()
    y = samples.y.clone()
    y[:8] = 85.0 * UT * 1e3
    samples = Samples(samples.x, y, stamp=samples.stamp)
    session = move_session(session_of(samples[:10]), *SHIFT.tolist(), YAW)
    session.ingest(there(samples)[10:])
    session.finish()
    assert session.cell_count == N - 8 and "had not begun to measure" in session.warnings[-1]


def test_a_map_that_has_hardly_begun_is_none_that_could_be_merged():
    young, other = move_session(session_of(drive()[:5]), 1.0, 0.0, 0.1), session_of(drive())
    with pytest.raises(ValueError, match="hardly begun"):
        other.merge(young)


@pytest.mark.parametrize("channels", [1, 3])
def test_each_value_of_the_beginning_turns_as_a_vector_does(channels):
    """A quarter of a turn and (3, −4) m: x goes to y, y to −x, and z stays."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    turned, wide = ([-2.0, 1.0, 5.0], [2.0, 1.0, 5.0]) if channels == 3 else ([1.0], [1.0])
    told = [1.0, 2.0, 5.0][:channels]
    columns = {
        "x": torch.tensor([[1.0, 2.0]]).double(),
        "y": torch.tensor([told]).double(),
        "velocity": torch.tensor([[1.0, 0.5]]).double(),
        "heading": None,
        "stamp": [7.0],
    }
    moved = moving._Beginning(turn, SHIFT, channels == 3)  # noqa: SLF001  what its parts become
    start = moved.start({"cells": [columns], "centre": told, "found_centre": None, "open": True})
    (cell,) = start["cells"]
    assert cell["x"].tolist() == [[1.0, -3.0]] and cell["y"].tolist() == [turned]
    assert cell["velocity"].tolist() == [[-0.5, 1.0]] and cell["heading"] is None
    assert cell["stamp"] == [7.0] and start["open"] is True
    assert start["centre"] == turned and start["found_centre"] is None
    first = {"first": [columns], "early": None, "recent": [told, told], "last": told, "seen": 4}
    state = moved.first_values(first | {"reference": None})
    assert state["recent"] == [turned, turned] and state["last"] == turned and state["seen"] == 4
    assert state["first"][0]["y"].tolist() == [turned]
    assert state["early"] is None and state["reference"] is None
    state = moved.first_values(first | {"early": [columns], "reference": [told, told]})
    assert state["early"][0]["y"].tolist() == [turned] and state["reference"] == [turned, wide]
    eighth = moving._Beginning(rotation(math.pi / 4), SHIFT, True)  # noqa: SLF001
    empty = {"first": [], "early": None, "recent": [], "last": None}
    spread = eighth.first_values(empty | {"reference": [[1.0, 2.0, 5.0], [3.0, 4.0, 5.0]]})
    root = math.sqrt(0.5 * 25.0)
    assert spread["reference"][1] == pytest.approx([root, root, 5.0])
