"""The demo as a user runs it: real processes over real DDS, a verdict, and nothing left behind."""

import argparse
import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

import torch
from dds_helpers import DEEP, Listener, Process
from domains import domain_of
from sensor_msgs.msg import MagneticField
from std_msgs.msg import Header

import gp_mapping.commands.demo.command as demo_command
from benchmark import warm
from gp_mapping.cli import main
from gp_mapping.commands import add_arguments
from gp_mapping.commands.demo.command import _report as report
from gp_mapping.commands.demo.limits import FULL, NEAR
from gp_mapping.commands.demo.picture import cells_to_image, draw_comparison
from gp_mapping.commands.demo.survey import FAST_BUDGET, WALLS, Curve, room, worth
from gp_mapping.commands.demo.watch import DemoResult, SurveyResult, verdict
from gp_mapping.commands.saved import open_session
from gp_mapping.errors import UsageError
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.ros.clients.map_watcher import cloud_columns
from gp_mapping.ros.wire.outbound import field_cloud
from gp_mapping.sim.evaluation import MapScore, near_path, score_map
from gp_mapping.sim.simulation import OdometryReading, Simulation, SimulationSettings
from gp_mapping.sim.walls import Walls, parse_walls
from gp_mapping.sim.world import DipoleWorld, WorldSettings

DOMAIN = domain_of("demo")
# a measurement each 5 cm: each message costs both nodes time
RATE = 10.0
FEWER = ("--set", f"sim.field_rate:={RATE}", "--set", f"sim.odometry_rate:={RATE}")
LANES = 55.0  # s of the robot's time: 24 m


def gp_mapping(*arguments, log_dir, **how):
    return Process("gp_mapping.cli", *arguments, domain=DOMAIN, log_dir=log_dir, **how)


def demo(tmp_path, *arguments, **how):
    folder = str(tmp_path / "demo")
    return gp_mapping(
        "demo", "--output", folder, "--domain-id", str(DOMAIN), *arguments, log_dir=tmp_path, **how
    )


def nodes_of(tmp_path, log="") -> list[int]:
    """Processes that write into the logs of this demo's nodes, or into one of them, however they were started."""
    out, begin = [], f"{tmp_path / 'demo'}/{log}"
    for entry in Path("/proc").iterdir():
        try:
            to = os.readlink(entry / "fd" / "1") if entry.name.isdigit() else ""
        except OSError:
            continue  # it has ended meanwhile
        if to.startswith(begin) and to.endswith(".log"):
            out.append(int(entry.name))
    return sorted(out)


