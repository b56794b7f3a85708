"""Many bags as one map: what one process would have made of all cells, whoever does it and whoever dies over it."""

import copy
import importlib.util
import json
import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from fleet_bags import HELD, parameters, write_fleet
from small_drive import field, lanes, write_drive

from gp_mapping import cli
from gp_mapping.core.types import Samples
from gp_mapping.errors import UsageError
from gp_mapping.fleet import bags as fleet_bags_module
from gp_mapping.fleet.bags import agreed_by, read_bags
from gp_mapping.fleet.cells import CellMaker, report_of
from gp_mapping.fleet.drawing import fleet_blocks
from gp_mapping.fleet.engine import LocalEngine, connect_engine
from gp_mapping.fleet.mapping import map_bags
from gp_mapping.intake import Intake
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.atlas import blocks
from gp_mapping.mapping.session import MapSession
from gp_mapping.recording.replay import plan_bags, samples_of

try:
    from distributed.diagnostics.plugin import SchedulerPlugin
except ImportError:
    SchedulerPlugin = object

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="distributed is not installed (pip install 'gp_mapping[fleet]')",
)
LEARNED = {"cell_length": 0.2}  # everything is learned
TILED = HELD | {"lengthscale": 0.3, "cell_length": 0.1, "max_inducing": 60, "map_tile_side": 5.0}


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    return write_fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def cluster():
    with connect_engine(2, None) as engine:
        yield engine


def fleet_map(engine, bags, settings, keep=None):
    given = parameters(**settings)
    read = read_bags(engine, bags, given, {}, keep)
    return map_bags(engine, read, agreed_by(read, given.map), given.map)


def streamed(bag, settings, pool):
    """A bag poured into a session or a CellMaker."""
    given = parameters(**settings)
    intake = Intake(given.intake)
    for _ in ingest_batches(
        samples_of(plan_bags([bag], given.intake, {}), intake, "", shown=False), pool, intake.drops
    ):
        pass
    ingest_remaining(pool, intake.drops)
    return pool


def cells_of_sessions(bags, settings):
    """Every cell that sessions of one process take, one for each robot: its sensor's white noise is its own."""
    cells = []
    for bag in bags:
        session = MapSession(parameters(**settings).map)
        session.taken = []
        cells += streamed(bag, settings, session).taken
    return Samples.concatenate(cells)


def matern52(a, b, length, spread):
    r = np.sqrt(5.0) * np.linalg.norm(a[:, None] - b[None], axis=2) / length
    return spread**2 * (1.0 + r + r * r / 3.0) * np.exp(-r)


def by_formula(cells, z, centre, x, length):
    """Mean and standard deviation of Titsias' posterior at x, SI → µT, in NumPy, from all cells at once."""
    spread, noise, constant = 8.0, 0.3, 30.0
    u, v = (
        np.vstack([matern52(z, p, length, spread), np.zeros((1, len(p)))])
        for p in (cells.x.numpy(), x)
    )
    u[-1], v[-1] = constant**2, constant**2
    prior = np.zeros((len(z) + 1,) * 2)
    prior[:-1, :-1], prior[-1, -1] = matern52(z, z, length, spread), constant**2
    beta = 1.0 / (noise**2 + cells.sensor_variance.numpy() * 1e12 / cells.count.numpy())
    lower = np.linalg.cholesky(prior)
    a, b = np.linalg.solve(lower, u), np.linalg.solve(lower, v)
    d = np.eye(len(prior)) + (a * beta) @ a.T
    y = (cells.y.numpy()[:, 0] - centre) * 1e6
    mean = b.T @ np.linalg.solve(d, (a * beta) @ y)
    variance = spread**2 + constant**2 - (b * b).sum(0) + (b * np.linalg.solve(d, b)).sum(0)
    return mean + centre * 1e6, np.sqrt(variance)


