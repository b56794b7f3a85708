"""No search for garbage while a command or a node loads torch and ROS, and none in what was loaded."""

import gc
import platform
import signal
import subprocess
import sys
import types

import pytest

from gp_mapping import cli
from gp_mapping.garbage import leave_out_what_is_loaded, pause_while_loading
from gp_mapping.ros.loading import quiet_while_loading
from gp_mapping.ros.tools.playback import run_node
from gp_mapping.ros.tools.process import ENDINGS, Stopper


@pytest.fixture
def as_it_was(monkeypatch):
    """Garbage and signals are of this process again; nothing is kept for its end."""
    monkeypatch.setattr("atexit.register", lambda each: each)
    handlers = {number: signal.getsignal(number) for number in ENDINGS}
    yield
    gc.enable()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_what_is_loaded_is_left_out(as_it_was):
    before = gc.get_freeze_count()
    pause_while_loading()
    assert not gc.isenabled()
    loaded = [[] for _ in range(100)]
    leave_out_what_is_loaded()
    assert gc.isenabled() and gc.get_freeze_count() >= before + len(loaded)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries do not keep what is freed"
)
def test_matrices_go_back_to_the_system_when_they_are_freed():
    """glibc kept them in the heap, with what stays between: 90 MB in this test, 60 in a node.

    In a process of its own: what others freed before would be taken first.
    """
    code = """
from gp_mapping.garbage import keep_matrices_apart
from gp_mapping.runtime.health import resident_megabytes
keep_matrices_apart()
bytes(2_000_000)  # freed, it would teach glibc to keep such blocks
before, kept, matrices = resident_megabytes(), [], []
for _ in range(60):
    matrices.append(b"1" * 1_500_000)
    kept.append(b"1" * 2_000)
grown = resident_megabytes() - before
matrices.clear()
left = resident_megabytes() - before
assert grown > 60 and left < 20, (grown, left)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_who_searches_for_none_is_left_alone(as_it_was):
    gc.disable()
    leave_out_what_is_loaded()
    pause_while_loading()
    leave_out_what_is_loaded()
    assert not gc.isenabled()


def test_a_command_is_loaded_without_and_runs_with_it(as_it_was, monkeypatch):
    seen = []

    def loaded(name):
        seen.append((name, gc.isenabled()))
        return types.SimpleNamespace(run=lambda args: seen.append(("run", gc.isenabled())))

    monkeypatch.setattr(sys, "argv", ["gp-mapping", "map", "a.bag", "--output", "here"])
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: loaded(name))
    monkeypatch.setattr(cli, "_arguments", lambda *_: None)
    assert cli.main() == 0
    assert seen == [("gp_mapping.commands.map", False), ("run", True)]


@pytest.mark.parametrize("begin", [Stopper, lambda: run_node(dict, ["--ros-args", "-r"])])
def test_a_node_searches_from_its_own_signal_handlers_on(as_it_was, monkeypatch, begin):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "gp_mapping.ros.simulator_node"])
    monkeypatch.setattr("warnings.simplefilter", lambda how: None)
    quiet_while_loading()
    assert not gc.isenabled()
    begin()
    assert gc.isenabled()
