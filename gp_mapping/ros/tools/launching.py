"""The processes that the launch files share; needs launch_ros, so no other module imports it."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch.actions import LogInfo, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch_ros.actions import Node

from gp_mapping.ros.tools.launch_arguments import flag, value

__all__ = [
    "effective_value",
    "ends_the_launch",
    "fixed_frame",
    "input_topics",
    "mapping_actions",
    "our_node",
    "rviz_actions",
    "scaled_max_wait",
    "tf_remappings",
    "value_in_files",
]

PATIENCE = "30"  # s between SIGINT, SIGTERM and SIGKILL at the end of a launch

# Launch arguments that are parameters of the node, too; an empty one leaves what the files say.
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


# ---- processes -----------------------------------------------------------------------------------


def our_node(executable: str, **options) -> Node:
    """A node of this package, with enough time for its end.

    It is the executable in lib/gp_mapping of a workspace, or else (pip, source tree) the module,
    run by this Python: Node(package=…) looks in lib/<package> only, where pip puts nothing.

    After Ctrl-C the node takes in its queue and saves. The 5 s and 10 s after which launch sends
    SIGTERM (which drops the queue) and SIGKILL by default are too short for a map.

    Args:
        executable: Name of the executable and of the module in gp_mapping.ros.
        options: Of launch_ros' Node.
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
    """A node whose failure ends the whole launch with the node's exit code.

    A node that ends with exit code 0 does not end the launch.

    Args:
        node: The node.
        what: The node in words, for the message.
    """

    def end_where_failed(event, context):
        """Have the launch end, unless it ends already or the node has ended with 0."""
        if context.is_shutdown or event.returncode == 0:
            return None
        message = f"{what} ended with exit code {event.returncode}: the launch ends with it"
        return [OpaqueFunction(function=lambda _: _fail(message, event.returncode))]

    return [RegisterEventHandler(OnProcessExit(target_action=node, on_exit=end_where_failed)), node]


