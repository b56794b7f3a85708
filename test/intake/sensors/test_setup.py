"""How the sensor sits on the robot goes with its map, and is not mixed with what is given anew."""

from gp_mapping.intake import Intake
from gp_mapping.intake.sensors.setup import SETUP, as_saved, common_setup, setup_notes, setup_of
from gp_mapping.settings.intake import IntakeSettings

MOUNTED = IntakeSettings(sensor_offset_x=0.3, sensor_yaw=1.0, hard_iron_y=2e-6, soft_iron_xy=0.1)
SAVED = {"sensor_offset_x": 0.3, "sensor_yaw": 1.0, "hard_iron_y": 2e-6, "soft_iron_xy": 0.1}


def test_what_is_not_the_default_is_saved_and_comes_back():
    assert setup_of(IntakeSettings()) == {} and setup_of(MOUNTED) == SAVED
    assert setup_of(IntakeSettings(max_wait=1.0, rotate_field=False)) == {"rotate_field": False}
    about = Intake(MOUNTED).about
    assert about[SETUP] == SAVED
    assert as_saved(IntakeSettings(max_wait=1.0), ["max_wait"], about) == (
        IntakeSettings(max_wait=1.0, **SAVED),
        SAVED,
    )


def test_of_what_belongs_together_all_is_given_or_all_is_saved():
    """One offset of today with the angle of yesterday would be a place where the sensor never was."""
    today = IntakeSettings(sensor_offset_y=0.1)
    settings, taken = as_saved(today, ["sensor_offset_y"], {SETUP: SAVED})
    assert taken == {"hard_iron_y": 2e-6, "soft_iron_xy": 0.1}
    assert (settings.sensor_offset_x, settings.sensor_offset_y, settings.sensor_yaw) == (0, 0.1, 0)
    assert settings.hard_iron_y == 2e-6 and settings.soft_iron_xy == 0.1
    assert as_saved(today, [], {"frame": "map"}) == (today, {})


def test_what_is_measured_otherwise_is_said():
    assert setup_notes(MOUNTED, {SETUP: SAVED}) == setup_notes(MOUNTED, {}) == []
    assert setup_notes(IntakeSettings(), {SETUP: {}}) == []
    (text,) = setup_notes(
        IntakeSettings(sensor_yaw=1.0, sensor_roll=0.5), {SETUP: {**SAVED, "of_later": 1}}
    )
    for told in (
        "sensor_offset_x 0.3 (now 0.0)",
        "hard_iron_y 2e-06 (now 0.0)",
        "sensor_roll 0.0 (now 0.5)",
    ):
        assert told in text
    assert "sensor_yaw" not in text and "of_later" not in text


def test_the_clock_of_a_recording_is_no_other_way_of_measuring():
    """It goes on where none is given, differs without a word, and keeps no two maps apart."""
    of_late = IntakeSettings(stamp_offset=3.0)
    about = Intake(of_late).about
    assert as_saved(IntakeSettings(), [], about) == (of_late, {"stamp_offset": 3.0})
    assert as_saved(IntakeSettings(), ["stamp_offset"], about) == (IntakeSettings(), {})
    assert setup_notes(IntakeSettings(), about) == setup_notes(of_late, {SETUP: {}}) == []
    assert common_setup([{SETUP: SAVED}, {SETUP: {**SAVED, "stamp_offset": 3.0}}]) == SAVED


def test_a_sum_has_a_setup_where_all_its_maps_have_the_same():
    assert common_setup([{SETUP: SAVED}, {SETUP: dict(SAVED)}]) == SAVED
    assert common_setup([{SETUP: SAVED}, {SETUP: {}}]) is None
    assert common_setup([{SETUP: SAVED}, {}]) is None
