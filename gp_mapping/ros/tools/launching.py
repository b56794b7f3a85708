"""What the launch files share. Needs launch_ros, so nothing else imports it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch.actions import DeclareLaunchArgument, LogInfo
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

__all__ = ["OUTPUT_TOPICS", "argument", "flag", "mapping_actions", "names", "our_node", "rviz_actions", "value"]

PATIENCE = "30"  # s
OUTPUT_TOPICS = ("mean", "stddev", "field", "markers", "suggestion", "suggestions")


def argument(name: str, default: str, description: str) -> DeclareLaunchArgument:
    """A launch argument with its meaning (ros2 launch … --show-args)."""
    return DeclareLaunchArgument(name, default_value=default, description=description)


def value(context, name: str) -> str:
    """The text of a launch argument; empty where this launch file does not have it."""
    return LaunchConfiguration(name, default="").perform(context).strip()


def flag(context, name: str) -> bool:
    """A launch argument that is true or false; RuntimeError for anything else."""
    text = value(context, name).lower()
    if text not in ("true", "false"):
        raise RuntimeError(f"{name}:={text} is neither true nor false")
    return text == "true"


def names(context, name: str) -> list[str]:
    """A launch argument that lists namespaces: a,b. RuntimeError where one is no name or comes twice."""
    found = [part.strip().strip("/") for part in value(context, name).split(",")]
    wrong = [part for part in found if not re.fullmatch(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*", part)]
    if wrong or len(set(found)) < len(found):
        raise RuntimeError(f"{name}:={value(context, name)}: expected different names such as {name}:=robot1,robot2")
    return found


def our_node(executable: str, **options) -> Node:
    """A node of this package: from lib/gp_mapping of a workspace, else (pip, source tree) with the running Python.

    Node(package=…) looks in lib/<package> only, where pip puts nothing. Ctrl-C gives it time to take in its queue and
    save before launch sends SIGTERM (which drops the queue) and SIGKILL: its own 5 s and 10 s are too short for a map.
    """
    options |= {"output": "screen", "sigterm_timeout": PATIENCE, "sigkill_timeout": PATIENCE}
    try:
        found = (Path(get_package_prefix("gp_mapping")) / "lib" / "gp_mapping" / executable).exists()
    except (PackageNotFoundError, OSError):  # OSError: no ROS installation is sourced
        found = False
    if found:
        return Node(package="gp_mapping", executable=executable, **options)
    return Node(executable=sys.executable, arguments=["-m", f"gp_mapping.ros.{executable}"], **options)


def mapping_actions(context, share: Path, *, use_sim_time: bool, extra: dict | None = None,
                    namespace: str | None = None) -> list:
    """mapping_node and, if asked, RViz, from the arguments params, model, sensor, pose_source, autostart, topics, rviz.

    share: the folder that holds config/ and rviz/.  extra: parameters on top of everything else.  namespace: in place
    of the argument of that name.
    """
    namespace = value(context, "namespace") if namespace is None else namespace
    again = {"respawn": True, "respawn_delay": 2.0} if value(context, "respawn") and flag(context, "respawn") else {}
    mapper = our_node("mapping_node", name="mapping", namespace=namespace, remappings=_remappings(context),
                      parameters=[*_files(context, share), {"use_sim_time": use_sim_time}, *_settings(context),
                                  *([{"resume": True}] if again else []), *([extra] if extra else [])], **again)
    return [mapper, *rviz_actions(context, share, namespace, use_sim_time)]


def _files(context, share: Path) -> list[str]:
    """Parameter files, later ones win: all defaults, what the model likes, what the user has written."""
    out = [] if value(context, "params") else [str(share / "config" / "mapping.yaml")]
    model = share / "config" / "models" / f"{value(context, 'model')}.yaml"
    out += [str(model)] if model.is_file() else []
    if value(context, "params"):
        if not Path(value(context, "params")).is_file():  # launch would start the node without it
            raise RuntimeError(f"params:={value(context, 'params')}: there is no such file")
        out.append(value(context, "params"))
    return out


def _settings(context) -> list[dict]:
    """Single parameters that have a launch argument of their own; an empty one leaves what the files say."""
    out = {name: value(context, name) for name in ("model", "sensor", "pose_source") if value(context, name)}
    for name in ("autostart", "resume"):
        if value(context, name):
            out[name] = flag(context, name)
    return [out] if out else []


def _remappings(context) -> list[tuple[str, str]]:
    """Input names of the node to topics. Of those of all sensors and poses it has just the ones that it was set to."""
    inputs = {"magnetic_field": "magnetic_field_topic", "odometry": "odometry_topic", "map": "map_topic"}
    if value(context, "sensor_topic"):
        from gp_mapping.settings.sensors import (
            SENSOR_TYPES,  # not above: it brings torch, and a launch should start at once
        )
        inputs |= dict.fromkeys(SENSOR_TYPES, "sensor_topic")
    if value(context, "pose_topic"):
        inputs |= {"pose": "pose_topic"}
    return [(name, value(context, given)) for name, given in inputs.items() if value(context, given)]


def rviz_actions(context, share: Path, namespace: str, use_sim_time: bool) -> list:
    """RViz with our view; argument rviz: true, false, or auto (where it is installed)."""
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
            raise RuntimeError("rviz:=true, but rviz2 is not installed; install it (apt: ros-jazzy-rviz2) or leave "
                               "rviz:=false") from None
        return [LogInfo(msg=f"rviz2 is not installed; to see the map: gp-mapping view{spoken}")]
    prefix = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    renamed = [(f"/mapping/{name}", f"{prefix}/mapping/{name}") for name in OUTPUT_TOPICS] if prefix else []
    renamed.append(("/odometry", value(context, "odometry_topic") or f"{prefix}/odometry"))
    return [Node(package="rviz2", executable="rviz2", arguments=["-d", str(share / "rviz" / "mapping.rviz")],
                 namespace=namespace, parameters=[{"use_sim_time": use_sim_time}], remappings=renamed, output="log")]
