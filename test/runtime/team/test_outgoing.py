"""Which part of a map's totals is sent when: by change, by age, and within the bandwidth."""

from types import SimpleNamespace as Namespace

import pytest

from gp_mapping.core.stored import StoredState
from gp_mapping.runtime.team.outgoing import Outgoing
from gp_mapping.store.message import decode


def totals(number, *tiles, map_id="m"):
    state = {"n": number, "map": {"tiles": {tile.name: tile for tile in tiles}}}
    return Namespace(map_id=map_id, number=number, state=state)


def sent(out, name, now, size=0):
    data, *rest = out.message(name)()
    out.mark_sent(b"x" * size if size else data, *rest, now)
    return data


GIVEN = (1e9, 1.0, 10.0)  # bandwidth, period, round


def test_what_has_changed_goes_before_what_is_old_and_the_oldest_first():
    a, b = (StoredState(name, {"v": 1}) for name in ("0 0", "0 1"))
    out = Outgoing("robot")
    assert out.due(0.0, *GIVEN) is None and out.parts == out.waiting == 0
    out.update(totals(1, a, b))
    assert out.parts == out.waiting == 3
    names = []
    for i in range(3):
        names.append(out.due(0.1 * i, *GIVEN))
        sent(out, names[-1], 0.1 * i)
    assert names == ["0 0", "0 1", "head"] and out.waiting == 0 and out.messages == 3
    assert out.due(0.3, *GIVEN) is None
    # the head changes with each number; a tile where it is another object
    out.update(totals(2, a, b))
    assert out.waiting == 1
    assert out.due(1.15, *GIVEN) is None and out.due(1.21, *GIVEN) == "head"
    sent(out, "head", 1.21)
    assert out.due(9.9, *GIVEN) is None and out.due(10.05, *GIVEN) == "0 0"
    changed = StoredState("0 1", {"v": 2})
    out.update(totals(3, a, changed))
    assert out.waiting == 2 and out.due(50.0, *GIVEN) == "0 1"
    sent(out, "0 1", 50.0)
    assert out.due(50.0, *GIVEN) == "head"
    sent(out, "head", 50.0)
    out.update(totals(3, a))
    assert out.parts == 2 and out.due(50.0, *GIVEN) == "0 0", "a tile that is gone is not sent"
    out.update(totals(3, a))
    assert out.waiting == 0, "the same totals once more are no news"


def test_messages_say_whose_they_are_and_which_maps_they_replace():
    out = Outgoing("robot", lambda state: {**state, "slim": True})
    tile = StoredState("0 0", {"v": 1})
    for i in range(20):
        out.update(totals(i, tile, map_id=f"m{i}"))
    about, state = decode(out.message("0 0")()[0], 10**6)
    assert about["source"] == "robot" and about["map"] == "m19" and about["part"] == "0 0"
    assert about["number"] == 19 and state == {"v": 1, "slim": True}
    assert about["instead"] == [f"m{i}" for i in range(3, 19)], "the newest ones"
    late = out.message("0 0")()
    out.update(totals(12, tile, map_id="other"))
    out.mark_sent(*late, 1.0)
    assert out.waiting == 2, "that was of the map before"
    assert out.bytes == len(late[0]) and out.messages == 1


def test_over_any_time_the_bandwidth_holds():
    out, tile = Outgoing("robot"), StoredState("0 0", {"v": 1})
    out.update(totals(1, tile))
    bandwidth, total, now, sizes = 100.0, 0, 0.0, []
    for i in range(400):
        now = 0.1 * i
        name = out.due(now, bandwidth, 0.0, 0.0)
        if name is not None:
            sent(out, name, now, 250)
            total += 250
            sizes.append(now)
    assert total <= bandwidth * (now + 1.0) + 250
    assert total >= bandwidth * now - 250, "and it is used"
    # after a pause one second's worth has gathered, no more
    quiet = now + 100.0
    burst = 0
    while out.due(quiet, bandwidth, 0.0, 0.0) is not None:
        sent(out, "0 0", quiet, 60)
        burst += 1
    assert burst == 2


@pytest.mark.parametrize("period, due", [(1.0, True), (1.1, False)])
def test_a_part_that_changes_all_the_time_is_sent_once_in_a_period(period, due):
    out = Outgoing("robot")
    out.update(totals(1))
    head = out.due(0.0, 1e9, period, 1e9)
    sent(out, head, 5.0)
    out.update(totals(2))
    assert (out.due(6.0, 1e9, period, 1e9) == head) == due
