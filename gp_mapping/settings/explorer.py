"""Settings of explorer_node, which drives what mapping_node plans."""

from __future__ import annotations

from dataclasses import dataclass

from gp_mapping.settings.fields import check_settings, setting

__all__ = ["ExplorerSettings"]


@dataclass(frozen=True)
class ExplorerSettings:
    """How plans are driven.

    Raises:
        ValueError: a wrong type, range or choice.
    """

    drive: str = setting(
        "none",
        "none: only say what would be driven; cmd_vel: steer the robot itself, for simple "
        "robots in places without people; nav2: hand the plan to Nav2 (needs nav2_msgs)",
        choices=("none", "cmd_vel", "nav2"),
    )
    mapping: str = setting("mapping", "name of the mapping node, whose ~/plan is followed")

    # the survey: it begins by itself, or at a goal of the action
    start_survey: bool = setting(True, "begin the survey when the node starts")
    serve_action: bool = setting(
        False,
        "serve the action ~/survey_area and wait for its goals, instead of beginning a "
        "survey and ending with it (needs gp_mapping_interfaces)",
    )

    # drive cmd_vel
    speed: float = setting(0.3, "drive cmd_vel: speed on a straight", "m/s", 0.01, 5.0)
    turn_rate: float = setting(1.0, "drive cmd_vel: turn rate on the spot", "rad/s", 0.05, 10.0)
    acceleration: float = setting(
        0.5, "drive cmd_vel: what the robot can brake with", "m/s^2", 0.05, 20.0
    )
    tolerance: float = setting(
        0.06, "drive cmd_vel: a corner counts as reached within this", "m", 0.005, 1.0
    )

    # what stops the robot, and what ends the survey
    stale_after: float = setting(
        1.0, "the robot stands still when the newest pose is older than this", "s", 0.1, 60.0
    )
    map_stale_after: float = setting(
        10.0,
        "and when the map's node has said nothing in /diagnostics for this long",
        "s",
        1.0,
        600.0,
    )
    give_up_after: float = setting(
        60.0,
        "serve_action: a goal ends when the map's node has said nothing for this long",
        "s",
        1.0,
        1e5,
    )
    stuck_after: float = setting(
        15.0,
        "without progress for this long the place ahead counts as unreachable; with Nav2, more "
        "than its progress checker's movement_time_allowance (10 s by default)",
        "s",
        1.0,
        600.0,
    )

    # obstacles ahead
    robot_radius: float = setting(
        0.2,
        "the robot stands still where the free-space map no longer leaves it this much "
        "room within stop_distance ahead",
        "m",
        0.0,
        1e3,
    )
    stop_distance: float = setting(
        0.6, "how far ahead the plan is compared with the free-space map", "m", 0.05, 100.0
    )

    def __post_init__(self):
        check_settings(self)
