"""The sensor types: messages, unit, valid range and starts, known before the first message.

For a sensor of your own publish std_msgs/Float64 (or any message with `data` or `value`, better
with a header, too) and set `sensor: scalar`, or register a SensorType.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.parts import LIKELIHOODS, METRIC, MODELS, VECTOR, Part, Parts

if TYPE_CHECKING:
    from gp_mapping.settings.intake import IntakeSettings

__all__ = ["SENSOR_TYPES", "SensorType", "check_model", "map_settings_for", "register_sensor"]


@dataclass(frozen=True)
class SensorType:
    """What is known of a sensor type before its first message.

    Attributes:
        messages: ROS type names.
        value: field of a message that holds the number; None: a vector, which needs an adaptor.
        unit: of the messages, and so of the map.
        low: smallest valid value, in `unit`, inclusive.
        high: largest valid value, in `unit`, inclusive.
        scale: one display unit in `unit`.
        shown: name of the display unit.
        signal: start of the map's signal_stddev, in `unit`; 0: from the first cells.
        noise: start of its noise_stddev, in `unit`; 0: from the first cells.
        constant: start of its constant_stddev, in `unit`; 0: from the first cells.
        adaptor: what makes an Adaptor from IntakeSettings, or where it is ("module:name"); None: a
            message holds one number.
        may_lag: whether it may follow the field slowly, so that response_time is learned.
    """

    messages: tuple[str, ...]
    value: str | None
    unit: str
    low: float
    high: float
    scale: float
    shown: str
    signal: float = 0.0
    noise: float = 0.0
    constant: float = 0.0
    adaptor: Callable | str | None = None
    may_lag: bool = False

    def preset(self) -> dict[str, object]:
        """Return the fields of MapSettings that are in the sensor's unit.

        A scalar does not turn with the robot: heading_stddev is 0.
        """
        return {
            "field_scale": self.scale,
            "field_unit": self.shown,
            "signal_stddev": self.signal,
            "noise_stddev": self.noise,
            "constant_stddev": self.constant,
            "heading_stddev": 0.0,
            "learn_response_time": "always" if self.may_lag else "never",
        }


_MAP: dict[str, Any] = {f.name: f.default for f in fields(MapSettings)}
SENSOR_TYPES = Parts(
    "sensor",
    {
        name: Part(kind)
        for name, kind in {
            "magnetic_field": SensorType(
                ("sensor_msgs/msg/MagneticField",),
                None,
                "T",
                -math.inf,
                math.inf,
                _MAP["field_scale"],
                _MAP["field_unit"],
                adaptor="gp_mapping.intake.sensors.magnetic:MagneticField",
            ),
            "temperature": SensorType(
                ("sensor_msgs/msg/Temperature",),
                "temperature",
                "°C",
                -273.15,
                1e4,
                1.0,
                "°C",
                may_lag=True,
            ),
            "fluid_pressure": SensorType(
                ("sensor_msgs/msg/FluidPressure",), "fluid_pressure", "Pa", 0.0, 1e9, 1.0, "Pa"
            ),
            "relative_humidity": SensorType(
                ("sensor_msgs/msg/RelativeHumidity",),
                "relative_humidity",
                "1",
                0.0,
                1.0,
                0.01,
                "%",
                may_lag=True,
            ),
            "illuminance": SensorType(
                ("sensor_msgs/msg/Illuminance",), "illuminance", "lx", 0.0, 1e6, 1.0, "lx"
            ),
            "range": SensorType(("sensor_msgs/msg/Range",), "range", "m", 0.0, 1e6, 1.0, "m"),
            "scalar": SensorType(
                ("std_msgs/msg/Float64", "std_msgs/msg/Float32"),
                "data",
                "",
                -1e15,
                1e15,
                1.0,
                "units",
                may_lag=True,
            ),
        }.items()
    },
)


def register_sensor(name: str, kind: SensorType) -> None:
    """Make a sensor of your own known.

    Args:
        name: that the setting `sensor` then takes.
        kind: what is known of it.

    Raises:
        ValueError: the name is taken, or is no word.
    """
    SENSOR_TYPES.register(name, Part(kind))


def check_model(intake: IntakeSettings, settings: MapSettings) -> None:
    """Check that the model and the likelihood can map what the intake delivers.

    Args:
        intake: how many channels come.
        settings: which model and likelihood take them.

    Raises:
        ValueError: the model takes three channels and gets one, or the likelihood one and gets
            three.
    """
    if MODELS.has(settings.model, VECTOR) and intake.channels != 3:
        raise ValueError(
            f"model: {settings.model!r} maps all three axes of a magnetic field; write field_component: "
            "xyz"
        )

    if settings.response_time and intake.channels != 1:
        raise ValueError(
            f"response_time: {settings.response_time:g} is of one number in a measurement, and "
            f"field_component: xyz gives three; write response_time: 0.0"
        )

    if not LIKELIHOODS.has(settings.likelihood, METRIC) and intake.channels != 1:
        raise ValueError(
            f"likelihood: {settings.likelihood!r} is of one number in a measurement, and field_component: "
            "xyz gives three; write norm, x, y or z"
        )


def map_settings_for(sensor: str, settings: MapSettings) -> MapSettings:
    """Return the settings of a map of this sensor.

    What is in the sensor's unit and still has a magnetic field's default becomes the sensor's own:
    a copy of config/mapping.yaml in which only `sensor` was changed maps degrees, not microtesla.
    """
    preset = SENSOR_TYPES[sensor].preset() if sensor != "magnetic_field" else {}
    return replace(
        settings,
        **{name: value for name, value in preset.items() if getattr(settings, name) == _MAP[name]},
    )
