"""What the launch files share. Needs launch_ros, so nothing else imports it."""

from __future__ import annotations

import sys
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch.actions import DeclareLaunchArgument, LogInfo
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

__all__ = ["INPUT_TOPICS", "OUTPUT_TOPICS", "argument", "mapping_actions", "our_node", "rviz_actions", "value"]

INPUT_TOPICS = ("magnetic_field", "odometry", "map")
OUTPUT_TOPICS = ("mean", "stddev", "field", "markers", "suggestion", "suggestions")


def argument(name: str, default: str, description: str) -> DeclareLaunchArgument:
    """A launch argument with its meaning (ros2 launch … --show-args)."""
    return DeclareLaunchArgument(name, default_value=default, description=description)


def value(context, name: str) -> str:
    """The text of a launch argument."""
    return LaunchConfiguration(name).perform(context).strip()


def our_node(executable: str, **options) -> Node:
    """A node of this package: from lib/gp_mapping of a workspace, else (pip, source tree) with the running Python.

    Node(package=…) looks in lib/<package> only, where pip puts nothing.
    """
    try:
        found = (Path(get_package_prefix("gp_mapping")) / "lib" / "gp_mapping" / executable).exists()
    except (PackageNotFoundError, OSError):  # OSError: no ROS installation is sourced
        found = False
    if found:
        return Node(package="gp_mapping", executable=executable, output="screen", **options)
    return Node(executable=sys.executable, arguments=["-m", f"gp_mapping.ros.{executable}"], output="screen", **options)


def mapping_actions(context, share: Path, *, use_sim_time: bool, extra: dict | None = None) -> list:
    """mapping_node and, if asked, RViz, from the arguments params, model, namespace, topics, autostart, rviz.

    share: the folder that holds config/ and rviz/.  extra: parameters on top of everything else.
    """
    parameters = [value(context, "params") or str(share / "config" / "mapping.yaml"), {"use_sim_time": use_sim_time}]
    if value(context, "model"):
        parameters.append({"model": value(context, "model")})
    if value(context, "autostart"):
        parameters.append({"autostart": value(context, "autostart").lower() == "true"})
    if extra:
        parameters.append(extra)
    namespace = value(context, "namespace")
    remappings = [(name, value(context, f"{name}_topic")) for name in INPUT_TOPICS if value(context, f"{name}_topic")]
    mapper = our_node("mapping_node", name="mapping", namespace=namespace, parameters=parameters, remappings=remappings)
    return [mapper, *rviz_actions(context, share, namespace, use_sim_time)]


def rviz_actions(context, share: Path, namespace: str, use_sim_time: bool) -> list:
    """RViz with our view; argument rviz: true, false, or auto (where it is installed)."""
    wanted = value(context, "rviz").lower()
    if wanted not in ("true", "false", "auto"):
        raise RuntimeError(f"rviz:={wanted} is not one of true, false, auto")
    if wanted == "false":
        return []
    try:
        get_package_prefix("rviz2")
    except (PackageNotFoundError, OSError):
        if wanted == "true":
            raise RuntimeError("rviz:=true, but rviz2 is not installed; install it (apt: ros-jazzy-rviz2) or leave "
                               "rviz:=false") from None
        return [LogInfo(msg="rviz2 is not installed; the map is on the topics of the node mapping")]
    prefix = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    renamed = [(f"/mapping/{name}", f"{prefix}/mapping/{name}") for name in OUTPUT_TOPICS] if prefix else []
    renamed.append(("/odometry", value(context, "odometry_topic") or f"{prefix}/odometry"))
    return [Node(package="rviz2", executable="rviz2", arguments=["-d", str(share / "rviz" / "mapping.rviz")],
                 parameters=[{"use_sim_time": use_sim_time}], remappings=renamed, output="log")]
