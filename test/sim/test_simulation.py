"""The simulation is deterministic, timed exactly, and its readings are those of its own world."""

import math

import numpy as np
import pytest

from gp_mapping.sim.magnetometer import MagnetometerSettings
from gp_mapping.sim.robot import OdometrySettings
from gp_mapping.sim.simulation import FieldReading, OdometryReading, Simulation, SimulationSettings
from gp_mapping.sim.world import DipoleWorld, WorldSettings

QUIET = MagnetometerSettings(
    noise_stddev=0.0, bias_x=0.0, bias_y=0.0, bias_z=0.0, correlated_stddev=0.0
)
SHORT = SimulationSettings(duration=20.0)


def split(events):
    events = list(events)
    return [e for e in events if isinstance(e, OdometryReading)], [
        e for e in events if isinstance(e, FieldReading)
    ]


def test_the_same_seed_gives_the_same_stream_bit_for_bit():
    def numbers(seed):
        s = Simulation(
            SimulationSettings(duration=20.0, seed=seed),
            odometry=OdometrySettings(heading_drift=0.01),
        )
        return [
            (e.stamp_ns, e.x, e.y, e.yaw, e.covariance.tobytes())
            if isinstance(e, OdometryReading)
            else (e.stamp_ns, e.field.tobytes())
            for e in s
        ]

    assert numbers(5) == numbers(5)
    assert numbers(5) != numbers(6)


def test_stamps_are_exact_ordered_and_half_a_period_apart():
    odometry, field = split(Simulation(SHORT))
    o, f = (np.array([e.stamp_ns for e in part]) for part in (odometry, field))
    assert o[0] == 1_000_000_000 and (np.diff(o) == 20_000_000).all()
    assert f[0] == 1_010_000_000 and (np.diff(f) == 20_000_000).all()
    assert (len(o), len(f)) == (1001, 1000) and o[-1] > f[-1]
    stamps = [e.stamp_ns for e in Simulation(SHORT)]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("field_rate, odometry_rate", [(100.0, 50.0), (100.0, 10.0), (25.0, 100.0)])
def test_rates_are_kept(field_rate, odometry_rate):
    odometry, field = split(
        Simulation(
            SimulationSettings(duration=10.0, field_rate=field_rate, odometry_rate=odometry_rate)
        )
    )
    assert (len(field), len(odometry)) == (10 * field_rate, 10 * odometry_rate + 1)


def test_a_perfect_sensor_measures_the_world_in_its_own_frame():
    s = Simulation(
        SHORT,
        magnetometer=MagnetometerSettings(
            noise_stddev=0.0,
            bias_x=0.0,
            bias_y=0.0,
            bias_z=0.0,
            correlated_stddev=0.0,
            offset_x=0.15,
            offset_y=-0.05,
        ),
    )
    checked = 0
    for event in s:
        if isinstance(event, FieldReading):
            r = s.robot
            c, n = math.cos(r.yaw), math.sin(r.yaw)
            at = [r.x + 0.15 * c + 0.05 * n, r.y + 0.15 * n - 0.05 * c, 0.3]
            truth = s.world.field([at])[0]
            turned = np.array([[c, -n, 0], [n, c, 0], [0, 0, 1]]) @ event.field
            np.testing.assert_allclose(turned, truth, rtol=1e-12, atol=1e-18)
            assert np.linalg.norm(event.field) == pytest.approx(
                s.world.norm([at[:2]])[0], rel=1e-12
            )
            checked += 1
    assert checked == 1000


def test_the_default_route_sees_the_whole_room():
    s = Simulation(SimulationSettings(spacing=0.6, crossing_spacing=1.5), magnetometer=QUIET)
    odometry, field = split(s)
    path = np.array([(e.x, e.y) for e in odometry])
    gx, gy, truth = s.world.truth_grid(0.1)
    distance = np.array(
        [np.hypot(path[:, 0] - a, path[:, 1] - b).min() for a, b in zip(gx.ravel(), gy.ravel())]
    )
    inside = (gx.ravel() > 0.4) & (gx.ravel() < 5.6) & (gy.ravel() > 0.4) & (gy.ravel() < 4.6)
    assert distance[inside].max() < 0.35
    norm = np.array([np.linalg.norm(e.field) for e in field])
    assert norm.std() == pytest.approx(truth.std(), rel=0.25)
    assert s.progress == 1.0 and 100 < s.elapsed < 250


def test_waypoints_and_duration_end_the_drive():
    s = Simulation(SimulationSettings(), waypoints=[[1.0, 1.0], [2.0, 1.0]])
    list(s)
    assert s.robot.x == pytest.approx(2.0, abs=0.06) and s.progress == 1.0
    s = Simulation(SimulationSettings(duration=1.0))
    list(s)
    assert s.elapsed == pytest.approx(1.0) and s.robot.x < 1.5


def test_world_and_noise_have_seeds_of_their_own():
    a = Simulation(SimulationSettings(seed=1), WorldSettings(seed=2)).world
    np.testing.assert_array_equal(a.moments, DipoleWorld.random(WorldSettings(seed=2)).moments)


def test_a_rate_that_does_not_fit_the_step_is_refused():
    with pytest.raises(ValueError, match=r"field_rate is 30\.0 Hz.*for example 33"):
        Simulation(SimulationSettings(field_rate=30.0))
    with pytest.raises(ValueError, match=r"odometry_rate is 200\.0 Hz.*for example 100"):
        Simulation(SimulationSettings(odometry_rate=200.0))
