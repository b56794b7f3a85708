"""docs/extending.md does what it says: each of its programs, in an empty folder outside the package."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from any_bag import header, make, write_bag
from extending import FILES, install, program
from pictures import draw_small
from small_drive import GIVEN, lanes, write_drive

from benchmark import warm


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The programs, and a bag of a drive through a field whose shape is known."""
    folder = install(tmp_path_factory.mktemp("somebodys"))
    write_drive(folder / "drive", lanes(count=2))
    write_drive(folder / "other", lanes(shift=0.2, count=2), seed=1)
    return folder


def run(folder, *arguments, code=None):
    """A command in that folder, where those parts are installed."""
    command = (
        [sys.executable, "-c", code]
        if code
        else [sys.executable, "-m", "gp_mapping.cli", *map(str, arguments)]
    )
    path = os.pathsep.join([str(folder), *sys.path])
    done = warm.run(
        command,
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": path},
        preexec_fn=draw_small,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def mapped(folder, out, *settings, starts=()):
    """report.json of `gp-mapping map`, tested on the other drive; without starts it finds them itself."""
    options = [*starts, *(word for setting in settings for word in ("--set", setting))]
    run(folder, "map", "drive", "--output", out, "--test", "other", *options)
    return json.loads((folder / out / "report.json").read_text())


def test_a_model_maps_a_bag(folder):
    """As well as the exact model of this package, whose answer it is, where nothing is learned."""
    held = [
        "learn_hyperparameters=false",
        "learn_time_offset=false",
        "heading_stddev=0.0",
        "follow_changes=false",
    ]
    own, exact = (mapped(folder, model, f"model={model}", *held) for model in ("own", "exact"))
    assert own["test_samples"] == exact["test_samples"] > 100
    assert own["rmse_ut"] == pytest.approx(exact["rmse_ut"], rel=1e-6) and own["rmse_ut"] < 0.5
    # also the noise, of which lanes that never come back tell no more than white noise and prior
    assert own["noise_stddev"] == pytest.approx(exact["noise_stddev"], rel=1e-6)
    assert own["nlpd"] == pytest.approx(exact["nlpd"], rel=1e-6)
    # the map that was saved opens again, and is predicted, checked and asked where to go next
    run(folder, "map", "other", "--output", "more", "--resume", "own/map.gpm")
    more = json.loads((folder / "more" / "report.json").read_text())
    assert more["map"]["samples"] == own["samples"] + more["samples"] > own["samples"]
    assert "no calibration" in run(
        folder,
        "check",
        "drive",
        "--against",
        "other",
        "--output",
        "checked",
        "--no-refits",
        "--set",
        "model=own",
    )


def test_a_kernel_is_used_by_every_model(folder):
    """Also where its lengthscale is to be found first."""
    for model, starts in (("dual_svgp", ()), ("wiski", GIVEN), ("exact", GIVEN)):
        settings = ("kernel=rational_quadratic", f"model={model}")
        assert mapped(folder, f"kernel_{model}", *settings, starts=starts)["rmse_ut"] < 0.7


def test_a_kernel_is_the_function_that_it_says(folder):
    told = run(
        folder,
        code="""
import torch
from gp_mapping.core.kernels import make_kernel
k = make_kernel("rational_quadratic", 4.0, 0.5)
a, b = torch.rand(7, 2).double(), torch.rand(5, 2).double()
square = ((a[:, None] - b[None]) / 0.5).square().sum(-1)
assert torch.allclose(k(a, b), 4.0 * (1 + square / 4) ** -2, rtol=1e-12)
assert torch.allclose(k.slope(square), -0.5 * (1 + square / 4) ** -3, rtol=1e-12)
print("ok")""",
    )
    assert told.strip() == "ok"


def test_a_likelihood_maps_yes_and_no(folder):
    told = run(
        folder,
        code="""
import torch
from gp_mapping import Samples, create_map
torch.manual_seed(0)
x = 4.0 * torch.rand(800, 2).double()
truth = torch.sigmoid(3.0 * torch.sin(1.5 * x[:, 0]))
field = create_map("dual_svgp", likelihood="logit", lengthscale=0.8)
for part in range(0, 800, 50):
    y = torch.bernoulli(truth[part: part + 50])
    field.update(Samples(x[part: part + 50], y))
p = field.observable(x)
print(float((p.mean[:, 0] - truth).abs().mean()), float(p.mean.min()), float(p.mean.max()))
print(float(field.log_predictive(Samples(x, torch.bernoulli(truth))).mean()), float(
    (truth * truth.log() + (1 - truth) * (1 - truth).log()).mean()))""",
    )
    (error, low, high), (score, best) = (
        list(map(float, line.split())) for line in told.splitlines()
    )
    # three standard errors of 800 draws are .05; what a map of 800 yeses and noes does not know costs .01
    assert error < 0.09 and 0.0 < low < 0.2 and 0.8 < high < 1.0 and abs(score - best) < 0.06


def test_a_sensor_is_mapped(folder):
    entries = []
    for i in range(600):
        stamp, place = 1000.0 + 0.1 * i, lanes()
        t = min(0.04 * i, 17.0)
        x, y = (
            np.interp(
                t,
                np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(place, axis=0), axis=1))],
                place[:, k],
            )
            for k in (0, 1)
        )
        ns = round(stamp * 1e9)
        pose = make("geometry_msgs/msg/PoseStamped", header=header(ns, "map"))
        pose.pose.orientation.w = 1.0
        pose.pose.position.x, pose.pose.position.y = float(x), float(y)
        battery = make(
            "sensor_msgs/msg/BatteryState",
            header=header(ns, "base"),
            voltage=12.0 + 0.3 * float(x),
            cell_voltage=np.zeros(0, "f4"),
            cell_temperature=np.zeros(0, "f4"),
        )
        entries += [
            ("/pose", pose.__msgtype__, ns, pose),
            ("/battery", battery.__msgtype__, ns, battery),
        ]
    write_bag(folder / "volts", entries)
    run(
        folder,
        "map",
        "volts",
        "--output",
        "volts_map",
        "--set",
        "sensor=battery",
        "--set",
        "pose_source=pose",
    )
    report = json.loads((folder / "volts_map" / "report.json").read_text())
    assert report["map"]["cells"] > 50 and report["unit"] == "V"


