"""explorer_node: drives what mapping_node plans, through Nav2 or by itself.

It reports goals that were not reached, and stands still where the pose, the mapper or the free
space ahead can no longer be trusted. Nothing is driven unless `drive` says so.
"""

from __future__ import annotations

import math
import sys
import threading
import time

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped, Twist
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from std_srvs.srv import Trigger

from gp_mapping.errors import named, one_line
from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.poses.buffer import read_numbers
from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.ros.tools.nav2 import Nav2Driver
from gp_mapping.ros.tools.playback import declare_groups, run_node
from gp_mapping.ros.tools.survey_action import SurveyAction
from gp_mapping.ros.wire.free_map import FreeMapListener
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.runtime.surveying.free_maps import FreeMaps
from gp_mapping.runtime.surveying.way.ahead import has_room_ahead
from gp_mapping.runtime.surveying.way.progress import ProgressWatch
from gp_mapping.runtime.surveying.way.pursuit import Pursuit
from gp_mapping.settings.explorer import ExplorerSettings

__all__ = ["ExplorerNode", "main"]

_RATE = 20.0  # Hz of commands
_ANSWER = 10.0  # s after which an answer counts as lost
_LAST_WAIT = 2.0  # s at the end for Nav2 to take back its goal
# s after the start in which diagnostics, sent each second at least, may be of the time before
_STALE_DIAGNOSTICS = 2.5