def assert_equal_to_formula(model, cells, x, length=0.7):
    z, centre = model.inducing_inputs().numpy(), float(model.centre[0])
    mean, stddev = by_formula(cells, z, centre, x.numpy(), length)
    report = model.predict(x)
    assert np.abs(report.mean[:, 0].numpy() * 1e6 - mean).max() < 1e-6 * stddev.min()
    assert np.abs(report.stddev[:, 0].numpy() * 1e6 / stddev - 1.0).max() < 1e-6


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if torch.is_tensor(one):
        return torch.equal(one, other)
    return one == other or (hasattr(one, "get") and same(one.get(), other.get()))


def assert_bit_equal(one, other):
    a, b = one.session.state_dict(), other.session.state_dict()
    assert a.keys() == b.keys() and [name for name in a if not same(a[name], b[name])] == []


@pytest.mark.parametrize(
    "more", [{"robust": False}, {"robust": True}, {"robust": True, "response_time": 0.4}]
)
def test_cells_are_those_of_a_session(tmp_path, more):
    def spoil(i, vector, place):
        return (
            (vector * 40.0, place)
            if i in (7, 150)
            else (vector, place + np.array([30.0 * (i > 250), 0.0, 0.0]))
        )

    write_drive(tmp_path / "bag", lanes(count=3), rate=20.0, spoil=spoil)
    settings = HELD | {"learn_bias": True, "learn_noise": True} | more
    mine = streamed(
        tmp_path / "bag", settings, CellMaker(parameters(**settings).map)
    ).joined_cells()
    its = cells_of_sessions([tmp_path / "bag"], settings)
    assert len(mine) == len(its) > 30
    for name in ("x", "y", "stamp", "count", "sensor_variance", "velocity", "pass_number"):
        assert torch.equal(getattr(mine, name), getattr(its, name)), name


def test_one_tile_is_the_formula_of_all_cells(bags):
    made = fleet_map(LocalEngine(), bags, HELD)
    cells = cells_of_sessions(bags, HELD)
    x = torch.from_numpy(np.random.default_rng(0).uniform([-0.3, -0.3], [2.3, 1.7], (50, 2)))
    assert made.session.report()["tiles"] == 1 and made.session.cell_count == len(cells)
    assert_equal_to_formula(made.session.map.current_map, cells, x)
    truth = field(*made.session.path.numpy().T)
    assert np.abs(made.session.predict(made.session.path).mean[:, 0].numpy() - truth).max() < 0.5e-6


@pytest.fixture(scope="module")
def tiled_here(bags):
    """A map of several tiles, made in this process."""
    return fleet_map(LocalEngine(), bags, TILED)


def test_every_tile_is_the_formula_of_its_cells_and_a_session_goes_on(bags, tiled_here, tmp_path):
    made = copy.deepcopy(tiled_here)
    cells, tiled = cells_of_sessions(bags, TILED), made.session.map
    keys = [tile.key for tile in made.sums]
    assert len(keys) > 1 and sorted([*tiled.tiles, *tiled.shelf.keys()]) == keys
    for key in keys:
        tile, which = (
            tiled.load_tiles([key]) and tiled.tiles[key].map,
            tiled.layout.covers(key, cells.x),
        )
        low, high = tiled.layout.core(key)
        x = torch.from_numpy(np.random.default_rng(1).uniform(low, high, (20, 2)))
        assert tile.samples == int(which.sum())
        assert_equal_to_formula(tile, cells[which], x, 0.3)

    write_drive(tmp_path / "later", lanes(0.1, 3), 9000.0, seed=9)
    before = made.session.cell_count
    streamed(tmp_path / "later", TILED, made.session)
    assert made.session.cell_count > before + 30 and made.session.report()["refused_samples"] == 0
    truth = field(*made.session.path.numpy().T)
    assert np.abs(made.session.predict(made.session.path).mean[:, 0].numpy() - truth).max() < 0.5e-6


@pytest.fixture(scope="module")
def learned(bags):
    """The map of one process, everything learned."""
    return fleet_map(LocalEngine(), bags[:3], LEARNED)


@needs_dask
def test_workers_make_the_same_map(bags, cluster, learned):
    assert_bit_equal(fleet_map(cluster, bags[:3], LEARNED), learned)


@pytest.fixture(scope="module")
def tiled(bags, cluster):
    """A map of several tiles, made by workers."""
    return fleet_map(cluster, bags, TILED)


