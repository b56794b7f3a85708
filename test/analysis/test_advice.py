"""The numbers in the sentences of `check` are those that it was given, in the unit in which they are said."""

import math
from dataclasses import replace

import pytest

from gp_mapping.analysis.advice import advise
from gp_mapping.analysis.calibration import Calibration
from gp_mapping.analysis.metrics import BANDS
from gp_mapping.analysis.sensor_faults import SensorFault
from gp_mapping.mapping.frames.matching import Moved
from gp_mapping.mapping.frames.search import ALIKE, APART, CLOCK, MOVED, Break
from gp_mapping.mapping.notes.frames import break_note

CLEAN = Calibration(
    samples=500,
    offset=0.0,
    offset_in_use=0.0,
    offset_stddev=0.01,
    offset_stddev_free=0.02,
    offset_assumed=False,
    along=0.0,
    along_stddev=0.01,
    across=0.0,
    across_stddev=0.01,
    lever_assumed=True,
    correlation=0.2,
    separable=True,
    lag=0.0,
    lag_stddev=0.01,
    speed=0.5,
    steadiness=0.3,
    inflation=1.0,
    turning=0.0,
    turning_stddev=1e-7,
    direction=0.0,
    direction_stddev=0.1,
    turning_assumed=False,
    turning_chi_square=1.0,
    hyperparameters={"noise_stddev": 3e-7},
    noise_stddev=4e-7,
    scale=1e-6,
)
FOUND = {
    "rmse_ut": 0.8,
    "n": 800,
    "bands": {BANDS[0]: {"rmse_ut": None, "n": 0}},
    "square_beyond": 0.2,
    "autocorrelation": {"0.5": 0.0},
    "coverage_levels": {"95": 0.95},
    "bias": 0.0,
    "expected": {
        "unknown_share": 0.0,
        "autocorrelation": 0.0,
        "witnesses": 400.0,
        "bias_stddev": 0.1,
    },
}
CONTEXT = {
    "unit": "µT",
    "sensor": "magnetometer",
    "sensor_faults": [],
    "frames": [],
    "gross": 0,
    "measurements": 2000,
    "dropped": 0,
    "changes": [],
    "explained": [],
    "biases": [],
    "drift": None,
    "turning": [],
    "place": [],
    "noise": 0.3,
    "scale": 1e-6,
    "unlike": [],
    "standing": False,
}


def advice(found=None, tried=None, c=CLEAN, **context):
    """What is advised of a test that is as it should be but for these."""
    expected = FOUND["expected"] | (found or {}).get("expected", {})
    found = FOUND | (found or {}) | {"expected": expected}
    return advise(c, found, tried or {}, CONTEXT | context)


def only(*arguments, **options):
    """The one piece of advice that there is."""
    (said,) = advice(*arguments, **options)
    return said


def test_of_a_test_as_it_should_be_nothing_is_said():
    assert advice() == []


@pytest.mark.parametrize("seconds, when", [(0.0312, "later"), (-0.0312, "earlier")])
def test_an_offset_and_what_its_correction_saves(seconds, when):
    """RMSE of .8 µT with it and 8 µT without: 90 % less."""
    c = replace(CLEAN, offset=seconds, offset_stddev=0.0041)
    said = only(None, {"without_offset": 8.0}, c)
    assert f"stamps are 0.031 ± 0.004 s {when} than" in said.text
    assert "RMSE 0.80 µT and 8.00 µT without, 90 % less" in said.text
    assert said.gain == pytest.approx(0.9)
    assert "did not help" in only(None, {"without_offset": 0.7}, c).text
    assert "as good without" in only(None, {"without_offset": 0.803}, c).text
    untried = only(None, {}, c)
    assert untried.gain is None and untried.text.endswith("than the pose's")

    # three standard deviations of it are none, nor are less than 5 ms, nor one that is only assumed
    for changes in ({"offset_stddev": 0.0105}, {"offset": 0.0049, "offset_stddev": 0.001}):
        assert advice(None, {}, replace(c, **changes)) == []
    assert advice(None, {}, replace(c, offset_assumed=True)) == []


