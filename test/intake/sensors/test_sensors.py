"""Each sensor type: its number, its variance, its range, and what a map of it starts from."""

import dataclasses
import math

import numpy as np
import pytest
from intake_messages import drain, field_message, odometry_message, scalar_message

from gp_mapping.intake import Intake, inputs_of
from gp_mapping.intake.columns import Columns
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.sensors.adaptor import make_adaptor
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import AUTOMATIC, MapSettings
from gp_mapping.settings.sensors import SENSOR_TYPES, map_settings_for

# sensor, the message's field, a good value, one out of range
SCALARS = [
    ("temperature", "temperature", 21.5, -300.0),
    ("fluid_pressure", "fluid_pressure", 101325.0, -1.0),
    ("relative_humidity", "relative_humidity", 0.45, 45.0),
    ("illuminance", "illuminance", 300.0, -1.0),
    ("range", "range", 2.5, -0.1),
]


def values_of(settings, *messages, **options):
    intake = Intake(IntakeSettings(**settings))
    for t in range(len(messages) + 1):
        intake.add_odometry(odometry_message(t / 10))
    for message in messages:
        intake.add_measurement(message, **options)
    return intake.take(), intake


@pytest.mark.parametrize("sensor, field, good, bad", SCALARS)
def test_the_number_its_variance_and_its_range(sensor, field, good, bad):
    samples, intake = values_of(
        {"sensor": sensor},
        scalar_message(0.0, **{field: good, "variance": 0.25}),
        scalar_message(0.1, **{field: bad, "variance": 0.0}),
        scalar_message(0.2, **{field: math.nan, "variance": 0.0}),
        scalar_message(0.3, **{field: good, "variance": 0.0}),
    )
    np.testing.assert_array_equal(samples.y[:, 0], [good, good])
    np.testing.assert_array_equal(samples.sensor_variance, [0.25, 0.0])
    assert intake.drops.as_dict() == {"not_finite": 1, "out_of_range": 1}
    assert intake.received == {sensor: 4, "odometry": 5}


@pytest.mark.parametrize("sensor, field, good, bad", [s for s in SCALARS if s[0] != "range"])
def test_a_variance_of_0_or_minus_1_is_unknown_and_another_below_0_is_wrong(
    sensor, field, good, bad
):
    samples, intake = values_of(
        {"sensor": sensor},
        *(
            scalar_message(k / 10, **{field: good, "variance": v})
            for k, v in enumerate((0, -1, -2, 0.25))
        ),
    )
    np.testing.assert_array_equal(samples.sensor_variance, [0.0, 0.0, 0.25])
    assert intake.drops.as_dict() == {"bad_covariance": 1}


def test_variances_of_columns_are_judged_as_those_of_messages():
    adaptor = make_adaptor(IntakeSettings(sensor="temperature"))
    rows = np.zeros(4, [("temperature", "f8"), ("variance", "f8")])
    rows["temperature"], rows["variance"] = 20.0, (0.25, 0.0, -1.0, -2.0)
    read = adaptor.read_columns(Columns(rows, {}))
    assert read.refused == {3: DropReason.BAD_COVARIANCE}
    np.testing.assert_array_equal(read.covariance[:3, 0], [0.25, 0.0, 0.0])


def test_a_range_finder_says_itself_what_it_can_tell():
    messages = [
        scalar_message(t / 10, range=r, min_range=0.2, max_range=4.0)
        for t, r in enumerate((1.0, 0.1, 5.0, math.inf, -math.inf))
    ]  # REP-117: inf is no echo, -inf is too close
    samples, intake = values_of({"sensor": "range"}, *messages)
    assert samples.y.tolist() == [[1.0]] and intake.drops.as_dict() == {
        "not_finite": 2,
        "out_of_range": 2,
    }


@pytest.mark.parametrize("low, high", [(0.0, 0.0), (math.nan, math.nan), (0.2, math.nan)])
def test_a_range_finder_that_does_not_say_it_is_believed(low, high):
    messages = [
        scalar_message(t / 10, range=r, min_range=low, max_range=high)
        for t, r in enumerate((1.0, 2.0, -1.0, math.inf))
    ]
    samples, intake = values_of({"sensor": "range"}, *messages)
    assert samples.y.tolist() == [[1.0], [2.0]]
    assert intake.drops.as_dict() == {"not_finite": 1, "out_of_range": 1}


