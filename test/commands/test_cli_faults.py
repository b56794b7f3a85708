"""Whatever is wrong with a file, an argument or the machine is one line and an exit code, never a traceback."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from any_bag import header, make, write_bag
from closing import BY_WORDS
from pictures import draw_small
from small_drive import GIVEN, lanes, write_drive

from benchmark import warm
from benchmark.faults.command import run_command
from benchmark.faults.files import KINDS, run
from benchmark.faults.mutate import DAMAGE, mutated
from gp_mapping import cli
from gp_mapping.intake.fixes import FIX
from gp_mapping.recording.bag_writer import BagWriter

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "gp_mapping.cli"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(sys.path)}  # finds draw_small


def refused(*words):
    """The one line that is said; exit code 2."""
    ending = run_command([str(word) for word in words])
    assert ending.refused and ending.code == 2, ending
    return ending.said


# ---- what the mechanism itself does --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error, code, said",
    [
        (
            RuntimeError("odd\nend"),
            70,
            "a fault of this program, RuntimeError: odd end; please report",
        ),
        (ZeroDivisionError(), 70, "a fault of this program, ZeroDivisionError"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "memory does not suffice"),
        (OSError(28, "No space left on device", "/x"), 2, "/x: No space left on device"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
    ],
)
def test_every_error_becomes_one_line(monkeypatch, capfd, error, code, said):
    from gp_mapping.commands import bench

    def fail(args):
        raise error

    monkeypatch.setattr(bench, "run", fail)
    assert cli.main(["bench"]) == code
    out, err = capfd.readouterr()
    assert out == "" and said in err and len(err.splitlines()) == (1 if said else 0)
    assert cli.main(["bench", "--debug"]) == code or code == 2
    if code == 70:
        assert "Traceback" in capfd.readouterr().err, "--debug shows where"


def test_nobody_reads_the_output(bag, tmp_path):
    """`gp-mapping map --json | head -c 1`."""
    words = ["map", str(bag), "--output", str(tmp_path / "o"), "--json", "--suggest", "0", *GIVEN]
    child = warm.Popen(
        [*COMMAND, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=SMALL,
        preexec_fn=draw_small,
    )
    child.stdout.close()
    err = child.stderr.read()
    assert child.wait(120) == 141 and "Error" not in err and "Traceback" not in err, err


@pytest.mark.parametrize("closed", BY_WORDS)
def test_streams_that_the_caller_has_closed(bag, tmp_path, closed):
    """As some service managers start a program: it does its work, and its exit code says how."""
    refusal = [*COMMAND, "import", "magnetic-csv", str(tmp_path / "none"), "--output", "x"]
    mapping = [*COMMAND, "map", str(bag), "--output", str(tmp_path / "o"), "--suggest", "0", *GIVEN]
    how = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 120}
    # to refuse a folder of recordings no torch is loaded: so this is started as a shell would
    refused_ = subprocess.run(
        ["sh", "-c", f"{shlex.join(refusal)} {closed}"], env=ENVIRONMENT, **how
    )
    mapped = warm.run(mapping, env=SMALL, preexec_fn=BY_WORDS[closed], **how)
    for done, code in ((mapped, 0), (refused_, 2)):
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        assert "fault of this program" not in done.stdout + done.stderr
    assert (">&-" in closed.split()) == (mapped.stdout == "")
    assert (tmp_path / "o" / "map.gpm").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_under_stdout(bag, tmp_path):
    with open("/dev/full", "w") as full:
        done = warm.run(
            [*COMMAND, "map", str(bag), "--output", str(tmp_path / "o"), "--suggest", "0", *GIVEN],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            env=SMALL,
            preexec_fn=draw_small,
        )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "No space left" in last and "Traceback" not in done.stderr


def test_an_ascii_terminal_takes_a_microtesla(bag, tmp_path):
    done = warm.run(
        [*COMMAND, "map", str(bag), "--output", str(tmp_path / "o"), "--suggest", "0", *GIVEN],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        env={**SMALL, "PYTHONIOENCODING": "ascii"},
        preexec_fn=draw_small,
    )
    assert done.returncode == 0 and b"\\xb5T" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "start, after",
    [(subprocess.Popen, 0.3), (warm.Popen, 0.2), (warm.Popen, 1.2)],
    ids=["imports", "reads", "writes"],
)
def test_ctrl_c_at_any_time(bag, tmp_path, start, after):
    """While it imports, while it reads, while it writes."""
    other = tmp_path / "other"
    write_drive(other, lanes(count=2), seed=5)
    child = start(
        [*COMMAND, "check", str(bag), str(other), "--output", str(tmp_path / "o")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    time.sleep(after)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode in (0, 130, -signal.SIGINT), err
    assert "Traceback" not in err or start is subprocess.Popen, (
        "before the program's own first line Python speaks for itself"
    )


SLOW = """
import signal, sys, time
sys.modules.pop("torch", None)
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("loading", flush=True)
            end = time.monotonic() + 30.0
            while time.monotonic() < end:
                pass
