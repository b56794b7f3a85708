"""Settings of the road from messages to samples."""

from __future__ import annotations

from dataclasses import dataclass

from gp_mapping.core.config import check_settings, setting

__all__ = ["IntakeSettings"]


@dataclass(frozen=True)
class IntakeSettings:
    """How measurements and poses are paired, and what is refused."""

    field_component: str = setting("norm", "what is mapped: the field's norm, or one axis in the map's frame",
                                   choices=("norm", "x", "y", "z"))
    rotate_field: bool = setting(True, "turn the axes by sensor rotation and pose before taking x, y or z; false where "
                                 "the message is in the map's axes already")
    max_field: float = setting(1e-2, "a measurement beyond this is dropped (the earth's field is 5e-5 T)",
                               "SI", 1e-15, 1e9)
    max_wait: float = setting(2.0, "a measurement is dropped where later ones are this much newer and its pose has "
                              "still not come", "s", 0.0, 3600.0)
    max_pose_gap: float = setting(0.5, "no interpolation between poses further apart in time", "s", 1e-3, 3600.0)
    max_extrapolation: float = setting(0.0, "how far outside the known poses a position may be continued",
                                       "s", 0.0, 10.0)
    pass_gap: float = setting(2.0, "a pause between samples after which a new pass begins", "s", 1e-3, 3600.0)
    jump_back: float = setting(1.0, "stamps that go back by more are a time jump (a bag that loops); by less, they are "
                               "dropped as out of order", "s", 1e-3, 3600.0)
    queue_size: int = setting(1000, "bound of the measurements waiting for a pose", "", 1, 1000000)
    pose_buffer_size: int = setting(5000, "bound of the poses kept for late measurements", "", 2, 1000000)
    odometry_frame: str = setting("", "frame that poses must be in; empty: that of the first")
    sensor_frame: str = setting("", "frame that measurements must be in; empty: that of the first")
    sensor_offset_x: float = setting(0.0, "position of the sensor in the base frame, forward", "m", -100.0, 100.0)
    sensor_offset_y: float = setting(0.0, "position of the sensor in the base frame, left", "m", -100.0, 100.0)
    sensor_offset_z: float = setting(0.0, "position of the sensor in the base frame, up", "m", -100.0, 100.0)
    sensor_roll: float = setting(0.0, "rotation of the sensor in the base frame about x", "rad", -6.3, 6.3)
    sensor_pitch: float = setting(0.0, "rotation of the sensor in the base frame about y", "rad", -6.3, 6.3)
    sensor_yaw: float = setting(0.0, "rotation of the sensor in the base frame about z", "rad", -6.3, 6.3)

    def __post_init__(self):
        check_settings(self)
