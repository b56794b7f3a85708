"""Whatever number comes in whatever field of whatever message: the samples are those of the good messages alone."""

import copy
import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from intake_messages import (
    covariance_of,
    field_message,
    odometry_message,
    pose_message,
    scalar_message,
    tf_message,
)

from gp_mapping.intake import Intake
from gp_mapping.intake.clocks.stamps import StampGate
from gp_mapping.intake.topics import feed
from gp_mapping.settings.intake import IntakeSettings

N = 60  # measurements in a drive, 20 a second; poses 10 a second
WHITE = np.diag([1e-14, 2e-14, 1e-14]).ravel()


def _yaw(t: float) -> tuple[float, float, float, float]:
    return 0.0, 0.0, float(np.sin(0.4 * t)), float(np.cos(0.4 * t))


def _place(t: float) -> tuple[float, float, float]:
    return 0.3 * t, 0.1 * t * t, 0.0


POSES = {
    "odometry": lambda t: odometry_message(
        t, _place(t), _yaw(t), covariance=covariance_of(0.01, 0.02)
    ),
    "pose": lambda t: pose_message(t, _place(t), _yaw(t)),
    "pose_with_covariance": lambda t: pose_message(
        t, _place(t), _yaw(t), covariance=covariance_of(0.01, 0.02)
    ),
    "tf": lambda t: tf_message((t, "map", "base_link", _place(t), _yaw(t))),
}
SENSORS = {
    "magnetic_field": lambda t: field_message(t, (3e-5 + 1e-7 * t, 1e-6, 4e-5), covariance=WHITE),
    "temperature": lambda t: scalar_message(t, temperature=20.0 + 0.1 * t, variance=0.04),
    "fluid_pressure": lambda t: scalar_message(t, fluid_pressure=101325.0 + t, variance=4.0),
    "relative_humidity": lambda t: scalar_message(
        t, relative_humidity=0.4 + 0.01 * t, variance=1e-4
    ),
    "illuminance": lambda t: scalar_message(t, illuminance=300.0 + t, variance=1.0),
    "range": lambda t: scalar_message(t, range=2.0 + 0.1 * t, min_range=0.1, max_range=30.0),
    "scalar": lambda t: scalar_message(t, data=-60.0 + t),
}

NOT_NUMBERS = st.sampled_from([float("nan"), float("inf"), float("-inf")])


def absurd(least: float):
    """Beyond what such a field may be, up to the largest that there is; or no number."""
    huge = st.floats(min_value=least, max_value=1.7e308)
    return st.one_of(
        NOT_NUMBERS, huge, huge.map(lambda v: -v), st.sampled_from([1e154, 1e200, 1.79e308, -1e308])
    )


def strays():
    """Stamps far from the drive's, ns: a driver that has just booted, another clock, a number that wrapped."""
    far = st.integers(10_000_000_000, 2**31 * 10**9)
    return st.one_of(far.map(lambda v: v + 100 * 10**9), far.map(lambda v: -v))


def _covariance(rows: int, least: float):
    """One number of a covariance: finite, and larger than any that is meant."""
    return st.tuples(st.sampled_from([0, rows + 1]), st.floats(min_value=least, max_value=1.7e308))


# of each message: field -> what makes it hostile
HOSTILE_POSE = {
    **{f"position.{a}": absurd(1.1e7) for a in "xyz"},
    **{f"orientation.{a}": absurd(1e4) for a in "xyzw"},
    "stamp": strays(),
}
HOSTILE = {
    "odometry": HOSTILE_POSE | {"covariance": _covariance(6, 1e9)},
    "pose": HOSTILE_POSE,
    "pose_with_covariance": HOSTILE_POSE | {"covariance": _covariance(6, 1e9)},
    "tf": {k: v for k, v in HOSTILE_POSE.items() if k != "stamp"},
    "magnetic_field": {
        **{f"magnetic_field.{a}": absurd(0.011) for a in "xyz"},
        "stamp": strays(),
        "magnetic_field_covariance": st.tuples(st.integers(0, 8), absurd(1e-3)),
    },
    **{
        name: {
            name: absurd(1.1e9),
            "variance": st.one_of(st.just(float("nan")), st.floats(1e20, 1.7e308)),
            "stamp": strays(),
        }
        for name in ("temperature", "fluid_pressure", "relative_humidity", "illuminance")
    },
    "range": {
        "range": absurd(31.0),
        "min_range": absurd(31.0).filter(lambda v: v > 0),
        "stamp": strays(),
    },
    "scalar": {"data": absurd(1.1e15), "stamp": strays()},
}


