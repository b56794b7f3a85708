"""A disk that is full or read-only: a save says so, the map that was saved stays, and the next one that can be is."""

import subprocess

import pytest
from ros_helpers import ask, fill, settle, spin_until
from std_srvs.srv import Trigger

from gp_mapping.store.checkpoint import load_checkpoint


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB; mount(options) changes it."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> bool:
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(words, capture_output=True).returncode == 0

    if not mount("size=3m"):
        pytest.skip("needs the right to mount")
    yield folder, mount
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_and_read_only(small_disk, node_of):
    folder, mount = small_disk
    node, peer = node_of(save_directory=str(folder), autosave_period=0.2)

    def save() -> Trigger.Response:
        return ask(node, peer, Trigger, "/mapping/save")

    fill(node, 2.0)
    settle(node, peer)
    assert save().success
    saved = (folder / "map.gpm").read_bytes()

    for fault, said in (("full", "No space left"), ("read-only", "Read-only file system")):
        filler = folder / "filler"
        if fault == "full":
            with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        else:
            assert mount("remount,ro")
        fill(node, 1.0, start=5.0 if fault == "full" else 7.0)
        settle(node, peer)
        answer = save()
        assert (
            not answer.success and said in answer.message and "Traceback" not in answer.message
        ), answer
        spin_until(node, peer, lambda said=said: said in node.saver.problem)
        spin_until(node, peer, lambda said=said: any(said in text for text in peer.messages))
        assert (folder / "map.gpm").read_bytes() == saved, "what was saved before is as it was"

        assert mount("remount,rw") if fault == "read-only" else filler.unlink() is None
        spin_until(node, peer, lambda: node.saver.problem == "" and node.saver.is_autosaved())
        assert save().success
        saved = (folder / "map.gpm").read_bytes()
    session = load_checkpoint(folder / "map.gpm")
    assert session["raw_count"] == node.worker.status.report["samples"] >= 200
    assert not list(folder.rglob(".*.partial"))


def test_a_read_only_disk_with_the_map_of_a_run_before_is_no_reason_not_to_start(
    small_disk, node_of
):
    """And what is on it is not written over once the disk can be written."""
    folder, mount = small_disk
    settings = {"save_directory": str(folder), "autosave_period": 0.2}
    node, peer = node_of(**settings)
    fill(node, 2.0)
    spin_until(node, peer, lambda: node.saver.is_autosaved())
    node.worker.stop(abandon=True)
    old = (folder / "autosave.gpm").read_bytes()

    assert mount("remount,ro")
    node, peer = node_of(**settings)
    fill(node, 1.0)
    spin_until(node, peer, lambda: "Read-only file system" in node.saver.problem)
    assert mount("remount,rw")
    assert ask(node, peer, Trigger, "/mapping/save").success, "newer than the autosave from now on"
    fill(node, 1.0, start=5.0)
    spin_until(node, peer, lambda: node.saver.is_autosaved())
    assert (folder / "autosave.previous.gpm").read_bytes() == old
