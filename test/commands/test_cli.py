"""gp-mapping as a user runs it: processes, exit codes, stdout and stderr."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from pictures import draw_small, full_pictures
from recordings import invensense
from small_drive import GIVEN, field, lanes, write_drive

from benchmark import warm
from gp_mapping import cli
from gp_mapping.mapping.session import MapSession
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint

ROOT = Path(__file__).resolve().parents[2]
FAST = ["--set", "max_inducing=100", "--set", "resolution=0.1", *GIVEN]


def gp_mapping(*arguments, code=0):
    """Run it as a process; its stdout and stderr. A traceback is never right."""
    result = warm.run(
        [sys.executable, "-m", "gp_mapping.cli", *map(str, arguments)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=draw_small,
    )
    assert "Traceback" not in result.stderr, result.stderr
    assert result.returncode == code, result.stderr
    return result.stdout, result.stderr


def wrong(capfd, *arguments):
    """Run it in this process and expect exit code 2; its one line of error."""
    try:
        code = cli.main([str(a) for a in arguments])
    except SystemExit as error:  # argparse's way
        code = error.code
    out, err = capfd.readouterr()
    assert code == 2 and out == "", (code, out)
    lines = [
        line
        for line in err.replace("\r", "\n").splitlines()
        if line.startswith("gp-mapping") and ": " in line
    ]
    assert len(lines) == 1 and "Traceback" not in err, err
    return lines[0]


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """Two training bags and a test bag, one of them sqlite3."""
    folder = tmp_path_factory.mktemp("bags")
    n = {
        "a": write_drive(folder / "a", lanes(count=3)),
        "b": write_drive(folder / "b", lanes(0.2, count=3), 2000.0, storage="sqlite3", seed=1),
    }
    n["test"] = write_drive(folder / "test", lanes(0.1, count=2), 3000.0, seed=2)
    return folder, n


@pytest.fixture(scope="module")
def mapped(bags, tmp_path_factory):
    """`map` on both bags with --test and --json: folder, the object on stdout, stderr."""
    folder, _ = bags
    output = tmp_path_factory.mktemp("mapped") / "out"
    out, err = gp_mapping(
        "map",
        folder / "a",
        folder / "b",
        "--output",
        output,
        "--test",
        folder / "test",
        "--json",
        *FAST,
    )
    assert len(out.splitlines()) == 1
    return output, json.loads(out), err


def test_help_names_every_command():
    out, _ = gp_mapping("--help")
    assert all(
        f"\n  {name} " in out
        for name in ("demo", "map", "play", "import", "plot", "calibrate", "bench")
    )


@pytest.mark.parametrize(
    "command",
    [
        ["map"],
        ["import"],
        ["import", "magnetic-csv"],
        ["plot"],
        ["bench"],
        ["play"],
        ["demo"],
        ["calibrate"],
    ],
)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main([*command, "--help"])
    assert exit_.value.code == 0 and "usage: gp-mapping " + command[0] in capsys.readouterr().out


def test_the_command_line_needs_no_ros():
    ros = "[m for m in sys.modules if m.split('.')[0] in ('rclpy', 'tf2_ros', 'sensor_msgs', 'nav_msgs')]"
    code = (
        f"import sys\nfor name in {ros}: del sys.modules[name]\n"
        "import gp_mapping.cli as c\n"
        "import gp_mapping.commands.map, gp_mapping.commands.plot, gp_mapping.commands.import_data\n"
        f"print({ros})"
    )
    result = warm.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_map_writes_what_it_says_and_json_is_one_object(mapped, bags):
    output, result, err = mapped
    assert (
        result["samples"] == bags[1]["a"] + bags[1]["b"]
        and result["dropped"] == {}
        and result["passes"] == 2
    )
    assert result["seconds"] > 0 and result["hyperparameters"]["lengthscale"] > 0
    assert sorted(p.name for p in output.iterdir()) == [
        "map.gpm",
        "map.npz",
        "map.png",
        "mean.pgm",
        "mean.yaml",
        "report.json",
        "stddev.pgm",
        "stddev.yaml",
    ]
    assert json.loads((output / "report.json").read_text()) == result
    assert err == ""  # the progress bar is for terminals
    with np.load(output / "map.npz") as grid:
        xs, ys = np.meshgrid(grid["x"], grid["y"])
        inside = (xs > 0.1) & (xs < 1.9) & (ys > 0.1) & (ys < 0.9)
        assert np.abs(grid["mean"] - field(xs, ys))[inside].max() < 0.5e-6


def test_scores_on_another_bag(mapped, bags):
    _, result, _ = mapped
    assert (
        result["test_samples"]
        == bags[1]["test"]
        == sum(band["n"] for band in result["bands"].values())
    )
    assert result["rmse_ut"] < 0.5 and result["nlpd"] < 1.5 and result["coverage"] > 0.9
    assert list(result["bands"]) == ["<0.1", "0.1-0.3", ">0.3"]
    assert set(result["bands"]["<0.1"]) == {"rmse_ut", "nlpd", "coverage", "n"}


def test_the_same_bag_and_seed_give_the_same_map_bit_for_bit(mapped, bags, tmp_path):
    folder, _ = bags
    output, result, _ = mapped
    gp_mapping("map", folder / "a", folder / "b", "--output", tmp_path / "again", *FAST)
    for name in ("map.gpm", "map.npz", "mean.pgm", "stddev.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (output / name).read_bytes(), name
    report = json.loads((tmp_path / "again" / "report.json").read_text())
    assert report["rmse_ut"] is report["nlpd"] is report["coverage"] is report["bands"] is None


def test_a_resumed_map_goes_on_exactly(bags, tmp_path):
    """Both bags at once, or the second on top of the first: the same map."""
    folder, n = bags
    options = [*FAST, "--set", "predictive_noise=false"]
    gp_mapping("map", folder / "a", folder / "b", "--output", tmp_path / "once", *options)
    gp_mapping("map", folder / "a", "--output", tmp_path / "first", *options)
    out, _ = gp_mapping(
        "map",
        folder / "b",
        "--output",
        tmp_path / "second",
        "--resume",
        tmp_path / "first/map.gpm",
        "--json",
    )
    assert (
        json.loads(out)["samples"] == n["b"]
        and json.loads(out)["map"]["samples"] == n["a"] + n["b"]
    )
    with np.load(tmp_path / "once/map.npz") as once, np.load(tmp_path / "second/map.npz") as second:
        np.testing.assert_array_equal(once["mean"], second["mean"])
        np.testing.assert_array_equal(once["stddev"], second["stddev"])


def test_the_summary_is_for_people(bags, tmp_path):
    """Units, drops with reason and explanation, where the files are."""
    folder, _ = bags

    def spoil(i, vector, place):
        return (vector * np.nan if 10 <= i < 15 else vector), (place * np.nan if i == 40 else place)

    write_drive(tmp_path / "bad", lanes(count=2), spoil=spoil)
    out, _ = gp_mapping(
        "map",
        tmp_path / "bad",
        "--output",
        tmp_path / "out",
        "--test",
        folder / "test",
        "--seed",
        3,
        *FAST,
    )
    assert "  dropped 5: measurement that is NaN or infinite" in out and "[not_finite]" in out
    assert "  dropped 1: pose with a NaN or infinite number [pose_not_finite]" in out
    assert "lengthscale" in out and " m\n" in out and " µT\n" in out and "in 95 %" in out
    assert f"{tmp_path}/out/map.png" in out
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (
        report["dropped"] == {"not_finite": 5, "pose_not_finite": 1}
        and report["settings"]["seed"] == 3
    )


def test_a_bag_that_goes_back_in_time_is_a_new_pass(bags, tmp_path):
    folder, n = bags
    gp_mapping("map", folder / "b", folder / "a", "--output", tmp_path / "out", *FAST)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (
        report["passes"] == 2 and report["samples"] == n["a"] + n["b"] and report["dropped"] == {}
    )


def test_parameters_from_a_file_and_what_wins(bags, tmp_path):
    (tmp_path / "params.yaml").write_text(
        "/**:\n  ros__parameters:\n    max_inducing: 50\n    resolution: 0.2\n"
        "    seed: 5\n    publish_rate: 2.0\n    cells: true\n"
    )
    gp_mapping(
        "map",
        bags[0] / "test",
        "--output",
        tmp_path / "out",
        "--params",
        tmp_path / "params.yaml",
        "--set",
        "resolution=0.1",
        "--seed",
        7,
        "--model",
        "exact",
    )
    settings = json.loads((tmp_path / "out/report.json").read_text())["settings"]
    assert [settings[k] for k in ("max_inducing", "resolution", "seed", "model")] == [
        50,
        0.1,
        7,
        "exact",
    ]


def test_plot_draws_a_saved_map(mapped, tmp_path, capfd):
    output, _, _ = mapped
    assert (
        cli.main(
            ["plot", str(output), "--output", str(tmp_path / "a/p.svg"), "--resolution", "0.2"]
        )
        == 0
    )
    assert capfd.readouterr().out.strip() == str(tmp_path / "a/p.svg")
    assert "<svg" in (tmp_path / "a/p.svg").read_text()
    with full_pictures():
        words = ["--output", str(tmp_path / "p.png"), "--suggest", "0"]
        assert cli.main(["plot", str(output / "map.gpm"), *words]) == 0
    assert (tmp_path / "p.png").stat().st_size > 10000


def test_import_then_map_the_real_recordings(tmp_path):
    """What README promises: two commands from the public recordings to a map and its scores; of a minute each."""
    for trial in (1, 4):
        for part in ("time", "loc", "mag"):
            lines = (invensense() / f"{trial}-{part}.csv").read_text().splitlines(True)
            (tmp_path / f"{trial}-{part}.csv").write_text("".join(lines[:3000]))
    words = "import", "magnetic-csv", tmp_path, "--trials"
    out, _ = gp_mapping(*words, 1, "--output", tmp_path / "train")
    assert "trial 1: 3000 measurements" in out and "6000 messages" in out
    gp_mapping(*words, 4, "--output", tmp_path / "test", "--storage", "sqlite3")
    bags = tmp_path / "train", "--test", tmp_path / "test"
    out, _ = gp_mapping("map", *bags, "--output", tmp_path / "out", "--json")
    result = json.loads(out)
    assert result["samples"] == 3000 and result["passes"] == 1 and result["test_samples"] == 3000
    assert (
        result["dropped"] == {}
        and result["bands"]["<0.1"]["rmse_ut"] < 3.0
        and result["coverage"] > 0.8
    )


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["fly"], "unknown command 'fly'"),
        (["mapp"], "did you mean map?"),
        (["map", "{bags}/a", "--ouput", "x"], "unknown option --ouput; did you mean --output?"),
        (["import", "csv", "x", "--output", "y"], "invalid choice: 'csv'"),
        (["import", "csv", "x", "--ouput", "y"], "unknown option --ouput; did you mean --output?"),
        (["map", "{bags}/a", "--output", "x", "--qqq=1"], "unknown option --qqq;"),
        (["map", "{bags}", "--output", "{tmp}/o"], r"it holds \d: name one, .*/a, or all"),
        (["map", "--output", "x"], "the following arguments are required: BAG"),
        (["map", "{bags}/absent", "--output", "{tmp}/o"], "absent: no such bag"),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--test", "{bags}/absent"],
            "absent: no such bag",
        ),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--set", "lenghtscale=1"],
            "did you mean lengthscale?",
        ),
        (["map", "{bags}/a", "--output", "{tmp}/o", "--set", "lengthscale=-1"], "outside"),
        (["map", "{bags}/a", "--output", "{tmp}/o", "--set", "seed"], "expected key=value"),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--model", "magic"],
            "model: 'magic' is not one of",
        ),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--params", "{tmp}/none.yaml"],
            "no such parameter file",
        ),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--resume", "{tmp}/none.gpm"],
            "no such checkpoint",
        ),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--resume", "{tmp}"],
            "no map.gpm in this folder",
        ),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--resume", "{bags}/a/a.mcap"],
            "not a checkpoint",
        ),
        (["map", "{bags}/a", "--output", "{bags}/a/a.mcap"], "is a file"),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--field-topic", "/odometry"],
            "/odometry is a nav_msgs/msg/Odometry",
        ),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--set", "odometry_frame=map"],
            "no measurement could be .*'odom'",
        ),
        (["map", "{bags}/a", "--output", "{tmp}/o", "--suggest", "-1"], "expected 0 to 100"),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--set", "sensor=smell"],
            "sensor: 'smell' is not one of",
        ),
        (
            ["map", "{bags}/a", "--output", "{tmp}/o", "--set", "sensor=range"],
            "no messages of type sensor_msgs/msg/Range",
        ),
        (["calibrate", "{bags}/absent"], "absent: no such bag"),
        (["calibrate", "{bags}/a", "--output", "{tmp}/o"], "turn on the spot"),
        (["plot", "{tmp}/none"], "no such checkpoint"),
        (
            ["plot", "{bags}/a/a.mcap", "--output", "{tmp}/p.bmp"],
            "expected a name that ends in .png",
        ),
        (["import", "magnetic-csv", "{tmp}/none", "--output", "{tmp}/b"], "no such folder"),
        (["import", "magnetic-csv", "{tmp}", "--output", "{tmp}/b"], "trials in .*: none"),
        (
            ["import", "magnetic-csv", "{tmp}", "--output", "{tmp}/b", "--to-tesla", "-1"],
            "is not a positive number",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(bags, tmp_path, capfd, arguments, text):
    line = wrong(capfd, *(a.format(bags=bags[0], tmp=tmp_path) for a in arguments))
    assert re.search(text, line), line
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_the_version_is_said(capfd):
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["--version"])
    assert re.fullmatch(r"gp_mapping \d+\.\d+\.\d+\n", capfd.readouterr().out)


@pytest.mark.parametrize("bag, share", [("a", 0.001), ("b", 0.02)])
def test_a_bag_of_which_nothing_is_left_is_a_mistake_of_one_line(bags, tmp_path, capfd, bag, share):
    """Of an mcap no message is whole; of a database its tables are missing."""
    shutil.copytree(bags[0] / bag, tmp_path / "cut")
    path = next(p for p in (tmp_path / "cut").iterdir() if p.suffix in (".mcap", ".db3"))
    os.truncate(path, int(path.stat().st_size * share))
    assert "cut off" in wrong(capfd, "map", tmp_path / "cut", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_corrupt_checkpoint_leaves_the_output_as_it_was(mapped, bags, tmp_path, capfd):
    output, _, _ = mapped
    data = bytearray((output / "map.gpm").read_bytes())
    data[len(data) // 2] ^= 255
    (tmp_path / "bad.gpm").write_bytes(data)
    assert "damaged" in wrong(
        capfd, "map", bags[0] / "a", "--output", tmp_path / "o", "--resume", tmp_path / "bad.gpm"
    )
    assert "damaged" in wrong(capfd, "plot", tmp_path / "bad.gpm")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.gpm"]


def test_a_checkpoint_of_something_else(tmp_path, capfd):
    save_checkpoint(tmp_path / "x.gpm", {"settings": {}, "map": 3})
    assert "x.gpm: its content does not fit together" in wrong(capfd, "plot", tmp_path / "x.gpm")


def test_the_checkpoint_is_the_map(mapped):
    output, result, _ = mapped
    session = MapSession.from_state_dict(load_checkpoint(output / "map.gpm"))
    with np.load(output / "map.npz") as grid:
        np.testing.assert_array_equal(session.render().mean, grid["mean"])
    assert session.report()["samples"] == result["samples"]
