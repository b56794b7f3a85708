"""The simulated robot as a ROS node: magnetic_field, odometry and, if asked, /clock.

With /clock, simulated time may run faster than real time.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from array import array
from dataclasses import dataclass

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import Twist
from nav_msgs.msg import OccupancyGrid, Odometry
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import MagneticField
from std_srvs.srv import SetBool

from gp_mapping.ros.tools.plan_follower import PlanFollower
from gp_mapping.ros.tools.playback import (
    QUIET,
    ClockPublisher,
    Pacer,
    declare_groups,
    lossless,
    run_node,
    time_message,
    wait_for_subscribers,
)
from gp_mapping.ros.tools.transforms import RobotTransforms
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.settings.fields import check_settings, setting
from gp_mapping.sim.magnetometer import MagnetometerSettings
from gp_mapping.sim.robot import OdometrySettings, RobotSettings
from gp_mapping.sim.simulation import FieldReading, OdometryReading, Simulation, SimulationSettings
from gp_mapping.sim.walls import parse_walls
from gp_mapping.sim.world import WorldSettings

__all__ = ["SimulatorNode", "SimulatorSettings", "floor_plan", "main"]

_HOLD = 15.0  # s of wall time for which time stands still while the planner says nothing
_LONGEST_HOLD = 120.0  # s for which it stands still for one plan, whatever the planner says


@dataclass(frozen=True)
class SimulatorSettings:
    """How the simulation is shown to ROS."""

    real_time_factor: float = setting(
        1.0, "simulated seconds per second of wall time", "", 1e-3, 1000.0
    )
    publish_clock: bool = setting(
        False,
        "publish /clock, for nodes with use_sim_time; otherwise stamps are of the "
        "system's clock, and real_time_factor must be 1",
    )
    publish_map: bool = setting(
        True, "publish the room's floor plan on map, latched: free inside, its walls occupied"
    )
    clock_rate: float = setting(
        50.0, "most /clock messages per simulated second", "Hz", 0.1, 10000.0
    )
    reliable: bool = setting(
        False, "publish with reliable quality of service instead of the sensor profile"
    )
    wait_for_subscribers: float = setting(
        0.0,
        "wait this long for a subscriber to both topics before starting; 0 starts at once",
        "s",
        0.0,
        3600.0,
    )
    linger: float = setting(
        0.5,
        "wall time after the last message in which /clock goes on, so that timers fire",
        "s",
        0.0,
        3600.0,
    )
    publish_tf: bool = setting(
        True,
        "publish TF, as a robot's driver does: odometry_frame to base_frame with each "
        "odometry, base_frame to sensor_frame once; where tf2_msgs is installed",
    )
    frame_prefix: str = setting(
        "", "in front of all three frames, for several robots on one /tf: robot1/"
    )
    odometry_frame: str = setting("odom", "frame of the poses")
    base_frame: str = setting("base_link", "frame of the robot")
    sensor_frame: str = setting("magnetometer", "frame of the measurements")
    waypoints: str = setting("", "route as 'x y, x y, ...' in metres; empty drives the lawnmower")
    commanded: bool = setting(
        False,
        "begin at the first waypoint and drive as cmd_vel says, until sim.duration is "
        "over or, where that is 0, until the node is stopped",
    )
    follow_plan: str = setting(
        "",
        "topic of plans, mapping/plan for example, that a controller aboard drives, from "
        "the first waypoint on; empty: none",
    )
    follow_patience: float = setting(
        20.0,
        "with follow_plan the drive is over when, after the first plan, there has "
        "been none for so long; 0: never",
        "s",
        0.0,
        1e6,
    )
    follow_hold: float = setting(
        0.0,
        "with follow_plan, many times as fast as real time: time stands still when so "
        "much of one plan is driven, or all of it, and no newer one is there; 0: never",
        "m",
        0.0,
        1e6,
    )
    walls: str = setting(
        "",
        "boxes in the room, 'x0 y0 x1 y1, ...' in metres: occupied on map; a robot that is "
        "commanded, or follows a plan, is stopped by them and by the room's own walls",
    )

    def __post_init__(self):
        check_settings(self)
        if not self.publish_clock and self.real_time_factor != 1.0:
            raise ValueError(
                f"real_time_factor: {self.real_time_factor} without publish_clock; expected 1.0, or set "
                "publish_clock:=true (and use_sim_time on the other nodes)"
            )
        if self.commanded and self.follow_plan:
            raise ValueError(
                f"commanded: true with follow_plan {self.follow_plan!r}; expected one who drives"
            )


def parse_waypoints(text: str) -> list[list[float]]:
    """Waypoints (m) from text: '0 0, 1 0.5' -> [[0.0, 0.0], [1.0, 0.5]].

    Raises:
        ValueError: Says which pair is wrong.
    """
    waypoints = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        try:
            x, y = map(float, pair.split())
        except ValueError:
            raise ValueError(
                f"waypoints: {pair!r} is not 'x y'; expected for example '0.5 0.5, 3 0.5, 3 2'"
            ) from None
        waypoints.append([x, y])

    return waypoints


def floor_plan(
    width: float, depth: float, frame: str, resolution: float = 0.05, walls=()
) -> OccupancyGrid:
    """The room as a robot's own map shows it: 0 inside, walls of one grid cell (100) around it.

    Args:
        width: Of the room along x, m.
        depth: Of the room along y, m.
        frame: Of the map.
        resolution: Side of a grid cell, m.
        walls: Boxes x0, y0, x1, y1 (m) that are occupied, too.
    """
    columns, rows = (
        math.ceil(width / resolution - 1e-9) + 2,
        math.ceil(depth / resolution - 1e-9) + 2,
    )
    cells = np.full((rows, columns), 100, np.int8)
    cells[1:-1, 1:-1] = 0
    # the first grid cell is the outer wall, which shifts all others by one
    for x0, y0, x1, y1 in walls:
        left, bottom = (max(0, math.floor(v / resolution + 1e-9) + 1) for v in (x0, y0))
        # a negative end would be counted from the other side
        right, top = (max(0, math.ceil(v / resolution - 1e-9) + 1) for v in (x1, y1))
        cells[bottom:top, left:right] = 100

    message = OccupancyGrid()
    message.header.frame_id = frame
    message.info.resolution, message.info.width, message.info.height = (
        float(resolution),
        columns,
        rows,
    )

    message.info.origin.position.x = message.info.origin.position.y = -float(resolution)
    message.info.origin.orientation.w = 1.0
    message.data = array("b", cells.tobytes())
    return message


class SimulatorNode(Node):
    """Publishes one simulated drive in `run`; progress and counts go to /diagnostics."""

    def __init__(self):
        super().__init__("simulator", automatically_declare_parameters_from_overrides=True)
        groups = declare_groups(
            self,
            {
                "": SimulatorSettings,
                "sim.": SimulationSettings,
                "world.": WorldSettings,
                "robot.": RobotSettings,
                "magnetometer.": MagnetometerSettings,
                "odometry.": OdometrySettings,
            },
        )
        self.settings: SimulatorSettings = groups[""]
        s = self.settings
        self._follower, self._last_driving_at, self._held_since = None, 0.0, None

        if s.follow_plan:
            self._follower = PlanFollower(
                self, s.follow_plan, self._framed(s.odometry_frame), groups["robot."]
            )

        self.simulation = Simulation(
            groups["sim."],
            groups["world."],
            groups["robot."],
            groups["magnetometer."],
            groups["odometry."],
            parse_waypoints(s.waypoints),
            s.commanded or bool(s.follow_plan),
            parse_walls(s.walls),
            self._follower,
        )

        if s.commanded:
            self.create_subscription(Twist, "cmd_vel", self._steer, 10)
        qos = lossless() if self.settings.reliable else qos_profile_sensor_data
        self._field_publisher = self.create_publisher(MagneticField, "magnetic_field", qos)
        self._odometry_publisher = self.create_publisher(Odometry, "odometry", qos)

        if self.settings.publish_map:
            room = self.simulation.world.settings
            self._map_publisher = self.create_publisher(OccupancyGrid, "map", LATCHED)
            self._map_publisher.publish(
                floor_plan(
                    room.width,
                    room.depth,
                    self._framed(self.settings.odometry_frame),
                    walls=parse_walls(self.settings.walls),
                )
            )

        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._clock_publisher = (
            ClockPublisher(self, self.settings.clock_rate) if self.settings.publish_clock else None
        )

        self.paused = False
        self.create_service(SetBool, "~/pause", self._on_pause)
        self.sent = {"magnetic_field": 0, "odometry": 0}
        self._field, self._odometry = self._empty_messages(groups["magnetometer."])
        self._transforms = self._transform_publisher()

    def _framed(self, name: str) -> str:
        """The name of a frame with frame_prefix."""
        return self.settings.frame_prefix + name

    def _transform_publisher(self) -> RobotTransforms | None:
        """Publisher of TF; None where it is not asked for."""
        if not self.settings.publish_tf:
            return None
        transforms = RobotTransforms(
            self, self._framed(self.settings.sensor_frame), self.settings.reliable
        )
        if not transforms.available:
            self.get_logger().info("tf2_msgs is not installed: no TF is published")
        return transforms

    def _on_pause(self, request, response):
        """Stop time and robot, or let them go on (std_srvs/SetBool)."""
        self.paused = request.data
        response.success, response.message = (
            True,
            "time stands still" if self.paused else "time goes on",
        )
        return response

    def _steer(self, message: Twist) -> None:
        """Drive as a Twist on cmd_vel commands: m/s and rad/s."""
        self.simulation.robot.command(message.linear.x, message.angular.z)

    def _empty_messages(self, sensor: MagnetometerSettings) -> tuple[MagneticField, Odometry]:
        """Messages with all that stays the same; their readings are filled in again and again."""
        field, odometry = MagneticField(), Odometry()
        field.header.frame_id = self._framed(self.settings.sensor_frame)

        # only the white noise is stated, as by real drivers; a covariance of zero means unknown
        field.magnetic_field_covariance = (np.eye(3) * sensor.noise_stddev**2).ravel()
        odometry.header.frame_id = self._framed(self.settings.odometry_frame)
        odometry.child_frame_id = self._framed(self.settings.base_frame)
        return field, odometry

    def run(self, executor: SingleThreadedExecutor, stop: threading.Event) -> int:
        """Drive the route.

        Args:
            executor: Serves the node's callbacks between messages.
            stop: Set when asked to stop.

        Returns:
            Exit code: 0 where all messages were acknowledged, else 1.
        """
        s, log = self.settings, self.get_logger()
        if s.wait_for_subscribers and not wait_for_subscribers(
            [self._field_publisher, self._odometry_publisher],
            s.wait_for_subscribers,
            executor,
            stop,
        ):
            return 0  # asked to stop

        # who steers it is obeyed at once
        quiet = 0.0 if s.commanded or s.follow_plan else QUIET
        pacer, started = Pacer(s.real_time_factor, executor, stop, quiet), time.monotonic()
        offset = 0  # without /clock the drive takes place now
        if not s.publish_clock:
            offset = self.get_clock().now().nanoseconds - self.simulation.stamp_ns
        route = f"{self.simulation.robot.length:.1f} m"
        if s.commanded or s.follow_plan:
            route = "as cmd_vel says" if s.commanded else f"the plans on {s.follow_plan}"
        log.info(f"driving {route} at {s.real_time_factor:g} times real time")

        reported = 0.0
        for reading in self.simulation:
            stamp_ns = reading.stamp_ns + offset
            while (self.paused or self._waits_for_plan()) and not stop.is_set():
                # callbacks are served, and the schedule begins anew when time goes on
                executor.spin_once(timeout_sec=0.05)
                pacer.restart()

            if not pacer.wait(stamp_ns):
                break
            if self._clock_publisher:
                self._clock_publisher.tick(stamp_ns)
            self._publish(reading, stamp_ns)
            self._end_if_idle()
            if time.monotonic() - reported > 0.5:
                self._report("driving")
                reported = time.monotonic()

        wall = time.monotonic() - started
        self._linger(pacer, stop, offset)
        delivered = self._delivered()
        self._report("stopped" if stop.is_set() else "done")
        if stop.is_set():
            log.warning(f"stopped at {self.simulation.progress:.0%} of the drive")

        log.info(
            f"sent {self.sent['magnetic_field']} magnetic_field and {self.sent['odometry']} odometry messages: "
            f"{self.simulation.elapsed:.1f} s in {wall:.1f} s"
            + ("" if delivered else "; not all of them were acknowledged")
        )
        if pacer.stalls:
            log.warning(
                f"fell behind by more than a second {pacer.stalls} times; use a smaller real_time_factor"
            )
        time.sleep(0.1)  # the last /diagnostics message leaves before the node goes
        return 0 if delivered else 1

    def _waits_for_plan(self) -> bool:
        """Whether time stands still because the next plan is not there yet.

        Planning takes wall time, in which a robot much faster than real time would drive far. Time
        stands still as long as the planner reports a running survey, however busy the machine is,
        and _HOLD seconds without such a report.
        """
        f, most = self._follower, self.settings.follow_hold
        if f is None or not most or not f.plans or f.withdrawn or (f.driven < most and not f.done):
            self._held_since = None
            return False

        now = time.monotonic()
        if self._held_since is None:
            self._held_since = now

        held = (
            now - max(self._held_since, f.planner_at) < _HOLD
            and now - self._held_since < _LONGEST_HOLD
        )

        if not held:
            self.get_logger().warning(
                "no newer plan comes: the old one is driven on", throttle_duration_sec=10.0
            )
        return held

    def _end_if_idle(self) -> None:
        """End the drive of a robot that has had no plan to drive for follow_patience seconds."""
        if self._follower is None:
            return

        now = self.simulation.elapsed
        if not self._follower.done or not self._follower.plans:
            self._last_driving_at = now
        elif (
            self.settings.follow_patience
            and now - self._last_driving_at > self.settings.follow_patience
        ):
            self.simulation.end()

    def _publish(self, reading: FieldReading | OdometryReading, stamp_ns: int) -> None:
        """Publish one reading of the sensor, or of the odometry with its TF."""
        if isinstance(reading, FieldReading):
            m = self._field
            m.header.stamp = time_message(stamp_ns)
            m.magnetic_field.x, m.magnetic_field.y, m.magnetic_field.z = map(float, reading.field)
            self._field_publisher.publish(m)
            self.sent["magnetic_field"] += 1
            return

        m, r = self._odometry, reading
        m.header.stamp = time_message(stamp_ns)
        pose, twist = m.pose.pose, m.twist.twist
        pose.position.x, pose.position.y = float(r.x), float(r.y)
        pose.orientation.z, pose.orientation.w = math.sin(0.5 * r.yaw), math.cos(0.5 * r.yaw)
        twist.linear.x, twist.angular.z = float(r.speed), float(r.turn_rate)
        covariance = np.zeros((6, 6))  # x y z roll pitch yaw
        covariance[np.ix_((0, 1, 5), (0, 1, 5))] = r.covariance
        m.pose.covariance = covariance.ravel()
        self._odometry_publisher.publish(m)
        if self._transforms is not None:
            self._transforms.publish(m, stamp_ns)
        self.sent["odometry"] += 1

    def _linger(self, pacer: Pacer, stop: threading.Event, offset: int) -> None:
        """Let time go on for `linger`, so that timers on simulated time fire on the last data."""
        end = self.simulation.stamp_ns + offset
        end += round(1e9 * self.settings.real_time_factor * self.settings.linger)
        if self._clock_publisher is None or self._clock_publisher.until(end, pacer):
            pacer.wait(end)

    def _delivered(self) -> bool:
        """Whether reliable readers acknowledged everything; always True with best effort."""
        if not self.settings.reliable:
            return True
        wait = Duration(seconds=120.0)  # a loaded machine takes its time
        return all(
            p.wait_for_all_acked(wait) for p in (self._field_publisher, self._odometry_publisher)
        )

    def _report(self, state: str) -> None:
        """Publish progress and counts to /diagnostics; state: driving, stopped or done."""
        # two robots' simulators in one /diagnostics are told apart by their namespaces
        name = f"{self.get_fully_qualified_name().lstrip('/')}: drive"
        status = DiagnosticStatus(level=DiagnosticStatus.OK, name=name, message=state)
        faults = self.simulation.magnetometer.faults
        values = {
            "state": state,
            "progress": f"{self.simulation.progress:.4f}",
            "elapsed": f"{self.simulation.elapsed:.3f}",
            "sent_magnetic_field": self.sent["magnetic_field"],
            "sent_odometry": self.sent["odometry"],
            "faults_nan": faults["nan"],
            "faults_spike": faults["spike"],
            "driven (m)": f"{self.simulation.robot.travelled:.3f}",
        }
        if self.settings.commanded or self.settings.follow_plan:
            values["bumps"] = self.simulation.robot.bumps

        status.values = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)


def main(args=None) -> int:
    """Console script of simulator_node; returns its exit code."""
    return run_node(SimulatorNode, args)


if __name__ == "__main__":
    sys.exit(main())