@pytest.mark.parametrize("lag, where", [(0.123, "behind"), (-0.123, "ahead of")])
def test_an_offset_that_may_be_a_lever_arm_says_how_long(lag, where):
    c = replace(CLEAN, offset=0.1, separable=False, lag=lag)
    assert f"the sensor sits 12.3 cm {where} the point" in only(None, {}, c).text


def test_iron_that_turns_with_the_robot():
    c = replace(CLEAN, turning=2.34e-6, turning_stddev=5.6e-7, turning_chi_square=18.1)
    said = only(None, {"without_heading": 1.0}, c)
    assert "2.34 ± 0.56 µT turns with the robot" in said.text and "20 % less" in said.text
    assert said.gain == pytest.approx(0.2)
    for changes in ({"turning_chi_square": 18.0}, {"turning_assumed": True}):
        assert advice(None, {}, replace(c, **changes)) == []


def test_a_lever_arm_that_saves_more_than_a_thirtieth():
    said = only(None, {"with_lever_arm": 0.6})
    assert "RMSE 0.60 µT with a learned lever arm, 0.80 µT now" in said.text
    assert said.gain == pytest.approx(0.25)
    assert (
        advice(None, {"with_lever_arm": 0.78}) == []
        and advice(None, {"with_lever_arm": 0.81}) == []
    )


def test_a_robot_that_has_not_moved_is_not_free_of_faults():
    assert only({"coverage_levels": {"95": 1.0}}, standing=True).text.startswith(
        "let the robot drive"
    )


def test_lanes_that_are_too_far_apart():
    far = {"bands": {BANDS[0]: {"rmse_ut": 0.6, "n": 400}}, "square_beyond": 0.63}
    said = only(far)
    assert "63 % of the squared error lies more than 10 cm" in said.text and "0.60 µT" in said.text
    assert said.gain == pytest.approx(0.25)
    assert advice(far | {"square_beyond": 0.5}) == []
    assert advice(far | {"bands": {BANDS[0]: {"rmse_ut": 0.79, "n": 400}}}) == []


def test_lanes_are_near_enough_where_errors_beyond_them_differ_by_chance():
    # more than half of the squared error lies there because more than half of the test does
    near = {"bands": {BANDS[0]: {"rmse_ut": 0.76, "n": 300}}, "square_beyond": 0.66, "n": 800}
    assert advice(near) == []
    many = near | {"bands": {BANDS[0]: {"rmse_ut": 0.76, "n": 6000}}, "n": 16000}
    assert "drive lanes closer" in only(many).text


def test_ground_that_the_map_hardly_knows_comes_first():
    said = only({"expected": {"unknown_share": 0.71}, "square_beyond": 0.9})
    assert said.text.startswith("71 % of the test") and said.gain is None
    assert advice({"expected": {"unknown_share": 0.5}}) == []


def test_what_saves_most_is_said_first():
    c = replace(CLEAN, offset=0.1, turning=2e-6, turning_chi_square=50.0)
    for offset, heading in ((1.0, 2.0), (2.0, 1.0)):
        tried = {"without_offset": offset, "without_heading": heading, "with_lever_arm": 0.76}
        gains = [said.gain for said in advice(None, tried, c)]
        assert gains == sorted(gains, reverse=True) and len(gains) == 3


def test_a_sensor_that_turns_with_the_robot_is_said_in_place_of_what_it_makes_look_wrong():
    c = replace(CLEAN, offset=0.1)
    assert len(advice(None, {"with_lever_arm": 0.6}, c)) == 2
    assert only(None, {"with_lever_arm": 0.6}, c, turning=["it turns"]).text == "it turns"


def test_a_sensor_elsewhere_on_the_robot_hides_no_iron():
    c = replace(CLEAN, offset=0.1, turning=2e-6, turning_chi_square=50.0)
    first, iron = advice(None, {"with_lever_arm": 0.6}, c, place=["it sits elsewhere"])
    assert first.text == "it sits elsewhere" and "turns with the robot" in iron.text


