"""What is removed of a folder of tiles, and what keeps it there."""

import fcntl
import os

import pytest

from gp_mapping.core.stored import StoredState
from gp_mapping.store.archive import CheckpointError
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint
from gp_mapping.store.tile_files import TileFolder


def saved(folder, name, *values):
    tiles = [StoredState(f"0 {i}", {"v": value}) for i, value in enumerate(values)]
    path = save_checkpoint(folder / f"{name}.gpm", {"tiles": tiles})
    return path, tiles


def names(folder):
    return sorted(p.name for p in (folder / "tiles").iterdir() if p.suffix == ".tile")


def test_files_that_no_checkpoint_and_nobody_here_names_are_removed(tmp_path):
    first, tiles = saved(tmp_path, "a", 1, 2)
    folder = TileFolder.for_checkpoint(first)
    assert TileFolder.for_checkpoint(tmp_path / "other.gpm") is folder, "one of each folder"
    assert folder.path == tmp_path / "tiles" and len(names(tmp_path)) == 2
    saved(tmp_path, "b", 1, 3)
    assert len(names(tmp_path)) == 3, "what two have in common is one file"
    assert folder.sweep() == 0
    first.unlink()
    assert folder.sweep() == 0, "this process refers to it"
    kept = tiles[0].source.name
    del tiles
    assert folder.sweep() == 1 and len(names(tmp_path)) == 2 and kept in names(tmp_path)
    strange = folder.path / "notes.txt"
    strange.write_text("mine")
    half = folder.path / ".0_7.abc.partial"
    half.write_text("")
    with folder.writing():
        assert folder.sweep() == 0 and half.exists(), "somebody writes"
    assert folder.sweep() == 1 and not half.exists() and strange.exists()
    assert TileFolder(tmp_path / "none").sweep() == 0


def test_what_a_save_that_failed_has_left_does_not_fill_the_disk(tmp_path):
    """Each try of a full disk left the tiles that it had written: they took the room that was made."""
    path, tiles = saved(tmp_path, "a", 1)
    for value in range(2, 6):
        state = {"tiles": [StoredState("0 0", {"v": value})], "bad": object()}
        try:
            save_checkpoint(path, state)
        except CheckpointError as error:
            assert "cannot be saved" in str(error)
        del state
        assert len(names(tmp_path)) == 2, "of the file that is there, and of the last try"
    assert load_checkpoint(path)["tiles"][0].get() == {"v": 1}


def test_while_another_process_holds_the_folder_nothing_is_removed(tmp_path):
    path, tiles = saved(tmp_path, "a", 1)
    folder = TileFolder.for_checkpoint(path)
    path.unlink()
    del tiles
    other = os.open(folder.path / ".lock", os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert folder.sweep() == 0 and len(names(tmp_path)) == 1
        # and this one does not keep it from the others
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
    assert folder.sweep() == 1 and names(tmp_path) == []


def test_who_has_a_map_open_holds_its_folder(tmp_path):
    path, tiles = saved(tmp_path, "a", 1)
    folder = TileFolder.for_checkpoint(path)
    assert folder.sweep() == 0
    other = os.open(folder.path / ".lock", os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        del tiles
        path.unlink()
        assert folder.sweep() == 1
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)


def test_a_checkpoint_that_cannot_be_read_may_name_any_file(tmp_path):
    path, tiles = saved(tmp_path, "a", 1, 2)
    broken, _ = saved(tmp_path, "b", 3)
    del tiles, _
    folder = TileFolder.for_checkpoint(path)
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2] + b"x" * 50)
    path.unlink()
    assert folder.sweep() == 0 and len(names(tmp_path)) == 3
    # set aside: of its bytes the names of its tiles are kept
    broken.rename(tmp_path / "b.gpm.refused")
    (tmp_path / "picture.png").write_bytes(b"no checkpoint")
    (tmp_path / ".half.gpm").write_bytes(b"half written")
    found = folder.sweep()
    assert found in (2, 3) and len(names(tmp_path)) == 3 - found
    (tmp_path / "b.gpm.refused").write_bytes(whole)
    (tmp_path / "empty.gpm.refused").write_bytes(b"")
    assert folder.sweep() == 0


def test_a_reference_is_a_name_and_a_size(tmp_path):
    path, tiles = saved(tmp_path, "a", 1)
    folder, size = TileFolder.for_checkpoint(path), tiles[0].source.size
    name = tiles[0].source.name
    again = folder.resolve({"file": name, "bytes": size})
    assert again.name == "0 0" and again.get() == {"v": 1} and again.source.digest in name
    assert again.source.visible_fault() == ""
    for wrong in (
        {"file": name},
        {"bytes": size},
        {"file": name, "bytes": str(size)},
        {"file": f"../{name}", "bytes": size},
        {"file": 3, "bytes": size},
        {"file": name.replace(".tile", ".gpm"), "bytes": size},
    ):
        with pytest.raises(CheckpointError, match="which is no tile's file"):
            folder.resolve(wrong)
    file = folder.path / name
    file.write_bytes(file.read_bytes()[:-1])
    assert (
        f"cut off or damaged ({size - 1} bytes, {size} were written)"
        in again.source.visible_fault()
    )
    file.unlink()
    assert "the file is gone" in again.source.visible_fault()


def test_a_tile_that_lies_elsewhere_gets_a_second_name_or_is_written_anew(tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "three").mkdir()
    path, tiles = saved(tmp_path / "one", "a", 1)
    first = tiles[0].source.path
    save_checkpoint(tmp_path / "two" / "b.gpm", {"tiles": tiles})
    second = tiles[0].source.path
    assert second.parent == tmp_path / "two" / "tiles" and os.path.samefile(first, second)

    def no_links(*paths):
        raise OSError("no second names")

    monkeypatch.setattr(os, "link", no_links)
    save_checkpoint(tmp_path / "three" / "c.gpm", {"tiles": tiles})
    third = tiles[0].source.path
    assert third.read_bytes() == first.read_bytes() and not os.path.samefile(first, third)
    assert load_checkpoint(tmp_path / "three" / "c.gpm")["tiles"][0].get() == {"v": 1}
    assert not [p for p in third.parent.iterdir() if p.name.endswith(".partial")]
    with pytest.raises(CheckpointError, match="the tiles cannot be written"):
        with TileFolder.for_checkpoint(path).writing():
            raise OSError(28, "No space left on device")


def test_while_a_checkpoint_is_written_no_other_process_removes_what_it_will_name(tmp_path):
    folder, tile = TileFolder.for_checkpoint(tmp_path / "a.gpm"), StoredState("0 1", {"v": 1})
    with folder.writing():
        folder.store(tile, [])
        other = os.open(folder.path / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)
