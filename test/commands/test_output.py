"""Where a command cannot write is said before its work, in one line."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_drive import lanes, write_drive

from gp_mapping import cli
from gp_mapping.commands.output import file_to_write, folder_to_write, make_folder
from gp_mapping.errors import UsageError
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.store.atomic import open_atomic


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    write_drive(folder / "bag", lanes(count=2))
    assert (
        cli.main(["map", str(folder / "bag"), "--output", str(folder / "map"), "--suggest", "0"])
        == 0
    )
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "map bag",
        "fit bag",
        "check bag",
        "merge map map/map.npz",
        "export map",
        "plan map --budget 3 --output FILE.csv",
        "plot map --output FILE.png",
        "report map --output FILE.html",
        "calibrate bag --output FILE.yaml",
    ],
)
@pytest.mark.parametrize("where", ["a file", "below a file", "forbidden"])
def test_a_wrong_output_is_one_line_before_the_work(
    folder, tmp_path, capfd, monkeypatch, command, where
):
    (tmp_path / "file").write_text("somebody's")
    bad = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "deep" / "out",
        "forbidden": tmp_path / "closed" / "out",
    }[where]
    (tmp_path / "closed").mkdir()
    if where == "forbidden":  # who runs tests as root may write nearly everywhere
        bad = Path("/proc/self/out")
    monkeypatch.chdir(folder)
    words = command.split()
    if words[-1].startswith("FILE"):
        words[-1] = str(bad / words[-1])
    else:
        words += ["--output", str(bad)]
    assert cli.main(words) == 2
    out, err = capfd.readouterr()
    assert (
        out == ""
        and len(err.splitlines()) == 1
        and ("file" in err or "nothing can be written" in err)
    ), err
    assert (tmp_path / "file").read_text() == "somebody's"


@pytest.mark.parametrize("to_write", [folder_to_write, file_to_write])
def test_an_empty_name_is_refused(to_write):
    """A script's variable that is not set put eight files into the folder where it ran."""
    for path in ("", " "):
        with pytest.raises(UsageError, match="--output is empty"):
            to_write(path)


def test_what_can_be_made_is_taken(tmp_path):
    assert (
        folder_to_write(tmp_path / "a" / "b") == tmp_path / "a" / "b"
        and not (tmp_path / "a").exists()
    )
    assert (
        file_to_write(tmp_path / "a" / "x.csv").name == "x.csv"
        and folder_to_write(tmp_path) == tmp_path
    )
    with pytest.raises(UsageError, match="is a folder"):
        file_to_write(tmp_path)


def test_nothing_is_written_into_a_recording(folder, capfd):
    bag = folder / "bag"
    before = sorted(bag.iterdir())
    assert cli.main(["map", str(bag), "--output", str(bag)]) == 2
    assert f"'{bag}' is a recording; --output takes another folder" in capfd.readouterr().err
    assert sorted(bag.iterdir()) == before


@pytest.mark.parametrize("command", ["map", "fit", "check"])
def test_stamps_that_do_not_move_make_no_map_and_the_old_one_stays(
    folder, tmp_path, capfd, command
):
    """Of a driver and an odometry that leave their stamps at 0, one measurement has a place."""
    with BagWriter(tmp_path / "still") as still:
        for _ in range(40):
            still.odometry(0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
            still.magnetic_field(0, (0.0, 0.0, 45e-6), "imu")

    before = {path.name: path.read_bytes() for path in (folder / "map").iterdir()}
    assert cli.main([command, str(tmp_path / "still"), "--output", str(folder / "map")]) == 2
    said = capfd.readouterr().err
    assert "/magnetic_field: all 40 measurements have one stamp, 0.000 s" in said
    assert {path.name: path.read_bytes() for path in (folder / "map").iterdir()} == before


KILLED = """
import os, signal, sys
from pathlib import Path
from gp_mapping.store.atomic import open_atomic
with open_atomic(Path(sys.argv[1])) as file:
    file.write(bytes(1000))
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_command_left_half_written_goes_with_the_next_one(tmp_path):
    """Each was as large as a map, and stayed for good; a file that is being written stays."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "map.gpm")])
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    with open_atomic(tmp_path / "map.npz") as written:
        written.write(b"half")
        folder_to_write(tmp_path)
        assert not left.exists() and len(list(tmp_path.iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["map.npz"]


def test_the_folder_of_output_is_made_or_named_where_that_cannot_be(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file/b: the folder cannot be made"):
        make_folder(tmp_path / "file" / "b")
