"""Tiles that are far away are on the disk: they come back as they were, and a save writes only those that changed."""

import copy
import gc
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest
import torch

from benchmark import warm
from gp_mapping.core.registry import build_map
from gp_mapping.core.stored import StoredState
from gp_mapping.core.types import Samples
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint
from gp_mapping.store.resume import MapFiles
from gp_mapping.store.scratch.tile_room import TileRoom

UT = 1e-6
SETTINGS = MapSettings(
    lengthscale=0.6,
    signal_stddev=10 * UT,
    noise_stddev=0.3 * UT,
    constant_stddev=30 * UT,
    heading_stddev=0.0,
    learn_hyperparameters=False,
    learn_time_offset=False,
    max_inducing=60,
    memory_size=300,
    map_tile_side=5.0,
    tiles_in_memory=9,
)


def field_at(x):
    g = torch.Generator().manual_seed(5)
    w = torch.randn(60, 2, generator=g).double() / 0.6
    phase = 2 * math.pi * torch.rand(60, generator=g).double()
    return 45 * UT + 2 * UT * torch.cos(x @ w.mT + phase).sum(1, keepdim=True)


def road(start, stop):
    x = torch.zeros(round((stop - start) / 0.1), 2, dtype=torch.float64)
    x[:, 0] = start + 0.1 * torch.arange(len(x))
    return Samples(x, field_at(x))


def drive(field, start, stop):
    samples = road(start, stop)
    for i in range(0, len(samples), 20):
        field.update(samples[i : i + 20])
    return field


def built(room=None):
    return build_map(SETTINGS, room)


def somewhere(stop):
    return torch.stack(
        [
            torch.linspace(0.0, stop, 300).double(),
            0.3 * torch.rand(300, generator=torch.Generator().manual_seed(1)).double(),
        ],
        1,
    )


def flip(path):
    """One bit of a file's numbers: of its largest array, in the middle, and of nothing that only frames them."""
    with zipfile.ZipFile(path) as file:
        largest = max(file.infolist(), key=lambda info: info.compress_size)
    data = bytearray(path.read_bytes())
    lengths = data[
        largest.header_offset + 26 : largest.header_offset + 30
    ]  # of the name, of what follows it
    begin = (
        largest.header_offset
        + 30
        + int.from_bytes(lengths[:2], "little")
        + int.from_bytes(lengths[2:], "little")
    )
    data[begin + largest.compress_size // 2] ^= 0x40
    path.write_bytes(data)


def held(field):
    return [key for key in field.shelf.keys() if field.shelf.peek(key).in_memory]


@pytest.fixture(scope="module")
def driven():
    """40 m of road, everything in memory."""
    return drive(built(), 0.0, 40.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, driven):
    folder = tmp_path_factory.mktemp("saved")
    save_checkpoint(folder / "map.gpm", driven.state_dict())
    return folder


@pytest.fixture
def mine(saved, tmp_path):
    """The same, to be spoiled."""
    shutil.copytree(saved, tmp_path / "mine")
    return tmp_path / "mine"


def loaded(folder, room=None):
    field = built(room)
    field.load_state_dict(load_checkpoint(folder / "map.gpm"))
    return field


def test_what_is_far_away_is_on_the_disk_and_says_the_same(tmp_path, driven):
    room = TileRoom(tmp_path)
    field = drive(built(room), 0.0, 40.0)
    assert room.settle()
    told = field.counters()
    assert told["tiles"] - told["tiles_in_memory"] == len(field.shelf) >= 2 and held(field) == []
    files = list(tmp_path.glob(".tiles.*.partial/*.tile"))
    assert len(files) == len(field.shelf)

    x = somewhere(40.0)
    a, b = field.predict(x), driven.predict(x)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.variance, b.variance)
    samples = road(0.0, 6.0)  # the robot comes back
    for one in (field, copy.deepcopy(driven)):
        one.update(samples)
        told = one.predict(x) if one is field else told
        again = one.predict(x)
    assert torch.equal(told.mean, again.mean)

    del field
    gc.collect()
    assert list(tmp_path.glob(".tiles.*.partial/*.tile")) == []
    del room
    gc.collect()
    end = time.monotonic() + 5.0  # its thread looks once a second whether it is still wanted
    while list(tmp_path.iterdir()) and time.monotonic() < end:
        time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_keeps_the_version_that_it_saw(tmp_path):
    room = TileRoom(tmp_path)
    field = drive(built(room), 0.0, 40.0)
    room.settle()
    x = somewhere(40.0)
    before, told = field.predict(x), field.snapshot()
    back = road(0.0, 12.0)
    field.update(Samples(back.x + torch.tensor([0.0, 0.2]).double(), back.y + 3 * UT))
    drive(field, 12.0, 40.0)
    room.settle()
    assert float((field.predict(x).mean - before.mean).abs().max()) > UT
    assert (
        float((told.predict(x).mean - before.mean).abs().max()) < 1e-9 * UT
    )  # copies of factors round otherwise