def test_an_adaptor_computes_the_number_and_what_has_none_is_dropped(folder):
    told = run(
        folder,
        code="""
from types import SimpleNamespace as Message
from gp_mapping.intake.sensors.adaptor import make_adaptor
from gp_mapping.intake.sensors.guarded import GuardedAdaptor
from gp_mapping.settings.intake import IntakeSettings
adaptor = GuardedAdaptor(make_adaptor(IntakeSettings(sensor="wind"), None), "wind")
read = [adaptor.read(Message(vector=Message(x=3.0, y=0.0, z=k)), 7) for k in (0.0, 4.0)]
y, variance = adaptor.values(read, None)
print(y.tolist(), variance.tolist(), adaptor.read(Message(), 8).value)""",
    )
    assert told.strip() == "[3.0, 5.0] [0.0, 0.0] adaptor_failed"


def test_a_program_of_one_file_is_every_command_with_its_parts(folder):
    """A kernel that nobody has installed maps as the same one that is."""
    words = ["map", "drive", "--output", "one_file", "--test", "other", *GIVEN]
    words += ["--set", "kernel=own_rational", "--set", "model=exact"]
    run(folder, code=f"import own_program; own_program.main({words!r})")
    one, installed = (
        json.loads((folder / name / "report.json").read_text())
        for name in ("one_file", "kernel_exact")
    )
    assert one["rmse_ut"] == installed["rmse_ut"]


def test_a_planner_plans_on_a_saved_map(folder):
    """Within the budget, along the rim, in a region; and it is one of the planners' names."""
    run(folder, "map", "drive", "--output", "for_plans", *GIVEN)
    run(
        folder,
        "plan",
        "for_plans",
        "--kind",
        "spiral",
        "--budget",
        "12",
        "--region",
        "0 0, 3 0, 3 2, 0 2",
        "--start",
        "0.3 0.3",
        "--output",
        "spiral.csv",
    )
    x = np.loadtxt(folder / "spiral.csv", delimiter=",", skiprows=1)[:, :2]
    driven = np.hypot(*np.diff(x, axis=0).T).sum()
    assert 6.0 < driven <= 12.0 + 1e-6
    away = np.hypot(*(x - (1.5, 1.0)).T)
    assert away.max() > 1.2, "it goes along the rim"
    told = run(folder, code="from gp_mapping.planning import planner_names; print(planner_names())")
    assert "spiral" in told


