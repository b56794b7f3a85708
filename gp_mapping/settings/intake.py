"""Settings of the intake: from messages to samples."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gp_mapping.errors import named
from gp_mapping.settings.fields import FULL_TURN, check_settings, setting
from gp_mapping.settings.sensors import SENSOR_TYPES

__all__ = ["POSE_SOURCES", "IntakeSettings"]

POSE_SOURCES = ("odometry", "pose", "pose_with_covariance", "tf")
# names and numbers with dots between them; after each, in brackets, what a field has to read
_NAME, _CHOICE = r"[^.\[\]]+", r"(\[[^.\[\]=]+=[^\[\]]+\])?"
_VALUE_FIELD = re.compile(rf"{_NAME}{_CHOICE}(\.{_NAME}{_CHOICE})*")


@dataclass(frozen=True)
class IntakeSettings:
    """Which sensor and which poses, how the two are paired, and what is refused.

    Raises:
        ValueError: a wrong type, range or choice, or values that do not go together.
    """

    sensor: str = setting(
        "magnetic_field",
        "what is mapped; with another sensor the settings of the map that are in "
        "its unit, where they still are those of a magnetic field, become that sensor's",
        choices=SENSOR_TYPES,
    )
    pose_source: str = setting(
        "odometry",
        "where poses come from: nav_msgs/Odometry, geometry_msgs/PoseStamped, "
        "PoseWithCovarianceStamped, or TF",
        choices=POSE_SOURCES,
    )

    # values: what is taken of a measurement, and what is refused
    field_component: str = setting(
        "norm",
        "what is mapped of a magnetic field: its norm, one axis in the map's "
        "frame, or all three as one map",
        choices=("norm", "x", "y", "z", "xyz"),
    )
    rotate_field: bool = setting(
        True,
        "turn the axes by sensor rotation and pose before taking x, y, z or xyz; false "
        "where the message is in the map's axes already",
    )
    value_field: str = setting(
        "",
        "with sensor scalar: the field of its messages that is mapped, nested ones with dots, "
        "elements of arrays by their number or by what a field of theirs reads, and of messages "
        "that take turns those of which a field reads so (voltage, readings.0.value, "
        "gases[name=CO2].ppm, rssi[ssid=hall]); empty: data, or value",
    )
    max_field: float = setting(
        1e-2, "a magnetic field beyond this is dropped (the earth's is 5e-5 T)", "SI", 1e-15, 1e9
    )
    min_value: float = setting(
        0.0,
        "a value of another sensor below this is dropped; with max_value also 0: the "
        "sensor's own range",
        "SI",
        -1e15,
        1e15,
    )
    max_value: float = setting(
        0.0,
        "a value of another sensor above this is dropped; with min_value also 0: the "
        "sensor's own range",
        "SI",
        -1e15,
        1e15,
    )

    # iron of a magnetometer
    hard_iron_x: float = setting(
        0.0,
        "what the robot itself adds to the field along the sensor's x; `gp-mapping "
        "calibrate` finds it, and those that follow",
        "T",
        -1.0,
        1.0,
    )
    hard_iron_y: float = setting(
        0.0, "what the robot itself adds to the field along the sensor's y", "T", -1.0, 1.0
    )
    hard_iron_z: float = setting(
        0.0, "what the robot itself adds to the field along the sensor's z", "T", -1.0, 1.0
    )
    soft_iron_xx: float = setting(
        1.0,
        "corrected field = soft iron matrix (measured field - hard iron); its first row",
        "",
        -100.0,
        100.0,
    )
    soft_iron_xy: float = setting(0.0, "soft iron matrix, first row", "", -100.0, 100.0)
    soft_iron_xz: float = setting(0.0, "soft iron matrix, first row", "", -100.0, 100.0)
    soft_iron_yx: float = setting(0.0, "soft iron matrix, second row", "", -100.0, 100.0)
    soft_iron_yy: float = setting(1.0, "soft iron matrix, second row", "", -100.0, 100.0)
    soft_iron_yz: float = setting(0.0, "soft iron matrix, second row", "", -100.0, 100.0)
    soft_iron_zx: float = setting(0.0, "soft iron matrix, third row", "", -100.0, 100.0)
    soft_iron_zy: float = setting(0.0, "soft iron matrix, third row", "", -100.0, 100.0)
    soft_iron_zz: float = setting(1.0, "soft iron matrix, third row", "", -100.0, 100.0)

    # pairing with poses
    stamp_offset: float = setting(
        0.0,
        "how much later the stamps of measurements are than those of poses, as far as it is known "
        "(two clocks, a hose): each measurement has the pose of its stamp less this, exactly; what is "
        "left is time_offset",
        "s",
        -4e9,
        4e9,
    )
    max_wait: float = setting(
        2.0,
        "a measurement is dropped where later ones are this much newer and its pose has "
        "still not come",
        "s",
        0.0,
        3600.0,
    )
    max_pose_gap: float = setting(
        0.5,
        "no interpolation between poses (with TF: transforms of one link) further apart in time",
        "s",
        1e-3,
        3600.0,
    )
    max_extrapolation: float = setting(
        0.0, "how far outside the known poses a position may be continued", "s", 0.0, 10.0
    )
    max_position: float = setting(
        1e7,
        "a pose with a coordinate beyond this is dropped: no robot is there (UTM "
        "northings stay below 1e7)",
        "m",
        1.0,
        1e8,
    )
    max_speed: float = setting(
        0.0,
        "a pose that the robot could not have reached at this speed from the one before is "
        "dropped; 0: any",
        "m/s",
        0.0,
        1e5,
    )

    # what is taken from a pose
    use_pose_covariance: bool = setting(
        True,
        "what is uncertain of a pose makes its measurements count less where "
        "the field is steep; false where covariances are placeholders",
    )
    use_heading: bool = setting(
        True,
        "the orientation of the poses says where the robot looks; false where it is a "
        "placeholder: the direction of travel then stands in",
    )

    # passes and time
    pass_gap: float = setting(
        2.0,
        "a pause between samples after which a new pass begins; of a sensor that is slower, "
        "four of its own periods",
        "s",
        1e-3,
        3600.0,
    )
    jump_back: float = setting(
        1.0,
        "stamps that go back by more are a time jump (a bag that loops); by less, they are "
        "out of order: later messages wait for them, by max_wait / 2 at most",
        "s",
        1e-3,
        3600.0,
    )

    # queues
    queue_size: int = setting(1000, "bound of the measurements waiting for a pose", "", 1, 1000000)
    pose_buffer_size: int = setting(
        5000,
        "bound of the poses kept for late measurements (with TF: of each link)",
        "",
        2,
        1000000,
    )

    # frames
    odometry_frame: str = setting(
        "",
        "frame that poses must be in; empty: that of the first. With TF: the frame to "
        "map in; empty: map",
    )
    fix_topic: str = setting(
        "",
        "topic of a satellite receiver (sensor_msgs/NavSatFix), whose fixes tell where on the "
        "earth the map lies; empty: none",
    )
    base_frame: str = setting(
        "base_link", "frame of the robot's body, for TF (odometry names its own)"
    )
    sensor_frame: str = setting("", "frame that measurements must be in; empty: that of the first")

    # where the sensor sits on the robot
    mounting: str = setting(
        "parameters",
        "where the sensor sits on the robot: the parameters sensor_..., or TF from "
        "base_frame to the frame of the measurements",
        choices=("parameters", "tf"),
    )
    sensor_offset_x: float = setting(
        0.0, "position of the sensor in the base frame, forward", "m", -100.0, 100.0
    )
    sensor_offset_y: float = setting(
        0.0, "position of the sensor in the base frame, left", "m", -100.0, 100.0
    )
    sensor_offset_z: float = setting(
        0.0, "position of the sensor in the base frame, up", "m", -100.0, 100.0
    )
    sensor_roll: float = setting(
        0.0, "rotation of the sensor in the base frame about x", "rad", -FULL_TURN, FULL_TURN
    )
    sensor_pitch: float = setting(
        0.0, "rotation of the sensor in the base frame about y", "rad", -FULL_TURN, FULL_TURN
    )
    sensor_yaw: float = setting(
        0.0, "rotation of the sensor in the base frame about z", "rad", -FULL_TURN, FULL_TURN
    )

    @property
    def channels(self) -> int:
        """Count of numbers in one measurement: 3 for all axes of a magnetic field, else 1."""
        return 3 if (self.sensor, self.field_component) == ("magnetic_field", "xyz") else 1

    @property
    def quantity(self) -> str:
        """What is measured: the sensor, and its component or field where that is chosen."""
        part = self.field_component if self.sensor == "magnetic_field" else self.value_field
        return f"{self.sensor}, {part}" if part else self.sensor

    def __post_init__(self):
        check_settings(self)

        if self.min_value > self.max_value:
            raise ValueError(
                f"min_value: {self.min_value!r} is above max_value {self.max_value!r}; write both, "
                "the lower one as min_value, or 0 for both to have the sensor's own range"
            )

        if self.value_field and self.sensor != "scalar":
            raise ValueError(
                f"value_field: {named(self.value_field)} is of sensor 'scalar', and sensor {self.sensor!r} knows "
                "its own field; leave one of them out"
            )

        if self.value_field and not _VALUE_FIELD.fullmatch(self.value_field):
            raise ValueError(
                f"value_field: {named(self.value_field)} has an empty part, or brackets that do not choose; expected "
                "for example 'wifi.rssi', 'gases[name=CO2].ppm' or 'rssi[ssid=hall]'"
            )

        if self.sensor == "scalar" and self.mounting == "tf" and not self.sensor_frame:
            raise ValueError(
                "sensor_frame: '' names no frame; mounting 'tf' needs it for sensor 'scalar', whose "
                "messages need not carry one, for example 'gas_sensor'"
            )
