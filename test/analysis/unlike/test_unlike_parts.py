"""`check` names what of a test is unlike the map: iron that is not the same in all passes, and where the robot was."""

import math

import numpy as np
import pytest
import torch

from gp_mapping.analysis import advice
from gp_mapping.analysis.unlike import parts as unlike
from gp_mapping.analysis.unlike.parts import (
    CHANGED,
    DISPLACED,
    TURNING,
    Unlike,
    unlike_parts,
    unlike_text,
)
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

SHIFT = np.array([0.15, 0.2])  # m
NOISE = 0.15e-6
CHANGE = np.array([2.6, 1.4])  # m
WIDTHS = {"changed": 0.45, "changed widely": 0.9}  # m, half a lengthscale and one


def field(x, channel=0):
    """A smooth field of 6 µT, tesla."""
    generator = np.random.default_rng(channel)
    waves, phases = generator.standard_normal((200, 2)) / 0.8, generator.uniform(0, 2 * np.pi, 200)
    return (45.0 + 0.6 * np.cos(x @ waves.T + phases).sum(1)) * 1e-6


def lanes(offset, along_y=False):
    """Corners of six lanes of 4 m."""
    out = []
    for i in range(6):
        ends = [(0.0, offset + 0.6 * i), (4.0, offset + 0.6 * i)]
        out += ends if i % 2 == 0 else ends[::-1]
    return np.array(out)[:, ::-1] if along_y else np.array(out)


def drive(corners, start, fault="", channels=1, shift=SHIFT, noise=NOISE):
    """Ten measurements a second at .4 m/s, with the fault that is named."""
    generator = np.random.default_rng(int(start))
    along = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))]
    t = np.arange(0.0, along[-1] / 0.4, 0.1)
    x = np.stack([np.interp(t * 0.4, along, corners[:, k]) for k in (0, 1)], 1)
    step = np.gradient(x, axis=0)
    heading = step / np.linalg.norm(step, axis=1, keepdims=True)
    cos, sin = heading.T

    y = np.stack([field(x, k) for k in range(channels)], 1)
    y += noise * generator.standard_normal(y.shape)
    if fault == "iron":
        y[:, 0] += 0.8e-6 * cos + 0.6e-6 * sin
    if fault == "iron of a vector":  # R(h) b
        y[:, :2] += np.stack([0.8e-6 * cos - 0.6e-6 * sin, 0.8e-6 * sin + 0.6e-6 * cos], 1)

    if fault.startswith("change"):
        y += 6e-6 * np.exp(-0.5 * np.square((x - CHANGE) / WIDTHS[fault]).sum(1))[:, None]

    told = x
    if fault == "leap":
        told = x + np.where(t > t[-1] / 2, 1.0, 0.0)[:, None] * shift
    if fault == "slip":  # beyond x = 2 m the wheels turn a tenth more than the robot drives
        turned = np.where(x[:, :1] > 2.0, 1.1, 1.0) * np.diff(x, axis=0, prepend=x[:1])
        told = x[0] + np.cumsum(turned, 0)
    return Samples(
        torch.from_numpy(told),
        torch.from_numpy(y),
        stamp=torch.from_numpy(start + t),
        heading=torch.from_numpy(heading),
        sensor_variance=torch.zeros(len(t), dtype=torch.float64),
    )


def mapped(channels=1):
    settings = {
        "lengthscale": 0.9,
        "signal_stddev": 6e-6,
        "noise_stddev": NOISE,
        "constant_stddev": 45e-6,
        "learn_hyperparameters": False,
        "learn_time_offset": False,
        "cell_length": 0.3,
    }
    session = MapSession(MapSettings(**settings))
    for i, corners in enumerate((lanes(0.0), lanes(0.0, True)[::-1], lanes(0.3)[::-1])):
        session.break_pass()
        session.ingest(drive(corners, 1000.0 * (i + 1), channels=channels))
    session.finish()
    return session


@pytest.fixture(scope="module")
def session():
    return mapped()


@pytest.mark.parametrize("along_y", [False, True])
def test_a_drive_like_those_of_the_map_is_like_it(session, along_y):
    tests = [drive(lanes(0.15, along_y), 1000.0 * k) for k in range(10, 14)]
    assert unlike_parts(session, tests) == []


@pytest.mark.parametrize("along_y", [False, True])
def test_iron_that_only_the_test_has_is_named_with_its_size(session, along_y):
    """A load that is magnetised: it was called a test unlike what was mapped, or a need of closer lanes."""
    passes = [drive(lanes(0.15, along_y), 9000.0, fault) for fault in ("", "iron")]
    found = unlike_parts(session, passes)
    assert [(part.what, part.pass_number) for part in found] == [(TURNING, 1)]
    (part,) = found
    assert (
        abs(part.along - 0.8e-6) < 4 * part.stddev and abs(part.across - 0.6e-6) < 4 * part.stddev
    )
    assert part.stddev < 0.1e-6 and part.gain > 0.5
    text = unlike_text(found, "magnetometer", "µT", 1e-6)
    assert text.startswith("keep iron on the robot as it is: ") and "pass 2 of the test" in text


@pytest.mark.parametrize("along_y", [False, True])
def test_poses_that_leap_are_named_with_place_and_time(session, along_y):
    test = drive(lanes(0.15, along_y), 9000.0, "leap")
    found = unlike_parts(session, [test])
    assert found and {part.what for part in found} == {DISPLACED}
    middle = 0.5 * float(test.stamp[0] + test.stamp[-1])
    assert all(part.end > middle for part in found)
    assert "wheels that slip" in unlike_text(found, "magnetometer", "µT", 1e-6)