def test_what_was_dropped_and_what_was_left_out_in_per_cent_of_all():
    """More than one of a hundred, and more than two of a thousand."""
    said = only(None, None, dropped=500, measurements=1500, explained=["stamps repeat", "other"])
    assert said.text == "25.0 % of the measurements could not be used: stamps repeat"
    assert advice(None, None, dropped=20, measurements=1980, explained=["stamps repeat"]) == []
    assert advice(None, None, dropped=500, measurements=1500) == []
    said = only(None, None, gross=25)
    assert said.text.startswith("1.2 % of the measurements are gross errors")
    assert advice(None, None, gross=4) == []


def test_places_that_changed_are_named_five_of_them():
    changes = [{"x": 1.04 + k, "y": -2.0} for k in range(7)]
    assert "look at (1.0, -2.0) m: the field" in only(None, None, changes=changes[:1]).text
    assert "(5.0, -2.0) m: the field" in only(None, None, changes=changes[:5]).text
    assert "(5.0, -2.0) and 2 more m" in only(None, None, changes=changes).text


@pytest.mark.parametrize(
    "inside, word", [(0.62, "narrow"), (0.89, "narrow"), (0.99, "wide"), (0.91, ""), (0.98, "")]
)
def test_intervals_that_hold_too_few_or_too_many(inside, word):
    """By more than chance: three standard deviations of as many witnesses as there are."""
    found = {"coverage_levels": {"95": inside}}
    if not word:
        assert advice(found) == []
        return
    text = only(found).text
    assert f"too {word} for the test (95 % intervals hold {100 * inside:.0f} %)" in text
    assert ("unlike what was mapped" in text) == (word == "narrow")
    few = 9.0 * 0.95 * 0.05 / (inside - 0.95) ** 2
    assert advice(found | {"expected": {"witnesses": 0.98 * few}}) == []
    assert advice(found | {"expected": {"witnesses": 1.02 * few}}) != []


def test_errors_that_persist_more_than_the_map_expects():
    found = {"autocorrelation": {"0.5": 0.42}}
    assert "(correlation 0.42 after .5 s): they come from poses" in only(found).text
    expecting = found | {"expected": {"autocorrelation": 0.2}}
    assert "(correlation 0.42 after .5 s), as the map expects" in only(expecting).text
    assert advice({"autocorrelation": {"0.5": 0.29}}) == []
    assert "they come from" in only(found | {"expected": {"autocorrelation": -0.9}}).text


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_test_that_reads_otherwise_as_a_whole(sign):
    """By .3 of the RMSE, and by three standard deviations of what the map expects."""
    assert f"reads {sign * 0.35:+.2f} µT relative to the map" in only({"bias": sign * 0.35}).text
    assert advice({"bias": sign * 0.29}) == [], "three standard deviations are .3 µT"
    assert advice({"bias": sign * 0.25, "expected": {"bias_stddev": 0.01}}) != []
    assert advice({"bias": sign * 0.23, "expected": {"bias_stddev": 0.01}}) == []
    assert advice({"bias": math.inf}) == []


def test_of_a_dead_sensor_nothing_else_is_said():
    for dead in (True, False):
        said = advice({"bias": 1.0}, sensor_faults=[SensorFault("it hangs", dead)])
        assert [each.text for each in said][:1] == ["it hangs"] and (len(said) == 1) == dead


def test_where_passes_are_in_several_frames_nothing_else_is_said_of_robot_and_map():
    """Such passes differ as those do whose stamps are late: the clocks were blamed."""
    for kind in (MOVED, CLOCK, APART, ALIKE):
        found = Break(kind, 2, 5.0, Moved(1.0, 2.0, 0.5), 0.1, 0.1, 1.0, 20.0)
        said = advice({"bias": 1.0}, sensor_faults=[SensorFault("it hangs", False)], frames=[found])
        assert [each.text for each in said[:2]] == ["it hangs", break_note(found)]
        assert len(said) == (3 if kind == ALIKE else 2), "alike places contradict nothing"