def test_limits_from_parameters():
    samples, intake = values_of(
        {"sensor": "temperature", "min_value": 10.0, "max_value": 30.0},
        *[scalar_message(t / 10, temperature=v) for t, v in enumerate((5.0, 20.0, 35.0))],
    )
    assert samples.y.tolist() == [[20.0]] and intake.drops.as_dict() == {"out_of_range": 2}
    with pytest.raises(ValueError, match="min_value: 3.0 is above max_value 1.0"):
        IntakeSettings(min_value=3.0, max_value=1.0)


def test_scalars_with_and_without_a_stamp():
    """std_msgs/Float64 has no header: the time it was received or recorded stands in."""
    samples, _ = values_of(
        {"sensor": "scalar"}, scalar_message(None, data=-7), received_ns=100_000_000
    )
    assert samples.y.tolist() == [[-7.0]] and samples.stamp.tolist() == [0.1]
    for name in ("data", "value"):
        samples, _ = values_of(
            {"sensor": "scalar"}, scalar_message(0.1, **{name: 3.5}), received_ns=5
        )
        assert samples.y.tolist() == [[3.5]] and samples.stamp.tolist() == [0.1]
    with pytest.raises(ValueError, match="no header; pass received_ns"):
        Intake(IntakeSettings(sensor="scalar")).add_measurement(scalar_message(None, data=1.0))
    intake = Intake(IntakeSettings(sensor="scalar"))
    intake.add_measurement(scalar_message(0.0, reading=1.0))
    assert "has neither `data` nor `value`" in intake.warnings[0]
    with pytest.raises(ValueError, match="sensor_frame"):
        IntakeSettings(sensor="scalar", mounting="tf")


def test_iron_is_taken_off_before_the_norm():
    """m = A b + h with S = A^-1: the norm is that of b again, and the covariance turns with it."""
    truth, hard = np.array([20e-6, -10e-6, 40e-6]), np.array([5e-6, -3e-6, 8e-6])
    distort = np.array([[1.1, 0.05, 0.0], [0.02, 0.9, 0.1], [0.0, 0.03, 1.0]])
    soft = np.linalg.inv(distort)
    iron = {f"hard_iron_{a}": float(h) for a, h in zip("xyz", hard)}
    iron |= {
        f"soft_iron_{a}{b}": float(soft[i, j])
        for i, a in enumerate("xyz")
        for j, b in enumerate("xyz")
    }
    white = np.diag([1e-14, 2e-14, 3e-14])
    message = field_message(
        0.0, distort @ truth + hard, covariance=(distort @ white @ distort.T).ravel()
    )
    samples, _ = values_of(iron, message)
    np.testing.assert_allclose(samples.y, [[np.linalg.norm(truth)]], rtol=1e-12)
    unit = truth / np.linalg.norm(truth)
    np.testing.assert_allclose(samples.sensor_variance, [unit @ white @ unit], rtol=1e-9)
    samples, _ = values_of(iron | {"field_component": "y"}, message)
    np.testing.assert_allclose(samples.y, [[truth[1]]], rtol=1e-12)
    _, intake = values_of(
        iron | {"field_component": "z", "rotate_field": False},
        field_message(0.0, (math.nan, 0.0, 1e-6)),
    )
    assert intake.drops.as_dict() == {"not_finite": 1}  # soft iron mixes the axes


