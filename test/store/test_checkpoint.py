import json
import math
import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_mapping.store import archive
from gp_mapping.store.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

TENSORS = st.builds(
    lambda kind, shape, seed: (
        torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 100
    ).to(kind),
    st.sampled_from(
        [torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool]
    ),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 1000),
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec="utf-8"))
    | TENSORS
)
STATES = st.dictionaries(
    st.text(st.characters(codec="utf-8")),
    st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    max_size=5,
)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (
            type(b) is float
            and (a == b or (math.isnan(a) and math.isnan(b)))
            and math.copysign(1, a) == math.copysign(1, b)
        ) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


def state():
    generator = torch.Generator().manual_seed(3)
    return {
        "x": torch.rand(20, 2, dtype=torch.float64, generator=generator),
        "n": 7,
        "s": 0.1 + 0.2,
        "name": "µT",
        "none": None,
        "parts": [{"g": generator.get_state(), "on": True}, [1.5e-300, math.inf]],
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty((0, 2)),
    }


@settings(max_examples=80, deadline=None)
@given(STATES)
def test_any_state_comes_back_bit_for_bit(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "any.gpm"
    save_checkpoint(path, value)
    assert same(value, load_checkpoint(path))


@pytest.mark.parametrize(
    "key", ["__tensor__", "___tensor__", "____tensor__", "_tensor__", "tensor__", "__tensor"]
)
def test_a_key_like_the_mark_of_a_tensor_comes_back(tmp_path, key):
    value = {key: "a0", "x": {key: torch.ones(2), "dtype": "torch.float64"}}
    assert same(value, load_checkpoint(save_checkpoint(tmp_path / "a", value)))


def test_a_manifest_is_json_for_any_program_also_where_a_number_is_not_finite(tmp_path):
    value = {"a": [math.nan, math.inf, {"b": -math.inf}], "__number__": "nan"}
    path = save_checkpoint(tmp_path / "a", value, {"rmse": math.nan, "counts": [1, math.inf]})
    assert same(value, load_checkpoint(path))
    with np.load(path) as file:
        text = file["manifest"].tobytes().decode()
    told = json.loads(text, parse_constant=pytest.fail)
    assert told["about"] == {"rmse": None, "counts": [1, None]}


def test_a_file_of_before_with_bare_words_for_such_numbers_is_read(tmp_path):
    path = save_checkpoint(tmp_path / "a", {"x": "here", "y": 1.5})
    with np.load(path) as file:
        text = file["manifest"].tobytes().decode()
    old = text.replace('"here"', "-Infinity").replace("1.5", "NaN")
    with path.open("wb") as file:
        np.savez(file, manifest=np.frombuffer(old.encode(), np.uint8))
    assert same({"x": -math.inf, "y": math.nan}, load_checkpoint(path))


def test_a_view_and_a_transposed_tensor_come_back(tmp_path):
    x = torch.arange(12.0).reshape(3, 4)
    back = load_checkpoint(
        save_checkpoint(tmp_path / "a", {"t": x.T, "row": x[1], "step": x[:, ::2]})
    )
    assert (
        torch.equal(back["t"], x.T)
        and torch.equal(back["row"], x[1])
        and torch.equal(back["step"], x[:, ::2])
    )
    back["t"][0, 0] = 5.0  # what is loaded can be written to


def test_the_same_state_gives_the_same_bytes(tmp_path):
    a, b = (save_checkpoint(tmp_path / name, state()) for name in "ab")
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize(
    "value",
    [
        {1: 2},
        np.zeros(2),
        np.complex128(1j),
        object(),
        torch.zeros(2).to(torch.bfloat16),
        1j,
        b"x",
        [{"a": {1}}],
    ],
)
def test_what_cannot_be_saved_is_refused_and_leaves_no_file(tmp_path, value):
    with pytest.raises(CheckpointError, match=r"state\.v.*cannot be saved"):
        save_checkpoint(tmp_path / "map.gpm", {"v": value})
    assert list(tmp_path.iterdir()) == []


def test_a_map_is_saved_whatever_kind_of_list_or_number_a_part_has(tmp_path):
    told = {"v": (1, (np.float64(0.1), [np.int64(-3), np.bool_(True)])), "w": np.float32(math.inf)}
    found = load_checkpoint(save_checkpoint(tmp_path / "map.gpm", told))
    assert found == {"v": [1, [0.1, [-3, True]]], "w": math.inf}
    assert [type(each) for each in found["v"][1][1]] == [int, bool]


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0.0, 0.9999))
def test_a_cut_off_checkpoint_is_refused(tmp_path_factory, share):
    path = save_checkpoint(tmp_path_factory.mktemp("cut") / "map.gpm", state())
    left = int(path.stat().st_size * share)
    os.truncate(path, left)
    # the first four bytes say what it is
    wanted = "cut off or damaged" if left >= 4 else "not a checkpoint"
    with pytest.raises(CheckpointError, match=wanted):
        load_checkpoint(path)