def test_passes_that_differ_are_listed_those_that_differ_most():
    """Where one differs from the mean of all by three standard deviations, and by more than noise."""
    biases = [
        {"pass": k + 1, "stamp": None, "mean": mean, "stddev": 0.1, "apart": 0.2}
        for k, mean in enumerate((0.01, 1.5, -0.7, 0.3, 0.31, 0.32, 0.33, 0.34))
    ]
    said = only(None, {"without_bias": 1.6}, biases=biases)
    assert "pass 2 +1.50 ± 0.10 µT, pass 3 -0.70 ± 0.10 µT" in said.text
    assert "pass 8" in said.text and "pass 4" not in said.text and "pass 1 " not in said.text
    assert "and 2 that differ less" in said.text and said.gain == pytest.approx(0.5)
    assert advice(None, None, biases=biases[1:2]) == []
    assert advice(None, None, biases=[b | {"apart": 0.5} for b in biases]) == []
    assert advice(None, None, biases=biases, noise=1.3) == []


def test_the_calibration_says_its_numbers_in_seconds_centimetres_and_degrees():
    c = replace(
        CLEAN,
        offset=-0.1234,
        offset_stddev=0.0021,
        along=0.234,
        along_stddev=0.0123,
        across=-0.056,
        across_stddev=0.034,
        correlation=0.93,
        steadiness=0.042,
        lag=0.178,
        lag_stddev=0.0091,
        speed=0.37,
        turning=2.34e-6,
        turning_stddev=4e-7,
        direction=1.0,
        direction_stddev=0.1,
        turning_chi_square=20.0,
    )
    clocks, arm, turns, noise = c.sentences()
    assert clocks == "the magnetometer is ahead of the pose by 0.123 ± 0.002 s"
    assert "is assumed 23.4 cm ahead and -5.6 cm to the left" in arm
    assert "known to ± 1.2 and ± 3.4 cm" in arm
    assert "a part of 2.3 ± 0.4 µT turns" in turns and "towards 57 ± 6°" in turns
    assert "differ by 0.3 µT" in noise and "scatters by 0.4 µT" in noise

    free = replace(c, lever_assumed=False, separable=False, offset=0.0312, offset_stddev=0.0095)
    for lag, where in ((0.178, "behind"), (-0.178, "ahead")):
        clocks, arm, both, *_ = replace(free, lag=lag).sentences("sensor", "mT")
        assert clocks == "the sensor lags the pose by 0.03 ± 0.01 s"
        assert "sits 23.4 ± 1.2 cm ahead and -5.6 ± 3.4 cm to the left" in arm
        assert "(correlation 0.93, the speed varies by 4 %)" in both
        assert f"only their sum, 17.8 ± 0.9 cm {where} at 0.37 m/s" in both

    known = replace(c, offset_assumed=True, offset_in_use=0.25, turning_assumed=True)
    clocks, _, turns, _ = known.sentences()
    assert "of 0.25 s is assumed" in clocks and "would have it -0.123 ± 0.002 s" in clocks
    assert "is assumed absent" in turns
    clocks, _, turns, _ = CLEAN.sentences()
    assert clocks.startswith("no offset is seen") and "0.00 ± 0.01 s" in clocks
    assert turns.startswith("nothing is seen")


def test_what_is_seen_differs_from_nothing_by_more_than_three_standard_deviations():
    for name, learned in (("offset", {}), ("along", {"lever_assumed": False})):
        for size in (0.75, -0.75):
            of = {name: size, f"{name}_stddev": 0.25} | learned
            more = {name: 1.01 * size, f"{name}_stddev": 0.25} | learned
            seen = "has_offset" if name == "offset" else "has_lever_arm"
            assert not getattr(replace(CLEAN, **of), seen) and getattr(replace(CLEAN, **more), seen)
    arm = {"across": 0.76, "across_stddev": 0.25}
    assert replace(CLEAN, **arm, lever_assumed=False).has_lever_arm
    assert not replace(CLEAN, **arm).has_lever_arm
    told = replace(CLEAN, **arm, lever_assumed=False, offset=1.0).as_dict()
    assert (told["offset_seen"], told["lever_seen"], told["turning_seen"]) == (True, True, False)