sys.meta_path.insert(0, Slow())
"""


@pytest.mark.parametrize(
    "start, code, said",
    [
        (
            "sys.argv[1:] = ['plot', 'x']; import gp_mapping.cli as cli; sys.exit(cli.main())",
            130,
            "gp-mapping: interrupted",
        ),
        (
            "sys.orig_argv[1:] = ['-m', 'gp_mapping.ros.mapping_node']; import gp_mapping.ros.mapping_node",
            0,
            "mapping_node: stopped while it was loading",
        ),
        (
            "sys.orig_argv[1:] = ['/opt/ros/lib/gp_mapping/simulator_node']; import gp_mapping.ros.simulator_node; "
            "import torch",
            0,
            "simulator_node: stopped while it was loading",
        ),
    ],
)
def test_ctrl_c_while_torch_is_loaded_is_one_line_at_once(start, code, said):
    """Into the very moment: torch begins to load, and takes half a minute."""
    if "ros" in start:
        pytest.importorskip("rclpy")
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW + start],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert child.stdout.readline() == "loading\n"
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (code, f"{said}\n") and time.monotonic() - began < 15.0


WRITING = """
import sys, time
from pathlib import Path
import gp_mapping.commands.plot as plot
from gp_mapping.store.atomic import open_atomic

def run(args):
    with open_atomic(Path("figure.csv")) as file:
        file.write(b"half of")
        print("writing", flush=True)
        time.sleep(30.0)