@pytest.mark.parametrize("rotate", [True, False])
def test_all_three_axes_are_the_axes_one_by_one(rotate):
    """The robot turns between poses; the map's axes do not."""
    rng, turned = (
        np.random.default_rng(2),
        {"rotate_field": rotate, "sensor_yaw": 0.3, "soft_iron_xy": 0.1},
    )
    white = np.diag([1e-14, 2e-14, 3e-14])
    fields = 1e-5 * rng.standard_normal((6, 3))

    def values(component):
        intake = Intake(IntakeSettings(field_component=component, **turned))
        for t in range(8):
            half = 0.2 * t
            intake.add_odometry(
                odometry_message(t / 10, quaternion=(0.0, 0.0, math.sin(half), math.cos(half)))
            )
        for t, field in enumerate(fields):
            intake.add_measurement(field_message(t / 10 + 0.05, field, covariance=white.ravel()))
        return intake.take()

    one, three = [values(axis) for axis in "xyz"], values("xyz")
    assert three.y.shape == (6, 3) and IntakeSettings(field_component="xyz").channels == 3
    np.testing.assert_array_equal(three.y, np.concatenate([samples.y for samples in one], 1))
    np.testing.assert_allclose(
        three.sensor_variance, np.mean([s.sensor_variance.numpy() for s in one], 0), rtol=1e-9
    )
    _, intake = values_of(
        {"field_component": "xyz", "rotate_field": False}, field_message(0.0, (math.nan, 0.0, 1e-6))
    )
    assert intake.drops.as_dict() == {"not_finite": 1}  # each of the three is needed


def test_every_sensor_has_a_type_a_preset_and_an_input():
    assert SENSOR_TYPES is IntakeSettings.__dataclass_fields__["sensor"].metadata["choices"]
    for name, kind in SENSOR_TYPES.items():
        settings = map_settings_for(name, MapSettings())
        assert settings.field_scale == kind.scale and settings.field_unit == kind.shown
        assert all(getattr(settings, start) == 0.0 for start in AUTOMATIC)  # the data tell
        measurement, pose = inputs_of(IntakeSettings(sensor=name))
        assert measurement.messages == kind.messages and pose.topic == "odometry"
    assert map_settings_for("magnetic_field", MapSettings()) == MapSettings()
    assert map_settings_for("temperature", MapSettings()).heading_stddev == 0.0


def test_a_preset_gives_way_to_what_was_set():
    settings = map_settings_for(
        "temperature", MapSettings(signal_stddev=7.0, lengthscale=3.0, field_unit="K")
    )
    assert (settings.signal_stddev, settings.lengthscale, settings.field_unit) == (7.0, 3.0, "K")
    assert settings.noise_stddev == 0.0 and settings.field_scale == 1.0


def test_tf_and_its_static_part_are_inputs_where_they_are_asked_for():
    roles = [
        (i.role, i.topic) for i in inputs_of(IntakeSettings(pose_source="tf", sensor="temperature"))
    ]
    assert roles == [("measurement", "temperature"), ("tf", "/tf"), ("tf_static", "/tf_static")]
    roles = [
        (i.role, i.topic) for i in inputs_of(IntakeSettings(pose_source="pose", mounting="tf"))
    ]
    assert roles == [
        ("measurement", "magnetic_field"),
        ("pose", "pose"),
        ("tf", "/tf"),
        ("tf_static", "/tf_static"),
    ]


@pytest.mark.parametrize("sensor, field, good, bad", SCALARS)
def test_a_map_of_each_sensor_finds_its_field(sensor, field, good, bad):
    """A gradient along x, driven there and back on two lanes, is found to within a tenth of its size."""
    change = 0.1 * good  # a metre
    session = MapSession(
        dataclasses.replace(map_settings_for(sensor, MapSettings()), max_inducing=60)
    )
    intake = Intake(IntakeSettings(sensor=sensor))
    for i in range(300):
        t, x = i / 20, abs((i / 50) % 4 - 2)
        intake.add_odometry(odometry_message(t, (x, 0.3 * (i > 150), 0.0)))
        intake.add_measurement(scalar_message(t, **{field: good + change * (x - 1.0)}))
    for _, samples in intake.batches(finish=True):
        session.ingest(samples)
    session.flush()
    assert len(drain(intake)[0]) == 0 and intake.drops.total == 0
    mean = session.predict([[0.5, 0.15], [1.5, 0.15]]).mean[:, 0]
    np.testing.assert_allclose(mean, good + change * np.array([-0.5, 0.5]), atol=0.1 * change)
