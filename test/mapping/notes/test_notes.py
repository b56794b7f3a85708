"""Sentences for a person: each is there where it is true, and the numbers in it are right."""

import pytest

from gp_mapping.mapping.motion.extent import Area
from gp_mapping.mapping.notes.settings import (
    drawing_notes,
    inconsistent_settings,
    not_looked_note,
    unused_starts,
    warm_up_note,
)
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for


def area(low, high, place=(0.0, 0.0), samples=40) -> Area:
    return Area(low, high, 30, samples, (), place)


MAIN = area((0.0, 0.0), (10.0, 4.0))


def test_ground_that_no_grid_holds_is_said_with_its_size():
    settings = MapSettings(margin=0.5, resolution=0.25, max_grid_cells=1000)
    for holds in (True, False):
        asked = []

        def fits(low, high, holds=holds, asked=asked):
            asked.append((low, high))
            return holds

        notes = drawing_notes([MAIN], [], fits, settings)
        assert asked == [((0.0, 0.0), (10.0, 4.0))] and len(notes) == (not holds)
    assert (
        "the mapped ground is 11 x 5 m, more than max_grid_cells (1000) cells of 0.25 m" in notes[0]
    )
    assert drawing_notes([], [], lambda low, high: False, settings) == []


def test_what_is_not_drawn_is_named_with_its_distance_and_the_rest_counted():
    far = [
        area((13.0, 8.0), (14.0, 9.0), (13.5, 8.25), 7),  # 3 and 4 m away
        area((-1200.0, 1.0), (-1010.0, 2.0), (-1100.0, 1.5), 1),
        area((2.0, -7.0), (3.0, -6.0), (2.5, -6.5), 2),
    ]
    notes = drawing_notes([MAIN], far, lambda low, high: True, MapSettings())
    assert len(notes) == 3
    for note, words in zip(
        notes,
        (
            "a sample at (13.5, 8.25) m lies 5 m from the rest and is not drawn (7 there)",
            "(-1100, 1.5) m lies 1.01 km from the rest and is not drawn (1 there)",
            "(2.5, -6.5) m lies 6 m from the rest",
        ),
    ):
        assert words in note
    # straight beside it, nothing is added across
    for low, high in (((11.4, 1.0), (12.0, 2.0)), ((2.0, 5.4), (3.0, 6.0))):
        beside = drawing_notes([MAIN], [area(low, high)], lambda *_: True, MapSettings())
        assert "lies 1 m from" in beside[0]
    # a kilometre is written as one
    exact = drawing_notes(
        [MAIN], [area((1010.0, 0.0), (1011.0, 1.0))], lambda *_: True, MapSettings()
    )
    assert "lies 1 km from" in exact[0]
    notes = drawing_notes([MAIN], far + far[:2], lambda low, high: True, MapSettings())
    assert len(notes) == 4 and notes[3].startswith("2 more places")


def settled(noise: float, signal: float, **others) -> MapSettings:
    return MapSettings(noise_stddev=noise, signal_stddev=signal, **others)


@pytest.mark.parametrize(
    "noise, signal, spread, words",
    [
        (0.99e-4, 1.0, None, "is less than a 10000th of signal_stddev 1"),
        (1.01e-4, 1.0, None, None),
        (101.0, 1.0, None, "is far more than signal_stddev 1"),
        (99.0, 1.0, None, None),
        (1.0, 1.0, 101.0, "varies by 101 and signal_stddev is 1"),
        (1.0, 1.0, 99.0, None),
    ],
)
def test_settings_that_make_no_sense_together_are_said(noise, signal, spread, words):
    notes = inconsistent_settings(settled(noise, signal), spread)
    assert [words in note for note in notes] == ([] if words is None else [True])
    # of classes and counts these numbers mean something else
    assert inconsistent_settings(settled(noise, signal, likelihood="poisson"), spread) == []


@pytest.mark.parametrize("offset, said", [(-0.6, True), (0.5, False), (-0.5, False), (3.0, True)])
def test_an_offset_within_which_a_robot_turns_is_said(offset, said):
    for likelihood in ("gaussian", "poisson"):
        notes = inconsistent_settings(
            settled(1, 1, time_offset=offset, likelihood=likelihood), None
        )
        assert [f"write stamp_offset: {offset:g} in place" in note for note in notes] == [
            True
        ] * said


def test_starts_that_a_saved_map_does_not_begin_with_are_said():
    given = MapSettings(lengthscale=0.7, signal_stddev=2.0, bias_stddev=0.3)
    saved = {"lengthscale": 0.5, "signal_stddev": 2.0}
    used = {"lengthscale": 0.6123, "signal_stddev": 1.5, "bias_stddev": 0.2}
    notes = unused_starts(saved, given, used)
    assert len(notes) == 1
    assert (
        notes[0].startswith("lengthscale: 0.7 has no effect") and "goes on with 0.6123" in notes[0]
    )
    # the map has no such number, or it was saved with the same one
    assert unused_starts(saved, given, {"signal_stddev": 1.5}) == []
    assert unused_starts({"lengthscale": 0.7}, given, used) == []


def test_what_was_left_out_of_a_sensor_that_had_not_begun():
    note = warm_up_note(12, 85.04)
    assert note.startswith("the first 12 measurements are left out (85, SI)")


def test_of_bags_side_by_side_nobody_looks_whether_a_sensor_is_slow_or_drifts():
    slow, drifts = not_looked_note(map_settings_for("temperature", MapSettings()))
    assert "response_time" in slow and "learn_response_time: never" in slow
    assert "bias_time" in drifts and "learn_bias_time: false" in drifts
    never = MapSettings(learn_response_time="never", learn_bias_time=False)
    assert not_looked_note(map_settings_for("temperature", never)) == []
    told = map_settings_for("temperature", MapSettings(response_time=2.0, bias_time=5.0))
    assert not_looked_note(told) == []