plot.run = run
sys.argv[1:] = ["plot", "x"]
import gp_mapping.cli as cli
sys.exit(cli.main())
"""


def test_sigterm_ends_a_command_in_order(tmp_path):
    """As `timeout` and service managers send it: one line, the shell's code, and no half file."""
    child = warm.Popen(
        [sys.executable, "-c", WRITING],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout.readline() == "writing\n" and any(tmp_path.iterdir())
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (143, "gp-mapping plot: ended by SIGTERM\n")
    assert not any(tmp_path.iterdir())


def test_a_bag_that_is_not_there_cannot_be_played(capfd):
    """The player said so, with a node's code."""
    pytest.importorskip("rclpy")
    assert cli.main(["play", "nowhere"]) == 2
    assert capfd.readouterr().err.startswith("gp-mapping play: nowhere: no such bag")


def test_other_processes_keep_their_own_signals_and_warnings():
    from gp_mapping.ros.loading import node_of

    assert node_of(["python", "-m", "pytest", "mapping_node.py"]) == ""
    assert (
        node_of(["python", "-m", "gp_mapping.cli", "view"])
        == node_of(["python", "-c", "mapping_node"])
        == ""
    )
    assert (
        node_of(["python", "-W", "error", "-m", "gp_mapping.ros.explorer_node", "--ros-args"])
        == "explorer_node"
    )
    assert node_of(["/usr/bin/python3", "/opt/ws/lib/gp_mapping/mapping_node"]) == "mapping_node"


def test_what_a_library_warns_of_is_not_on_the_screen(bag, tmp_path):
    """Not even where Python shows all of it by default; --debug does."""
    code = (
        "import sys, warnings; import gp_mapping.commands.bench as b; import gp_mapping.cli as cli\n"
        "def run(args):\n    warnings.warn('a library grows old', DeprecationWarning); return 0\n"
        "b.run = run; warnings.simplefilter('default'); sys.exit(cli.main(sys.argv[1:]))"
    )
    for words, heard in ((["bench"], False), (["bench", "--debug"], True)):
        done = warm.run(
            [sys.executable, "-c", code, *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            env=ENVIRONMENT,
        )
        assert done.returncode in (0, 2) and ("grows old" in done.stderr) == heard, done.stderr


# ---- what people do ------------------------------------------------------------------------------------------------


def a_bag_of(path, *kinds):
    stamps = [10**12 + i * 10**8 for i in range(40)]
    made = {
        "temperature": lambda s: (
            "/t",
            "sensor_msgs/msg/Temperature",
            s,
            make("sensor_msgs/msg/Temperature", header=header(s, "nose"), temperature=20.0),
        ),
        "pose": lambda s: (
            "/p",
            "geometry_msgs/msg/PoseStamped",
            s,
            make(
                "geometry_msgs/msg/PoseStamped",
                header=header(s, "map"),
                pose={"orientation": {"w": 1.0}},
            ),
        ),
        "fix": lambda s: ("/gps/fix", FIX, s, make(FIX, header=header(s, "gps"))),
        "field": lambda s: (
            "/m",
            "sensor_msgs/msg/MagneticField",
            s,
            make("sensor_msgs/msg/MagneticField", header=header(s, "nose")),
        ),
        "odometry": lambda s: (
            "/o",
            "nav_msgs/msg/Odometry",
            s,
            make("nav_msgs/msg/Odometry", header=header(s, "odom"), child_frame_id="base_link"),
        ),
        "tf": lambda s: ("/tf", "tf2_msgs/msg/TFMessage", s, make("tf2_msgs/msg/TFMessage")),
    }
    return write_bag(path, [made[kind](s) for s in stamps for kind in kinds])


@pytest.mark.parametrize(
    "kinds, options, mend",
    [
        (("temperature", "odometry"), (), "--set sensor=temperature"),
        (("field", "pose"), (), "--set pose_source=pose"),
        (("field", "tf"), (), "--set pose_source=tf"),
        (("field", "pose", "tf"), (), "--set pose_source=pose or --set pose_source=tf"),
        (("field", "odometry"), ("--set", "sensor=temperature"), "--set sensor=magnetic_field"),
        (("field", "odometry"), ("--set", "pose_source=tf"), "--set pose_source=odometry"),
        (("temperature", "field", "odometry"), ("--field-topic", "/t"), "--set sensor=temperature"),
    ],
)
def test_a_bag_of_another_kind_says_which_setting_mends_it(tmp_path, kinds, options, mend):
    bag = a_bag_of(tmp_path / "bag", *kinds)
    for command in ("map", "check"):
        assert mend in refused(command, bag, "--output", tmp_path / "o", *options)


def test_what_no_setting_mends_gets_no_advice(tmp_path):
    assert "--set" not in refused(
        "map", a_bag_of(tmp_path / "bag", "odometry"), "--output", tmp_path / "o"
    )


@pytest.mark.parametrize(
    "options", [(), ("--set", "pose_source=pose"), ("--set", "pose_source=tf")]
)
def test_a_bag_without_poses_says_which_there_may_be(tmp_path, options):
    bag = a_bag_of(tmp_path / "bag", "field", "temperature")
    text = refused("map", bag, "--output", tmp_path / "o", *options)
    assert (
        "poses may be nav_msgs/msg/Odometry, " in text and "tf2_msgs/msg/TFMessage on /tf" in text
    )
    assert "navsat_transform" not in text
    text = refused("map", a_bag_of(tmp_path / "road", "field", "fix"), "--output", tmp_path / "o")
    assert "/gps/fix has latitudes" in text and "navsat_transform_node" in text


def test_what_was_dropped_is_said_also_where_too_little_is_left(tmp_path, capsys):
    """A robot whose poses begin with the last measurement: that one can be used."""
    with BagWriter(tmp_path / "bag") as bag:
        for i in range(40):
            bag.magnetic_field(10**9 + i * 10**8, (1e-5, 0.0, 4e-5))
        for i in range(39, 60):
            bag.odometry(10**9 + i * 10**8, (0.1 * i, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    text = refused("check", tmp_path / "bag", "--output", tmp_path / "o")
    assert "only 1 measurements" in text and "39 no_pose: " in text
    assert cli.main(["fit", str(tmp_path / "bag"), "--output", str(tmp_path / "o")]) == 0
    assert "dropped 39: " in capsys.readouterr().out


def test_a_dead_sensor_is_named(tmp_path):
    """It told 0 all the time: `check` once divided by the error that such a map does not make."""
    for name, value in (("zero", (0.0, 0.0, 0.0)), ("stuck", (1e-5, 2e-5, 3e-5))):
        write_drive(
            tmp_path / name,
            lanes(count=1),
            rate=20.0,
            spoil=lambda i, v, p, value=value: (np.array(value), p),
        )
        for command, output in (("check", tmp_path / "o"), ("report", tmp_path / "o.html")):
            ending = run_command([command, tmp_path / name, "--output", output, "--no-refits"])
            assert ending.code == 0, ending
        text = (tmp_path / "o.html").read_text()
        assert "the sensor is dead" in text and "lanes closer" not in text


@pytest.mark.parametrize(
    "text, said",
    [
        ("/**:\n  ros__parameters:\n    lengthscale: 2001-99-99\n", "month must be"),
        ("a: &a\n  b: *a\n", "an alias"),
        ("[" * 3000, "not a YAML file"),
        ("\x00\x01", "not a YAML file"),
        ("/**:\n  ros__parameters:\n    seed: " + "9" * 500, "seed:"),
        ("x: 1\n" * 250_000, "bytes, expected a parameter file"),
    ],
)
def test_odd_parameter_files(bag, tmp_path, text, said):
    (tmp_path / "p.yaml").write_text(text)
    assert said in refused("map", bag, "--output", tmp_path / "o", "--params", tmp_path / "p.yaml")


def test_pipes_and_devices_are_not_waited_for(bag, tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    os.mkfifo(tmp_path / "map.gpm")
    started = time.monotonic()
    for words in (
        ["map", bag, "--output", tmp_path / "o", "--params", tmp_path / "pipe.yaml"],
        ["map", bag, "--output", tmp_path / "o", "--params", "/dev/zero"],
        ["plot", tmp_path / "map.gpm"],
        ["plot", "/dev/zero"],
    ):
        said = refused(*words)
        assert "pipe, socket or device" in said or "not a regular file" in said
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "settings, said",
    [
        (["device=cuda:99"], "write device: c"),
        (["device=meta"], "write auto, cpu, cuda or cuda:1"),
        (["device=x"], "write auto, cpu, cuda or cuda:1"),
        (["model=wiski", "anisotropy=3.0"], "anisotropy"),
    ],
)
def test_settings_that_no_map_can_have_are_the_users(bag, tmp_path, settings, said):
    words = [word for each in settings for word in ("--set", each)]
    assert said in refused("map", bag, "--output", tmp_path / "o", *words)


@pytest.mark.parametrize(
    "settings",
    [
        ["signal_stddev=1e9"],
        ["field_scale=1e9"],
        ["noise_stddev=1e9"],
        ["max_inducing=1", "memory_size=0"],
    ],
    ids=" ".join,
)
def test_settings_at_the_ends_of_their_ranges_are_mapped_with(bag, tmp_path, settings):
    words = [word for each in settings for word in ("--set", each)]
    ending = run_command(
        [
            "map",
            bag,
            "--output",
            tmp_path / "o",
            "--suggest",
            "0",
            "--set",
            "resolution=0.3",
            *words,
        ]
    )
    assert ending.code == 0 and not ending.wrong, ending


def test_what_is_refused_after_reading_is_one_line_as_well(bag, tmp_path, capfd):
    """No progress bar beside it where nobody watches one."""
    assert (
        cli.main(
            ["map", str(bag), "--output", str(tmp_path / "o"), "--set", "odometry_frame=other"]
        )
        == 2
    )
    said = capfd.readouterr().err
    assert "expected 'other'" in said and len(said.splitlines()) == 1, said


@pytest.mark.parametrize(
    "words, said",
    [
        (["map"], "required"),
        (["mapp"], "unknown command"),
        (["map", "--output", "x"], "required"),
        (["plot", "{bag}", "--suggest", "x"], "--suggest"),
        (["plot", "{bag}", "--suggest", "10**9"], "--suggest"),
        (["map", "{bag}", "--output", "{bag}/metadata.yaml"], "is a file"),
        (["map", "x\0y", "--output", "o"], "zero byte"),
        (["map", "{bag}", "--output", "{bag}/metadata.yaml/deeper"], ""),
        (["map", "{bag}", "--output", "/proc/nowhere"], ""),
        (["map", "{bag}", "--output", "{bag}-link"], "leads nowhere"),
        (["calibrate", "{bag}", "--output", "/proc/nowhere/x.yaml"], ""),
        (["map", "x" * 5000, "--output", "o"], ""),
    ],
)
def test_odd_arguments(bag, words, said):
    link = Path(f"{bag}-link")
    if not link.is_symlink():
        link.symlink_to(bag.parent / "nowhere")
    assert said in refused(*(word.replace("{bag}", str(bag)) for word in words))


def test_bench_says_what_is_wrong_in_one_line():
    done = warm.run(
        [sys.executable, "-m", "gp_mapping.cli", "bench", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRONMENT,
    )
    assert (
        done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "'nothing'" in done.stderr
    ), done.stderr


# ---- what nobody thought of ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_done_and_repeats(kind):
    data = bytes(range(256)) * 4
    made = [mutated(data, kind, np.random.default_rng(seed)) for seed in range(20)]
    assert made == [mutated(data, kind, np.random.default_rng(seed)) for seed in range(20)]
    assert (
        sum(one != data for one in made) >= 15
        and mutated(b"", kind, np.random.default_rng(0)) == b""
    )


def test_mutated_files_and_bags_are_refused_or_mapped(capsys):
    """The short form of `python -m benchmark faults --only files`."""
    rows = run(quick=True)
    assert sum(row.tried for row in rows) == 60 and len(rows) >= len(KINDS) - 3
    assert all(row.survived == row.tried for row in rows), capsys.readouterr().err


@pytest.mark.parametrize(
    "remap, said",
    [
        ("/a", "expected OLD:=NEW"),
        ("/mag:=", "expected OLD:=NEW"),
        (":=/mag", "expected OLD:=NEW"),
        ("/no/such:=/mag", "the bag has no topic /no/such; it has /"),
        ("no_such:=/mag", "the bag has no topic no_such; it has /"),
    ],
)
def test_a_remapping_that_renames_nothing_is_one_line(bag, remap, said, capfd, monkeypatch):
    """ROS said of half of one that it was not set, at a line of its own sources; of others nothing."""
    pytest.importorskip("rclpy")
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("it plays"))
    assert cli.main(["play", str(bag), "--remap", remap]) == 2
    assert said in capfd.readouterr().err
