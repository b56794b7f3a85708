"""Known distortions are recovered; what cannot be seen is left alone and said."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gp_mapping.intake.sensors.iron import CalibrationError, calibrate

EARTH = np.array([20e-6, 0.0, 43e-6])
HARD = np.array([12e-6, -7e-6, 15e-6])
SOFT = np.array([[1.10, 0.04, -0.03], [0.04, 0.92, 0.05], [-0.03, 0.05, 1.02]])
SOFT = SOFT / np.linalg.det(SOFT) ** (1 / 3)


def read(rotations, noise=0.1e-6, hard=HARD, distort=None, field=EARTH, seed=0):
    """m = A R⁻¹ b + h + white noise."""
    distort = np.linalg.inv(SOFT) if distort is None else distort
    readings = rotations.inv().apply(field) @ distort.T + hard
    return readings + noise * np.random.default_rng(seed).standard_normal(readings.shape)


def tumbling(n=2000, seed=1):
    return Rotation.random(n, random_state=seed)


def turning(turns=2.0, n=600, mount=None):
    yaw = Rotation.from_euler("z", np.linspace(0.0, 2 * np.pi * turns, n)[:, None])
    return yaw if mount is None else yaw * mount


@pytest.mark.parametrize("noise", [0.0, 0.1e-6, 0.5e-6])
def test_all_of_it_from_readings_in_all_directions(noise):
    found = calibrate(read(tumbling(), noise))
    assert not found.planar and found.turned > 0.95
    np.testing.assert_allclose(found.hard, HARD, atol=0.01 * np.linalg.norm(HARD))
    np.testing.assert_allclose(found.soft, SOFT, atol=0.01)
    clean = read(tumbling(300, 5), 0.0)
    strength = np.linalg.norm(found.correct(clean), axis=1)
    assert strength.std() / strength.mean() < 0.005 and found.after < found.before
    np.testing.assert_allclose(found.soft, found.soft.T, atol=1e-12)
    assert np.linalg.det(found.soft) == pytest.approx(1.0)


def test_a_long_stand_and_a_few_spikes_do_not_matter():
    moving = read(tumbling())
    standing = np.repeat(moving[:1], 20000, axis=0)
    spikes = moving[::100] + 200e-6 * np.random.default_rng(2).standard_normal((20, 3))
    found = calibrate(np.vstack([standing, moving, [[np.nan] * 3], spikes[:4]]))
    np.testing.assert_allclose(found.hard, HARD, atol=0.02 * np.linalg.norm(HARD))


def in_plane(distort):
    """What a planar robot can know: symmetric S of the upper left block, with determinant 1."""
    a = distort[:2, :2]
    values, vectors = np.linalg.eigh(np.linalg.inv(a @ a.T))
    s = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    return s / np.sqrt(np.linalg.det(s))


def test_a_planar_robot_finds_what_lies_in_its_plane():
    distort = np.array([[1.08, 0.03, 0.0], [0.03, 0.95, 0.0], [0.0, 0.0, 1.0]])
    found = calibrate(read(turning(), distort=distort))
    assert found.planar and found.turned == 1.0
    np.testing.assert_allclose(np.abs(found.normal), [0, 0, 1], atol=0.02)
    np.testing.assert_allclose(found.hard[:2], HARD[:2], atol=0.02 * np.linalg.norm(HARD[:2]))
    assert (
        abs(found.hard[2]) < 1e-6
    )  # left alone: the readings' mean along z is field and offset in one
    np.testing.assert_allclose(found.soft[:2, :2], in_plane(distort), atol=0.01)
    np.testing.assert_allclose(found.soft[2], [0, 0, 1], atol=0.02)
    level = np.linalg.norm(found.correct(read(turning(n=100), 0.0, distort=distort))[:, :2], axis=1)
    assert level.std() / level.mean() < 0.01


def test_a_tilted_sensor_on_a_planar_robot():
    mount = Rotation.from_euler("xyz", [0.5, -0.3, 1.0])
    found = calibrate(read(turning(mount=mount), distort=np.eye(3)))
    normal = mount.inv().apply([0.0, 0.0, 1.0])
    assert found.planar and abs(found.normal @ normal) > 0.999
    across = HARD - normal * (normal @ HARD)
    np.testing.assert_allclose(found.hard, across, atol=0.02 * np.linalg.norm(HARD))
    np.testing.assert_allclose(found.soft, np.eye(3), atol=0.02)


@pytest.mark.parametrize("up", range(3))
def test_any_axis_of_the_sensor_may_point_up(up):
    """To the bit: then the plane has no part of that axis to begin with."""
    readings = np.roll(read(turning(), 0.0, distort=np.eye(3), hard=0.0), up - 2, axis=1)
    readings[:, up] = 2.0**-15
    hard = HARD * (np.arange(3) != up)
    found = calibrate(readings + hard)
    np.testing.assert_allclose(np.abs(found.normal), np.arange(3) == up, atol=1e-6)
    np.testing.assert_allclose(found.hard, hard, atol=1e-8)
    np.testing.assert_allclose(found.soft, np.eye(3), atol=1e-4)


def test_noise_and_wobble_of_a_planar_robot_are_not_a_third_dimension():
    chance = np.random.default_rng(4)
    wobble = Rotation.from_euler("xy", 0.01 * chance.standard_normal((600, 2)))
    found = calibrate(read(turning() * wobble, 0.3e-6, distort=np.eye(3)))
    assert found.planar
    np.testing.assert_allclose(found.hard[:2], HARD[:2], atol=0.04 * np.linalg.norm(HARD[:2]))


@pytest.mark.parametrize("degrees", [30, 90, 180, 250])
def test_a_robot_that_does_not_turn_enough_is_refused(degrees):
    with pytest.raises(CalibrationError, match="turn"):
        calibrate(read(turning(degrees / 360.0)))


def test_a_robot_that_stands_still_is_refused():
    with pytest.raises(CalibrationError, match="turn"):
        calibrate(read(turning(0.0, 3000), 0.2e-6))
    with pytest.raises(CalibrationError, match="keep to 1 places"):
        calibrate(read(turning(0.0), 0.0))
    with pytest.raises(CalibrationError, match="5 readings, expected 30"):
        calibrate(read(turning(n=5)))


def rolling(tilt, n=600):
    """Two turns, rolled by up to `tilt` rad meanwhile."""
    roll = Rotation.from_euler("x", tilt * np.sin(np.linspace(0.0, 20.0, n))[:, None])
    return turning(n=n) * roll


@pytest.mark.parametrize("tilt", [0.1, 0.2, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("distort", [np.eye(3), np.linalg.inv(SOFT)], ids=["hard", "soft"])
def test_while_it_turns_the_robot_may_tilt_as_far_as_it_likes(tilt, distort):
    """A band of the ellipsoid: what it tells of it is right, and how well it tells it is said."""
    found = calibrate(read(rolling(tilt), distort=distort))
    error = np.abs(found.hard - HARD)[: 2 if found.planar else 3]
    assert (error < 3.5 * found.hard_stddev[: len(error)] + 0.1e-6).all()
    assert not found.planar
    if not distort[0, 1]:
        np.testing.assert_allclose(found.soft, np.eye(3), atol=0.01)
        assert (found.hard_stddev < 1.5e-6).all() and (error < 1.5e-6).all()
    if not found.planar:
        assert (np.abs(found.soft - np.linalg.inv(distort)) < 4.0 * found.soft_stddev + 0.002).all()


def test_a_field_that_is_not_quite_the_same_all_around_is_no_tilt():
    strength = 1.0 + 0.02 * np.sin(np.linspace(0.0, 21.0, 600))[:, None]
    found = calibrate((read(turning(), hard=0.0, distort=np.eye(3)) * strength) + HARD)
    assert found.planar and abs(found.hard[2]) < 1e-6
    np.testing.assert_allclose(found.hard[:2], HARD[:2], atol=0.05 * 20e-6)


@pytest.mark.parametrize("missing", [40, 70])
def test_how_much_of_the_sphere_was_seen_is_said(missing):
    """Within 30 degrees of a reading."""
    rotations = tumbling(1000)
    seen = rotations.inv().apply(EARTH / np.linalg.norm(EARTH))[:, 2] > -np.cos(np.radians(missing))
    found = calibrate(read(rotations, 0.0, distort=np.eye(3))[seen])
    share = 1.0 - 0.5 * (1.0 - np.cos(np.radians(missing - 30.0)))
    assert found.turned == pytest.approx(share, abs=0.04)
    np.testing.assert_allclose(found.hard, HARD, atol=0.05e-6)


def test_a_drive_through_a_changing_field_is_refused():
    chance = np.random.default_rng(8)
    strength = 1.0 + 0.4 * np.sin(np.linspace(0, 25, 600)) + 0.2 * chance.standard_normal(600)
    with pytest.raises(CalibrationError, match="field itself changes|turn"):
        calibrate(read(turning(), distort=np.eye(3), hard=np.zeros(3)) * strength[:, None])


def test_readings_that_fill_a_body_are_on_no_ellipsoid():
    for seed in range(3):
        readings = np.random.default_rng(seed).standard_normal((300, 3)) ** 3
        with pytest.raises(CalibrationError, match="the strength still varies"):
            calibrate(40e-6 * readings)


def test_by_how_much_the_strength_still_varies_is_said():
    chance = np.random.default_rng(9)
    readings = tumbling(4000).apply([1.0, 0.0, 0.0]) * chance.uniform(0.6, 1.4, (4000, 1))
    with pytest.raises(CalibrationError, match="still varies by (2[1-5]) %"):
        calibrate(40e-6 * readings)


@pytest.mark.parametrize("hard", [0.0, 5e-6, 60e-6])
def test_before_is_what_the_map_would_have_seen(hard):
    """A planar robot's strength before the correction: with its hard iron, not about the middle of the circle."""
    readings = read(turning(), 0.0, hard=np.array([hard, 0.0, 0.0]), distort=np.eye(3))
    found, strength = calibrate(readings), np.linalg.norm(readings[:, :2], axis=1)
    assert found.planar and found.field == pytest.approx(20e-6, rel=1e-3) and found.after < 1e-3
    assert found.before == pytest.approx(strength.std() / 20e-6, rel=0.05, abs=1e-3)
    assert found.before >= found.after or hard == 0.0


def test_a_stand_whose_readings_tremble_counts_as_one_direction_and_what_is_four_times_as_far_as_none():
    moving, rng = read(tumbling()), np.random.default_rng(3)
    standing = moving[:1] + 0.1e-6 * rng.standard_normal((20000, 3))
    beyond = HARD + 4.0 * (moving[moving[:, 0] > HARD[0] + 30e-6] - HARD)
    assert len(beyond) > 100
    for readings in (np.vstack([standing, moving]), np.vstack([moving, beyond])):
        found = calibrate(readings)
        np.testing.assert_allclose(found.hard, HARD, atol=0.01 * np.linalg.norm(HARD))
        np.testing.assert_allclose(found.soft, SOFT, atol=0.01)


def test_of_very_many_readings_some_are_fitted_evenly_chosen():
    """Four thousand at most; the same ellipsoid."""
    found = calibrate(read(tumbling(8000), 3e-6))
    assert 2000 <= found.used <= 4000 < found.readings == 8000
    np.testing.assert_allclose(found.hard, HARD, atol=0.03 * np.linalg.norm(HARD))