@pytest.mark.parametrize("along_y", [False, True])
def test_a_small_leap_has_its_size(session, along_y):
    """Of a twentieth of a lengthscale: what is left out is of second order."""
    shift = 0.25 * SHIFT
    found = unlike_parts(session, [drive(lanes(0.15, along_y), 9000.0, "leap", shift=shift)])
    assert found and {part.what for part in found} == {DISPLACED}
    for part in found:
        assert math.dist((part.along, part.across), shift) < 3 * part.stddev
    assert min(part.stddev for part in found) < 0.015


def test_wheels_that_slip_are_named(session):
    found = unlike_parts(session, [drive(lanes(0.15), 9000.0, "slip")])
    assert found and {part.what for part in found} == {DISPLACED}


@pytest.mark.parametrize("fault", WIDTHS)
@pytest.mark.parametrize("along_y", [False, True])
def test_a_field_that_has_changed_in_one_place_is_no_pose_off_the_map(session, along_y, fault):
    """Its errors go with the gradient somewhat, and were called poses; it is named with its place."""
    found = unlike_parts(session, [drive(lanes(0.15, along_y), 9000.0, fault)])
    assert found and {part.what for part in found} == {CHANGED}
    largest = max(found, key=lambda part: part.size)
    assert math.dist(largest.place, CHANGE) < 0.5 and 4e-6 < largest.along < 8e-6
    x, y = largest.place
    text = unlike_text([largest], "magnetometer", "µT", 1e-6)
    assert text.startswith(f"look at ({x:.1f}, {y:.1f}) m by +")


def test_changes_that_are_explained_are_not_said_again():
    """Those of the test that lie in a piece of which poses, or the field, are named."""
    changes = [{"x": 0.0, "y": 0.0, "stamp": stamp} for stamp in (5.0, 15.0, 25.0, 35.0)]
    parts = [
        Unlike(what, 0, begin, begin + 10.0, 1.0, 0.0, 0.1, 0.5)
        for what, begin in ((CHANGED, 10.0), (DISPLACED, 20.0), (TURNING, 30.0))
    ]
    assert [c["stamp"] for c in advice._unexplained(changes, parts)] == [5.0, 35.0]  # noqa: SLF001


def test_a_vector_that_turns_with_the_robot_is_told_from_the_field():
    session = mapped(3)
    found = unlike_parts(session, [drive(lanes(0.15), 9000.0, "iron of a vector", 3)])
    assert [part.what for part in found] == [TURNING]
    assert math.dist((found[0].along, found[0].across), (0.8e-6, 0.6e-6)) < 0.1e-6


def test_what_no_piece_can_tell_is_not_named(session):
    """One direction: a field that turns is a constant there. Few measurements: nothing."""
    straight = drive(np.array([(0.0, 0.15), (4.0, 0.15)]), 9000.0, "iron")
    assert not [p for p in unlike_parts(session, [straight]) if p.what == TURNING]
    assert unlike_parts(session, [straight[:20]]) == []


def test_noise_that_is_larger_than_the_maps_is_no_fault_of_iron_or_poses(session):
    passes = [drive(lanes(0.15), 1000.0 * k, noise=6.0 * NOISE) for k in range(10, 16)]
    assert unlike_parts(session, passes) == []


def told(value, stddev, error):
    """Of one piece, of which the first column explains `error`."""
    columns = np.zeros((50, 2))
    columns[:, 0] = error
    noise = 0.1 * np.random.default_rng(0).standard_normal(50)
    return unlike._Estimate(  # noqa: SLF001
        (0.0, 1.0), np.array(value), stddev**2 * np.eye(2), error + noise, columns
    )


def test_pieces_that_disagree_are_as_unsure_as_they_differ():
    """They are named together where they agree."""
    agree = [told((v, 0.0), 0.05, 1.0) for v in (0.95, 1.0, 1.05)]
    differ = [told((v, 0.0), 0.05, 1.0) for v in (-1.0, 1.0, 3.0)]
    found = unlike._judged(TURNING, 2, agree, 1e-4)  # noqa: SLF001
    assert (found.pass_number, found.along) == (2, pytest.approx(1.0)) and found.gain > 0.9
    assert unlike._judged(TURNING, 2, differ, 1e-4) is None  # noqa: SLF001


def test_what_may_be_chance_or_explains_little_is_not_named():
    for value, stddev, error in (((1.0, 0.0), 0.3, 1.0), ((0.02, 0.0), 0.001, 1.0)):
        piece = [told(value, stddev, error)]
        assert unlike._judged(DISPLACED, 0, piece, 1e-4) is None  # noqa: SLF001


def test_gross_errors_of_a_test_are_no_changed_places(session):
    """3 % of them: `check` advised first of all to map nine places again; one has changed here."""
    generator = np.random.default_rng(3)
    clean, changed = drive(lanes(0.15), 20000.0), drive(lanes(0.15), 21000.0, "changed")
    for samples in (clean, changed):
        wild = generator.permutation(len(samples))[: len(samples) // 33]
        samples.y[wild] += torch.from_numpy(30e-6 * generator.choice([-1.0, 1.0], (len(wild), 1)))

    assert unlike_parts(session, [clean]) == []
    found = unlike_parts(session, [changed])
    assert {part.what for part in found} == {CHANGED}
    assert all(np.hypot(*np.subtract(part.place, CHANGE)) < 0.9 for part in found)
