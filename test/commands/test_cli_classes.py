"""Labels of classes on the command line: mapped, tested, added and planned on, with Dirichlet targets."""

import json

import numpy as np
import pytest
import torch
from any_bag import NS, header, make, write_bag
from small_drive import lanes

from gp_mapping import cli
from gp_mapping.store.checkpoint import load_checkpoint
from gp_mapping.store.trial import tried_session

SETTINGS = [
    word
    for setting in (
        "sensor=scalar",
        "model=wiski",
        "likelihood=dirichlet",
        "classes=3",
        "lengthscale=0.8",
        "grid_density=4.0",
        "resolution=0.2",
    )
    for word in ("--set", setting)
] + ["--field-topic", "/ground"]


def class_of(x, y):
    return np.where(x > 1.2, 2.0, np.where(y > 0.4, 1.0, 0.0))


def write(path, start, shift):
    """A robot that drives lanes and says five times a second on what ground it is."""
    corners, entries = lanes(shift, 3), []
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    for i in range(int(along[-1] / 0.4 * 5)):
        stamp = round((start + i / 5) * NS)
        x, y = (float(np.interp(i / 5 * 0.4, along, corners[:, k])) for k in (0, 1))
        pose = {"pose": {"position": {"x": x, "y": y, "z": 0.0}, "orientation": {"w": 1.0}}}
        odometry = make(
            "nav_msgs/msg/Odometry",
            header=header(stamp, "odom"),
            child_frame_id="base_link",
            pose=pose,
        )
        label = make("std_msgs/msg/Float64", data=float(class_of(x, y)))
        entries += [
            ("/odometry", "nav_msgs/msg/Odometry", stamp, odometry),
            ("/ground", "std_msgs/msg/Float64", stamp, label),
        ]
    return write_bag(path, entries)


def told(capsys, *words):
    code = cli.main([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_they_are_mapped_tested_and_planned_on(tmp_path, capsys):
    bag, more, output = write(tmp_path / "a", 1e3, 0.0), write(tmp_path / "b", 2e3, 0.15), tmp_path
    code, out, _ = told(
        capsys,
        *("map", bag, "--output", output, "--test", more, "--suggest", 1, "--json"),
        *SETTINGS,
    )
    result = json.loads(out)
    assert code == 0 and result["nlpd"] < 0.6 and len(result["suggestions"]) == 1
    assert result["settings"]["likelihood"] == "dirichlet" and result["coverage"] is None
    with np.load(output / "map.npz") as saved:
        x, y = saved["x"][None], saved["y"][:, None]
        inside = saved["known"] & (x > 0.1) & (x < 1.9) & (y > 0) & (y < 0.8)
        away = (np.abs(x - 1.2) > 0.1) & (np.abs(y - 0.4) > 0.1)
        assert (saved["class"] == class_of(x, y))[inside & away].mean() > 0.85
        assert str(saved["quantity"]) == "probability of the most likely class"

    session = tried_session(load_checkpoint(output / "map.gpm"), output / "map.gpm")
    x = torch.tensor([[1.6, 0.5], [0.5, 0.6], [0.5, 0.1]], dtype=torch.float64)
    assert session.published(x).mean.argmax(1).tolist() == [2, 1, 0]
    assert told(capsys, "plan", output, "--output", output / "p.csv", "--budget", 3)[0] == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [("check", "likelihood dirichlet maps classes"), ("fit", "'dirichlet' has no offline fit")],
)
def test_what_has_no_meaning_for_classes_is_one_sentence(command, words, tmp_path, capsys):
    bag = write(tmp_path / "a", 1e3, 0.0)
    code, _, err = told(capsys, command, bag, *SETTINGS, "--output", tmp_path / "out")
    assert code == 2 and words in err and len(err.strip().splitlines()) == 1