def test_a_setting_refuses_what_it_says_it_refuses():
    exec(compile(program("drying"), "drying", "exec"), {})


def test_what_is_unknown_or_broken_is_one_line(folder, tmp_path):
    for setting, said in (
        ("model=nobody", "'nobody' is not one of"),
        ("kernel=rational", "rational_quadratic"),
    ):
        done = warm.run(
            [
                sys.executable,
                "-m",
                "gp_mapping.cli",
                "map",
                "drive",
                "--output",
                str(tmp_path / "o"),
                "--set",
                setting,
            ],
            cwd=folder,
            text=True,
            capture_output=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        )
        assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_program_registers_its_parts(monkeypatch):
    from gp_mapping import create_map, register_model
    from gp_mapping.settings.parts import MODELS

    names = {}
    exec(program("own_model"), names)
    monkeypatch.setattr(
        MODELS, "_parts", dict(MODELS._parts)
    )  # the registry of this process stays as it was
    register_model("mine", names["OwnGP"])
    field = create_map("mine", lengthscale=0.7)
    assert (
        isinstance(field, names["OwnGP"])
        and field.settings.lengthscale == 0.7
        and "mine" in tuple(MODELS)
    )
    for name in ("mine", "dual_svgp", "not a word"):
        with pytest.raises(ValueError, match="there already|word of letters"):
            register_model(name, names["OwnGP"])
    with pytest.raises(ValueError, match="takes Gaussian measurements only"):
        create_map("mine", likelihood="bernoulli")
    register_model("vectors", names["OwnGP"], vector=True, any_likelihood=True)
    assert (
        torch.is_tensor(torch.zeros(1))
        and create_map("vectors", likelihood="bernoulli") is not None
    )


def test_every_program_of_the_page_is_run_here():
    from extending import PAGE, fenced

    assert len(fenced(PAGE, "python")) == len(FILES)


FAILS = """
from own_model import OwnGP

class Fails(OwnGP):
    def update(self, batch):
        if self.data and len(self.data[0]) >= 20:
            raise KeyError("no more")
        return super().update(batch)

class Blind(OwnGP):
    def predict(self, *places, **how):
        raise ZeroDivisionError("no light")

class Silent(OwnGP):
    def update(self, batch):
        super().update(batch)

class Leaves(Fails):
    def update(self, batch):
        try:
            return super().update(batch)
        except KeyError:
            raise SystemExit(0)
"""


@pytest.mark.parametrize(
    "model, code, said",
    [
        ("fails", 0, "model 'fails', failing.py line 7, in update raised KeyError: 'no more'"),
        ("blind", 2, "model 'blind', failing.py line 12, in predict, raised ZeroDivisionError: no"),
        ("leaves", 2, "model 'leaves', failing.py line 23, in update, raised SystemExit: 0"),
        ("silent", 2, "failing.Silent.update returned None, and has to return an UpdateReport"),
    ],
)
def test_a_model_that_raises_is_named_and_what_it_knew_is_kept(folder, tmp_path, model, code, said):
    (tmp_path / "failing.py").write_text(FAILS)
    info = tmp_path / "failing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gp_mapping.models]\nfails = failing:Fails\nblind = failing:Blind\nsilent = failing:Silent\n"
        "leaves = failing:Leaves\n"
    )
    out = tmp_path / "o"
    command = [sys.executable, "-m", "gp_mapping.cli", "map", "drive", "--output", str(out)]
    done = warm.run(
        [*command, "--model", model, *GIVEN, "--set", "cell_length=0.1"],
        cwd=folder,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(folder), *sys.path])},
    )
    assert done.returncode == code and said in done.stdout + done.stderr, done.stderr[-2000:]
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == (code > 0)
    if code == 0:
        report = json.loads((out / "report.json").read_text())
        assert report["map"]["cells"] == 20 and report["samples"] > 20
        assert (
            report["samples"] + report["dropped"]["refused"] == report["received"]["magnetic_field"]
        )
