"""Settings that only the live node has.

No rclpy is needed here: the command line reads a node's parameter file, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from gp_mapping.errors import named
from gp_mapping.settings.fields import check_settings, setting
from gp_mapping.settings.plan import PlanSettings, home_of
from gp_mapping.settings.team import TeamSettings, robots_of, transforms_of

__all__ = ["LIVE_PARAMETERS", "NodeSettings", "check_map_name"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_LONGEST = 200  # characters of a map's name; file systems take 255 bytes of a folder's


def check_map_name(name: str) -> str:
    """Check the name of a map, a folder inside save_directory; returns it.

    Raises:
        ValueError: it could lead out of save_directory, or is too long for a folder.
    """
    if name and (len(name) > _LONGEST or not _NAME.fullmatch(name)):
        raise ValueError(
            f"map_name: {named(name)} is not the name of a map; expected a folder inside save_directory, of "
            f"letters, digits, '_', '-', '.' and '/' between, {_LONGEST} characters at most, for "
            "example 'hall/ground_floor'"
        )
    return name


@dataclass(frozen=True)
class NodeSettings(PlanSettings, TeamSettings):
    """Rates, queues, frames and files of mapping_node.

    Raises:
        ValueError: a wrong type, range or choice, a malformed name, place or transform.
    """

    autostart: bool = setting(
        True,
        "configure and activate at the start; false leaves that to a lifecycle manager "
        "(nav2's: with bond_timeout: 0.0)",
    )
    map_frame: str = setting(
        "",
        "frame of everything published; empty takes that of the odometry, a name makes the "
        "node accept odometry in that frame only (unless odometry_frame says otherwise)",
    )

    # drawing
    publish_rate: float = setting(
        10.0,
        "how often mean, stddev and field are drawn where somebody listens; less often "
        "when drawing takes more than half of the time",
        "Hz",
        0.01,
        1000.0,
        live=True,
    )
    draw_budget: int = setting(
        2000,
        "points of the map that one drawing evaluates at most, nearest to the robot first "
        "and the longest unseen; the rest comes with the next drawings",
        "",
        100,
        100000000,
    )
    marker_rate: float = setting(
        1.0,
        "how often markers (inducing inputs, memory, path, legend) are published",
        "Hz",
        0.01,
        100.0,
        live=True,
    )

    # suggestions
    suggestion_rate: float = setting(
        0.5,
        "how often the next places to measure are chosen where somebody listens; 0 turns it off",
        "Hz",
        0.0,
        100.0,
        live=True,
    )
    suggestion_count: int = setting(
        5, "how many places are suggested at once", "", 1, 100, live=True
    )
    suggestion_kind: str = setting(
        "gain_per_metre",
        "score of a place: what measuring on the way there takes "
        "off the variance of the survey area, for each metre of it; or, of what is drawn "
        "and however far it is, the variance there, or what it takes off the whole map's",
        choices=("gain_per_metre", "variance", "integrated_variance"),
        live=True,
    )
    suggestion_distance: float = setting(
        0.5, "smallest distance between two suggestions", "m", 0.0, 1e4, live=True
    )
    suggestion_margin: float = setting(
        0.0,
        "without a free-space map suggestions stay inside the convex hull of the "
        "path; how far beyond it they may lie",
        "m",
        0.0,
        1e4,
        live=True,
    )
    robot_radius: float = setting(
        0.2,
        "plans and suggestions keep this far from what the free-space map calls occupied, and from "
        "keep-out areas",
        "m",
        0.0,
        1e3,
    )

    # inputs, queues and threads
    input_queue_depth: int = setting(
        1000, "messages that the middleware keeps for each input topic", "", 1, 100000
    )
    reliable_inputs: bool = setting(
        False,
        "ask for reliable delivery; a publisher that offers best effort only (as "
        "many sensor drivers do) is then not heard at all",
    )
    worker_queue_size: int = setting(
        20000,
        "messages that wait for the map at most; beyond that new ones are dropped and counted",
        "",
        10,
        10000000,
    )
    max_query_points: int = setting(
        20000,
        "positions in one question on ~/query at most; while they are answered "
        "the map takes in nothing",
        "",
        1,
        10000000,
    )
    service_queue_size: int = setting(
        100,
        "calls of the services that wait for an answer at most; more are refused at "
        "once, with the reason",
        "",
        1,
        10000,
    )
    exit_timeout: float = setting(
        60.0,
        "how long a node that is stopped or deactivated goes on taking in what was "
        "delivered before; what is left then is counted",
        "s",
        0.1,
        1e6,
    )
    silence_warning: float = setting(
        2.0, "an input that is silent for longer than this is reported", "s", 0.1, 1e6, live=True
    )
    diagnostics_period: float = setting(
        1.0,
        "how often /diagnostics are sent; explorer_node and gp-mapping view count on one a second",
        "s",
        0.1,
        1.0,
    )
    torch_threads: int = setting(
        1,
        "threads of the map's matrix operations; more than one slows a busy machine of "
        "few cores down, and gains little below some thousand inducing inputs",
        "",
        1,
        1024,
    )

    # files
    load_checkpoint: str = setting("", "checkpoint file to go on from; empty starts an empty map")
    allow_frame_change: bool = setting(
        False,
        "go on with a map that was made in another frame as if it were in that "
        "of the poses; false refuses it",
    )
    save_directory: str = setting(
        "gp_mapping_output", "folder of maps: the services save and load inside it only"
    )
    map_name: str = setting(
        "",
        "which map in save_directory ~/save writes and ~/load reads: a folder of its own, such "
        "as hall/ground_floor; empty: save_directory itself",
        live=True,
    )
    autosave_period: float = setting(
        60.0,
        "how often a map that has changed is written, as a checkpoint alone, next to "
        "where ~/save would write it; a crash costs no more than that; 0 turns it off",
        "s",
        0.0,
        1e6,
        live=True,
    )
    resume: bool = setting(
        False,
        "go on from the newest intact one of the saved map and its autosave, where there is "
        "one; with a launch file's respawn:=true that is how a map outlives a crash",
    )
    save_on_exit: bool = setting(
        False, "save into save_directory when the node is stopped", live=True
    )

    def __post_init__(self):
        check_settings(self)

        # these are texts with an inner form: parsing them is the check
        check_map_name(self.map_name)
        home_of(self.plan_home)
        robots_of(self.merge_from)
        transforms_of(self.merge_transforms)


LIVE_PARAMETERS = frozenset(f.name for f in fields(NodeSettings) if f.metadata["live"])
"""What may be set while the node runs; everything else is read when it is configured: \
the map is built with it."""
