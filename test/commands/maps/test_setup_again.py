"""A map that goes on with another bag reads it as it read the first: iron and mount stay, unless they are given now."""

import json

import pytest
from small_drive import GIVEN, lanes, write_drive

from gp_mapping import cli
from gp_mapping.commands.saved import open_session
from gp_mapping.intake.sensors.setup import SETUP, common_setup

QUICK = [*GIVEN, "--set", "learn_hyperparameters=false", "--suggest", "0"]


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Two bags, and the map of the first, whose magnetometer has iron of its own and sits in front."""
    folder = tmp_path_factory.mktemp("days")
    for i, name in enumerate("ab"):
        write_drive(folder / name, lanes(0.3 * i, count=1), 1000.0 * (i + 1), rate=5.0, seed=i)
    given = ["--set", "hard_iron_x=2e-5", "--set", "sensor_offset_x=0.2", *QUICK]
    assert cli.main(["map", str(folder / "a"), "--output", str(folder / "first"), *given]) == 0
    return folder


def resumed(days, capsys, *words):
    line = ["map", str(days / "b"), "--resume", str(days / "first"), "--suggest", "0", *words]
    assert cli.main([*line, "--output", str(days / "second")]) == 0
    return capsys.readouterr().out


def test_what_the_sensor_needs_is_taken_from_the_saved_map(days, capsys):
    """Without the first day's parameter file the second came raw into a map of calibrated values, unsaid."""
    result = json.loads(resumed(days, capsys, "--json"))
    assert result["as_saved"] == {"sensor_offset_x": 0.2, "hard_iron_x": 2e-5}
    assert (result["settings"]["sensor_offset_x"], result["settings"]["hard_iron_x"]) == (0.2, 2e-5)


def test_what_is_given_now_counts_as_a_whole(days, capsys):
    """Half an old calibration and half a new one is none."""
    text = resumed(days, capsys, "--set", "hard_iron_y=1e-6")
    assert "the sensor's setup as in the saved map: sensor_offset_x 0.2\n" in text
    # passes and path are of both days, and so are the measurements beside them
    assert "25 measurements of 25" in text and "the map has 50 in 2 passes" in text
    assert "lever_arm_along       0.000 m\n" in text


def test_a_sum_has_the_setup_that_all_its_maps_have(days, tmp_path):
    given = ["--set", "hard_iron_x=1e-5", "--set", "sensor_offset_x=0.2", *QUICK]
    assert cli.main(["map", str(days / "b"), "--output", str(tmp_path / "b"), *given]) == 0
    maps = [str(days / "first"), str(tmp_path / "b")]
    assert cli.main(["merge", *maps, "--output", str(tmp_path / "both")]) == 0
    assert SETUP not in open_session(tmp_path / "both").about
    alike = [open_session(days / "first").about] * 2
    assert common_setup(alike) == {"sensor_offset_x": 0.2, "hard_iron_x": 2e-5}
