"""`gp-mapping check` as a user runs it, its numbers, and the events that it must and must not report."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pictures import draw_small
from small_drive import GIVEN, lanes, write_drive

from benchmark import warm
from benchmark.robots import Robot, add_spikes, survey
from gp_mapping import Samples, cli
from gp_mapping.analysis.changed import list_changes
from gp_mapping.analysis.metrics import PredictionScores
from gp_mapping.analysis.refits import changes_along, fit, quality, split
from gp_mapping.analysis.residuals import Residuals, residuals
from gp_mapping.commands.check.command import _stands
from gp_mapping.errors import UsageError
from gp_mapping.mapping.drift.evidence import DriftSearch
from gp_mapping.settings.mapping import MapSettings

ROOT = Path(__file__).resolve().parents[3]


def gp_mapping(*arguments):
    return warm.run(
        [sys.executable, "-m", "gp_mapping.cli", *map(str, arguments)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=draw_small,
    )


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bags")
    write_drive(folder / "a", lanes(count=3), rate=10.0)
    write_drive(folder / "b", lanes(0.2, count=3), 2000.0, rate=10.0, seed=1)
    return folder


def test_against_another_bag(bags, tmp_path):
    done = gp_mapping(
        "check", bags / "a", "--against", bags / "b", "--output", tmp_path / "out", "--json", *GIVEN
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert stored == printed
    assert (tmp_path / "out" / "check.png").read_bytes().startswith(b"\x89PNG")
    test = printed["test"]
    assert test["n"] == printed["tested"] > 150 and 0 < test["rmse_ut"] < 3.0
    assert (
        list(test["coverage_levels"]) == ["50", "80", "95", "99"]
        and abs(sum(test["pit"]) - 1) < 1e-9
    )
    assert sum(band["n"] for band in test["bands"].values()) == test["n"]
    assert set(printed["refits"]) == {
        "without_offset",
        "without_heading",
        "without_both",
        "with_lever_arm",
    }
    assert all(np.isfinite(v) and v > 0 for v in printed["refits"].values())
    assert printed["changes_in_test"] == [] and printed["gross_errors"] == 0


@pytest.mark.parametrize("biased", [True, False])
def test_a_sensor_that_reads_otherwise_on_each_drive_is_named(bags, tmp_path, biased):
    """Two drives of one place, the second 3 µT higher: mount, warm-up or drift."""
    other = bags / "b"
    if biased:
        other = tmp_path / "higher"
        write_drive(
            other,
            lanes(0.2, count=3),
            2000.0,
            rate=10.0,
            seed=1,
            spoil=lambda i, v, p: (v * (1.0 + 3e-6 / np.linalg.norm(v)), p),
        )
    done = gp_mapping("check", bags / "a", other, "--output", tmp_path / "out", "--json", *GIVEN)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    first, second = (bias["mean"] for bias in printed["biases"])
    told = [m["text"] for m in printed["mend"] if "mount, warm-up or drift" in m["text"]]
    assert bool(told) == biased and abs(second - first - (3.0 if biased else 0.0)) < 0.3
    assert ("without_bias" in printed["refits"]) == biased
    if biased:
        assert f"pass 2 {second:+.2f} ± " in told[0]


def test_poses_that_lie_beside_the_map_are_named(bags, tmp_path, capsys):
    """From the middle of the test on."""
    shift, other = np.array([0.1, 0.1, 0.0]), tmp_path / "leaps"
    corners = lanes(0.2, count=3)
    write_drive(other, corners, 2000.0, rate=10.0, spoil=lambda i, v, p: (v, p + (i > 85) * shift))
    words = ["--against", str(other), "--no-refits", "--output", str(tmp_path / "out"), "--json"]
    assert cli.main(["check", str(bags / "a"), *words, *GIVEN]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["unlike"] and {part["what"] for part in printed["unlike"]} == {"displaced"}
    assert [m["text"] for m in printed["mend"] if m["text"].startswith("look at the poses: ")]


@pytest.mark.parametrize("model", ["dual_svgp", "wiski"])
def test_a_lone_bag_is_split_and_says_so(bags, tmp_path, model):
    done = gp_mapping(
        "check",
        bags / "a",
        "--output",
        tmp_path / "out",
        "--no-refits",
        "--set",
        f"model={model}",
        *GIVEN,
    )
    assert done.returncode == 0, done.stderr
    assert "the first 70 % maps, the rest tests" in done.stdout
    for words in (
        "what to mend on the robot first",
        "time offset",
        "in 50 %",
        "autocorrelation",
        "gross errors",
        "the drive does not cross itself",
    ):
        assert words in done.stdout, done.stdout


def test_a_map_of_vectors_is_checked_by_component_and_norm(bags, tmp_path, capsys):
    """Without a calibration, which it says."""
    fast = [
        "--set",
        "learn_hyperparameters=false",
        "--set",
        "max_inducing=40",
        "--set",
        "inducing_tolerance=0.005",
        "--set",
        "inducing_information=0",
        "--set",
        "lengthscale=1.0",
        "--set",
        "signal_stddev=1e-5",
        "--set",
        "noise_stddev=7e-7",
    ]
    assert (
        cli.main(
            [
                "check",
                str(bags / "a"),
                "--output",
                str(tmp_path),
                "--no-refits",
                "--set",
                "model=curl_free",
                "--set",
                "field_component=xyz",
                *fast,
            ]
        )
        == 0
    )
    printed, stored = capsys.readouterr().out, json.loads((tmp_path / "report.json").read_text())
    assert (
        "no calibration" in printed
        and "turn with the robot" in printed
        and stored["calibration"] is None
    )
    parts = stored["components"]
    assert list(parts) == ["x", "y", "z", "norm"] and all(
        p["n"] == stored["tested"] for p in parts.values()
    )
    square = np.mean([parts[name]["rmse_ut"] ** 2 for name in "xyz"])
    assert (
        stored["test"]["rmse_ut"] == pytest.approx(square**0.5) and parts["norm"]["coverage"] > 0.8
    )
    assert parts["y"]["rmse_ut"] < 0.6 and all(f"\n  {name} " in printed for name in parts)


def test_wrong_use_is_one_line(bags, tmp_path, capfd):
    (tmp_path / "file").write_text("")
    for arguments, words in (
        ([str(bags / "a"), "--output", str(tmp_path / "file")], "takes a folder"),
        ([str(tmp_path / "none")], "none"),
        ([str(bags / "a"), "--set", "lengthscle=1"], "lengthscale"),
    ):
        assert cli.main(["check", *arguments]) == 2
        err = capfd.readouterr().err
        assert words in err and "Traceback" not in err


def test_a_robot_that_stands_is_said_where_nothing_can_be_calibrated(tmp_path, capfd):
    write_drive(
        tmp_path / "a",
        lanes(count=2),
        rate=20.0,
        spoil=lambda i, value, place: (value[[0, 0, 2]], 0 * place),
    )
    words = [str(tmp_path / "a"), *GIVEN, "--no-refits", "--output", str(tmp_path / "o")]
    assert cli.main(["check", *words]) == 2
    assert "so drive on; the robot has not moved since" in capfd.readouterr().err
    for width, stands in ((0.09, True), (0.11, False)):
        path = torch.tensor([[3.0, 4.0], [3.0, 4.0 + width], [3.0, 4.0]])
        assert _stands(SimpleNamespace(path=path)) is stands


def some(n, start=0.0):
    t = start + 0.02 * np.arange(n)
    return Samples(np.stack([0.2 * t, 0 * t], 1), np.full(n, 5e-5), stamp=t)


def test_split_prefers_a_boundary_between_passes():
    first, second, words = split([some(400), some(300, 100.0), some(300, 200.0)])
    assert (
        [len(p) for p in first] == [400, 300]
        and [len(p) for p in second] == [300]
        and "passes 1 to 2" in words
    )
    first, second, _ = split([some(100), some(900, 100.0)])
    assert [len(p) for p in first] == [100, 600] and [len(p) for p in second] == [300]
    assert float(second[0].stamp[0]) > float(first[-1].stamp[-1])
    with pytest.raises(UsageError, match="--against"):
        split([some(80)])


def test_residuals_know_right_from_wrong():
    """Errors drawn from what is claimed; half as large a claim; an Ornstein-Uhlenbeck error."""
    rng, n = np.random.default_rng(0), 20000
    zero, where = np.zeros(n), np.zeros((n, 2))
    right = Residuals(
        0.02 * np.arange(n), where, rng.normal(size=n), zero + 1.0, zero, zero, zero + np.inf
    )
    assert all(abs(v - float(k) / 100) < 0.01 for k, v in right.coverage().items())
    assert (
        max(abs(np.array(right.summary()["pit"]) - 0.1)) < 0.01
        and abs(right.autocorrelation()["0.5"]) < 0.05
    )
    narrow = replace(right, variance=zero + 0.25)
    assert abs(narrow.coverage()["95"] - 0.673) < 0.01
    steps, value, out = rng.normal(size=n), 0.0, []
    for step in steps:  # time constant of 1 s at 50 Hz
        value = 0.98 * value + 0.199 * step
        out.append(value)
    slow = replace(right, error=np.array(out)).autocorrelation()
    assert abs(slow["1"] - np.exp(-1.01)) < 0.12 and abs(slow["5"]) < 0.15


# all is learned, from starts near what the room is: to find them is for mapping/beginning/test_start.py
STARTED = MapSettings(
    lengthscale=0.6, signal_stddev=8e-6, noise_stddev=0.5e-6, constant_stddev=24e-6
)


@pytest.fixture(scope="module")
def drives():
    return survey(Robot(correlated=0.3e-6), 0, width=3.6, depth=3.2)


@pytest.fixture(scope="module")
def session(drives):
    """The map of the first drive, which no test changes."""
    return fit([drives[0]], STARTED)


def test_a_changed_place_is_found_and_an_unchanged_field_is_not(drives, session, monkeypatch):
    """The copy that goes on through a test looks for no drift, with which it would begin again."""
    monkeypatch.setattr(DriftSearch, "advance", lambda search: pytest.fail("it searches"))
    mapping, test = drives
    at = np.array([1.8, 1.6])
    near = np.abs(mapping.x.numpy()[:, 1] - at[1]) < 0.7  # the lanes that cross it
    again = replace(mapping, stamp=mapping.stamp + 500.0)[near]
    assert changes_along(session, [test, again]) == [] and session.changes == ()
    hill = 12e-6 * np.exp(-((again.x.numpy() - at) ** 2).sum(1) / (2 * 0.5**2))
    found = changes_along(session, [replace(again, y=again.y.numpy() + hill[:, None])])
    assert found and all(
        np.hypot(c["x"] - at[0], c["y"] - at[1]) < 1.2 and c["error"] > 0 for c in found
    ), found


def test_changed_places_are_scored_apart(drives, session):
    """The rest is judged as if nothing had changed; `map --test` says the same as `check`."""
    mapping, test = drives
    at = np.array([1.8, 1.6])
    hill = 12e-6 * np.exp(-((test.x.numpy() - at) ** 2).sum(1) / (2 * 0.35**2))
    other = replace(test, stamp=test.stamp + 500.0, y=test.y.numpy() + hill[:, None])
    where, found = mapping.x.numpy(), changes_along(session, [other])
    told = quality(residuals(session, [other], where), found)
    before = residuals(session, [test], where).summary()
    changed, rest = told["changed"], told["unchanged"]
    assert changed["n"] + rest["n"] == told["n"] and changed["n"] > 50
    assert changed["rmse_ut"] > 2.5 * rest["rmse_ut"] and changed["coverage"] < 0.3
    assert (
        abs(rest["coverage"] - before["coverage"]) < 0.05
        and told["coverage"] < rest["coverage"] - 0.05
    )

    scores = PredictionScores(session, where)
    scores.add(other, new_pass=True)
    rows = scores.result(found)
    assert rows["unchanged"]["rmse_ut"] == pytest.approx(rest["rmse_ut"], rel=1e-3)
    assert rows["changed"]["n"] == changed["n"]
    assert (
        list_changes(found, "µT").startswith(f"{len(found)} times, at (")
        and list_changes([], "µT") == "nowhere"
    )
    assert "changed" not in quality(residuals(session, [test], where), [])


def test_five_per_cent_of_gross_errors_cost_little(drives, session):
    mapping, test = drives
    where = mapping.x.numpy()
    clean = residuals(session, [test], where).summary()
    other = fit([add_spikes(mapping, 0.05, 50e-6, 0)], STARTED)
    spiked = residuals(other, [test], where).summary()
    assert spiked["rmse_ut"] <= 1.15 * clean["rmse_ut"], (clean, spiked)
    assert spiked["coverage"] >= clean["coverage"] - 0.02, (clean, spiked)
    assert 0.03 < other.cells.gross / len(mapping) < 0.08