def wait_for(condition, timeout=30.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_the_robot_plans_its_own_way_and_is_home_within_its_budget(tmp_path):
    with demo(tmp_path, "--fast", "--seed", "1", "--timeout", "240", *FEWER) as process:
        assert process.wait(260.0) == 0, process.output
        text, folder = process.output, tmp_path / "demo"
    numbers = json.loads((folder / "demo.json").read_text())
    survey = numbers["survey"]
    assert survey["phase"] == "done" and "budget" in survey["reason"] and survey["plans"] >= 4
    assert 0.7 * FAST_BUDGET < survey["driven"] <= FAST_BUDGET == survey["budget"]
    assert survey["bumps"] == 0 and survey["from_home"] <= 0.5
    # as good as lanes of that length that know all walls beforehand, on the way and at the end; a single drive varies
    assert (
        survey["area"] < 1.2 * survey["lanes_area"]
        and survey["error"] < 1.3 * survey["lanes_error"]
    )
    assert (
        "the best lanes of that length" in text
        and not nodes_of(tmp_path)
        and "Traceback" not in text
    )

    done = [int(n) for n in re.findall(r"(\d+) %\|", text)]
    assert done == sorted(done) and done[-1] == 100 and any(0 < n < 100 for n in done)

    # the way is as it was planned: round the walls of the room, never through them
    path = open_session(folder / "map.gpm").path.numpy()
    walls = Walls(6.0, 5.0, parse_walls(WALLS))
    assert min(walls.clearance(x, y) for x, y in path) > 0.1 and np.ptp(path[:, 0]) > 2.5
    with np.load(folder / "map.npz") as saved:
        np.testing.assert_allclose(saved["path"], path)


def test_the_map_of_lanes_is_right_and_everything_is_written(tmp_path):
    words = ("--lanes", "--fast", "--speed", "20", "--seed", "1", "--duration", str(LANES))
    with demo(tmp_path, *words, *FEWER) as process:
        assert process.wait(120.0) == 0, process.output
        text, folder = process.output, tmp_path / "demo"
        assert not nodes_of(tmp_path)
    sent, received, dropped, used = map(
        int,
        re.search(r"(\d+) sent, (\d+) received, (\d+) dropped, (\d+) in the map", text).groups(),
    )
    assert sent == received == used == RATE * LANES and dropped == 0
    numbers = json.loads((folder / "demo.json").read_text())
    assert numbers["used"] == used and 0.0 < numbers["share"] < 20.0 and numbers["memory"] > 50.0
    for name in ("demo.png", "demo.json", "map.npz", "map.png", "mapper.log", "simulator.log"):
        assert (folder / name).stat().st_size > 0 and str(folder / name) in text
    assert (folder / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (
        "Traceback"
        not in text + (folder / "mapper.log").read_text() + (folder / "simulator.log").read_text()
    )

    # what came over DDS and what the mapper wrote are the same map: the same error against the same truth
    with np.load(folder / "map.npz") as saved:
        mean, stddev, known = (np.asarray(saved[name]) for name in ("mean", "stddev", "known"))
        xy = np.stack(np.meshgrid(saved["x"], saved["y"]), axis=-1).reshape(-1, 2)
        path = saved["path"]
    simulation = Simulation(
        SimulationSettings(spacing=0.5, crossing_spacing=0.0, seed=1, duration=LANES),
        WorldSettings(seed=1),
    )
    driven = np.array([(e.x, e.y) for e in simulation if isinstance(e, OdometryReading)])
    assert (
        near_path(driven, path, 0.1).all() and near_path(path, driven, 0.1).all()
    )  # all of the route is in the map
    near = near_path(xy, path, NEAR) & known.ravel()
    score = score_map(mean.ravel()[near], stddev.ravel()[near], simulation.world.norm(xy[near]))
    assert float(re.search(r"RMSE +([\d.]+) µT within", text)[1]) == pytest.approx(
        1e6 * score.rmse, abs=0.03
    )
    assert score.rmse < 0.5 * score.field_stddev


def test_a_process_that_dies_ends_it_with_1_and_its_last_lines(tmp_path):
    with demo(tmp_path) as process:
        log = tmp_path / "demo" / "mapper.log"
        wait_for(lambda: log.exists() and "mapping with model" in log.read_text())
        (mapper,) = nodes_of(tmp_path, "mapper")
        os.kill(mapper, signal.SIGKILL)
        assert process.wait(30.0) == 1
        assert (
            "the mapper ended early with code -9" in process.output
            and "mapping with model" in process.output
        )
        assert not nodes_of(tmp_path)


@pytest.mark.parametrize(
    "number, code, start",
    [(signal.SIGINT, 130, warm.Popen), (signal.SIGKILL, -9, subprocess.Popen)],
)
def test_however_it_is_stopped_no_process_is_left(tmp_path, number, code, start):
    """Where it is killed, started as a user does: what the system does with orphans is the question."""
    with demo(tmp_path, start=start) as process:
        wait_for(
            lambda: len(nodes_of(tmp_path)) >= 2
        )  # the third, which drives lanes to compare, comes at once
        time.sleep(0.5)
        process.popen.send_signal(number)
        assert process.wait(30.0) == code, process.output
        wait_for(lambda: not nodes_of(tmp_path), timeout=15.0)
        assert "Traceback" not in process.output


def test_time_out_ends_it_with_1(tmp_path):
    with demo(tmp_path, "--timeout", "1") as process:
        wait_for(
            lambda: len(nodes_of(tmp_path)) >= 2
        )  # the third, which drives lanes to compare, comes at once
        assert process.wait(30.0) == 1
        assert "time is up" in process.output and not nodes_of(tmp_path)


def test_a_model_brings_its_file_and_params_come_on_top(tmp_path):
    """What the mapper is started with; that each model maps is tested in test_model_live.py."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "/**:\n  ros__parameters:\n    max_exact_samples: 1234\n    publish_rate: 3.0\n"
    )
    parser = argparse.ArgumentParser()
    add_arguments("demo", parser)
    values = demo_command._mapper_parameters(
        parser.parse_args(["--model", "exact", "--params", str(mine)])
    )
    assert (values["model"], values["cell_length"]) == ("exact", 0.2)
    assert (values["max_exact_samples"], values["publish_rate"], values["input_queue_depth"]) == (
        1234,
        3.0,
        20000,
    )
    mine.write_text("/**:\n  ros__parameters:\n    sensor: temperature\n")
    with pytest.raises(UsageError, match="the demo's world is a magnetic field"):
        demo_command._mapper_parameters(parser.parse_args(["--params", str(mine)]))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--speed", "0"], "--speed 0.0: expected"),
        (["--seed", "-1"], "--seed -1: expected"),
        (["--duration", "1"], "--duration 1.0: expected"),
        (["--domain-id", "300"], "--domain-id 300: expected"),
        (["--set", "magnetometer.lag=1"], "expected NAME:=VALUE"),
        (["--output", "/dev/null/demo"], "--output /dev/null/demo"),
        (["--model", "gp"], "no parameter file for a model 'gp'; expected one of curl_free, dtc"),
        (["--params", "/nowhere.yaml"], "/nowhere.yaml: no such parameter file"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, words):
    assert main(["demo", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


GOOD = DemoResult(MapScore(1000, 2e-6, 0.0, 0.93, 10e-6, 1e-6), 100, 100, 100, {"not_finite": 0})


@pytest.mark.parametrize(
    "change, words",
    [
        ({"score": MapScore(1000, 4e-6, 0.0, 0.93, 10e-6, 1e-6)}, "RMSE 4.00 µT is more than 35%"),
        ({"score": MapScore(1000, float("nan"), 0.0, 0.93, 10e-6, 1e-6)}, "RMSE nan"),
        ({"score": MapScore(1000, 2e-6, 0.0, 0.5, 10e-6, 1e-6)}, "holds 50.0% of the truth"),
        ({"sent": 101}, "101 measurements were sent and 100 received"),
        (
            {"used": 98, "dropped": {"not_finite": 2, "no_pose": 0}},
            "98 are in the map (2 not_finite)",
        ),
        ({"used": 99}, "no reason given"),
    ],
)
def test_the_verdict_names_what_is_wrong(change, words):
    assert verdict(GOOD, FULL) == []
    wrong = verdict(DemoResult(**{**vars(GOOD), **change}), FULL)
    assert len(wrong) == 1 and words in wrong[0]


SURVEYED = SurveyResult("done", "the budget is spent", 40.0, 39.0, 0.1, 0, 12)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"phase": "running", "reason": ""}, "the survey did not end: it is running"),
        ({"driven": 40.5}, "40.5 m were"),
        ({"from_home": 1.0}, "1.0 m from home"),
        ({"from_home": float("nan")}, "from home"),
        ({"bumps": 2}, "wall 2 times"),
    ],
)
def test_the_verdict_names_what_is_wrong_with_the_way(change, words):
    good = DemoResult(**{**vars(GOOD), "survey": SURVEYED})
    assert verdict(good, FULL) == []
    wrong = verdict(
        DemoResult(**{**vars(GOOD), "survey": SurveyResult(**{**vars(SURVEYED), **change})}), FULL
    )
    assert len(wrong) == 1 and words in wrong[0]


def test_what_a_way_is_worth_adds_up_and_its_error_is_a_share_of_the_field():
    area = room(WorldSettings())
    assert (
        20.0 < area.size < 25.0 and not area.free.allows(torch.tensor([[2.95, 1.0]]).double()).any()
    )
    path = np.array([[0.6, 0.6], [2.4, 0.6], [2.4, 2.0], [0.6, 2.0]])
    learned = {"lengthscale": 0.7, "signal_stddev": 1e-5, "noise_stddev": 5e-7}
    marks, taken = worth(path, area, learned)
    assert marks[0] == taken[0] == 0.0 and (np.diff(taken) > 0).all() and 0.1 < taken[-1] < 0.5
    assert worth(path[:2], area, learned)[1][-1] < taken[-1]
    truth = np.linspace(0.0, 1.0, len(area.cells))
    curve = Curve.from_evaluations([(2.0, truth, 0.1 + 0.0 * truth)], area, truth)
    assert (
        curve.rmse.tolist() == [1.0, 0.0]
        and curve.rmse_at(1.0) == 0.5
        and curve.mean_rmse(2.0) == pytest.approx(0.5)
    )


def test_a_curve_that_is_not_finite_is_json_all_the_same(tmp_path):
    curve = Curve(np.array([0.0, 1.0]), np.array([1.0, np.nan]), np.array([np.inf, 0.5]))
    curve.write(tmp_path / "lanes.json")
    told = json.loads((tmp_path / "lanes.json").read_text(), parse_constant=pytest.fail)
    assert told["rmse"] == [1.0, None] and told["stddev"] == [None, 0.5]
    back = Curve.read(tmp_path / "lanes.json")
    assert np.isnan([back.rmse[1], back.stddev[0]]).all() and back.stddev[1] == 0.5


def test_a_wrong_map_ends_it_with_1_and_the_reasons(tmp_path, capsys):
    assert (
        report(GOOD, [], tmp_path, 1.0) == 0 and "100 sent, 100 received" in capsys.readouterr().out
    )
    wrong = verdict(DemoResult(**{**vars(GOOD), "used": 99}), FULL)
    assert report(GOOD, wrong, tmp_path, 1.0) == 1
    assert f"the map is wrong: {wrong[0]}" in capsys.readouterr().err


def _grid():
    rng = np.random.default_rng(0)
    known = rng.random((9, 14)) < 0.7
    known[0, 0] = known[8, 13] = True
    mean = 5e-5 + 1e-5 * rng.normal(size=(9, 14))
    stddev = torch.full((9, 14), 2e-6, dtype=torch.float64)
    return FieldGrid((-0.4, 1.2), 0.05, torch.tensor(mean), stddev, torch.tensor(known), 1e-7, 3)


def test_a_cloud_becomes_the_image_that_it_was_made_of():
    grid = _grid()
    columns = cloud_columns(field_cloud(grid, Header()))
    image, extent = cells_to_image(columns["x"], columns["y"], columns["mean"])
    np.testing.assert_allclose(image, np.where(grid.known, grid.mean, np.nan), rtol=1e-6)
    np.testing.assert_allclose(extent, (-0.4, 0.3, 1.2, 1.65), atol=1e-5)
    assert set(columns) >= {"x", "y", "mean", "stddev"} and columns["stddev"] == pytest.approx(2e-6)


def test_the_picture_can_be_drawn_without_path_and_suggestions(tmp_path, full_pictures):
    world = DipoleWorld.random(WorldSettings())
    columns = cloud_columns(field_cloud(_grid(), Header()))
    cells = {**columns, "truth": world.norm(np.column_stack([columns["x"], columns["y"]]))}
    nothing = np.empty((0, 2))
    file = draw_comparison(
        tmp_path / "p.png",
        cells=cells,
        room=(6.0, 5.0),
        path=nothing,
        inducing=nothing,
        suggestions=nothing,
        title="t",
    )
    assert file.stat().st_size > 10000
    curve = Curve(np.array([0.0, 3.0]), np.array([1.0, 0.5]), np.array([1.0, 0.6]))
    more = draw_comparison(
        tmp_path / "q.png",
        cells=cells,
        room=(6.0, 5.0),
        path=np.array([[0.0, 0.0], [1.0, 0.0]]),
        inducing=nothing,
        suggestions=nothing,
        title="t",
        walls=[[2.0, 0.0, 2.1, 1.0]],
        curves=(curve, None),
        worth=(np.array([0.0, 1.0]), np.array([0.0, 0.2])),
    )
    assert more.stat().st_size > file.stat().st_size


def test_play_plays_into_running_nodes_and_passes_exit_codes_on(tmp_path):
    with BagWriter(tmp_path / "bag", "mcap") as bag:
        for k in range(100):
            bag.magnetic_field(10**9 + k * 10**7, (1e-5, 0.0, k * 1e-7))
    with (
        Listener(DOMAIN, {"compass": (MagneticField, DEEP)}) as here,
        gp_mapping(
            "play",
            str(tmp_path / "bag"),
            "--rate",
            "2",
            "--wait",
            "20",
            "--no-clock",
            "--remap",
            "/magnetic_field:=/compass",
            log_dir=tmp_path,
        ) as process,
    ):
        assert here.spin_through(process) == 0, process.output
        assert [m.magnetic_field.z for m in here.got["compass"]] == [k * 1e-7 for k in range(100)]
    with gp_mapping("play", str(tmp_path / "none"), log_dir=tmp_path) as process:
        assert process.wait(20.0) == 2 and "no such bag" in process.output
    with gp_mapping("play", str(tmp_path / "bag"), "--loop", log_dir=tmp_path) as process:
        wait_for(lambda: "playing" in process.output)
        process.interrupt()
        assert process.wait(20.0) == 0 and "stopped before the end" in process.output


def test_what_was_not_measured_is_null_in_json(tmp_path, capsys):
    """Python's NaN is no JSON: where no lanes are driven there is no error of lanes."""
    survey = SurveyResult("done", "", 10.0, 9.0, math.nan, 0, 3)
    result = dataclasses.replace(GOOD, survey=survey)
    assert report(result, [], tmp_path, 1.0) == 0

    def no_number(word):
        raise AssertionError(f"{word} is no JSON")

    text = (tmp_path / "demo.json").read_text()
    numbers = json.loads(text, parse_constant=no_number)
    assert numbers["survey"]["lanes_error"] is numbers["share"] is None
    assert numbers["survey"]["driven"] == 9.0 and numbers["score"]["coverage"] == 0.93