def _fail(message: str, code: int) -> None:
    """End the launch with an exit code.

    An exception makes launch end in order, but with exit code 1, which is replaced at the exit.
    """
    # in a test launch runs in the test's process, which must go on
    if "pytest" not in sys.modules and "launch_testing" not in sys.modules:

        def leave():
            """End the process with the node's exit code, as the last thing it does."""
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            # -11 means ended by signal 11, which a shell reports as 139
            os._exit(code if code > 0 else 128 - code)

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
        context: Of the launch.
        share: The folder that holds config/ and rviz/.
        use_sim_time: Whether time comes from /clock.
        extra: Parameters that take precedence over all others; None: there are none.
        namespace: In place of the argument of that name; None: as that says.
        required: Whether a mapper that fails, and is not started again, ends the launch.
        frame: Frame of the map, for RViz, where the launch file knows it and no argument gives it.
        executable: mapping_node or fusion_node.
    """
    namespace = value(context, "namespace") if namespace is None else namespace
    respawn = {"respawn": True, "respawn_delay": 2.0} if flag(context, "respawn") else {}

    mapper = our_node(
        executable,
        name=executable.removesuffix("_node"),
        namespace=namespace,
        remappings=_remappings(context),
        # later ones take precedence
        parameters=[
            *_files(context, share),
            {"use_sim_time": use_sim_time},
            *_settings(context),
            *([{"resume": True}] if respawn else []),
            *([extra] if extra else []),
        ],
        **respawn,
    )

    made = ends_the_launch(mapper, "the mapper") if required and not respawn else [mapper]
    return [*made, *rviz_actions(context, share, namespace, use_sim_time, frame)]


# ---- parameters and topics of the mapper ---------------------------------------------------------


def _files(context, share: Path) -> list[str]:
    """Parameter files, of which later ones take precedence: the model's, then the user's.

    config/mapping.yaml is not among them: it holds the defaults, and a parameter that is given
    explicitly takes precedence over a saved map's own.
    """
    model = share / "config" / "models" / f"{value(context, 'model')}.yaml"
    out = [str(model)] if model.is_file() else []
    if value(context, "params"):
        if not Path(value(context, "params")).is_file():  # launch would start the node without it
            raise RuntimeError(f"params:={value(context, 'params')}: there is no such file")
        out.append(value(context, "params"))
    return out


def _settings(context) -> list[dict]:
    """Parameters with a launch argument of their own; an empty one leaves what the files say."""
    out: dict = {name: value(context, name) for name in TEXTS if value(context, name)}
    out |= {name: flag(context, name) for name in FLAGS if value(context, name)}
    return [out] if out else []


def value_in_files(context, share: Path, name: str):
    """What the parameter files say of a parameter; None where none does.

    Args:
        context: Of the launch.
        share: The folder that holds config/ and rviz/.
        name: Of the parameter.

    Raises:
        RuntimeError: A file cannot be read.
    """
    from gp_mapping.settings.build import read_parameter_file

    found = None
    for path in _files(context, share):
        try:
            found = read_parameter_file(path).get(name, found)
        except ValueError as error:
            raise RuntimeError(f"params:={path}: {error}") from error
    return found


def effective_value(context, share: Path, name: str):
    """A parameter as the mapper will have it: launch argument, else files, else default.

    Args:
        context: Of the launch.
        share: The folder that holds config/ and rviz/.
        name: Of the parameter, and of the argument.

    Raises:
        RuntimeError: A file cannot be read.
    """
    from gp_mapping.settings.build import KNOWN

    found = value_in_files(context, share, name)
    return value(context, name) or (KNOWN[name].default if found is None else found)


def scaled_max_wait(context, share: Path, rate: float) -> dict:
    """max_wait for a mapper that is fed `rate` times as fast as real time.

    max_wait counts the time of the stamps: a message that is late by 1 s of wall time is late by
    `rate` seconds of recorded time.

    Args:
        context: Of the launch.
        share: The folder that holds config/.
        rate: Recorded seconds per second of wall time.
    """
    return {
        "max_wait": min(3600.0, float(effective_value(context, share, "max_wait")) * max(1.0, rate))
    }


def _remappings(context) -> list[tuple[str, str]]:
    """Input names of the node -> topics.

    A sensor_topic is remapped for all sensors: the node subscribes only to the one it is set to.
    """
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
    """Remappings of TF into the namespace, where the argument namespaced_tf asks for them."""
    return [("/tf", "tf"), ("/tf_static", "tf_static")] if flag(context, "namespaced_tf") else []


def input_topics(context, share: Path) -> list[str]:
    """Topics of measurements and poses of a mapper without namespace, by arguments and files.

    Args:
        context: Of the launch.
        share: The folder that holds config/ and rviz/.
    """
    sensor, source = (
        effective_value(context, share, "sensor"),
        effective_value(context, share, "pose_source"),
    )
    remappings = dict(_remappings(context))
    pose = {"odometry": "odometry", "tf": "/tf"}.get(source, "pose")
    return ["/" + remappings.get(name, name).lstrip("/") for name in (sensor, pose)]


# ---- RViz ----------------------------------------------------------------------------------------


def rviz_actions(context, share: Path, namespace: str, use_sim_time: bool, frame: str = "") -> list:
    """RViz with our view, by the argument rviz: true, false, or auto (where it is installed).

    Args:
        context: Of the launch.
        share: The folder that holds config/ and rviz/.
        namespace: Of the mapper.
        use_sim_time: Whether time comes from /clock.
        frame: Frame of the map, where it is known.

    Raises:
        RuntimeError: The argument is none of these, or true where RViz is not installed.
    """
    choice = value(context, "rviz").lower()
    if choice not in ("true", "false", "auto"):
        raise RuntimeError(f"rviz:={choice} is not one of true, false, auto")
    if choice == "false":
        return []

    namespace_option = f" --namespace {namespace.strip('/')}" if namespace.strip("/") else ""
    try:
        get_package_prefix("rviz2")
    except (PackageNotFoundError, OSError):
        if choice == "true":
            raise RuntimeError(
                "rviz:=true, but rviz2 is not installed; install it (apt: ros-jazzy-rviz2) or leave "
                "rviz:=false"
            ) from None
        return [
            LogInfo(
                msg=f"rviz2 is not installed; to see the map: gp-mapping view{namespace_option}"
            )
        ]

    prefix = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    view = share / "rviz" / "mapping.rviz"
    # the topics of the mapper that the view shows
    topics = sorted(set(re.findall(r"/mapping/\w+", view.read_text(encoding="utf-8"))))
    remappings = [(name, f"{prefix}{name}") for name in topics] if prefix else []
    remappings.append(("/odometry", value(context, "odometry_topic") or f"{prefix}/odometry"))

    return [
        Node(
            package="rviz2",
            executable="rviz2",
            namespace=namespace,
            parameters=[{"use_sim_time": use_sim_time}],
            remappings=remappings + tf_remappings(context),
            output="log",
            arguments=["-d", str(view), *fixed_frame(context, share, frame)],
        )
    ]


def fixed_frame(context, share: Path, frame: str = "") -> list[str]:
    """RViz' option for the map's frame, where that is known before the first pose.

    It is the frame that the mapper will choose. That of an odometry or a PoseStamped is known from
    its messages only; the view's own, odom, then stands.

    Args:
        context: Of the launch.
        share: The folder that holds config/ and rviz/.
        frame: Frame of the map that the launch file knows, for want of a parameter; '' for none.
    """
    map_frame = effective_value(context, share, "map_frame") or effective_value(
        context, share, "odometry_frame"
    )
    if not map_frame and effective_value(context, share, "pose_source") == "tf":
        map_frame = "map"
    map_frame = map_frame or frame
    return ["-f", map_frame] if map_frame else []
