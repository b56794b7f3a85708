"""Totals of a map on a wire: exact to the bit, and nothing that comes instead of them is taken."""

import hashlib
import json
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gp_mapping.core.stored import StoredState
from gp_mapping.store.message import MessageError, decode, encode, names_of_parts, with_parts

STATE = {
    "a": torch.rand(3, 4, dtype=torch.float64),
    "b": [1, 2.5, "text", None, True, float("inf")],
    "c": {
        "d": torch.arange(5),
        "e": torch.tensor([True, False]),
        "f": torch.empty(0, 2),
        "é": -1.0e-300,
    },
}


def made(manifest: dict, data: bytes = b"", version: int = 1) -> bytes:
    """A message with a checksum that fits, whatever is in it."""
    text = json.dumps(manifest).encode()
    return (
        struct.pack("<4sHI32s", b"GPMT", version, len(text), hashlib.sha256(text + data).digest())
        + text
        + data
    )


def reason(data: bytes, most: int = 1_000_000) -> str:
    with pytest.raises(MessageError) as error:
        decode(data, most)
    assert "\n" not in str(error.value) and str(error.value)
    return error.value.reason


def test_it_comes_back_to_the_bit():
    about, state = decode(encode({"source": "robot1", "number": 7}, STATE), 1_000_000)
    assert about == {"source": "robot1", "number": 7}
    assert torch.equal(state["a"], STATE["a"]) and state["a"].dtype == torch.float64
    assert state["b"] == STATE["b"] and torch.equal(state["c"]["d"], STATE["c"]["d"])
    assert (
        state["c"]["e"].dtype == torch.bool
        and state["c"]["f"].shape == (0, 2)
        and state["c"]["é"] == -1.0e-300
    )
    state["a"][0, 0] = 5.0  # memory of its own
    assert encode({}, STATE) == encode({}, STATE)


def test_its_manifest_is_json_for_any_program():
    data = encode({"n": float("nan")}, {"a": [float("-inf")], "__number__": "inf"})
    size = struct.unpack("<4sHI32s", data[:42])[2]
    assert json.loads(data[42 : 42 + size], parse_constant=pytest.fail)["about"] == {"n": None}
    assert decode(data, 10_000)[1] == {"a": [float("-inf")], "__number__": "inf"}
    assert decode(made({"about": {}, "tensors": [], "state": {"a": float("inf")}}), 10_000)
    assert reason(encode({}, {"a": float("nan")})) == "not_a_number"
    wrong = {"about": {}, "tensors": [], "state": {"a": {"__number__": "1e5"}}}
    assert reason(made(wrong)) == "malformed"


def test_parts_stand_by_their_names():
    part = StoredState("0 1", {"x": torch.ones(2)})
    _, state = decode(encode({}, {"tiles": {"0 1": {"state": part}}, "shelf": [part]}), 10_000)
    assert names_of_parts(state) == {"0 1"}
    assert with_parts(state, {"0 1": part})["tiles"]["0 1"]["state"] is part
    with pytest.raises(KeyError):
        with_parts(state, {})


def test_words_of_the_format_are_keys_like_any_other():
    part = StoredState("0 1", {"x": torch.ones(2)})
    state = {
        "__tensor__": 0,
        "__part__": {"___tensor__": [1.5], "____part__": None, "__tensor": part},
        "x": torch.arange(3),
    }
    _, found = decode(encode({}, state), 10_000)
    assert names_of_parts(found) == {"0 1"} and torch.equal(found.pop("x"), state["x"])
    assert with_parts(found, {"0 1": part}) == {k: v for k, v in state.items() if k != "x"}
    with pytest.raises(TypeError, match="a key 1 cannot be sent"):
        encode({}, {"a": {1: 2.0, "1": 3.0}})


def test_what_is_wrong_is_named():
    good = encode({}, STATE)
    assert reason(good, 100) == "too_large"
    assert (
        reason(b"")
        == reason(b"GPM")
        == reason(b"\x00" * 500)
        == reason(b"GPMX" + good[4:])
        == "not_tiles"
    )
    assert reason(good[:-1]) == reason(good + b"x") == reason(good[:60]) == "damaged"
    assert reason(made({}, version=2)) == "other_version"
    nan = {"x": torch.tensor([1.0, float("nan")])}
    assert reason(encode({}, nan)) == reason(encode({}, {"x": float("nan")})) == "not_a_number"
    wrong = {"about": {"number": [float("nan")]}, "tensors": [], "state": {}}
    assert reason(made(wrong)) == "not_a_number"
    huge = {"about": {}, "tensors": [["f8", [2**40, 2**40]]], "state": {"x": {"__tensor__": 0}}}
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    for wrong in (
        huge,
        {},
        [],
        {"about": {}, "state": {}},
        {"about": 1, "tensors": [], "state": {}},
        {"about": {}, "tensors": [], "state": []},
        {"about": {}, "tensors": [["f8", [-1]]], "state": {}},
        {"about": {}, "tensors": [["O", [1]]], "state": {}},
        {"about": {}, "tensors": [], "state": {"x": {"__tensor__": 3}}},
        {"about": {}, "tensors": [["f8", [1]]], "state": {}},
        {"about": {}, "tensors": [], "state": {"x": deep}},
    ):
        assert reason(made(wrong)) == "malformed", wrong
    assert reason(made({"about": {}, "tensors": [], "state": {}}, b"12345678")) == "malformed"
    assert (
        reason(made({"about": {}, "tensors": [], "state": {"x": [0] * 300_000}}), 10_000_000)
        == "malformed"
    )


def test_a_tensor_takes_its_own_bytes_and_has_four_dimensions_at_most():
    def one(*shapes) -> bytes:
        kinds = [["f8", shape] for shape in shapes]
        state = {"x": {"__tensor__": len(kinds) - 1}}
        return made({"about": {}, "tensors": kinds, "state": state}, struct.pack("<d", 2.5))

    assert decode(one([1, 1, 1, 1]), 1000)[1]["x"].flatten().tolist() == [2.5]
    assert reason(one([1, 1, 1, 1, 1])) == "malformed"
    # a size below nothing would lead back, to bytes that are none of it
    assert reason(one([-1], [2])) == reason(one([-2, -1], [-1])) == "malformed"


def test_a_million_brackets_do_not_end_the_program():
    text = b"[" * 1_000_000
    data = struct.pack("<4sHI32s", b"GPMT", 1, len(text), hashlib.sha256(text).digest()) + text
    assert reason(data, 10_000_000) == "malformed"


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_are_refused(noise, at):
    good = encode({}, {"x": torch.arange(4.0)})
    reason(noise)
    spoilt = good[:at] + noise + good[at + len(noise) :]
    if spoilt != good:
        reason(spoilt)
