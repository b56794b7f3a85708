"""What the launch files share. Needs launch_ros, so nothing else imports it."""

from __future__ import annotations

import atexit
import logging
import math
import os
import re
import sys
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

__all__ = [
    "argument",
    "chosen",
    "common_arguments",
    "ends_the_launch",
    "existing",
    "fixed_frame",
    "flag",
    "input_topics",
    "mapping_actions",
    "names",
    "number",
    "our_node",
    "patience",
    "rviz_actions",
    "tf_remappings",
    "value",
]

PATIENCE = "30"  # s
TRUE_FALSE = ("true", "false")

# Launch arguments that are parameters of the node, too: empty leaves what the parameter files say.
TEXTS = (
    "model",
    "sensor",
    "pose_source",
    "save_directory",
    "load_checkpoint",
    "map_frame",
    "base_frame",
)
FLAGS = ("autostart", "resume", "save_on_exit")


# ---- arguments -----------------------------------------------------------------------------------


def argument(
    name: str, default: str | None, description: str, choices=None
) -> DeclareLaunchArgument:
    """A launch argument with its meaning (ros2 launch … --show-args). default None: it must be given."""
    return DeclareLaunchArgument(
        name,
        default_value=default,
        description=description,
        choices=None if choices is None else list(choices),
    )


def common_arguments(share: Path, *, several: bool = False) -> list[DeclareLaunchArgument]:
    """Arguments of every launch file that starts a mapper. several: of more than one, in namespaces of their own."""
    from gp_mapping.settings.intake import (
        POSE_SOURCES,
    )  # not above: a launch that only shows its arguments needs none
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
    """Names of models: those with a file in config/models, and those that other packages register."""
    from importlib.metadata import entry_points

    named = {path.stem for path in (share / "config" / "models").glob("*.yaml")}
    return sorted(named | {entry.name for entry in entry_points(group="gp_mapping.models")})


def value(context, name: str) -> str:
    """The text of a launch argument; empty where this launch file does not have it."""
    return LaunchConfiguration(name, default="").perform(context).strip()


def flag(context, name: str) -> bool:
    """A launch argument that is true or false; RuntimeError for anything else."""
    text = value(context, name).lower()
    if text not in TRUE_FALSE:
        raise RuntimeError(f"{name}:={text} is neither true nor false")
    return text == "true"


def number(context, name: str, low: float, high: float) -> float:
    """A launch argument that is a number from low to high; RuntimeError with its name for anything else."""
    text = value(context, name)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not low <= found <= high:
        raise RuntimeError(f"{name}:={text} is not a number from {low:g} to {high:g}")
    return found


def existing(context, name: str) -> str:
    """A launch argument that is a file or folder; RuntimeError where there is none of that name."""
    text = value(context, name)
    if not text or not Path(text).expanduser().exists():
        raise RuntimeError(f"{name}:={text}: there is no such file or folder")
    return str(Path(text).expanduser())


