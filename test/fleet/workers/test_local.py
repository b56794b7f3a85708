"""Workers that are killed again and again, or while they start: others take their place, or it is said: none can."""

import functools
import os
import re
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tqdm import tqdm

from gp_mapping import cli
from gp_mapping.errors import UsageError
from gp_mapping.fleet import engine
from gp_mapping.fleet.engine import ClusterEngine, StepLost, connect_engine
from gp_mapping.fleet.workers import deaths, local, remote
from gp_mapping.fleet.workers.forked import can_fork
from gp_mapping.fleet.workers.remote import RemoteWorkers

pytest.importorskip("distributed")


@contextmanager
def limited(seconds=120.0):
    """Fails where it would wait for ever."""

    def over(*_):
        raise AssertionError(f"not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def dying(folder: Path, times: int) -> str:
    """A file that each worker loads as it starts, and over which so many of them die."""
    file = folder / "dies.py"
    file.write_text(
        "import os, pathlib, signal\n"
        f"deaths = pathlib.Path({str(folder / 'deaths')!r})\n"
        f"if not deaths.is_file() or deaths.stat().st_size < {times}:\n"
        "    with deaths.open('a') as file:\n"
        "        file.write('x')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    return str(file)


def die_at_first(folder: str, times: int) -> int:
    """A step over which so many workers die; how often it was begun."""
    file = Path(folder) / "lives"
    with file.open("a") as opened:
        opened.write("x")
    if file.stat().st_size <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return file.stat().st_size


def test_workers_that_are_away_for_long_and_nannies_that_end_are_replaced(capsys, monkeypatch):
    """Dask takes the nanny away of a worker that is not there some time after its death."""
    import dask

    monkeypatch.setattr(local, "_SAID", 0.0)
    monkeypatch.setattr(local, "_AWAY", 2.0)
    with (
        limited(),
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}),
        connect_engine(2) as cluster,
    ):
        for pid in cluster.client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        assert cluster.result(cluster.step("sum", int, "5")) == 5

        nannies = complete(cluster.workers)
        for nanny in nannies:
            cluster.workers.cluster.sync(nanny.close)
        assert cluster.result(cluster.step("sum", int, "6")) == 6
        assert not set(complete(cluster.workers)) & set(nannies)
    said = capsys.readouterr().err.splitlines()
    assert said and len(said) == len(set(said)), "one line for each number"
    assert all(re.match(r"fleet: \d of 2 workers at work; \d+ died so far, ", s) for s in said)


def loader_of() -> tuple[int, bool, int, bool]:
    """Of the process that a worker comes from: its id, whether it has torch, its threads, whether it is forked.

    And no worker may have a semaphore of the system, which stays when it is killed.
    """
    assert isinstance(tqdm.get_lock(), type(threading.RLock()))
    parent = os.getppid()
    maps = Path(f"/proc/{parent}/maps").read_text()
    threads = len(os.listdir(f"/proc/{parent}/task"))
    return parent, "libtorch" in maps, threads, "gp_mapping.fleet.workers.loaded" in sys.modules


@pytest.mark.skipif(not can_fork(), reason="workers are forked on Linux alone")
def test_workers_come_loaded_and_others_take_their_place_when_who_loads_them_dies():
    """From a process of one thread: a fork takes no other along, and would wait for what these hold."""
    with limited(), connect_engine(2) as cluster:
        loaders = set(cluster.client.run(loader_of).values())
        assert len(loaders) == 1
        loader, has_torch, threads, forked = loaders.pop()
        assert has_torch and threads == 1 and forked and loader != os.getpid()

        os.kill(loader, signal.SIGKILL)
        for pid in cluster.client.run(os.getpid, on_error="ignore").values():
            if isinstance(pid, int):
                os.kill(pid, signal.SIGKILL)
        complete(cluster.workers)
        assert cluster.result(cluster.step("sum", int, "5")) == 5
        after = set(cluster.client.run(loader_of).values())
        assert len(after) == 1 and after.pop()[0] != loader


def complete(workers):
    """The nannies, once each has a worker."""
    while True:
        workers.look()
        nannies = list(workers.cluster.workers.values())
        if len(nannies) == workers.at_work == 2 and all(n.is_alive() for n in nannies):
            return nannies
        time.sleep(0.02)


def test_workers_that_die_while_they_start(tmp_path, capsys, monkeypatch):
    import dask

    monkeypatch.setattr(local, "_PAUSE", 0.01)
    with (
        limited(),
        dask.config.set({"distributed.worker.preload": [dying(tmp_path, 4)]}),
        connect_engine(2) as cluster,
    ):
        assert cluster.result(cluster.step("sum", int, "5")) == 5
        assert cluster.workers.died == 4
    assert "4 died so far" in capsys.readouterr().err or (tmp_path / "deaths").stat().st_size == 4


