"""Which of a map's files a run goes on from, and what becomes of the others."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.store.atomic import open_atomic
from gp_mapping.store.checkpoint import about_checkpoint, save_checkpoint
from gp_mapping.store.resume import MapFiles, foreign_exports
from gp_mapping.store.sessions import Requirements


def write(path, number, samples):
    """A map of so many samples, which says that it is the file of that number."""
    session = MapSession(MapSettings())
    x = torch.stack([0.1 * torch.arange(samples).double(), torch.zeros(samples).double()], 1)
    session.ingest(Samples(x, 45e-6 + 1e-6 * torch.sin(3.0 * x[:, :1])))
    save_checkpoint(path, session.state_dict(), about={"number": number})


def test_the_highest_number_counts_whatever_the_clock_says_and_a_damaged_file_is_named(tmp_path):
    files = MapFiles(tmp_path)
    assert files.newest_first() == [] and files.next_number() == 1 and files.keep_before() is None
    for path, number, samples in (
        (files.saved, 3, 30),
        (files.before, 1, 10),
        (files.autosave, 4, 40),
    ):
        write(path, number, samples)
    os.utime(files.before, (4e9, 4e9))
    assert (
        files.newest_first() == [files.autosave, files.saved, files.before]
        and files.next_number() == 5
    )
    resumed = files.resume(Requirements(MapSettings()))
    assert (resumed.path, resumed.session.raw_count, resumed.problems) == (files.autosave, 40, [])

    whole = files.autosave.read_bytes()
    files.autosave.write_bytes(whole[: len(whole) // 2])
    assert files.newest_first()[0] == files.autosave and files.next_number() == 4
    resumed = files.resume(Requirements(MapSettings()))
    assert (resumed.path, resumed.session.raw_count, resumed.refused) == (
        files.saved,
        30,
        [files.autosave],
    )
    assert len(resumed.problems) == 1 and str(files.autosave) in resumed.problems[0]
    kept = files.keep_refused([*resumed.refused, files.before])
    assert (
        kept == [tmp_path / f"{files.autosave.name}.refused"]
        and files.keep_refused(resumed.refused) == []
    )
    assert kept[0].read_bytes() == files.autosave.read_bytes()


def test_what_was_refused_before_is_kept_beside_what_is_refused_now(tmp_path):
    """A day's map of another kernel, and then one cut off: the second took the place of the first."""
    files = MapFiles(tmp_path)
    for size in (900, 10, 500, 20, 30, 5, 40):
        files.autosave.unlink(missing_ok=True)
        files.autosave.write_bytes(bytes(size))
        files.keep_refused([files.autosave])
        assert files.keep_refused([files.autosave]) == [], "it is kept already"
        second = tmp_path / "autosave.gpm.refused"
        assert second.samefile(files.autosave), "no bytes are written"
    kept = {path.name: path.stat().st_size for path in tmp_path.glob("*.refused")}
    assert kept.pop("autosave.gpm.refused") == 40 and sorted(kept.values()) == [20, 30, 500, 900]
    assert set(kept) == {f"autosave-{n}.gpm.refused" for n in range(2, 6)}


def test_exports_that_say_they_are_of_another_map_are_named(tmp_path):
    """An end came while they were written; what says nothing, or cannot be read, is passed over."""
    path = MapFiles(tmp_path).saved
    write(path, 1, 20)
    mine = about_checkpoint(path)["id"]
    assert mine and foreign_exports(path) == []
    for given, expected in ((mine, []), ("0123456789ab", ["mean.yaml", "map.png", "map.npz"])):
        (tmp_path / "mean.yaml").write_text(f"# field\n# map: {given}\nimage: mean.pgm\n")
        (tmp_path / "stddev.yaml").write_text("image: stddev.pgm\n")
        (tmp_path / "map.png").write_bytes(
            b"\x89PNG\r\n\x1a\n" + f"tEXtDescription\0map: {given}".encode() + b"\0\1\2"
        )
        np.savez(tmp_path / "map.npz", map_id=np.array(given))
        assert foreign_exports(path) == expected
    (tmp_path / "map.npz").write_bytes(b"cut off")
    assert foreign_exports(path) == expected[:-1]


def test_an_autosave_newer_than_the_saved_map_is_set_aside_by_who_does_not_resume(tmp_path):
    files = MapFiles(tmp_path)
    write(files.saved, 5, 20)
    write(files.autosave, 4, 20)
    assert files.keep_before() is None and files.autosave.exists()
    write(files.autosave, 6, 20)
    data = files.autosave.read_bytes()
    assert (
        files.keep_before() == files.before
        and not files.autosave.exists()
        and files.before.read_bytes() == data
    )


def test_runs_before_that_were_set_aside_take_no_places_from_longer_ones(tmp_path):
    """A node that is started again and again without resume, by systemd say, loses no day's work."""
    files = MapFiles(tmp_path)
    for length in (9, 5, 4, 3, 6, 1, 2):
        files.autosave.write_bytes(b"x" * length)
        assert files.set_aside() == files.before and files.before.stat().st_size == length
        files.autosave.touch()
    kept = {path.name: path.stat().st_size for path in tmp_path.glob("autosave.previous*.gpm")}
    assert len(kept) == 5 and kept.pop("autosave.previous.gpm") == 2
    assert sorted(kept.values()) == [4, 5, 6, 9]


def test_what_a_process_that_is_gone_left_half_written_is_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    # in a container the run before had this process's own number
    names = f".map.gpm.{gone.pid}.partial", f".map.gpm.{os.getpid()}-1.partial", "map.gpm.partial"
    half, before, other = (tmp_path / name for name in names)
    for path in (half, before, other):
        path.touch()
    with open_atomic(tmp_path / "map.npz") as file:
        file.write(b"half")
        assert set(MapFiles(tmp_path).remove_partials()) == {before.name, half.name}
        assert not half.exists() and not before.exists() and other.exists()
    assert (tmp_path / "map.npz").read_bytes() == b"half"


def test_what_another_process_is_writing_is_not_removed_and_what_it_leaves_is(tmp_path):
    code = (
        "import sys; from pathlib import Path; from gp_mapping.store.atomic import open_atomic\n"
        "with open_atomic(Path(sys.argv[1])) as file:\n"
        "    print(file.name, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "map.gpm")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        name = Path(writer.stdout.readline().strip()).name
        assert MapFiles(tmp_path).remove_partials() == [] and (tmp_path / name).exists()
        writer.kill()
        writer.wait()
    assert MapFiles(tmp_path).remove_partials() == [name]
    assert MapFiles(tmp_path / "none").remove_partials() == []
    assert MapFiles(tmp_path).resume(Requirements(MapSettings())).path is None
