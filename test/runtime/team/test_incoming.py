"""What of another robot's totals is kept, which of it is complete, and what is refused."""

import pytest

from gp_mapping.core.stored import StoredState
from gp_mapping.runtime.team import incoming
from gp_mapping.runtime.team.incoming import MemoryPool, Source
from gp_mapping.store.message import encode


def address(part="head", number=1, map_id="m", instead=()):
    return {"map": map_id, "part": part, "number": number, "instead": list(instead)}


def head(number, *tiles, map_id="m", instead=()):
    parts = {name: StoredState(name) for name in tiles}
    return encode(address("head", number, map_id, instead), {"map": {"tiles": parts}, "n": number})


def tile(name, number, map_id="m"):
    return encode(address(name, number, map_id), {"of": name, "v": number})


@pytest.fixture
def source():
    return Source("robot1", MemoryPool(1.0))


def ready(source):
    """Of each map the numbers of its parts."""
    return {
        given.map_id: {name: part.number for name, part in given.parts.items()}
        for given in source.ready()
    }


def test_a_map_is_ready_when_its_head_and_all_of_its_tiles_are_here(source):
    assert source.newest is None and "age (s)" not in source.status(0.0)
    assert source.accept(tile("0 0", 1), 1.0) and source.news == 0 and ready(source) == {}
    assert source.accept(head(2, "0 0", "0 1"), 2.0) and source.news == 0 and ready(source) == {}
    assert source.accept(tile("9 9", 1), 3.0) and source.news == 0, "of no head"
    assert source.accept(tile("0 1", 2), 4.0) and source.news == 1
    assert ready(source) == {"m": {"head": 2, "0 0": 1, "0 1": 2}}
    # repeated and older ones change nothing
    for message in (tile("0 1", 2), tile("0 1", 1), head(1, "0 0")):
        assert source.accept(message, 5.0)
    assert source.repeated == 3 and source.news == 1 and source.newest == 5.0
    assert source.accept(tile("0 0", 7), 6.0) and source.news == 2
    # a head whose new tile is not here yet leaves the map as it was
    assert source.accept(head(8, "0 0", "0 2"), 7.0) and source.news == 2
    assert ready(source)["m"] == {"head": 2, "0 0": 7, "0 1": 2}
    assert source.accept(tile("0 2", 8), 8.0)
    assert ready(source)["m"] == {"head": 8, "0 0": 7, "0 2": 8}
    (given,) = source.ready()
    state = given.state()
    assert state["n"] == 8 and set(state["map"]["tiles"]) == {"0 0", "0 2"}
    assert state["map"]["tiles"]["0 2"].get() == {"of": "0 2", "v": 8}
    assert given.version[:2] == ("robot1", "m")
    told = source.status(10.0)
    assert (told["maps"], told["tiles"], told["version"]) == (1, 2, 8)
    assert (told["received"], told["repeated"], told["age (s)"]) == (10, 3, 2.0)
    whole = Source("robot2", MemoryPool(1.0))
    whole.accept(head(3), 0.0)
    assert whole.status(0.0)["tiles"] == 1, "a map without tiles counts as one"


def test_a_map_that_was_replaced_goes_and_does_not_come_back(source):
    for map_id in ("a", "b"):
        source.accept(head(5, map_id=map_id), 0.0)
    assert set(ready(source)) == {"a", "b"} and source.news == 2
    assert source.accept(head(1, map_id="c", instead=["a", "x"]), 1.0)
    assert set(ready(source)) == {"b", "c"} and source.news == 4
    repeated = source.repeated
    assert source.accept(head(9, map_id="a"), 2.0) and source.accept(head(9, map_id="x"), 2.0)
    assert set(ready(source)) == {"b", "c"} and source.repeated == repeated + 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"map": ""},
        {"map": "x" * 101},
        {"map": 3},
        {"part": ""},
        {"part": "x" * 101},
        {"part": None},
        {"number": True},
        {"number": -1},
        {"number": 2**62},
        {"number": 1.0},
        {"number": None},
        {"instead": "a"},
        {"instead": [""]},
        {"instead": [3]},
        {"instead": ["x" * 101]},
        {"instead": ["a"] * 257},
        {"instead": ["b", "m"]},
    ],
    ids=str,
)
def test_an_address_that_is_none_is_refused(source, wrong):
    assert not source.accept(encode({**address(), **wrong}, {"map": {}}), 0.0)
    assert source.dropped == {"malformed": 1}
    assert source.fault.startswith("a message of robot1 is dropped: ")
    assert source.bytes > 0 and source.newest is None and not source.ready()
    good = address("x" * 100, 2**62 - 1, "y" * 100, ["a"] * 256)
    assert source.accept(encode(good, {"map": {}}), 1.0) and source.fault == ""
    assert source.accept(encode(address(number=0, map_id="other"), {"map": {}}), 1.0)


