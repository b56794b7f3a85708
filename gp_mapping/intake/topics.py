"""Topics and message types that an intake with given settings listens to.

A node and a reader of bags use them alike.
"""

from __future__ import annotations

from typing import NamedTuple

from gp_mapping.intake.fixes import FIX, ROLE
from gp_mapping.intake.poses.messages import POSE_MESSAGES, TF_MESSAGE
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.sensors import SENSOR_TYPES

__all__ = ["Input", "feed", "inputs_of"]


class Input(NamedTuple):
    """One input of an intake.

    Attributes:
        role: measurement, pose, tf, tf_static or fix.
        topic: its usual topic. Relative, but for TF, whose topics are always the same, and for
            fixes, whose topic is as the setting has it.
        messages: the ROS types that it may have.
    """

    role: str
    topic: str
    messages: tuple[str, ...]


def inputs_of(settings: IntakeSettings) -> tuple[Input, ...]:
    """All inputs of an intake.

    The measurement comes first, then the poses, then TF and fixes where the settings ask for them.
    """
    sensor = settings.sensor
    out = [Input("measurement", sensor, SENSOR_TYPES[sensor].messages)]

    if settings.pose_source != "tf":
        topic = "odometry" if settings.pose_source == "odometry" else "pose"
        out.append(Input("pose", topic, (POSE_MESSAGES[settings.pose_source],)))

    if "tf" in (settings.pose_source, settings.mounting):
        out += [Input("tf", "/tf", (TF_MESSAGE,)), Input("tf_static", "/tf_static", (TF_MESSAGE,))]

    if settings.fix_topic:
        out.append(Input(ROLE, settings.fix_topic, (FIX,)))

    return tuple(out)


def feed(intake, role: str, message, received_ns: int, posed: int | None = None) -> None:
    """Hand a message to an intake by the role of its input.

    Args:
        intake: takes the message.
        role: as `inputs_of` names it.
        message: what came.
        received_ns: when it was received or recorded, ns; stands in for a stamp that it lacks.
        posed: as in Intake.add_measurement.
    """
    if role == "measurement":
        intake.add_measurement(message, received_ns, posed)
    elif role == "pose":
        intake.add_pose_message(message)
    elif role == ROLE:
        intake.add_fix(message)
    else:
        intake.add_tf(message, static=role == "tf_static")
