"""A saved map is tried before it is handed out: right ones go on exactly, wrong ones are refused in one line."""

import os
import zipfile

import numpy as np
import pytest
import torch

from gp_mapping.commands.saved import open_session
from gp_mapping.core.registry import model_names
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from gp_mapping.store.trial import tried_session


def drive(n=60, channels=1, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n, dtype=torch.float64)
    x = torch.stack([0.1 * t % 2.0, 0.3 * torch.floor(0.05 * t)], 1)
    y = (
        45e-6
        + 5e-6 * torch.sin(2 * x[:, :1])
        + 1e-7 * torch.randn(n, channels, dtype=torch.float64, generator=g)
    )
    return Samples(x, y, stamp=10.0 + 0.1 * t)


def session_with(n=60, **settings):
    session = MapSession(MapSettings(max_inducing=40, **settings))
    session.ingest(drive(n, 3 if settings.get("model") == "curl_free" else 1))
    return session


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Which no test changes."""
    return save_checkpoint(
        tmp_path_factory.mktemp("saved") / "map.gpm", session_with().state_dict()
    )


@pytest.mark.parametrize("model", model_names())
def test_every_model_comes_back_as_it_was(tmp_path, model):
    """The trial is made on a copy: it leaves no trace in what is handed out."""
    # starts, since to find them takes the first cells in again and again
    starts = {"lengthscale": 1.0, "signal_stddev": 5e-6, "noise_stddev": 1e-7}
    session = session_with(30, model=model, constant_stddev=15e-6, **starts)
    path = save_checkpoint(tmp_path / "map.gpm", session.state_dict())
    assert same(open_session(path).state_dict(), load_checkpoint(path))


@pytest.mark.parametrize(
    "settings",
    [
        {"likelihood": "student_t"},
        {"likelihood": "censored", "upper_limit": 5e-5},
        {"likelihood": "bernoulli"},
        {"likelihood": "poisson"},
        {"cells": False},
        {"follow_changes": False},
        {"forgetting_time": 100.0},
    ],
    ids=str,
)
def test_other_sessions_come_back_too(tmp_path, settings):
    session = MapSession(MapSettings(max_inducing=40, **settings))
    samples = drive(30)
    if not session.settings.metric:
        samples = Samples(samples.x, (samples.y > 45e-6).double(), stamp=samples.stamp)
    session.ingest(samples)
    path = save_checkpoint(tmp_path / "map.gpm", session.state_dict())
    assert same(open_session(path).state_dict(), load_checkpoint(path))


def test_a_young_and_an_empty_map_come_back(tmp_path):
    for name, n in (("empty", 0), ("one", 1)):
        session = MapSession(MapSettings())
        session.ingest(drive()[:n])
        path = save_checkpoint(tmp_path / name, session.state_dict())
        assert open_session(path).report() == session.report()


def test_settings_may_be_changed(saved):
    assert open_session(saved, resolution=0.3).settings.resolution == 0.3
    with pytest.raises(CheckpointError, match="resolution: -1"):
        open_session(saved, resolution=-1.0)


def at(state, trail):
    for key in trail[:-1]:
        state = state[key]
    return state, trail[-1]


@pytest.mark.parametrize(
    "trail, value, said",
    [
        (("map", "sites", "precision"), "nan", "not finite"),
        (("map", "basis", "z"), "short", "do not agree|fit"),
        (("map", "basis", "L"), torch.zeros(3), "expected a tensor"),
        (("raw_count",), "many", "is a str, expected a number"),
        (("map", "theta", "lengthscale"), float("inf"), "inf"),
        (("path", "points"), {}, "expected a tensor"),
        (("scores", "snapshots", 0, "posterior", "z"), "huge", "earlier states"),
        (("last_stamp",), [1.0], "expected a number"),
        (("map", "sites"), None, "not a state"),
        (("settings", "lengthscale"), -1.0, "lengthscale"),
        (("settings", "unheard_of"), 1.0, "unheard_of"),
        (("channels",), 2, "fit together|channels"),
    ],
)
def test_what_does_not_fit_together_is_refused(saved, trail, value, said):
    """Right checksums, wrong content: nothing of it reaches a running map."""
    state = load_checkpoint(saved)
    holder, key = at(state, trail)
    if isinstance(value, str) and value in ("nan", "short", "huge"):
        old = holder[key]
        value = {"nan": old * float("nan"), "short": old[:-1], "huge": torch.full_like(old, 1e300)}[
            value
        ]
    holder[key] = value
    with pytest.raises(CheckpointError, match=said) as caught:
        tried_session(state, saved)
    assert "\n" not in str(caught.value) and str(saved) in str(caught.value)


def test_nothing_is_unpacked_beyond_the_file(tmp_path):
    """100 MB of zeros in 100 kB, and a header that promises a terabyte over a few bytes."""
    bomb = tmp_path / "bomb.gpm"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.npy", bytes(100_000_000))
    with pytest.raises(CheckpointError, match="is compressed"):
        load_checkpoint(bomb)

    liar = tmp_path / "liar.gpm"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776,), }"
    header = header.ljust(117) + b"\n"
    with zipfile.ZipFile(liar, "w") as archive:
        archive.writestr(
            "manifest.npy",
            b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"x" * 9,
        )
    with pytest.raises(CheckpointError, match="in 9 bytes"):
        load_checkpoint(liar)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.gpm")
    for path in (tmp_path / "pipe.gpm", "/dev/zero"):
        with pytest.raises(CheckpointError, match="pipe, socket or device"):
            load_checkpoint(path)


def test_arrays_of_any_layout_come_back(tmp_path):
    rows = torch.arange(12.0).reshape(3, 4)
    back = load_checkpoint(
        save_checkpoint(tmp_path / "a", {"t": rows.T, "scalar": rows.sum(), "none": rows[:0]})
    )
    assert (
        torch.equal(back["t"], rows.T)
        and back["scalar"] == rows.sum()
        and back["none"].shape == (0, 4)
    )
    np.testing.assert_array_equal(back["t"].numpy(), rows.T.numpy())


def test_what_does_not_fit_together_is_told_from_settings_that_do_not_fit(tmp_path):
    """The latter say themselves what is wrong."""
    state = session_with().state_dict()
    with pytest.raises(CheckpointError, match="fit together .KeyError: .*use an older one"):
        tried_session({k: v for k, v in state.items() if k != "channels"}, tmp_path / "a.gpm")
    with pytest.raises(CheckpointError, match="a.gpm: max_inducing") as told:
        tried_session(state, tmp_path / "a.gpm", max_inducing=-1)
    assert "older" not in str(told.value)