def _spoil(message, field: str, value) -> None:
    """Write a hostile number into a field, wherever that stands in this type."""
    if field == "stamp":
        message.header.stamp.sec, message.header.stamp.nanosec = value // 10**9, value % 10**9
        return
    if "covariance" in field:
        owner = message.pose if field == "covariance" else message
        index, number = value
        changed = np.array(getattr(owner, field), float)
        changed[index if len(changed) == 9 else (0 if index == 0 else 7)] = number
        return setattr(owner, field, changed)
    if field.startswith(("position", "orientation")):
        if hasattr(message, "transforms"):
            inner = message.transforms[0].transform
            owner = inner.translation if field.startswith("position") else inner.rotation
        else:
            inner = message.pose.pose if hasattr(message.pose, "pose") else message.pose
            owner = getattr(inner, field.split(".")[0])
    else:
        owner = message.magnetic_field if field.startswith("magnetic_field.") else message
    setattr(owner, field.split(".")[-1], value)


def _samples(intake: Intake, stream) -> list:
    out = []
    for role, message in stream:
        feed(intake, role, message, None)
    for new_pass, samples in intake.batches(finish=True):
        out.append((new_pass, samples))
    return out


def _same(a, b) -> bool:
    def columns(parts):
        return [
            (new_pass, {n: None if v is None else v.tolist() for n, v in vars(s).items()})
            for new_pass, s in parts
        ]

    return columns(a) == columns(b)