def test_a_save_writes_only_what_changed(mine):
    names = {p.name: p.stat().st_ino for p in (mine / "tiles").glob("*.tile")}
    field = loaded(mine)
    assert len(names) == field.counters()["tiles"]
    save_checkpoint(mine / "map.gpm", field.state_dict())
    assert {p.name: p.stat().st_ino for p in (mine / "tiles").glob("*.tile")} == names

    drive(field, 40.0, 40.4)
    save_checkpoint(mine / "map.gpm", field.state_dict())
    now = {p.name: p.stat().st_ino for p in (mine / "tiles").glob("*.tile")}
    fresh = now.keys() - names.keys()
    assert 1 <= len(fresh) <= 4 and all(
        now[name] == names[name] for name in now.keys() & names.keys()
    )
    del field
    gc.collect()
    save_checkpoint(
        mine / "map.gpm", loaded(mine).state_dict()
    )  # what nobody refers to any more has gone
    assert {p.name for p in (mine / "tiles").glob("*.tile")} == now.keys()
    assert not [name for name in names.keys() - now.keys() if (mine / "tiles" / name).exists()]


def test_a_file_that_another_checkpoint_names_stays(mine):
    shutil.copy(mine / "map.gpm", mine / "before.gpm")
    old = load_checkpoint(mine / "before.gpm")
    x = somewhere(40.0)
    field = loaded(mine)
    before = field.predict(x)
    drive(field, 38.0, 42.0)
    save_checkpoint(mine / "map.gpm", field.state_dict())
    del field, old
    gc.collect()
    save_checkpoint(mine / "map.gpm", loaded(mine).state_dict())
    again = built()
    again.load_state_dict(load_checkpoint(mine / "before.gpm"))
    assert torch.equal(again.predict(x).mean, before.mean) and again.notes() == []


@pytest.mark.parametrize("size", [None, 0.9], ids=["another model's", "cut off"])
def test_what_could_not_be_resumed_keeps_its_tiles(mine, size):
    """Whole, but of other settings, or cut off: which tiles it had can still be read, and they are somebody's day."""
    files, tiles = MapFiles(mine), sorted(path.name for path in (mine / "tiles").glob("*.tile"))
    if size is not None:
        os.truncate(files.saved, int(size * files.saved.stat().st_size))
    kept = files.keep_refused([files.saved])
    assert len(kept) == 1 and len(tiles) >= 3
    save_checkpoint(files.saved, {"number": 1.0})  # the new run's
    gc.collect()
    save_checkpoint(files.saved, {"number": 2.0})
    assert sorted(path.name for path in (mine / "tiles").glob("*.tile")) == tiles
    kept[0].unlink()
    save_checkpoint(files.saved, {"number": 3.0})
    assert not list((mine / "tiles").glob("*.tile"))


