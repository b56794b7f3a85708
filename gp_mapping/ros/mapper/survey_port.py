"""What the node says and hears about its survey: plans, regions, goals that failed, start, stop, pause. Wiring only."""

from __future__ import annotations

from array import array
from functools import partial

import numpy as np
import torch
from geometry_msgs.msg import PolygonStamped, PoseStamped
from nav_msgs.msg import OccupancyGrid, Path
from nav_msgs.srv import GetPlan
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from gp_mapping.errors import named
from gp_mapping.planning.area.places import FARTHEST, on_earth
from gp_mapping.planning.worth.surface import variance_reduction_surface
from gp_mapping.ros.mapper.late_services import Later
from gp_mapping.ros.mapper.team_port import others_of
from gp_mapping.ros.wire import plans
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.runtime.surveying.survey import Survey
from gp_mapping.settings.team import transforms_of

__all__ = ["SurveyPort"]

_SPACING = 0.25  # m between the poses of a plan
_QUEUE = 10
_GAIN_CELLS = 10_000  # of the surface on ~/gain


class SurveyPort:
    """Topics and services of a survey, of a MappingNode that is active."""

    def __init__(self, node, survey: Survey):
        self._node, self._survey = node, survey
        self._made = []
        self.plan = self._publisher(Path, "~/plan")
        self._markers = self._publisher(MarkerArray, "~/plan_markers")
        self._gain = self._publisher(OccupancyGrid, "~/gain")
        self._published, self._drawn = None, None
        self._changed = node.create_guard_condition(self.publish)
        survey.on_plan = lambda plan: self._changed.trigger()

        self._subscribe(PolygonStamped, "~/region", partial(self._on_polygon, survey.set_region))
        self._subscribe(
            PolygonStamped, "~/keep_out", partial(self._on_polygon, survey.set_keep_out)
        )
        self._subscribe(PoseStamped, "~/unreachable", self._on_unreachable)
        for topic, moved in _plan_topics(node):
            self._subscribe(Path, topic, partial(self._on_other, topic, moved), LATCHED)

        self._services = node.late_services(
            "survey",
            node.settings.service_queue_size,
            lambda n: node.worker.count("service_busy", n),
        )
        for name, act in (
            ("survey/start", survey.start),
            ("survey/stop", survey.stop),
            ("survey/pause", survey.pause),
        ):
            self._services.add(Trigger, name, partial(self._on_trigger, act), _refuse_trigger)
        self._services.add(GetPlan, "make_plan", self._on_make_plan, self._refuse_plan)

    def _publisher(self, kind, name: str):
        made = self._node.create_publisher(kind, name, LATCHED)
        self._made.append((self._node.destroy_publisher, made))
        return made

    def _subscribe(self, kind, name: str, callback, qos=_QUEUE) -> None:
        made = self._node.create_subscription(kind, name, callback, qos)
        self._made.append((self._node.destroy_subscription, made))

    def destroy(self) -> None:
        """Take all of it away; who waits for a plan is told."""
        self._survey.on_plan = lambda plan: None
        self._services.refuse_waiting(RuntimeError("the node was stopped before the plan was made"))
        self._services.refuse(RuntimeError("the node is not active; activate it first"))
        for destroy, made in self._made:
            destroy(made)
        self._node.destroy_guard_condition(self._changed)
        self._made = []

    # ---- in ------------------------------------------------------------------------------------------------------

    def _on_polygon(self, take, message: PolygonStamped) -> None:
        corners = [(point.x, point.y) for point in message.polygon.points]
        if wrong := take(corners, message.header.frame_id, self._node.frame):
            self._node.get_logger().warning(wrong)

    def _on_unreachable(self, message: PoseStamped) -> None:
        x, y = message.pose.position.x, message.pose.position.y
        if not on_earth([[x, y]]).all():
            self._node.worker.count("place_refused")
            self._node.get_logger().warning(
                f"~/unreachable: ({x}, {y}) is no place; it is not used", throttle_duration_sec=10.0
            )
            return
        self._survey.close(x, y)
        self._node.get_logger().info(
            f"({x:.2f}, {y:.2f}) m was not reached: goals near it are left out for "
            f"{self._node.settings.plan_retry:g} s"
        )

    def _on_other(
        self, topic: str, moved: tuple[float, float, float] | None, message: Path
    ) -> None:
        line = np.array([(p.pose.position.x, p.pose.position.y) for p in message.poses]).reshape(
            -1, 2
        )
        if moved is not None and on_earth(line).all():
            x, y, yaw = moved
            line = line @ np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]]) + (
                x,
                y,
            )
        if moved is None and message.header.frame_id.lstrip("/") not in (
            "",
            self._node.frame.lstrip("/"),
        ):
            self._node.get_logger().warning(
                f"{topic} is in frame {named(message.header.frame_id)} and the map in "
                f"{self._node.frame!r}: it is not used",
                throttle_duration_sec=10.0,
            )
        elif not on_earth(line).all():
            self._node.worker.count("place_refused", int((~on_earth(line)).sum()))
            self._node.get_logger().warning(
                f"{topic} has places that are not finite, or farther than {FARTHEST:g} m: "
                "it is not used",
                throttle_duration_sec=10.0,
            )
        else:
            self._survey.set_others(topic, line)

    def _on_trigger(self, act, request, response) -> None:
        response.message, response.success = act(), True
        self._node.get_logger().info(response.message)

    def _on_make_plan(self, request, response) -> Later:
        start, goal = (
            _place(pose, name, self._node.frame)
            for pose, name in ((request.start, "start"), (request.goal, "goal"))
        )
        return Later(self._survey.ask(start, goal), self._told_plan)

    def _told_plan(self, response, plan) -> None:
        response.plan = plans.path(plan, _SPACING, self._header())
        if plan.reason:
            self._node.get_logger().info(f"make_plan: {plan.reason}")

    def _refuse_plan(self, response, error: BaseException) -> None:
        response.plan = Path(header=self._header())
        self._node.get_logger().warning(f"make_plan: no plan: {error}")

    # ---- out -----------------------------------------------------------------------------------------------------

    def _header(self) -> Header:
        return Header(frame_id=self._node.frame, stamp=self._node.get_clock().now().to_msg())

    def publish(self) -> None:
        """The plan, where it is a new one; an empty one stops whoever follows it."""
        plan = self._survey.plan
        if plan is self._published:
            return
        header = self._header()
        self.plan.publish(plans.path(plan, _SPACING, header))
        self._markers.publish(plans.plan_markers(plan, header))
        if plan.reason and (self._published is None or plan.reason != self._published.reason):
            self._node.get_logger().info(f"survey: {plan.reason}")
        self._published = plan

    def tick(self) -> None:
        """Now and then: the next pose of a plan that is being driven, and the surface where somebody looks."""
        survey = self._survey
        survey.wanted = self.plan.get_subscription_count() > 0
        if (
            survey.gain is not None
            and survey.gain is not self._drawn
            and self._gain.get_subscription_count()
        ):
            self._drawn = survey.gain
            self._node.worker.ask(self._draw_gain).add_done_callback(self._publish_gain)

    def next_pose(self) -> PoseStamped | None:
        """For ~/suggestion while a plan is driven."""
        pose = self._survey.next_pose(self._node.worker.position)
        return None if pose is None else plans.pose(*pose, self._header())

    def _draw_gain(self, session):
        """In the map's thread: (H, W) of what a measurement in each cell is worth, and where it lies."""
        area = self._survey.gain[0]
        low = area.cells.min(0).values.numpy()
        extent = area.cells.max(0).values.numpy() - low
        resolution = max(
            area.free.resolution, float(np.sqrt(max(extent.prod(), 1e-9) / _GAIN_CELLS))
        )
        width, height = (int(v / resolution) + 1 for v in extent)
        origin = low - 0.5 * resolution
        column, row = np.floor((area.cells.numpy() - origin) / resolution).astype(int).T
        weights = np.zeros((height, width))
        np.add.at(weights, (row.clip(0, height - 1), column.clip(0, width - 1)), area.areas.numpy())
        surface = variance_reduction_surface(
            session.map, origin, resolution, torch.from_numpy(weights)
        ).numpy()
        x = np.stack(
            np.meshgrid(
                origin[0] + (np.arange(width) + 0.5) * resolution,
                origin[1] + (np.arange(height) + 0.5) * resolution,
            ),
            -1,
        ).reshape(-1, 2)
        known = area.free.allows(torch.from_numpy(x)).numpy().reshape(height, width)
        return surface, known, origin, resolution

    def _publish_gain(self, future) -> None:
        """0 to 98 of the largest value in the area; −1 where the robot cannot go."""
        if future.cancelled() or future.exception() is not None or not self._made:
            return
        surface, known, origin, resolution = future.result()
        top = max(float(surface[known].max()) if known.any() else 0.0, 1e-300)
        cells = np.where(known, np.rint(98.0 * surface / top).clip(0, 98), -1).astype(np.int8)
        message = OccupancyGrid(header=self._header())
        message.info.resolution, message.info.width, message.info.height = (
            resolution,
            cells.shape[1],
            cells.shape[0],
        )
        message.info.origin.position.x, message.info.origin.position.y = (
            float(origin[0]),
            float(origin[1]),
        )
        message.info.origin.orientation.w = 1.0
        message.data = array("b", cells.tobytes())
        self._gain.publish(message)