@functools.cache
def _stream(sensor: str, pose: str) -> list:
    role = "tf" if pose == "tf" else "pose"
    timed = [(0.05 * i, "measurement", SENSORS[sensor](0.05 * i)) for i in range(N)]
    timed += [(0.1 * i, role, POSES[pose](0.1 * i)) for i in range(N // 2 + 2)]
    return [(role, message) for _, role, message in sorted(timed, key=lambda row: row[0])]


def _options(sensor: str, pose: str, component: str) -> IntakeSettings:
    return IntakeSettings(
        sensor=sensor, pose_source=pose, sensor_offset_x=0.2, field_component=component
    )


@functools.cache
def _expected(*options: str) -> list:
    """Of the good messages alone."""
    return _samples(Intake(_options(*options)), _stream(*options[:2]))


@pytest.mark.parametrize(
    "sensor, pose",
    [
        *((s, "odometry") for s in SENSORS),
        *(("magnetic_field", p) for p in POSES if p != "odometry"),
    ],
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_hostile_messages_between_good_ones_leave_no_trace(sensor, pose, data):
    component = data.draw(st.sampled_from(["norm", "x", "xyz"]))
    options, good = _options(sensor, pose, component), _stream(sensor, pose)
    expected = _expected(sensor, pose, component)

    stream, sent = list(good), 0
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(good) - 1))
        role, message = good[at]
        kind = sensor if role == "measurement" else pose
        field = data.draw(st.sampled_from(sorted(HOSTILE[kind])))
        bad = copy.deepcopy(message)
        if (
            field != "stamp" and kind != "tf"
        ):  # between two good ones, as a driver that hiccups once sends it
            bad.header.stamp.nanosec += 7_000_000
        _spoil(bad, field, data.draw(HOSTILE[kind][field]))
        # after the last message of its stream there is nothing that could tell a stray stamp from a pause
        where = stream.index(good[at]) + (0 if field == "stamp" else 1)
        stream.insert(max(where, 4), (role, bad))
        sent += role == "measurement"

    intake = Intake(options)
    found = _samples(intake, stream)
    assert _same(found, expected)
    assert (
        intake.received[sensor]
        == N + sent
        == intake.samples + intake.drops.measurements + intake.waiting
    )


@pytest.mark.parametrize("pose", ["odometry", "pose_with_covariance"])
def test_the_largest_covariance_of_a_pose_does_not_take_a_batch_with_it(pose):
    """A driver states its covariances; one message in many says 1e308."""
    good = _stream("magnetic_field", pose)
    expected = _samples(Intake(IntakeSettings(pose_source=pose)), good)
    stream = list(good)
    for at in range(9, len(good), 20):
        role, message = good[at]
        bad = copy.deepcopy(message)
        if role == "measurement":
            bad.magnetic_field_covariance = np.full(9, 1e308)
        else:
            bad.pose.covariance = np.full(36, 1e308)
        bad.header.stamp.nanosec += 3_000_000
        stream.insert(stream.index(good[at]) + 1, (role, bad))
    intake = Intake(IntakeSettings(pose_source=pose))
    assert _same(_samples(intake, stream), expected)
    assert intake.drops.as_dict().keys() <= {"bad_covariance", "pose_lost"}
    assert intake.drops.total == len(stream) - len(good)


@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_a_pose_too_fast_is_dropped_and_a_robot_that_was_carried_is_found_again(seconds):
    """At 2 m/s, or at .5 m/s, four times as slow."""
    intake = Intake(IntakeSettings(max_speed=2.0 / seconds))
    for i in range(20):
        jump = 50.0 if i == 5 else 30.0 if i >= 10 else 0.0  # one glitch, then it stands 30 m away
        intake.add_odometry(odometry_message(i * seconds, (0.5 * i + jump, 0.0, 0.0)))
    assert intake.drops.as_dict() == {"pose_too_fast": 1 + 10}
    intake = Intake(IntakeSettings(max_speed=2.0 / seconds))
    for i in range(40):
        intake.add_odometry(
            odometry_message(i * seconds, (0.5 * i + (31.0 if i >= 10 else 0.0), 0.0, 0.0))
        )
    assert intake.drops.as_dict() == {"pose_too_fast": 20}  # until it could have driven there


# ---- stamps that leap ------------------------------------------------------------------------------------------------

S = 10**9


def _taken(stamps, gate=None) -> tuple[list, int]:
    gate, out, strays = gate or StampGate(S), [], 0
    for stamp in stamps:
        taken, lost = gate.admit(stamp, None)
        out += [one.stamp for one in taken]
        strays += lost
    assert len(out) + strays + gate.holding == len(stamps)
    rest, lost = gate.finish()
    return out + [one.stamp for one in rest], strays + lost


def test_one_stray_stamp_costs_itself_wherever_it_points():
    steady = [i * S // 20 for i in range(100)]
    for stray in (10**18, -(10**18), 90 * S, -2 * S):
        for at in (1, 50, 98):
            assert _taken([*steady[:at], stray, *steady[at:]]) == (steady, 1)


def test_bursts_of_strays_cost_themselves():
    chance = np.random.default_rng(0)
    for _ in range(200):
        stream, strays = [i * S // 20 for i in range(100)], 0
        for at in sorted(chance.choice(range(2, 99), 5, replace=False), reverse=True):
            burst = chance.integers(-(2**31), 2**31, 3) * S
            stream[at:at] = [int(s) for s in burst]
            strays += 3
        taken, lost = _taken(stream)
        assert (taken, lost) == ([i * S // 20 for i in range(100)], strays)
    assert (
        _taken([0, S // 20, S // 10, 110 * S, 110 * S, 3 * S // 20])[1] == 2
    )  # a repeated stamp confirms nothing


def test_a_pause_a_loop_and_a_slow_stream_lose_nothing():
    steady = [i * S // 20 for i in range(100)]
    for stream in (
        steady + [s + 3600 * S for s in steady],
        steady + steady,
        [i * 30 * S for i in range(20)],
        steady + [5 * S + i * 40 * S for i in range(1, 10)],
        [i * S + (200 * S if i > 9 else 0) for i in range(20)],
        [100 * S, *steady],
    ):
        assert _taken(stream) == (stream, 0)


def test_of_two_clocks_on_one_topic_one_is_used():
    a = [i * S // 20 for i in range(200)]
    both = [stamp + shift for stamp in a for shift in (0, -100 * S)]
    assert _taken(both[:-1]) == (a, 199)