def names(context, name: str) -> list[str]:
    """A launch argument that lists namespaces: a,b. RuntimeError where one is no name or comes twice."""
    found = [part.strip().strip("/") for part in value(context, name).split(",")]
    wrong = [part for part in found if not re.fullmatch(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*", part)]
    if wrong or len(set(found)) < len(found):
        raise RuntimeError(
            f"{name}:={value(context, name)}: expected different names such as {name}:=robot1,robot2"
        )
    return found


# ---- processes -----------------------------------------------------------------------------------


def our_node(executable: str, **options) -> Node:
    """A node of this package: from lib/gp_mapping of a workspace, else (pip, source tree) with the running Python.

    Node(package=…) looks in lib/<package> only, where pip puts nothing. Ctrl-C gives it time to take in its queue and
    save before launch sends SIGTERM (which drops the queue) and SIGKILL: its own 5 s and 10 s are too short for a map.
    """
    options |= {"output": "screen", "sigterm_timeout": PATIENCE, "sigkill_timeout": PATIENCE}
    try:
        found = (
            Path(get_package_prefix("gp_mapping")) / "lib" / "gp_mapping" / executable
        ).exists()
    except (PackageNotFoundError, OSError):  # OSError: no ROS installation is sourced
        found = False
    if found:
        return Node(package="gp_mapping", executable=executable, **options)
    return Node(
        executable=sys.executable, arguments=["-m", f"gp_mapping.ros.{executable}"], **options
    )


def ends_the_launch(node: Node, what: str) -> list:
    """The node, and the end of the whole launch, with its exit code, where it fails; one that is done may end.

    what: the node in words, for the message.
    """

    def look(event, context):
        if context.is_shutdown or event.returncode == 0:
            return None
        message = f"{what} ended with exit code {event.returncode}: the launch ends with it"
        return [OpaqueFunction(function=lambda _: _fail(message, event.returncode))]

    return [RegisterEventHandler(OnProcessExit(target_action=node, on_exit=look)), node]


def _fail(message: str, code: int) -> None:
    """launch ends in order after an exception, and returns 1; the code of the process is put in its place."""
    if (
        "pytest" not in sys.modules and "launch_testing" not in sys.modules
    ):  # there launch is a guest

        def leave():
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(
                code if code > 0 else 128 - code
            )  # -11: ended by signal 11, which a shell calls 139

        atexit.register(leave)
    raise RuntimeError(message)


def mapping_actions(
    context,
    share: Path,
    *,
    use_sim_time: bool,
    extra: dict | None = None,
    namespace: str | None = None,
    required: bool = False,
    frame: str = "",
    executable: str = "mapping_node",
) -> list:
    """mapping_node and, if asked, RViz, from the launch arguments.

    Args:
        context: of the launch.
        share: the folder that holds config/ and rviz/.
        use_sim_time: time from /clock.
        extra: parameters on top of everything else.
        namespace: in place of the argument of that name.
        required: a mapper that fails, and is not started again, ends the launch.
        frame: of the map, for RViz, where the launch file knows it and the arguments do not say it.
        executable: mapping_node or fusion_node.
    """
    namespace = value(context, "namespace") if namespace is None else namespace
    again = {"respawn": True, "respawn_delay": 2.0} if flag(context, "respawn") else {}
    mapper = our_node(
        executable,
        name=executable.removesuffix("_node"),
        namespace=namespace,
        remappings=_remappings(context),
        parameters=[
            *_files(context, share),
            {"use_sim_time": use_sim_time},
            *_settings(context),
            *([{"resume": True}] if again else []),
            *([extra] if extra else []),
        ],
        **again,
    )
    made = ends_the_launch(mapper, "the mapper") if required and not again else [mapper]
    return [*made, *rviz_actions(context, share, namespace, use_sim_time, frame)]


# ---- what the mapper is told ---------------------------------------------------------------------


def _files(context, share: Path) -> list[str]:
    """Parameter files, later ones win: what the model likes, what the user has written.

    Not config/mapping.yaml: it holds the defaults, and what is given explicitly counts over a saved map's own.
    """
    model = share / "config" / "models" / f"{value(context, 'model')}.yaml"
    out = [str(model)] if model.is_file() else []
    if value(context, "params"):
        if not Path(value(context, "params")).is_file():  # launch would start the node without it
            raise RuntimeError(f"params:={value(context, 'params')}: there is no such file")
        out.append(value(context, "params"))
    return out


def _settings(context) -> list[dict]:
    """Single parameters that have a launch argument of their own; an empty one leaves what the files say."""
    out: dict = {name: value(context, name) for name in TEXTS if value(context, name)}
    out |= {name: flag(context, name) for name in FLAGS if value(context, name)}
    return [out] if out else []


def chosen(context, share: Path, name: str):
    """A parameter as the mapper will have it: from its launch argument, else from the files, else its default."""
    from gp_mapping.settings.build import KNOWN, read_parameter_file

    found = KNOWN[name].default
    for path in _files(context, share):
        try:
            found = read_parameter_file(path).get(name, found)
        except ValueError as error:
            raise RuntimeError(f"params:={path}: {error}") from error
    return value(context, name) or found


def patience(context, share: Path, rate: float) -> dict:
    """max_wait, which counts the time of the stamps, for a mapper that is fed `rate` times as fast as real time.

    A message that is late by a moment of wall time is late by `rate` such moments of recorded time.
    """
    return {"max_wait": min(3600.0, float(chosen(context, share, "max_wait")) * max(1.0, rate))}


def _remappings(context) -> list[tuple[str, str]]:
    """Input names of the node to topics. Of those of all sensors and poses it has just the ones that it was set to."""
    inputs = {
        "magnetic_field": "magnetic_field_topic",
        "odometry": "odometry_topic",
        "map": "map_topic",
    }
    if value(context, "sensor_topic"):
        from gp_mapping.settings.sensors import SENSOR_TYPES

        inputs |= dict.fromkeys(SENSOR_TYPES, "sensor_topic")
    if value(context, "pose_topic"):
        inputs |= {"pose": "pose_topic"}
    out = [(name, value(context, given)) for name, given in inputs.items() if value(context, given)]
    return out + tf_remappings(context)


def tf_remappings(context) -> list[tuple[str, str]]:
    """TF into the namespace, where the argument namespaced_tf says so."""
    return [("/tf", "tf"), ("/tf_static", "tf_static")] if flag(context, "namespaced_tf") else []


def input_topics(context, share: Path) -> list[str]:
    """Where the mapper of no namespace listens for measurements and poses, as its arguments and files say."""
    sensor, source = chosen(context, share, "sensor"), chosen(context, share, "pose_source")
    renamed = dict(_remappings(context))
    pose = {"odometry": "odometry", "tf": "/tf"}.get(source, "pose")
    return ["/" + renamed.get(name, name).lstrip("/") for name in (sensor, pose)]


# ---- RViz ----------------------------------------------------------------------------------------


def rviz_actions(context, share: Path, namespace: str, use_sim_time: bool, frame: str = "") -> list:
    """RViz with our view; argument rviz: true, false, or auto (where it is installed). frame: of the map, if known."""
    wanted = value(context, "rviz").lower()
    if wanted not in ("true", "false", "auto"):
        raise RuntimeError(f"rviz:={wanted} is not one of true, false, auto")
    if wanted == "false":
        return []
    spoken = f" --namespace {namespace.strip('/')}" if namespace.strip("/") else ""
    try:
        get_package_prefix("rviz2")
    except (PackageNotFoundError, OSError):
        if wanted == "true":
            raise RuntimeError(
                "rviz:=true, but rviz2 is not installed; install it (apt: ros-jazzy-rviz2) or leave "
                "rviz:=false"
            ) from None
        return [LogInfo(msg=f"rviz2 is not installed; to see the map: gp-mapping view{spoken}")]
    prefix = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    view = share / "rviz" / "mapping.rviz"
    topics = sorted(
        set(re.findall(r"/mapping/\w+", view.read_text(encoding="utf-8")))
    )  # what it shows of ours
    renamed = [(name, f"{prefix}{name}") for name in topics] if prefix else []
    renamed.append(("/odometry", value(context, "odometry_topic") or f"{prefix}/odometry"))
    return [
        Node(
            package="rviz2",
            executable="rviz2",
            namespace=namespace,
            parameters=[{"use_sim_time": use_sim_time}],
            remappings=renamed + tf_remappings(context),
            output="log",
            arguments=["-d", str(view), *fixed_frame(context, share, frame)],
        )
    ]


def fixed_frame(context, share: Path, frame: str = "") -> list[str]:
    """RViz' option for the frame of the map: as the mapper will choose it, where that is known before the first pose.

    That of an odometry or a PoseStamped is in its messages; the view's own, odom, then stands.
    """
    known = chosen(context, share, "map_frame") or chosen(context, share, "odometry_frame")
    if not known and chosen(context, share, "pose_source") == "tf":
        known = "map"
    known = known or frame
    return ["-f", known] if known else []