def test_a_head_without_a_map_and_more_tiles_than_any_map_has_are_refused(source, monkeypatch):
    assert not source.accept(encode(address(), {"map": 1}), 0.0)
    assert "a head without a map" in source.fault
    monkeypatch.setattr(incoming, "_NAMES", 3)
    assert all(source.accept(tile(f"0 {i}", 1), 0.0) for i in range(3))
    assert not source.accept(tile("0 3", 1), 0.0) and "more than 3 tiles" in source.fault
    assert source.accept(tile("0 2", 2), 0.0), "it has its place already"


def test_of_too_many_maps_the_one_that_was_quiet_for_longest_goes(source, monkeypatch):
    monkeypatch.setattr(incoming, "_MAPS", 2)
    source.accept(head(1, map_id="a"), 1.0)
    source.accept(head(1, map_id="b"), 2.0)
    source.accept(head(2, map_id="a"), 3.0)
    assert not source.problem
    source.accept(head(1, map_id="c"), 0.5)
    assert set(ready(source)) == {"a", "c"} and source.dropped == {"too_many_maps": 1}
    assert source.problem == "robot1 has sent more than 2 maps; the oldest is left out"


def test_what_was_replaced_long_ago_may_be_forgotten(source, monkeypatch):
    monkeypatch.setattr(incoming, "_GONE", 2)
    source.accept(head(1, map_id="z", instead=["a", "b"]), 0.0)
    source.accept(head(2, map_id="z", instead=["c"]), 0.0)
    assert source.accept(head(1, map_id="b"), 0.0) and "b" not in ready(source)
    assert source.accept(head(1, map_id="a"), 0.0) and "a" in ready(source)


def test_memory_is_counted_once_for_each_part_and_for_all_robots_together():
    pool = MemoryPool(1.0)
    one, two = Source("robot1", pool), Source("robot2", pool)
    first, second = head(1), tile("0 0", 1)
    one.accept(first, 0.0)
    assert pool.used == len(first), "newest and ready at once"
    two.accept(first, 0.0)
    one.accept(second, 0.0)
    assert pool.used == 2 * len(first) + len(second)
    (given,) = one.ready()
    newer = head(2)
    one.accept(newer, 0.0)
    assert pool.used == 2 * len(first) + len(second) + len(newer), "the first is lent"
    one.mark_added(given)
    one.ready()
    assert pool.used == 2 * len(first) + len(second) + len(newer), "the first is good"
    (given,) = one.ready()
    one.mark_added(given)
    assert pool.used == len(first) + len(second) + len(newer)
    other = head(1, map_id="n", instead=["m"])
    one.accept(other, 0.0)
    assert pool.used == len(first) + len(other)
    full = MemoryPool((len(first) - 0.5) / 1e6)
    small = Source("robot3", full)
    assert not small.accept(first, 0.0) and small.dropped == {"memory_full": 1}
    assert full.used == 0 and small.news == 0
    full.most = len(first) / 1e6
    assert small.accept(first, 0.0) and full.used == len(first)


def test_totals_that_fail_give_way_to_those_that_were_good(source):
    source.accept(head(1, "0 0"), 0.0)
    source.accept(tile("0 0", 1), 0.0)
    (good,) = source.ready()
    source.mark_added(good)
    source.accept(tile("0 0", 2), 1.0)
    (bad,) = source.ready()
    news = source.news
    source.mark_failed(bad, "not\nfinite")
    assert source.news == news + 1 and source.dropped == {"unusable": 1}
    assert source.problem == "totals of robot1 are dropped: not finite"
    assert ready(source) == {"m": {"head": 1, "0 0": 1}}
    # once more the same: it is known
    assert source.accept(tile("0 0", 2), 2.0) and source.repeated == 1 and source.newest == 2.0
    assert ready(source) == {"m": {"head": 1, "0 0": 1}}
    # what could be added is no longer spoken of, but for what is still wrong
    (good,) = source.ready()
    source.mark_added(good)
    assert source.problem, "its newest totals are not in the sum"
    assert source.accept(tile("0 0", 3), 3.0)
    (better,) = source.ready()
    source.mark_added(better)
    assert not source.problem and ready(source) == {"m": {"head": 1, "0 0": 3}}


def test_totals_that_never_were_good_leave_nothing(source):
    source.accept(head(1), 0.0)
    (bad,) = source.ready()
    source.mark_failed(bad, "wrong")
    assert ready(source) == {} and source.status(0.0)["maps"] == 0
    source.mark_failed(bad, "wrong")  # of a map that is gone
    source.mark_added(bad)
    assert source.dropped == {"unusable": 2}
    news = source.news
    assert source.accept(head(1), 1.0) and source.news == news and ready(source) == {}
    assert source.accept(head(2), 1.0) and ready(source) == {"m": {"head": 2}}


def test_of_totals_that_cannot_be_used_only_some_are_remembered(source, monkeypatch):
    monkeypatch.setattr(incoming, "_GONE", 2)
    for number in (1, 2, 3):
        source.accept(head(number), 0.0)
        source.mark_failed(*source.ready(), "wrong")
    for number, again in ((3, False), (2, False), (1, True)):
        assert source.accept(head(number), 1.0) and bool(ready(source)) == again
