"""Which measurements a map holds: found again however they are cut, in bounded memory, without chance hits."""

import numpy as np
import pytest
from intake_messages import by_stamp, drain, drive, feed

from gp_mapping.intake import Intake
from gp_mapping.intake.sensors.sketch import MEASURED, SHARED, Sketch, union
from gp_mapping.settings.intake import IntakeSettings


def measurements(count, start=0, seed=0):
    generator = np.random.default_rng(seed)
    return start + 10**7 * np.arange(count), generator.standard_normal((count, 3))


def of(stamps, values, batch=500):
    sketch = Sketch()
    for i in range(0, len(stamps), batch):
        sketch.add(stamps[i : i + batch], values[i : i + batch])
    return sketch


def test_a_sketch_does_not_depend_on_batches_and_is_bounded():
    stamps, values = measurements(30_000)
    text = of(stamps, values).as_text()
    assert text == of(stamps, values, 7000).as_text() and len(text) < 25_000
    halves = [
        of(stamps[part], values[part]).as_text() for part in (slice(15_000), slice(15_000, None))
    ]
    # the first of a half has nothing before it: it may be one more
    assert Sketch(union(halves)).shares(Sketch(text))
    assert len(union(halves)) <= len(text)
    few = [of(stamps[part], values[part]).as_text() for part in (slice(9), slice(5, 14))]
    assert union(few) == union(few[::-1]) == of(stamps[:14], values[:14]).as_text()
    assert union([]) == "" and union(few[:1]) == few[0]


def test_few_measurements_at_once_are_hashed_together(monkeypatch):
    """A live map gets five at once; hashing costs as much for five as for hundreds."""
    stamps, values = measurements(1003)
    whole, made, calls = of(stamps, values).as_text(), [], []
    ordered = np.sort
    monkeypatch.setattr(np, "sort", lambda hashes: calls.append(len(hashes)) or ordered(hashes))
    live = Sketch()
    for i in range(0, len(stamps), 5):
        made.append((stamps[i : i + 5].copy(), values[i : i + 5].copy()))
        live.add(*made[-1])
        for array in made[-1]:
            array[:] = 0  # the caller's to use again
    assert len(calls) <= 4
    assert live.as_text() == whole and sum(calls) == len(stamps)


def test_measurements_of_another_size_follow():
    """A scalar sensor after one of three axes: each is hashed as it came."""
    stamps, values = measurements(6)
    mixed, apart = Sketch(), Sketch()
    for sketch, look in ((mixed, lambda: None), (apart, apart.as_text)):
        sketch.add(stamps[:3], values[:3])
        look()
        sketch.add(stamps[3:], values[3:, :1])
    assert mixed.as_text() == apart.as_text() != of(stamps, values).as_text()


@pytest.mark.parametrize("count", [10, 300_000])
def test_what_comes_again_is_found(count):
    stamps, values = measurements(count)
    sketch = Sketch(of(stamps, values, 10_000).as_text())
    # a hundredth of them, from somewhere in the middle
    part = slice(count // 3, count // 3 + max(SHARED + 1, count // 100))
    sketch.add(stamps[part], values[part])
    assert sketch.repeats >= SHARED and len(sketch.notes) == 1


def test_other_values_at_these_stamps_and_these_values_at_others_are_new():
    stamps, values = measurements(3000)
    sketch = of(stamps, values)
    other = of(stamps, values + 1e-9)
    assert not sketch.shares(other) and not sketch.shares(of(stamps + 1, values))
    sketch.add(stamps, values + 1e-9)
    sketch.add(stamps + 1, values)
    assert sketch.repeats == 0 and not sketch.notes


def test_a_number_that_stands_still_is_no_sign_of_one_recording():
    """Of a simulation without noise: two drives begin with one number, at one time."""
    stamps = 10**7 * np.arange(200)
    first, second = (np.full((200, 1), 20.0) for _ in range(2))
    first[100:, 0], second[100:, 0] = np.linspace(20.1, 25.0, 100), np.linspace(20.2, 27.0, 100)
    assert not of(stamps, first).shares(of(stamps, second))
    dead = of(stamps, np.zeros((200, 3)), 50)
    assert not dead.shares(dead)


@pytest.mark.parametrize("text", ["", None, "no base64!", "QUJD", 17])
def test_what_is_no_sketch_holds_nothing(text):
    assert Sketch(text).as_text() == ""


def test_an_intake_knows_what_the_map_holds():
    messages = by_stamp(*drive(seconds=4.0))
    intake = Intake()
    feed(intake, messages)
    drain(intake)
    held = intake.about[MEASURED]

    again = Intake(IntakeSettings(stamp_offset=0.5))  # it is of the stamps as they come
    again.expect_none_of(held)
    feed(again, messages)
    drain(again)
    assert any("that the map holds already" in text for text in again.warnings)

    # the map has been emptied: all is new
    again.forget_frames()
    feed(again, by_stamp(*drive(start=50.0, seconds=4.0)))
    drain(again)
    assert not any("that the map holds already" in text for text in again.warnings)