def test_where_each_worker_dies_at_once_it_is_said_and_over(tmp_path, monkeypatch):
    import dask

    monkeypatch.setattr(local, "_PAUSE", 0.01)
    monkeypatch.setattr(local, "_STARTS", 2)
    before = threading.active_count()
    with (
        limited(),
        dask.config.set({"distributed.worker.preload": [dying(tmp_path, 1000)]}),
        pytest.raises(
            UsageError, match=r"no worker can be started: \d died one after the other.*--workers 1"
        ) as caught,
    ):
        connect_engine(2)
    assert "\n" not in str(caught.value)
    assert threading.active_count() <= before + 2, "the cluster is closed"


@pytest.fixture(scope="module")
def cluster():
    with connect_engine(2) as made:
        yield made


def test_a_nanny_of_the_newest_name_that_has_failed_is_replaced(cluster):
    """As where its worker was killed while it started; Dask gives its name away again."""
    from distributed.core import Status

    with limited(60.0):
        complete(cluster.workers)
        nannies = cluster.workers.cluster.workers
        for name in (max(nannies), min(nannies)):
            failed = nannies[name]
            failed.status = Status.failed
            os.kill(failed.pid, signal.SIGKILL)
            while failed in complete(cluster.workers):
                time.sleep(0.02)
    assert cluster.result(cluster.step("sum", int, "5")) == 5


def test_a_step_that_kills_is_given_up_and_one_that_was_killed_comes_through(
    cluster, tmp_path, monkeypatch
):
    """Also where both died as often at first: while others come through, they are tried again."""
    monkeypatch.setattr(deaths, "DEATHS", 2)
    monkeypatch.setattr(engine, "_ROUNDS", 1)
    for name in ("killed", "kills"):
        (tmp_path / name).mkdir()
    with limited():
        killed = cluster.step("killed", die_at_first, str(tmp_path / "killed"), 2)
        kills = cluster.step("kills", die_at_first, str(tmp_path / "kills"), 1000)
        after = cluster.step("after", functools.partial(max, 0), kills)
        sums = cluster.each("sum", int, ["1", "2", "3"])
        results = cluster.results([killed, *sums, after], "steps", small=True)
        assert next(results) >= 3, (
            "three lives, or more where its result was lost with another's worker"
        )
        assert [next(results) for _ in range(3)] == [1, 2, 3]
        for handle in (after, kills):
            with pytest.raises(StepLost, match=r"\d workers died over it, as where memory"):
                cluster.result(handle)
        assert 3 <= (tmp_path / "kills" / "lives").stat().st_size <= 6


def test_a_scheduler_without_workers_is_waited_for_and_that_is_said(tmp_path, capsys, monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(engine, "_LOOK", 0.01)
    monkeypatch.setattr(remote, "_ASKED", 0.0)
    with (
        limited(),
        LocalCluster(
            n_workers=0,
            processes=False,
            protocol="tcp://",
            dashboard_address=":0",
        ) as theirs,
    ):
        monkeypatch.setattr(remote, "_PATIENCE", 600.0)
        with ClusterEngine(RemoteWorkers(theirs.scheduler_address)) as mine:
            handle = mine.step("sum", int, "5")
            timer = threading.Timer(0.3, theirs.scale, (1,))
            timer.start()
            assert mine.result(handle) == 5
            timer.join()
            said = capsys.readouterr().err.splitlines()
            assert said == [
                f"fleet: no worker is at {theirs.scheduler_address}; waiting for one, for 10 minutes at the most"
            ]

            theirs.scale(0)
            while mine.client.nthreads():
                time.sleep(0.01)
            monkeypatch.setattr(remote, "_PATIENCE", 0.05)
            with pytest.raises(UsageError, match=r"no worker has been at tcp://.* for 0 minutes"):
                mine.result(mine.step("sum", int, "6"))

            capsys.readouterr()
            words = ["map", "nobody reads it", "--scheduler", theirs.scheduler_address]
            assert cli.main([*words, "--output", str(tmp_path / "out")]) == 2
            *_, said = capsys.readouterr().err.splitlines()
            assert said.startswith("gp-mapping map: no worker has been at tcp://")
            assert (
                not list((tmp_path / "out").glob(".cells*"))
                and theirs.scheduler.status.name == "running"
            )