class ExplorerNode(Node):
    """Drives along ~/plan of the mapping node; `state` describes in words what it is doing."""

    def __init__(self):
        super().__init__("explorer", automatically_declare_parameters_from_overrides=True)
        self.settings: ExplorerSettings = declare_groups(self, {"": ExplorerSettings})[""]
        s = self.settings
        self.pursuit = Pursuit(s.speed, s.turn_rate, s.acceleration, s.tolerance)
        self.state, self._logged = "waiting for a plan", ""
        self._pose: tuple[float, float, float] | None = None  # x, y (m), yaw (rad)
        # monotonic s of the newest pose, of the mapper's newest diagnostics, of the survey's start
        self._pose_at = self._mapper_at = self._began_at = -math.inf
        self._phase = ""
        # large maps are read beside this thread, which has a command to give 20 times a second
        self._map, self._free_maps, self._free = None, FreeMaps(aside=True), None
        self._progress = ProgressWatch(s.stuck_after, by_another=s.drive == "nav2")
        self._pose_frame, self._plan_frame = "", ""

        self._commands = (
            self.create_publisher(Twist, "cmd_vel", 10) if s.drive == "cmd_vel" else None
        )
        self._nav2 = (
            Nav2Driver(self, self._on_failed, self._on_cancelled, self._on_blocked)
            if s.drive == "nav2"
            else None
        )

        self._unreachable = self.create_publisher(PoseStamped, f"{s.mapping}/unreachable", 10)
        self.create_subscription(Path, f"{s.mapping}/plan", self._take_plan, LATCHED)
        self.create_subscription(Odometry, "odometry", self._take_odometry, qos_profile_sensor_data)
        self._map_listener = FreeMapListener(self, self._take_map)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._take_diagnostics, 10)

        self._start = self.create_client(Trigger, f"{s.mapping}/survey/start")
        self._pause = self.create_client(Trigger, f"{s.mapping}/survey/pause")
        self._survey_values, self._path, self._surveyed = {}, Path(), False
        self._action = SurveyAction(self, s.mapping) if s.serve_action else None

    # ---- incoming --------------------------------------------------------------------------------

    def _take_plan(self, message: Path) -> None:
        """Drive this plan from now on; an empty one, or one that leads to no place: stand still."""
        xy = np.array([(p.pose.position.x, p.pose.position.y) for p in message.poses]).reshape(
            -1, 2
        )
        self._plan_frame, self._path = message.header.frame_id, message
        self._progress.restart()

        if not are_valid_places(xy).all():
            self.get_logger().warning(
                f"the plan has poses that are not finite, or farther than {FARTHEST:g} m: it is not driven"
            )
            xy = np.empty((0, 2))

        if self._nav2 is not None:
            self._nav2.follow(message if len(xy) else None)
        self.pursuit.follow(xy)

    def _take_odometry(self, message: Odometry) -> None:
        """Keep the pose (x, y m, yaw rad); one with a wrong orientation is logged and ignored."""
        p, q = message.pose.pose.position, message.pose.pose.orientation
        pose = read_numbers((p.x, p.y, 0.0), (q.x, q.y, q.z, q.w), math.inf)
        if isinstance(pose, DropReason):  # a zero quaternion is no heading, east least of all
            self.get_logger().warning(
                f"{pose.value}: {pose.explanation}; the robot is not driven by it",
                throttle_duration_sec=10.0,
            )
            return

        _, (x, y, z, w) = pose
        yaw = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        self._pose, self._pose_at = (p.x, p.y, yaw), time.monotonic()
        self._pose_frame = message.header.frame_id

    def _take_map(self, message: OccupancyGrid) -> None:
        self._map = message

    def _take_diagnostics(self, message: DiagnosticArray) -> None:
        """Keep the survey's values and phase, but none that may be older than its start."""
        name = self.resolve_topic_name(self.settings.mapping).lstrip("/")
        for status in message.status:
            # the name that the mapper's diagnostics give to its survey
            if status.name == f"{name}: survey":
                self._mapper_at = time.monotonic()
                if self._mapper_at - self._began_at < _STALE_DIAGNOSTICS:
                    continue  # it may be older than the start of the survey
                self._survey_values = {v.key: v.value for v in status.values}
                self._phase = self._survey_values.get("phase", "")
                self._surveyed |= self._phase == "running"

    def _on_failed(self, x: float, y: float, why: str) -> None:
        """Log a goal that the driver gave up, and report it on ~/unreachable; x, y in m."""
        self.get_logger().warning(f"({x:.2f}, {y:.2f}) m was not reached: {why}")
        out = PoseStamped()
        out.header.frame_id, out.header.stamp = self._plan_frame, self.get_clock().now().to_msg()
        out.pose.position.x, out.pose.position.y, out.pose.orientation.w = x, y, 1.0
        self._unreachable.publish(out)

    def _on_blocked(self, why: str) -> None:
        """Report the place right ahead of the robot: something is there, whatever the goal is."""
        x, y, _ = self._pose
        place = self.pursuit.place_ahead(x, y, self.settings.robot_radius)
        self._on_failed(*((x, y) if place is None else place), why)

    def _on_cancelled(self) -> None:
        """Pause the survey: somebody has cancelled Nav2's goal, and wants the robot to stand."""
        self.pursuit.follow(())
        self.get_logger().warning(
            "somebody else has cancelled Nav2's goal: the survey is paused; "
            f"{self._start.srv_name} goes on"
        )
        if self._pause.service_is_ready():
            self._pause.call_async(Trigger.Request())
        else:
            self.get_logger().warning(
                f"{self._pause.srv_name} is not there: the robot stands until there is another plan"
            )

    # ---- outgoing --------------------------------------------------------------------------------

    def run(self, executor: SingleThreadedExecutor, stop: threading.Event) -> int:
        """Drive until the survey is done or a signal comes, then stop the robot.

        Args:
            executor: Serves the node's callbacks between commands.
            stop: Set when asked to stop.

        Returns:
            The exit code: 1 where the mapper refuses to begin the survey, or has lost it, else 0.
        """
        if self.settings.start_survey and self._action is None:
            refusal = self._begin(executor, stop)
            if refusal:
                self.get_logger().error(f"the survey does not begin: {refusal}")
                return 1

        try:
            while not stop.is_set() and (self._action is not None or not self._over()):
                end = time.monotonic() + 1.0 / _RATE
                # callbacks are served until the next command is due
                while (remaining := end - time.monotonic()) > 0.0:
                    executor.spin_once(timeout_sec=remaining)

                self.step(time.monotonic())
                if self._action is not None:
                    self._action.advance(
                        self._phase, self._survey_values, self._path, self.state, self._given_up()
                    )
        finally:  # the robot must stand, whatever ended the loop
            self._stop_robot()
            if self._nav2 is not None:
                self._nav2.follow(None)
            if self._action is not None:
                self._action.destroy()
            executor.spin_once(timeout_sec=0.1)
            end = time.monotonic() + _LAST_WAIT
            while self._nav2 is not None and not self._nav2.idle and time.monotonic() < end:
                executor.spin_once(timeout_sec=0.1)  # a goal accepted only now is cancelled
        return 0 if stop.is_set() else self._ending()

    def _ending(self) -> int:
        """Log where the mapper has lost the survey, whose last plan is driven; the exit code."""
        if not self._surveyed or self._phase != "idle" or self._survey_values.get("reason"):
            return 0
        self.get_logger().error(
            "the mapper has no survey any more, and nobody has stopped it: was the mapper started anew? The last plan "
            f"has been driven to its end; {self._start.srv_name} begins another survey, with the whole budget"
        )
        return 1

    def _begin(self, executor: SingleThreadedExecutor, stop: threading.Event) -> str:
        """Call ~/survey/start once the mapper is there, again where an answer is lost.

        Returns:
            Why the mapper refuses; '' where the survey has begun, or this is to stop.
        """
        future, deadline = None, -math.inf
        while not stop.is_set():
            if future is not None and future.done():
                answer = future.result()
                if not answer.success:
                    return one_line(answer.message or "the mapper gives no reason", 300)
                self.begun()
                return ""

            if time.monotonic() > deadline:
                if future is not None:
                    self._start.remove_pending_request(future)
                    if self._phase == "running":  # asked again, it would begin with a new budget
                        self.begun()
                        return ""
                future = None
                self._report(f"waiting for {self._start.srv_name}")
                if self._start.service_is_ready():
                    future = self._start.call_async(Trigger.Request())
                    deadline = time.monotonic() + _ANSWER
            executor.spin_once(timeout_sec=0.1)
        return ""

    def _given_up(self) -> str:
        """Why the action's goal is given up: the mapper has been silent for too long; '' if not."""
        silent = time.monotonic() - max(self._mapper_at, self._began_at)
        return (
            ""
            if silent <= self.settings.give_up_after
            else f"the mapper has said nothing for {silent:.0f} s"
        )

    @property
    def frame(self) -> str:
        """Frame of the poses; '' before the first."""
        return self._pose_frame

    def begun(self) -> None:
        """Note that a survey has just started; messages on their way are older than that."""
        self._phase, self._began_at, self._survey_values = "running", time.monotonic(), {}
        self._surveyed = True

    def _over(self) -> bool:
        """Whether the survey has ended and its last plan is driven."""
        over = self._phase in ("done", "idle") and self.pursuit.done
        if over:
            self._report(f"the survey is {self._phase}")
        return over

    def step(self, now: float) -> None:
        """Give one command, or stop the robot where there is a reason to; now: monotonic s."""
        reason = self._reason_to_stop(now)
        if reason:
            self._report(reason)
            self._progress.restart()
            self._stop_robot()
            if self._nav2 is not None:
                self._nav2.hold(True)
            return

        if self._nav2 is not None:
            self._nav2.hold(False)
            self._nav2.step()

        # without commands of its own, the pursuit still keeps track of what is driven
        speed, turn = self.pursuit.command(*self._pose)
        self._give_up_where_stuck(now)
        if self._commands is not None:
            twist = Twist()
            twist.linear.x, twist.angular.z = float(speed), float(turn)
            self._commands.publish(twist)

        self._report(self._what_it_does())

    def _what_it_does(self) -> str:
        """What the explorer does where nothing keeps the robot from driving, in words."""
        if self.settings.drive == "none":
            return "watching: drive is none, nothing is driven"
        if self._nav2 is not None and self._nav2.attempt is None:
            return "waiting: Nav2 drives no goal yet"
        return "driving"

    def _give_up_where_stuck(self, now: float) -> None:
        """Report the place ahead where the robot makes no progress for `stuck_after`.

        While Nav2 drives no goal, as where the plan waits for it, there is nothing to give up.
        """
        attempt = self._nav2.attempt if self._nav2 is not None else None
        if self.pursuit.done or not self._progress.is_stuck(now, self._pose, attempt):
            return
        if self.settings.drive == "cmd_vel":
            self._on_blocked("no progress")
        elif attempt is not None:
            self._nav2.give_up(f"no progress for {self.settings.stuck_after:g} s, and no end")

    def _reason_to_stop(self, now: float) -> str:
        """Why the robot must stand still, in words; '' where it may drive."""
        s = self.settings
        if self._action is not None and not self._action.under_way:
            return "standing still: there is no goal"
        if now - self._pose_at > s.stale_after:
            return f"standing still: {_silence('no pose', now - self._pose_at, 1)}"
        if self.pursuit.done:
            return "standing still: there is no plan"
        if now - self._mapper_at > s.map_stale_after:
            return f"standing still: {_silence('nothing from the mapper', now - self._mapper_at)}"
        if self._plan_frame.lstrip("/") != self._pose_frame.lstrip("/"):
            return (
                f"standing still: the plan is in frame {named(self._plan_frame)} and the pose in "
                f"{named(self._pose_frame)}"
            )
        return self._reason_of_free_space()

    def _reason_of_free_space(self) -> str:
        """Why the free-space map forbids to drive; '' where it does not, or there is none."""
        self._free, wrong = self._free_maps.free_space_of(self._map, self.settings.robot_radius)
        if wrong:
            return f"standing still: {wrong}"
        if self._free is None:
            return ""

        # a map without a frame is in none that can be compared, as for the mapper
        frame = self._free.frame.lstrip("/")
        if frame != self._plan_frame.lstrip("/"):
            return (
                f"standing still: the free-space map is in frame {named(frame)} and the plan in "
                f"{named(self._plan_frame)}"
            )
        if not self._path_is_free():
            return f"standing still: the free-space map leaves no room within {self.settings.stop_distance:g} m ahead"
        return ""

    def _path_is_free(self) -> bool:
        """Whether the next metres of the plan have room in the newest free-space map.

        Nav2 finds its own way to the next pose, around what has come between.
        """
        x, y, _ = self._pose
        ahead, straight = self.pursuit.ahead_of(x, y), self.settings.drive != "nav2"
        return has_room_ahead(self._free, (x, y), ahead, self.settings.stop_distance, straight)

    def _stop_robot(self) -> None:
        if self._commands is not None:
            self._commands.publish(Twist())

    def _report(self, text: str) -> None:
        """Set `state`, and log it where it is more than another number of seconds."""
        summary = text.split(" for ")[0]
        if summary != self._logged:
            self.get_logger().info(text)
        self.state, self._logged = text, summary


def _silence(what: str, seconds: float, digits: int = 0) -> str:
    """Say how long nothing has come, which is infinitely long where nothing ever has."""
    return f"{what} for {seconds:.{digits}f} s" if math.isfinite(seconds) else f"{what} yet"


def main(args=None) -> int:
    """Console script; exit codes as those of run_node."""
    return run_node(ExplorerNode, args)


if __name__ == "__main__":
    sys.exit(main())