@needs_dask
def test_workers_make_the_same_tiles(tiled, tiled_here):
    assert_bit_equal(tiled, tiled_here)


@needs_dask
def test_blocks_drawn_by_workers_are_those_of_the_session(cluster, tiled):
    made = tiled
    mine, its = dict(fleet_blocks(cluster, made, 12)), dict(blocks(made.session, 12))
    assert list(mine) == list(its) and len(its) > 4 and len(made.sums) > 1
    for index, grid in its.items():
        assert torch.equal(torch.as_tensor(mine[index].known), torch.as_tensor(grid.known))
        for name in ("mean", "stddev"):
            assert np.allclose(
                getattr(mine[index], name), getattr(grid, name), rtol=0, atol=1e-12, equal_nan=True
            )


@needs_dask
def test_a_cluster_that_is_there(bags, cluster, tmp_path, capsys):
    words = [
        word for name, value in HELD.items() for word in ("--set", f"{name}={str(value).lower()}")
    ]
    address, result = cluster.client.scheduler.address, {}
    for name, how in (
        ("there", ["--scheduler", address, "--blocks"]),
        ("here", ["--workers", "1"]),
    ):
        assert (
            cli.main(["map", *bags, "--output", str(tmp_path / name), *how, "--json", *words]) == 0
        )
        result[name] = json.loads(capsys.readouterr().out)
    assert (
        result["there"]["map"] == result["here"]["map"]
        and address in result["there"]["fleet"]["engine"]
    )
    assert (
        len(list((tmp_path / "there" / "blocks").glob("mean_*.pgm")))
        == result["there"]["fleet"]["blocks"]
        > 0
    )
    assert cluster.client.run(os.getpid), "who uses a cluster does not end it"


@needs_dask
def test_workers_keep_the_memory_that_their_matrices_come_and_go_in(cluster):
    """Dask's own threshold gives it back at once, and each matrix is page faults again: an eighth of the time."""
    report = cluster.client.run(lambda: dict(os.environ))
    assert all(
        "MALLOC_TRIM_THRESHOLD_" not in one and one["OMP_NUM_THREADS"] == "1"
        for one in report.values()
    )


@needs_dask
def test_workers_that_are_killed_all_the_time_change_nothing(
    bags, cluster, learned, tmp_path, capsys
):
    """One after each few steps that are done, busy with whatever it is; and none of the bags is lost by it."""
    done, over, killed = threading.Semaphore(0), threading.Event(), []
    scheduler = cluster.workers.cluster.scheduler

    class Counts(SchedulerPlugin):
        def transition(self, key, start, finish, *args, **kwargs):
            if (start, finish) == ("processing", "memory"):
                done.release()

    def execute():
        while len(killed) < 12:
            for _ in range(4):
                done.acquire()
            if over.is_set():
                return
            pids = [n.pid for n in list(cluster.workers.cluster.workers.values()) if n.pid]
            if pids:
                killed.append(pids[len(killed) % len(pids)])
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    scheduler.loop.add_callback(scheduler.add_plugin, Counts(), name="counts")
    executioner = threading.Thread(target=execute)
    executioner.start()
    try:
        made = fleet_map(cluster, bags[:3], LEARNED, tmp_path)
    finally:
        over.set()
        done.release(4)
        executioner.join()
        scheduler.loop.add_callback(scheduler.remove_plugin, "counts")
    assert len(killed) > 5
    assert_bit_equal(made, learned)


def test_what_is_kept_of_a_bag_is_what_was_made(bags, tmp_path):
    """A step that is done again reads it: another bag's path then does no harm."""
    made = fleet_map(LocalEngine(), bags[:2], LEARNED, tmp_path)
    kept = ["0.cells", "0.robot", "0_0.sums", "1.cells", "1.robot"]
    assert sorted(p.name for p in tmp_path.iterdir()) == kept
    assert_bit_equal(fleet_map(LocalEngine(), ["nowhere", "not there"], LEARNED, tmp_path), made)


