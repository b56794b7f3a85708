"""Diagnostics at their bounds: when something is said, and which numbers stand beside it."""

from collections import namedtuple

import pytest
from test_health import areas_of, status_of

from gp_mapping.runtime.health import ERROR, OK, WARN, Health, InputWatch


def said(area):
    return " | ".join(area.warnings)


@pytest.mark.parametrize("silence, warned", [(2.0, False), (2.1, True)])
@pytest.mark.parametrize("ever", [True, False])
def test_silence_is_said_beyond_its_limit_and_not_of_what_may_be_silent(silence, warned, ever):
    health, watch = Health(2.0), InputWatch("field", label="/mag")
    watch.publishers = 1
    quiet = InputWatch("tf_static", steady=False)
    if ever:
        watch.arrived(100.0)
    areas_of(health, 100.0, watches=[watch, quiet])
    area = areas_of(health, 100.0 + silence, watches=[watch, quiet])["input"]
    assert bool(area.warnings) == warned and (not warned or f"{silence:.1f} s" in said(area))
    assert area.values["field publishers"] == 1 and "tf_static publishers" not in area.values
    assert area.values["field received"] == watch.count == int(ever)
    paused = areas_of(health, 110.0, watches=[watch], paused=True)["input"]
    assert paused.warnings == ["paused: measurements are not used"]
    assert watch.silence(99.0) == (0.0 if ever else None)


def test_numbers_of_an_input_are_those_of_its_watch():
    health, watch = Health(2.0), InputWatch("field")
    assert watch.label == "field"
    for i in range(5):
        watch.arrived(100.0 + i)
    watch.lost = 3
    watch.stream.missing = 7
    area = areas_of(health, 104.0, watches=[watch])["input"]
    assert area.values["field lost by the middleware"] == 3
    assert area.values["field lost before the node (about)"] == 7
    assert "about 7 messages lost" in said(area)
    watch.lost = 9
    assert "about 9 messages lost" in said(areas_of(health, 104.5, watches=[watch])["input"])
    assert not areas_of(health, 104.6, watches=[watch])["input"].warnings
    assert watch.rate(105.0) == 0.0 and watch.rate(105.0) == 0.0
    watch.arrived(106.0)
    assert watch.rate(107.0) == 0.5


@pytest.mark.parametrize("age, words", [(3600.0, ""), (3601.0, "behind"), (-3601.0, "ahead of")])
def test_stamps_that_are_an_hour_off_are_spoken_of(age, words):
    area = areas_of(Health(2.0), stamp_age=age)["input"]
    assert area.values["age of the newest stamp (s)"] == age
    assert (f"3601 s {words} the node's clock" in said(area)) == bool(words)
    assert bool(area.warnings) == bool(words)
    assert "age of the newest stamp (s)" not in areas_of(Health(2.0))["input"].values
    # whose clock is /clock has set use_sim_time already
    simulated = said(areas_of(Health(2.0), stamp_age=age, simulated=True)["input"])
    assert (f"3601 s {words} /clock" in simulated) == bool(words)
    assert "use_sim_time" not in simulated


@pytest.mark.parametrize("used, words", [(0, "of the loaded map"), (3, "an empty frame_id")])
def test_a_map_in_no_frame_is_said_with_the_cause(used, words):
    status = status_of(made=100.0, used=used)
    assert words in said(areas_of(Health(2.0), status=status, frameless=True)["input"])
    assert "frame" not in said(areas_of(Health(2.0), status=status)["input"])


@pytest.mark.parametrize(
    "silence, age, warned",
    [(1.0, 2.0, False), (1.0, 2.1, True), (5.0, 4.9, False), (5.0, 5.1, True)],
)
def test_a_map_that_does_not_answer_is_busy(silence, age, warned):
    area = areas_of(Health(silence), 200.0, status_of(made=200.0 - age), queue=4)["timing"]
    assert bool(area.warnings) == warned and area.values["queue"] == 4
    assert area.values["update p50_ms"] == 2.0
    assert not warned or f"busy for {age:.1f} s" in said(area)


def test_of_a_few_measurements_nothing_is_said_and_of_many_the_main_reason_first():
    explained = {"no_pose": "is the robot on?", "pose_lost": "where is it?"}

    def area(health, received, drops, **more):
        status = status_of(
            received={"field": received, "odometry": 9}, drops=drops, explanations=explained, **more
        )
        return areas_of(health, status=status)["input"]

    for n, first in ((9, False), (10, True)):
        found = area(Health(2.0), n, {"no_pose": n}, warnings=["something"])
        head = f"100 % of the last {n} measurements were dropped as no_pose: is the robot on?"
        assert (found.warnings[0] == head) == first
        assert f"{n} no_pose: is the robot on?" in found.warnings and "something" in found.warnings
        assert found.values["dropped: no_pose"] == n
    health = Health(2.0)
    area(health, 1000, {"no_pose": 10})
    found = area(health, 1100, {"no_pose": 101, "pose_lost": 95})
    assert found.warnings[0].startswith("91 % of the last 100 measurements")
    assert len([text for text in found.warnings if "% of the last" in text]) == 1
    assert not area(health, 1200, {"no_pose": 101, "pose_lost": 95}).warnings
    found = area(health, 1300, {"no_pose": 191, "pose_lost": 95})
    assert found.warnings == ["191 no_pose: is the robot on?"], "nine tenths are not nearly all"


def test_what_the_map_holds_is_told_with_its_limits():
    limits = namedtuple("Limits", "mean_low mean_high")(1e-6, 2e-6)
    status = status_of(lag=(0.25, 3.0), counts={"error_plan": 2, "queue_full": 1})
    health = Health(2.0)
    areas = areas_of(health, status=status, limits=limits, published=5, facts={"model": "x"})
    values = areas["map"].values
    assert values["mean_low (SI)"] == 1e-6 and values["mean_high (SI)"] == 2e-6
    assert values["published"] == 5 and values["model"] == "x" and values["samples"] == 10
    assert values["hyperparameters.lengthscale"] == 0.5 and values["error_plan"] == 2
    assert values["undrawn share of the path"] == 0.25 and "error_plan" not in areas["input"].values
    assert areas["map"].level == ERROR and "2 failures at plan" in said(areas["map"])
    again = areas_of(health, status=status)["map"]
    assert again.level == OK and 10.0 < again.values["memory (MB)"] < 1e5
    assert set(areas) == {"input", "map", "timing"}
    assert areas["input"].values["dropped: queue_full"] == 1 and areas["input"].level == WARN
