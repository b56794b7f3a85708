"""Whose measurements a saved map holds."""

import pytest

from gp_mapping.errors import UsageError
from gp_mapping.store.checkpoint import about_checkpoint, save_checkpoint
from gp_mapping.store.holdings import (
    holdings_of,
    map_in,
    note_holdings,
    replaced,
    require_apart,
)


@pytest.fixture
def maps(tmp_path):
    """Three maps, and a copy of the first."""
    paths = [tmp_path / f"{i}.gpm" for i in range(3)]
    for i, path in enumerate(paths):
        save_checkpoint(path, {"n": i})
    copy = tmp_path / "copy.gpm"
    copy.write_bytes(paths[0].read_bytes())
    return *paths, copy


def test_a_map_holds_its_own_measurements_and_those_that_it_notes(maps):
    first, second, third, copy = maps
    ids = [about_checkpoint(path)["id"] for path in maps]
    assert ids[3] == ids[0] and len(set(ids)) == 3
    about = {}
    assert holdings_of(first, about) == {ids[0]} == {map_in(copy)}
    note_holdings(about, {ids[2], ids[1]})
    assert about == {"holds": sorted(ids[1:3])}
    assert holdings_of(first, about) == set(ids)
    assert holdings_of(first, {"holds": "damaged"}) == {ids[0]}
    first.write_bytes(b"no map")
    assert map_in(first) == "" == map_in(first.with_name("none"))
    # what was there before is lost, but where it is held or is the same once more
    assert replaced(second, "", about) == [] == replaced(second, ids[1], {})
    assert replaced(second, ids[2], about) == []
    (text,) = replaced(second, ids[0], {})
    assert text.startswith(f"{second} held another map, which is replaced")


def test_measurements_that_two_maps_hold_would_count_twice(maps):
    first, second, third, copy = maps
    own = [holdings_of(path, {}) for path in maps]
    require_apart([first, second, third], own[:3])
    with pytest.raises(UsageError, match=f"{copy} and {first} are copies of one map; .* twice"):
        require_apart([first, second, copy], [own[0], own[1], own[3]])
    # the second was made of the third
    with pytest.raises(UsageError, match=f"{third} and {second} hold measurements of one saved"):
        require_apart([second, third], [own[1] | own[2], own[2]])
    with pytest.raises(UsageError, match=f"{second} and {third} hold measurements of one saved"):
        require_apart([third, second], [own[2], own[1] | own[2]])
    with pytest.raises(UsageError, match=f"{second} and {first} hold measurements of one saved"):
        require_apart([first, second], [own[0] | {"x"}, own[1] | {"x"}])
    # of copies that hold others as well, the first thing to say is that they are copies
    with pytest.raises(UsageError, match="are copies"):
        require_apart([first, copy], [own[0] | {"0"}, own[0] | {"0"}])