def test_ground_that_takes_more_tiles_than_there_may_be_is_said_before_the_work(bags):
    """Of bags that are at hand nothing is left out unasked."""
    with pytest.raises(
        UsageError, match=r"takes \d+ tiles, more than max_tiles \(9\); write --set max_tiles=\d+"
    ):
        fleet_map(LocalEngine(), bags, TILED | {"lengthscale": 0.1, "max_tiles": 9})


def test_a_bag_that_fails_is_named_and_left_out(bags, tmp_path, capsys):
    (tmp_path / "no_bag.mcap").write_text("not a bag")
    damaged = tmp_path / "damaged.mcap"
    good = next(p for p in os.scandir(bags[0]) if p.name.endswith(".mcap"))
    with open(good.path, "rb") as file:
        damaged.write_bytes(file.read()[:20000])
    write_drive(
        tmp_path / "dead",
        lanes(count=3),
        5000.0,
        spoil=lambda i, v, p: (np.array([3e-5, 0.0, 4e-5]), p),
    )
    broken = [str(tmp_path / name) for name in ("no_bag.mcap", "damaged.mcap", "dead", "nowhere")]
    words = [
        word for name, value in HELD.items() for word in ("--set", f"{name}={str(value).lower()}")
    ]
    out = tmp_path / "out"
    assert (
        cli.main(
            ["map", *bags[:2], *broken, "--output", str(out), "--workers", "1", "--json", *words]
        )
        == 0
    )
    report = capsys.readouterr()
    result = json.loads(report.out)
    assert sorted(result["fleet"]["failed"]) == sorted(broken) and result["fleet"]["mapped"] == 2
    assert all(
        any(name in line for line in report.err.splitlines() if "left out" in line)
        for name in broken[:2]
    )
    assert "the sensor is dead" in result["fleet"]["failed"][broken[2]]
    assert sorted(p.name for p in out.iterdir() if p.name.startswith(".")) == []

    assert (
        cli.main(
            [
                "map",
                *bags[:2],
                "--output",
                str(tmp_path / "alone"),
                "--workers",
                "1",
                "--json",
                *words,
            ]
        )
        == 0
    )
    alone = json.loads(capsys.readouterr().out)
    assert alone["map"] == result["map"] and alone["samples"] == result["samples"]

    # by itself a bag that was cut off is mapped, as far as it goes; beside its whole it counts twice
    broken.remove(str(damaged))
    assert cli.main(["map", *broken, "--output", str(tmp_path / "none"), "--workers", "1"]) == 2
    assert "none of 3 bags can be mapped" in capsys.readouterr().err


def test_a_bag_of_another_number_of_channels_is_named_and_left_out(tmp_path, monkeypatch):
    """As one of another frame; which settings of one fleet cannot bring about."""
    bags = write_fleet(tmp_path, 3, length=0.5)

    def told(made):
        report = report_of(made)
        values = list(report.middle[1]) * (3 if report.bag == bags[1] else 1)
        return replace(report, middle=(report.middle[0], values))

    monkeypatch.setattr(fleet_bags_module, "report_of", told)
    read = read_bags(LocalEngine(), bags, parameters(**HELD), {}, most=10)
    assert [job.bag for job in read.jobs] == [bags[0], bags[2]] and list(read.failed) == [bags[1]]
    why = read.failed[bags[1]]
    assert why.startswith(bags[1]) and "3 values, of most bags 1" in why and "\n" not in why


@pytest.mark.parametrize(
    "words, what",
    [
        (["--workers", "2"], "pip install 'gp_mapping[fleet]'"),
        (["--workers", "0"], "expected 1 or more"),
        (["--workers", "1", "--scheduler", "tcp://127.0.0.1:1"], "give one of them"),
        (["--workers", "1", "--model", "exact"], "model exact"),
        (["--workers", "1", "--set", "forgetting_time=5.0"], "forgetting_time"),
        (["--workers", "1", "--resume", "map.gpm"], "--resume"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(bags, tmp_path, capsys, monkeypatch, words, what):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "distributed" else found(name, *more),
    )
    assert cli.main(["map", *bags, "--output", str(tmp_path / "out"), *words]) == 2
    report = capsys.readouterr()
    assert what in report.err and len(report.err.splitlines()) == 1 and report.out == ""
