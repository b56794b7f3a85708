"""Bags that test a map have their poses in its frame; elsewhere the same numbers are other places."""

import json

import pytest
from any_bag import NS, header, make, transform, write_bag
from small_drive import GIVEN, lanes, write_drive

from gp_mapping import cli
from gp_mapping.recording.bag import MAGNETIC_FIELD
from gp_mapping.recording.bag_writer import BagWriter

TF = "tf2_msgs/msg/TFMessage"


def magnetic(stamp):
    return make(
        MAGNETIC_FIELD, header=header(stamp, "magnetometer"), magnetic_field={"x": 4e-5, "y": 2e-5}
    )


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """One in odom that maps, one in odom and one in another frame that test."""
    folder = tmp_path_factory.mktemp("frames")
    write_drive(folder / "drive", lanes(count=3, length=1.0))
    write_drive(folder / "same", lanes(0.2, count=2, length=1.0), 2000.0, seed=1)
    plain = BagWriter.odometry
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            BagWriter, "odometry", lambda *given, **more: plain(*given, **more, frame="hall")
        )
        write_drive(folder / "other", lanes(0.2, count=2, length=1.0), 3000.0, seed=1)
    return folder


def told(capsys, *words) -> tuple[int, str, str]:
    code = cli.main([*map(str, words), *GIVEN, "--set", "learn_hyperparameters=false"])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("command, option", [("map", "--test"), ("check", "--against")])
def test_a_test_in_another_frame_is_refused_in_one_sentence(
    bags, tmp_path, capsys, command, option
):
    words = (command, bags / "drive", option, bags / "other", "--output", tmp_path / "out")
    code, _, error = told(capsys, *words)
    assert code == 2 and "frame 'hall', expected 'odom'" in error.splitlines()[-1], error


@pytest.mark.parametrize("command, option", [("map", "--test"), ("check", "--against")])
def test_of_several_tests_the_one_in_another_frame_is_named(
    bags, tmp_path, capsys, command, option
):
    """The scores are those of the other one alone."""
    found, more = [], ("--no-refits",) if command == "check" else ()
    for tests in ([bags / "same"], [bags / "other", bags / "same"]):
        words = (
            command,
            bags / "drive",
            option,
            *tests,
            "--output",
            tmp_path / "out",
            "--json",
            *more,
        )
        code, printed, error = told(capsys, *words)
        assert code == 0, error
        found.append(json.loads(printed))
    alone, both = found
    assert any("frame 'hall', expected 'odom'" in text for text in both["warnings"])
    assert not any("hall" in text for text in alone["warnings"])
    if command == "map":
        assert both["test_samples"] == alone["test_samples"] and both["rmse_ut"] == alone["rmse_ut"]
        assert both["test_dropped"]["pose_unexpected_frame"] > 0
    else:
        assert both["tested"] == alone["tested"] and both["test"] == alone["test"]


@pytest.mark.parametrize("source", ["odometry", "tf"])
def test_a_map_does_not_go_on_in_another_frame(bags, tmp_path, capsys, source):
    """Where the settings name it; poses from TF have no frame of their own by which it would be seen."""
    code, _, error = told(capsys, "map", bags / "drive", "--output", tmp_path / "first")
    assert code == 0, error
    bag = bags / "same"
    if source == "tf":
        bag = tmp_path / "tf"
        stamps = [2000 * NS + i * NS // 20 for i in range(100)]
        poses = [transform(s, "hall", "base_link", (1e-11 * (s % NS), 0, 0)) for s in stamps]
        entries = [("/tf", TF, s, make(TF, transforms=[pose])) for s, pose in zip(stamps, poses)]
        write_bag(bag, entries + [("/mag", MAGNETIC_FIELD, s, magnetic(s)) for s in stamps])
    words = ("--resume", tmp_path / "first" / "map.gpm", "--output", tmp_path / "second")
    code, _, error = told(
        capsys, "map", bag, *words, "--set", f"pose_source={source}", "--set", "odometry_frame=hall"
    )
    assert code == 2 and "the map is in frame 'odom'" in error and "'hall'" in error, error
    assert not (tmp_path / "second" / "map.gpm").exists()
