"""Launch arguments: those of every launch file that starts a mapper, and their values.

Like launching.py it needs launch, so nothing but launch files imports it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

__all__ = [
    "argument",
    "common_arguments",
    "existing_path",
    "flag",
    "names",
    "number",
    "value",
]

TRUE_FALSE = ("true", "false")


def argument(
    name: str, default: str | None, description: str, choices=None
) -> DeclareLaunchArgument:
    """A launch argument with its description, which ros2 launch … --show-args prints.

    Args:
        name: Of the argument.
        default: None where the argument must be given.
        description: What it means.
        choices: The values that are allowed; None allows any.
    """
    return DeclareLaunchArgument(
        name,
        default_value=default,
        description=description,
        choices=None if choices is None else list(choices),
    )


def common_arguments(share: Path, *, several: bool = False) -> list[DeclareLaunchArgument]:
    """The arguments of every launch file that starts a mapper.

    Args:
        share: The folder that holds config/ and rviz/.
        several: Of more than one mapper, each in a namespace of its own.
    """
    # imported here, since a launch that only shows its arguments does not need them
    from gp_mapping.settings.intake import POSE_SOURCES
    from gp_mapping.settings.sensors import SENSOR_TYPES

    as_in_params = "; empty: as in params"
    return [
        argument(
            "params",
            "",
            "parameter file of the mapper; empty: the defaults, as in config/mapping.yaml",
        ),
        argument(
            "model",
            "",
            "the map's model, over what params says; its file in config/models comes before params",
            ["", *_models(share)],
        ),
        *(
            []
            if several
            else [argument("namespace", "", "namespace of the node and of its relative topics")]
        ),
        argument("sensor", "", f"what is mapped{as_in_params}", ["", *SENSOR_TYPES]),
        argument("sensor_topic", "", "where that sensor's messages are; empty: the sensor's name"),
        argument(
            "pose_source",
            "",
            f"where the robot's pose comes from{as_in_params}",
            ["", *POSE_SOURCES],
        ),
        argument("pose_topic", "", "PoseStamped or PoseWithCovarianceStamped; empty: pose"),
        argument(
            "map_topic",
            "",
            "nav_msgs/OccupancyGrid with the free space, for suggestions; empty: map",
        ),
        argument("map_frame", "", f"frame of everything published{as_in_params}"),
        argument("base_frame", "", f"frame of the robot's body, for TF{as_in_params}"),
        argument(
            "namespaced_tf",
            "false",
            "true: TF is on tf and tf_static of the namespace, as with nav2's "
            "multi-robot bringup, not on /tf and /tf_static",
            TRUE_FALSE,
        ),
        argument("load_checkpoint", "", f"map.gpm to go on from{as_in_params}"),
        argument(
            "save_on_exit",
            "",
            f"true saves the map when the node ends{as_in_params}",
            ["", *TRUE_FALSE],
        ),
        argument(
            "resume",
            "",
            "true goes on from the newest saved map or autosave; empty: as in params",
            ["", *TRUE_FALSE],
        ),
        argument(
            "respawn",
            "false",
            "start a mapper that has crashed again, to go on from its autosave (resume)",
            TRUE_FALSE,
        ),
        argument(
            "autostart",
            "",
            "false leaves configure and activate to a lifecycle manager; empty: as in params",
            ["", *TRUE_FALSE],
        ),
    ]


def _models(share: Path) -> list[str]:
    """Names of models: those with a file in config/models, and those of other packages."""
    from importlib.metadata import entry_points

    named = {path.stem for path in (share / "config" / "models").glob("*.yaml")}
    return sorted(named | {entry.name for entry in entry_points(group="gp_mapping.models")})


def value(context, name: str) -> str:
    """The text of a launch argument; '' where this launch file does not have it.

    Args:
        context: Of the launch.
        name: Of the argument.
    """
    return LaunchConfiguration(name, default="").perform(context).strip()


def flag(context, name: str) -> bool:
    """A launch argument that is true or false.

    Args:
        context: Of the launch.
        name: Of the argument.

    Raises:
        RuntimeError: It is something else.
    """
    text = value(context, name).lower()
    if text not in TRUE_FALSE:
        raise RuntimeError(f"{name}:={text} is neither true nor false")
    return text == "true"


def number(context, name: str, low: float, high: float) -> float:
    """A launch argument that is a number.

    Args:
        context: Of the launch.
        name: Of the argument.
        low: The least that is allowed.
        high: The largest that is allowed.

    Raises:
        RuntimeError: It is no number, or not from low to high.
    """
    text = value(context, name)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not low <= found <= high:
        raise RuntimeError(f"{name}:={text} is not a number from {low:g} to {high:g}")
    return found


def existing_path(context, name: str) -> str:
    """A launch argument that is a file or folder.

    Args:
        context: Of the launch.
        name: Of the argument.

    Raises:
        RuntimeError: It does not exist.
    """
    text = value(context, name)
    if not text or not Path(text).expanduser().exists():
        raise RuntimeError(f"{name}:={text}: there is no such file or folder")
    return str(Path(text).expanduser())


def names(context, name: str) -> list[str]:
    """A launch argument that lists namespaces, as a,b.

    Args:
        context: Of the launch.
        name: Of the argument.

    Raises:
        RuntimeError: A part is no name, or comes twice.
    """
    found = [part.strip().strip("/") for part in value(context, name).split(",")]
    wrong = [part for part in found if not re.fullmatch(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*", part)]

    if wrong or len(set(found)) < len(found):
        raise RuntimeError(
            f"{name}:={value(context, name)}: expected different names such as {name}:=robot1,robot2"
        )
    return found