def _plan_topics(node) -> list[tuple[str, tuple[float, float, float] | None]]:
    """Topics with other robots' plans, each with where its frame lies, None where it is the map's.

    Those of other_plans; without it those of the robots whose maps are merged.
    """
    s = node.settings
    named = [part.strip() for part in s.other_plans.split(",") if part.strip()]
    moved = transforms_of(s.merge_transforms)
    return [(topic, None) for topic in named] or [
        (f"/{robot}/mapping/plan", moved.get(robot)) for robot in others_of(node)
    ]


def _refuse_trigger(response, error: BaseException) -> None:
    response.success, response.message = False, str(error)


def _place(pose: PoseStamped, name: str, frame: str) -> tuple[float, float] | None:
    """(x, y) of a pose; None for one that was not given, that is: without a frame and at 0, 0. ValueError otherwise."""
    x, y, given = pose.pose.position.x, pose.pose.position.y, pose.header.frame_id.lstrip("/")
    if not given and x == 0.0 and y == 0.0:
        return None
    if given and given != frame.lstrip("/"):
        raise ValueError(
            f"{name} is in frame {named(given)} and the map in {frame!r}; give it in {frame!r}"
        )
    if not on_earth([[x, y]]).all():
        raise ValueError(
            f"{name} is ({x}, {y}), expected finite metres, at most {FARTHEST:g} from the origin"
        )
    return x, y
