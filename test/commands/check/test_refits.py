"""Maps made again in processes of their own are those that would have been made here."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from benchmark import warm
from gp_mapping.analysis.refits import rmse_of, ways_to_refit
from gp_mapping.commands.check import refits as module
from gp_mapping.commands.check.refits import ChildProcesses, refits
from gp_mapping.core.types import Samples
from gp_mapping.settings.mapping import MapSettings

LONG = 1e9  # s for a map: processes pay


def lane(y: float, seed: int, n: int = 40) -> Samples:
    x = torch.stack([torch.linspace(0.0, 3.0, n).double(), torch.full((n,), y).double()], 1)
    noise = 2e-7 * torch.randn(
        n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return Samples(
        x=x,
        y=4e-5 + 3e-6 * torch.sin(3.0 * x[:, 0] + y) + noise,
        stamp=0.1 * torch.arange(n).double(),
    )


TRAIN, TEST = [lane(0.3 * k, k) for k in range(3)], [lane(0.45, 9)]
SETTINGS = MapSettings(max_inducing=40)


@pytest.fixture
def started(monkeypatch):
    """Processes that were started, each with its command; Python begins with torch loaded."""
    found, usual, python = [], subprocess.Popen, sys.executable
    warm.run([python, "-c", ""], check=True)  # what they are forked from is none of them

    def start(command, **options):
        found.append((warm.Popen if command[0] == python else usual)(command, **options))
        return found[-1]

    monkeypatch.setattr(module.subprocess, "Popen", start)
    monkeypatch.setattr(module, "_cores", lambda: 2)
    return found


def test_side_by_side_they_are_the_same_to_the_bit(started):
    ways, begun = dict(list(ways_to_refit(SETTINGS).items())[1:3]), []
    together = refits(TRAIN, TEST, ways, LONG, begun.append)
    assert (
        [p.returncode for p in started] == [0, 0]
        and sorted(begun) == sorted(ways)
        and list(together) == list(ways)
    )
    alone = refits(TRAIN, TEST, ways, 1e-3, lambda name: None)
    assert together == alone and len(started) == 2 and len(set(alone.values())) > 1


def test_what_another_process_cannot_make_is_made_here(started, monkeypatch):
    """A model that this program alone has registered, say: there it fails."""
    ways = {
        name: MapSettings(max_inducing=40, noise_stddev=noise)
        for name, noise in (("a", 1e-7), ("b", 1e-6))
    }
    monkeypatch.setattr(module.sys, "executable", shutil.which("false"))
    found = refits(TRAIN, TEST, ways, LONG, lambda name: None)
    assert [p.returncode for p in started] == [1, 1]
    assert found == {name: rmse_of(TRAIN, TEST, settings) for name, settings in ways.items()}


def test_an_end_waits_for_nobody(started):
    """As Ctrl-C: what is under way is stopped, what has not begun never begins."""
    aside, told = ChildProcesses(), []
    long = [lane(0.01 * k, k, 400) for k in range(300)]
    thread = threading.Thread(target=lambda: told.append(aside.rmse_of(long, TEST, SETTINGS)))
    thread.start()
    while not started:
        time.sleep(0.01)
    began = time.monotonic()
    aside.end()
    thread.join(30.0)
    assert time.monotonic() - began < 10.0 and started[0].returncode == -signal.SIGTERM
    assert told == [None] and aside.rmse_of(TRAIN, TEST, SETTINGS) is None and len(started) == 1


def test_what_is_made_here_ctrl_c_ends_at_once(started, monkeypatch):
    """It is made in the thread that hears of it."""
    monkeypatch.setattr(module.sys, "executable", shutil.which("false"))
    heard = []

    def interrupted(*_):
        heard.append(threading.current_thread())
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "rmse_of", interrupted)
    for seconds in (LONG, 1e-3):
        with pytest.raises(KeyboardInterrupt):
            refits(TRAIN, TEST, {"a": SETTINGS, "b": SETTINGS}, seconds, lambda name: None)
    assert heard == [threading.main_thread()] * 2


def open_files(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found.append(os.readlink(each))
    return found


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="parents' deaths are heard of on Linux alone"
)
def test_killed_it_leaves_nobody_behind(tmp_path):
    """Also where the command itself is killed, which nothing of it can hear."""
    code = (
        "import sys; sys.path.insert(0, 'test/commands/check')\n"
        "import test_refits as t\n"
        "aside = t.ChildProcesses()\n"
        "aside.rmse_of([t.lane(.01 * k, k, 400) for k in range(300)], t.TEST, t.SETTINGS)\n"
    )
    parent = warm.Popen([sys.executable, "-c", code])
    children = f"/proc/{parent.pid}/task/{parent.pid}/children"
    while not (found := open(children).read().split()):
        time.sleep(0.05)
        assert parent.poll() is None
    # until it has its job: one that still reads would end by itself, with the pipe
    time.sleep(0.5)
    pipe = os.readlink(f"/proc/{found[0]}/fd/0")
    assert pipe in open_files(parent.pid)
    while pipe in open_files(parent.pid):
        time.sleep(0.05)
        assert parent.poll() is None and os.path.exists(f"/proc/{found[0]}")
    time.sleep(0.5)
    parent.send_signal(signal.SIGKILL)
    parent.wait(10.0)
    deadline = time.monotonic() + 20.0
    while os.path.exists(f"/proc/{found[0]}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{found[0]}")