@settings(max_examples=150, deadline=None)
@given(share=st.floats(0.0, 0.9999), flip=st.integers(1, 255))
def test_a_wrong_byte_is_found_or_harmless(tmp_path_factory, share, flip):
    path = save_checkpoint(tmp_path_factory.mktemp("flip") / "map.gpm", state())
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= flip
    path.write_bytes(data)
    try:
        loaded = load_checkpoint(path)
    except CheckpointError:
        return
    assert same(state(), loaded)  # a byte that means nothing, such as a date in the zip


def test_an_array_that_was_exchanged_is_found(tmp_path):
    path = save_checkpoint(tmp_path / "map.gpm", state())
    with np.load(path) as archive:
        arrays = {k: archive[k] for k in archive.files}
    arrays["a0"] = arrays["a0"] + 1e-12
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(CheckpointError, match="checksum of a0"):
        load_checkpoint(path)


def test_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "VERSION", 99)
    path = save_checkpoint(tmp_path / "map.gpm", state())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="has version 99, this program reads version 1"):
        load_checkpoint(path)


class Evil:
    def __reduce__(self):
        return os.system, ("exit 1",)


def test_pickles_are_never_run(tmp_path):
    path = tmp_path / "map.gpm"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load_checkpoint(path)
    with path.open("wb") as file:
        np.savez(file, manifest=np.array([Evil()], dtype=object))
    with pytest.raises(CheckpointError, match="allow_pickle"):
        load_checkpoint(path)


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path)
    for name, write in (
        ("text", lambda f: f.write(b"hello")),
        ("empty", lambda f: None),
        ("npy", lambda f: np.save(f, np.zeros(3))),
        ("npz", lambda f: np.savez(f, a=np.zeros(3))),
        ("other", lambda f: np.savez(f, manifest=np.frombuffer(b"{}", np.uint8))),
    ):
        with (tmp_path / name).open("wb") as file:
            write(file)
        with pytest.raises(CheckpointError, match="not a checkpoint"):
            load_checkpoint(tmp_path / name)


def test_what_the_system_does_not_open_is_said_to_be_unreadable(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "map.gpm", tmp_path / ("long" * 100)):
        with pytest.raises(CheckpointError, match=r"cannot be read \([A-Z][a-z ]+\)"):
            load_checkpoint(path)


def test_a_crash_while_writing_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path / "map.gpm", {"n": 1})

    def crash(file, **_):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive.np, "savez", crash)
    with pytest.raises(CheckpointError, match=r"cannot be written.*No space left.*make room"):
        save_checkpoint(path, {"n": 2})
    assert load_checkpoint(path) == {"n": 1} and [p.name for p in tmp_path.iterdir()] == ["map.gpm"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_checkpoint(tmp_path / "file" / "map.gpm", {})