def test_beside_a_checkpoint_that_cannot_be_read_no_tile_goes(mine):
    """It may name any of them; what is no checkpoint names none."""
    tiles = sorted(path.name for path in (mine / "tiles").glob("*.tile"))
    broken = (mine / "map.gpm").rename(mine / "older.gpm")
    broken.write_bytes(b"0" * 1000)
    (mine / "notes.txt").write_text("lanes 3 to 7 again")
    save_checkpoint(mine / "map.gpm", {"number": 1.0})
    assert (
        sorted(path.name for path in (mine / "tiles").glob("*.tile")) == tiles and len(tiles) >= 3
    )
    broken.unlink()
    save_checkpoint(mine / "map.gpm", {"number": 2.0})
    assert not list((mine / "tiles").glob("*.tile"))


def test_resume_reads_what_was_at_hand_and_no_more(mine, driven):
    state = load_checkpoint(mine / "map.gpm")
    field = built()
    field.load_state_dict(state)
    assert held(field) == [] and len(field.shelf) == len(driven.shelf)
    x = somewhere(44.0)
    a, b = (drive(one, 40.0, 44.0).predict(x) for one in (field, copy.deepcopy(driven)))
    assert torch.equal(a.mean, b.mean)


@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_a_damaged_tile_is_named_and_the_rest_is_there(mine, driven, how):
    name = driven.shelf.peek(sorted(driven.shelf.keys())[0]).name
    path = next((mine / "tiles").glob(f"{name.replace(' ', '_')}.*.tile"))
    if how == "gone":
        path.unlink()
    elif how == "flip":
        flip(path)
    else:
        os.truncate(path, path.stat().st_size // 2)

    field, x = loaded(mine), somewhere(40.0)
    told, before = field.predict(x), driven.predict(x)
    assert [
        f"tile {name} of the map is left out" in note and str(path) in note
        for note in field.notes()
    ] == [True]
    assert field.counters()["tiles_lost"] == 1
    near = driven.layout.outside(sorted(driven.shelf.keys())[0], x) <= driven.layout.blend
    assert torch.equal(told.mean[~near], before.mean[~near]) and not torch.equal(
        told.mean[near], before.mean[near]
    )
    low, high = (corner[0] for corner in driven.layout.core(sorted(driven.shelf.keys())[0]))
    drive(field, low, high)  # the ground is mapped anew
    again = road(low, high)
    assert float((field.predict(again.x).mean - again.y).abs().max()) < UT
    save_checkpoint(mine / "map.gpm", field.state_dict())
    assert loaded(mine).counters()["tiles_lost"] == 1


@pytest.mark.parametrize("again", [True, False], ids=["the same folder", "another folder"])
def test_a_tile_that_is_gone_does_not_cost_the_save(mine, tmp_path, again):
    """The others are saved, the tile is named, now and when the map is loaded, and it may be put back."""
    field, left_out = loaded(mine), []
    name = field.shelf.peek(sorted(field.shelf.keys())[0]).name
    path = next((mine / "tiles").glob(f"{name.replace(' ', '_')}.*.tile"))
    kept = path.rename(tmp_path / "kept")
    drive(field, 40.0, 40.4)
    folder = mine if again else tmp_path / "other"
    save_checkpoint(folder / "map.gpm", field.state_dict(), left_out=left_out)
    assert len(left_out) == 1 and left_out[0].startswith(f"tile {name} of the map is left out: ")
    assert str(path) in left_out[0] and "gone" in left_out[0] and "\n" not in left_out[0]

    found = loaded(folder)
    assert found.counters()["tiles_lost"] == 1 and found.samples == field.samples
    assert [f"tile {name} of the map is left out" in note for note in found.notes()] == [True]
    shutil.copy(kept, folder / "tiles" / path.name)
    assert loaded(folder).notes() == [] and loaded(folder).counters()["tiles_lost"] == 0


def test_a_tile_that_is_out_of_reach_for_a_while_comes_back(mine, tmp_path, driven):
    """A question finds it gone; later the robot, or who loads what was saved meanwhile, has it again."""
    field, key = loaded(mine), sorted(driven.shelf.keys())[0]
    name, x = field.shelf.peek(key).name, somewhere(40.0)
    path = next((mine / "tiles").glob(f"{name.replace(' ', '_')}.*.tile"))
    kept, before = path.rename(tmp_path / "kept"), field.epoch
    without = field.predict(x).mean
    assert not torch.equal(without, driven.predict(x).mean)
    assert field.counters()["tiles_lost"] == 1 and "until it can be read" in field.notes()[0]

    drive(field, 40.0, 40.4)
    save_checkpoint(mine / "map.gpm", field.state_dict(), left_out=[])
    kept.rename(path)
    there, drawn = loaded(mine), field.epoch
    assert there.counters()["tiles_lost"] == 0 and there.notes() == []
    while field.counters()["tiles_lost"] and field.turn < 200:
        field.update(road(40.4, 40.5))
    assert field.notes() == [] and before < drawn < field.epoch
    near = driven.layout.outside(key, x) <= 0.0
    for one in (field, there):
        assert torch.equal(one.predict(x).mean[near], driven.predict(x).mean[near])


def test_a_tile_that_is_mapped_anew_keeps_the_file_of_before(mine, tmp_path, driven):
    field, key = loaded(mine), sorted(driven.shelf.keys())[0]
    path = next((mine / "tiles").glob(f"{key[0]}_{key[1]}.*.tile"))
    kept, (low, high) = path.rename(tmp_path / "kept"), driven.layout.core(key)
    drive(field, low[0], high[0])
    kept.rename(path)
    for _ in range(2):
        save_checkpoint(mine / "map.gpm", field.state_dict())
        gc.collect()
        field = loaded(mine)
    assert path.exists() and field.counters()["tiles_lost"] == 1
    assert field.exists(key) and key not in field.shelf.returned(field.exists)


def test_a_tile_whose_working_file_is_gone_does_not_cost_the_save(tmp_path):
    room, left_out = TileRoom(tmp_path / "room"), []
    gone, there = (StoredState(f"{i} 0", {"n": torch.tensor(i)}) for i in range(2))
    for state in (gone, there):
        room.put(state)
    assert room.settle()
    gone.source.path.unlink()
    state = {"a": gone, "b": there, "c": 1}
    save_checkpoint(tmp_path / "map.gpm", state, left_out=left_out)
    found = load_checkpoint(tmp_path / "map.gpm")
    assert found["b"].get() == {"n": torch.tensor(1)} and found["c"] == 1
    assert (
        len(left_out) == 1 and "tile 0 0 " in left_out[0] and "gone" in found["a"].visible_fault()
    )


def test_a_damaged_tile_that_the_robot_returns_to(mine, driven):
    name = driven.shelf.peek(sorted(driven.shelf.keys())[0]).name
    path = next((mine / "tiles").glob(f"{name.replace(' ', '_')}.*.tile"))
    flip(path)
    field, low = loaded(mine), max(0.0, driven.layout.core(sorted(driven.shelf.keys())[0])[0][0])
    x = road(low, low + 2.0)
    field.update(x)
    assert field.counters()["tiles_lost"] == 1
    assert float((field.predict(x.x).mean - x.y).abs().max()) < UT


def test_a_disk_that_takes_nothing_is_said_and_the_map_stays_in_memory(tmp_path, driven):
    base = tmp_path / "disk"
    base.write_text("a file where a folder should be")
    room = TileRoom(base)
    field = drive(built(room), 0.0, 40.0)
    assert not room.settle(1.0)
    assert len(held(field)) == len(field.shelf) > 0
    assert (
        "stay in memory, for they cannot be written" in field.notes()[0]
        and str(base) in field.notes()[0]
    )
    x = somewhere(40.0)
    assert torch.equal(field.predict(x).mean, driven.predict(x).mean)
    base.unlink()
    assert room.settle(10.0) and held(field) == [] and field.notes() == []


def test_what_a_killed_process_left_goes_and_that_of_a_living_one_stays(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from gp_mapping.core.stored import StoredState;"
        "from gp_mapping.store.scratch.tile_room import TileRoom; room = TileRoom(Path(sys.argv[1]));"
        "states = [StoredState('0 0', {'n': 1})]; room.put(states[0]); room.settle(); print('there', flush=True);"
        "time.sleep(60)"
    )
    children = [
        warm.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert all(child.stdout.readline() == "there\n" for child in children)
    assert len(list(tmp_path.iterdir())) == 2
    os.kill(children[0].pid, signal.SIGKILL)
    children[0].wait()
    room = TileRoom(tmp_path)
    room.put(state := built_state())
    room.settle()
    left = [p.name.split(".")[2].split("-")[0] for p in tmp_path.iterdir()]
    assert sorted(left) == sorted([str(children[1].pid), str(os.getpid())]) and state.get() == {
        "n": 2
    }
    children[1].kill()
    children[1].wait()


def built_state():
    return StoredState("0 0", {"n": 2})


DRIVER = """
import sys
sys.path.insert(0, sys.argv[2])
from test_tile_files import built, drive, road
from pathlib import Path
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint
from gp_mapping.store.resume import MapFiles
from gp_mapping.store.scratch.tile_room import TileRoom
folder = Path(sys.argv[1])
field = built(TileRoom(folder))
field.load_state_dict(load_checkpoint(folder / "map.gpm"))
at = float((folder / "at").read_text())
while True:
    for one in road(at, at + 1.0).x.split(5):
        drive(field, float(one[0, 0]), float(one[-1, 0]) + 0.1)
        save_checkpoint(folder / "map.gpm", field.state_dict())
    at += 1.0
    print("saved", flush=True)
"""


def test_killed_at_any_moment_the_checkpoint_is_whole(mine):
    """A process that drives and saves without end, killed many times; each goes on from what the last one left."""
    (mine / "at").write_text("40.0")
    wait = torch.Generator().manual_seed(os.getpid())
    count = 0
    for _ in range(3):
        child = warm.Popen(
            [sys.executable, "-c", DRIVER, str(mine), os.path.dirname(__file__)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout.readline() == "saved\n"
        time.sleep(float(torch.rand(1, generator=wait)))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        field = loaded(mine)
        assert field.samples > count and field.notes() == []
        told = field.predict(somewhere(40.0))  # reads every tile
        assert field.notes() == [] and bool(torch.isfinite(told.mean).all())
        count = field.samples
        (mine / "at").write_text(str(float(field.high[0])))
        del field
        gc.collect()


WRITER = """
import sys, torch
from pathlib import Path
from gp_mapping.core.stored import StoredState
from gp_mapping.store.checkpoint import save_checkpoint
for k in range(1000):
    tile = StoredState("0 0", {"n": torch.full((4000000,), k)})
    save_checkpoint(Path(sys.argv[1]) / "map.gpm", {"k": k, "tile": tile})
    print(k, flush=True)
"""


def test_what_a_process_killed_while_it_wrote_a_tile_has_left_half_goes_with_the_next_save(
    tmp_path,
):
    tiles = tmp_path / "tiles"
    for _ in range(20):  # until a kill fell between the first byte of a tile and its last
        child = warm.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "0\n"
        while not list(tiles.glob(".*.partial")):
            assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        if list(tiles.glob(".*.partial")):
            break
    assert list(tiles.glob(".*.partial"))

    state = load_checkpoint(tmp_path / "map.gpm")  # of the save before, with its tile
    assert bool((state["tile"].get()["n"] == state["k"]).all())
    save_checkpoint(tmp_path / "map.gpm", state | {"k": -1})
    assert list(tiles.glob(".*.partial")) == [] and len(list(tiles.glob("*.tile"))) == 1
    again = load_checkpoint(tmp_path / "map.gpm")
    assert again["k"] == -1 and torch.equal(again["tile"].get()["n"], state["tile"].get()["n"])
