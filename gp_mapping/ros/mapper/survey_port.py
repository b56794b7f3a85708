"""Topics and services of a survey: plans, regions, failed goals, start, stop, pause.

Wiring only.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from geometry_msgs.msg import PolygonStamped, PoseStamped
from nav_msgs.msg import OccupancyGrid, Path
from nav_msgs.srv import GetPlan
from rclpy.exceptions import InvalidHandle
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from gp_mapping.errors import named
from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.others import Transform, moved
from gp_mapping.planning.worth.surface import variance_reduction_surface
from gp_mapping.ros.mapper.late_services import PendingAnswer
from gp_mapping.ros.mapper.team_port import others_of
from gp_mapping.ros.wire import plans
from gp_mapping.ros.wire.latched import LatchedListener
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.runtime.surveying.survey import Survey
from gp_mapping.settings.team import transforms_of

__all__ = ["SurveyPort"]

_SPACING = 0.25  # m between the poses of a published plan
_QUEUE = 10  # messages of a subscription
_GONE = 10.0  # s without a publisher of another robot's plan, after which what it claimed is free
_AGAIN = 10.0  # s in which the same refusal of a polygon is logged once
_EARLY = 100  # polygons that wait for the map's frame, at most
_GAIN_CELLS = 10_000  # grid cells of ~/gain


class SurveyPort:
    """Topics and services of a survey, while its MappingNode is active.

    Args:
        node: The MappingNode.
        survey: Plans in the worker's thread.
    """

    def __init__(self, node, survey: Survey):
        self._node, self._survey = node, survey
        self._created = []  # (how to destroy it, publisher or subscription)
        self.plan = self._publisher(Path, "~/plan")
        self._markers = self._publisher(MarkerArray, "~/plan_markers")
        self._gain = self._publisher(OccupancyGrid, "~/gain")
        self._published, self._drawn_gain = None, None
        self._drawing: Future | None = None  # of the newest gain surface
        self._dropped = ""  # the last warning about the frame of regions
        self._refused = "", 0.0  # the last warning about a polygon, and when (monotonic s)
        # plans and surfaces come in the worker's thread and are published in the executor's
        self._changed = node.create_guard_condition(self._publish_news)
        survey.on_plan = self._wake

        self._latched: list[LatchedListener] = []
        # latched ones, too: of a mapper that was started anew they are all that it has
        self._subscribe(
            PolygonStamped, "~/region", partial(self._on_polygon, survey.set_region), True
        )
        self._subscribe(
            PolygonStamped, "~/keep_out", partial(self._on_polygon, survey.set_keep_out), True
        )
        self._subscribe(PoseStamped, "~/unreachable", self._on_unreachable)
        self._claims: dict[
            str, float | None
        ] = {}  # topics of plans, and since when nobody is there
        # the newest plan of each topic that came before the map's frame was known
        self._early: dict[str, Path] = {}
        self._early_polygons: list[tuple[Callable[..., str], PolygonStamped]] = []  # likewise
        self._transforms = dict(_plan_topics(node))
        self._left: set[str] = set()  # topics of plans whose robots have left
        self._plan_readers = {topic: self._read_plans(topic) for topic in self._transforms}

        self._services = node.late_services(
            "survey",
            node.settings.service_queue_size,
            lambda n: node.worker.count("service_busy", n),
        )
        for name, action in (
            ("survey/start", survey.start),
            ("survey/stop", survey.stop),
            ("survey/pause", survey.pause),
        ):
            self._services.add(Trigger, name, partial(self._on_trigger, action), _refuse_trigger)
        self._services.add(GetPlan, "make_plan", self._on_make_plan, self._refuse_plan)

    def _wake(self, _) -> None:
        """Wake the executor, which publishes; called in the worker's thread."""
        with suppress(InvalidHandle):  # destroyed at this moment
            self._changed.trigger()

    def _publisher(self, kind, name: str):
        entity = self._node.create_publisher(kind, name, LATCHED)
        self._created.append((self._node.destroy_publisher, entity))
        return entity

    def _subscribe(self, kind, name: str, callback, latched: bool = False) -> None:
        """Subscribe to a topic; latched: also to what was latched before."""
        if latched:
            self._latched.append(LatchedListener(self._node, kind, name, callback, _QUEUE))
            return
        entity = self._node.create_subscription(kind, name, callback, _QUEUE)
        self._created.append((self._node.destroy_subscription, entity))

    def _read_plans(self, topic: str):
        """Subscribe to the plans of another robot: the newest one comes at once."""
        take = partial(self._on_other_plan, topic, self._transforms[topic])
        return self._node.create_subscription(Path, topic, take, LATCHED)

    def destroy(self) -> None:
        """Remove everything; calls that wait for a plan are refused."""
        self._survey.on_plan = lambda plan: None  # the worker may go on planning
        self._services.refuse_waiting(RuntimeError("the node was stopped before the plan was made"))
        self._services.refuse(RuntimeError("the node is not active; activate it first"))

        for destroy, entity in self._created:
            destroy(entity)
        for reader in self._plan_readers.values():
            self._node.destroy_subscription(reader)
        for listener in self._latched:
            listener.destroy()
        self._node.destroy_guard_condition(self._changed)
        self._created, self._plan_readers, self._drawing = [], {}, None

    # ---- incoming --------------------------------------------------------------------------------

    def _on_polygon(self, take, message: PolygonStamped) -> None:
        """Pass corners on to `take`, which returns what is wrong with them, or ''.

        In a frame that cannot be compared with the map's yet they wait, and so do all that follow.
        """
        waiting = self._early_polygons
        if not self._node.frame and (message.header.frame_id or waiting):
            if len(waiting) < _EARLY:
                waiting.append((take, message))
                self._node.get_logger().info(
                    "a region or keep-out area waits for the first pose: it tells the map's frame"
                )
            else:
                self._node.get_logger().warning(
                    f"{_EARLY} polygons wait for the map's frame already; this one is not used",
                    throttle_duration_sec=10.0,
                )
            return

        corners = [(point.x, point.y) for point in message.polygon.points]
        if wrong := take(corners, message.header.frame_id, self._node.frame):
            self._node.worker.count("polygon_refused")
            now = time.monotonic()
            if wrong != self._refused[0] or now - self._refused[1] > _AGAIN:
                self._refused = wrong, now
                self._node.get_logger().warning(wrong)

    def _on_unreachable(self, message: PoseStamped) -> None:
        """Close a place that was not reached to plans, for plan_retry seconds."""
        x, y = message.pose.position.x, message.pose.position.y
        frame, own_frame = message.header.frame_id.lstrip("/"), self._node.frame.lstrip("/")
        if frame not in ("", own_frame):
            self._node.worker.count("place_refused")
            self._node.get_logger().warning(
                f"~/unreachable: ({x:.2f}, {y:.2f}) m is in frame {named(frame)} and the map in "
                f"{own_frame!r}; it is not used",
                throttle_duration_sec=10.0,
            )
            return
        if not are_valid_places([[x, y]]).all():
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

    def _on_other_plan(self, topic: str, transform: Transform | None, message: Path) -> None:
        """Take in another robot's plan.

        Args:
            topic: Of the plan; names the robot.
            transform: x, y (m) and yaw (rad) of its frame in the map's; None: it is the map's.
            message: The plan.
        """
        frame, own_frame = message.header.frame_id.lstrip("/"), self._node.frame.lstrip("/")
        self._left.discard(topic)
        self._early.pop(topic, None)
        if transform is None and frame and not own_frame:
            # it is latched and does not come again: `tick` looks at it once the frame is known
            self._early[topic] = message
            return

        xy = np.array([(p.pose.position.x, p.pose.position.y) for p in message.poses]).reshape(
            -1, 2
        )
        if transform is not None and are_valid_places(xy).all():
            xy = moved(xy, transform)

        if transform is None and frame not in ("", own_frame):
            self._node.get_logger().warning(
                f"{topic} is in frame {named(message.header.frame_id)} and the map in "
                f"{self._node.frame!r}: it is not used",
                throttle_duration_sec=10.0,
            )
        elif not are_valid_places(xy).all():
            self._node.worker.count("place_refused", int((~are_valid_places(xy)).sum()))
            self._node.get_logger().warning(
                f"{topic} has places that are not finite, or farther than {FARTHEST:g} m: "
                "it is not used",
                throttle_duration_sec=10.0,
            )
        else:
            self._survey.set_others(topic, xy)
            if len(xy):
                self._claims[topic] = None
            else:
                self._claims.pop(topic, None)

    def _take_early(self) -> None:
        """Look at what came before the map's frame was known, once it is."""
        if self._early_polygons and self._node.frame:
            polygons, self._early_polygons = self._early_polygons, []
            for take, polygon in polygons:
                self._on_polygon(take, polygon)
        if self._early and self._node.frame:
            early, self._early = self._early, {}
            for topic, message in early.items():
                self._on_other_plan(topic, None, message)

    def _free_claims(self) -> None:
        """Free what robots had claimed that are no longer there.

        A plan may be driven for long without a word, so its age says nothing: whether its publisher
        is there does. One that comes back sends its plan again, but to a new subscription alone
        where it never noticed that it was away: a computer that slept.
        """
        now, node = time.monotonic(), self._node
        for topic in [t for t in self._left if node.count_publishers(node.resolve_topic_name(t))]:
            self._left.discard(topic)
            node.destroy_subscription(self._plan_readers[topic])
            self._plan_readers[topic] = self._read_plans(topic)
        for topic, since in list(self._claims.items()):
            if self._node.count_publishers(self._node.resolve_topic_name(topic)):
                self._claims[topic] = None
            elif since is None:
                self._claims[topic] = now
            elif now - since > _GONE:
                del self._claims[topic]
                self._left.add(topic)
                self._survey.set_others(topic, np.empty((0, 2)))
                self._node.get_logger().warning(
                    f"{topic} has no publisher any more: what that robot had planned to measure is free"
                )

    def _on_trigger(self, action, request, response) -> None:
        response.message, response.success = action(), True
        if action == self._survey.pause:  # the others do what is asked at any time
            response.success = self._survey.current_state().phase == "paused"
        self._node.get_logger().info(response.message)

    def _on_make_plan(self, request, response) -> PendingAnswer:
        """Plan once from start to goal, each of which may be left out (nav_msgs/GetPlan)."""
        start, goal = (
            _position_of(pose, name, self._node.frame)
            for pose, name in ((request.start, "start"), (request.goal, "goal"))
        )
        return PendingAnswer(self._survey.ask(start, goal), self._fill_plan)

    def _fill_plan(self, response, plan) -> None:
        response.plan = plans.path(plan, _SPACING, self._header())
        if plan.reason:
            self._node.get_logger().info(f"make_plan: {plan.reason}")

    def _refuse_plan(self, response, error: BaseException) -> None:
        response.plan = Path(header=self._header())
        self._node.get_logger().warning(f"make_plan: no plan: {error}")

    # ---- outgoing --------------------------------------------------------------------------------

    def _header(self) -> Header:
        return Header(frame_id=self._node.frame, stamp=self._node.get_clock().now().to_msg())

    def _publish_news(self) -> None:
        """Publish what the worker's thread has made, in the executor's thread."""
        self.publish()
        if self._drawing is not None and self._drawing.done():
            drawing, self._drawing = self._drawing, None
            self._publish_gain(drawing)

    def publish(self) -> None:
        """Publish the plan where it is a new one; an empty plan stops its follower."""
        plan = self._survey.plan
        if plan is self._published:
            return

        header = self._header()
        self.plan.publish(plans.path(plan, _SPACING, header))
        of = self._node.map_settings
        self._markers.publish(plans.plan_markers(plan, header, of.field_unit, of.field_scale))

        if plan.reason and (self._published is None or plan.reason != self._published.reason):
            self._node.get_logger().info(f"survey: {plan.reason}")
        self._published = plan

    def tick(self) -> None:
        """Note who has gone; have a new gain surface drawn."""
        for listener in self._latched:
            listener.look()
        self._take_early()
        self._free_claims()
        survey = self._survey
        if survey.rules.problem != self._dropped:
            self._dropped = survey.rules.problem
            if self._dropped:
                self._node.get_logger().warning(self._dropped)
        if (
            survey.gain is not None
            and survey.gain is not self._drawn_gain
            and self._gain.get_subscription_count()
        ):
            self._drawn_gain = survey.gain
            self._drawing = self._node.worker.ask(partial(self._draw_gain, survey.gain[0]))
            self._drawing.add_done_callback(self._wake)

    def next_pose(self) -> PoseStamped | None:
        """The pose for ~/suggestion while a plan is driven; None where there is none."""
        pose = self._survey.next_pose(self._node.worker.position)
        return None if pose is None else plans.pose(*pose, self._header())

    def _draw_gain(self, area: SurveyArea, session):
        """What a measurement in each grid cell of an area is worth; runs in the map's thread.

        Returns:
            The surface (H, W), where the robot can go (H, W), the origin (2,) in m, and the side of
            a grid cell in m.
        """
        low = area.cells.min(0).values.numpy()
        extent = area.cells.max(0).values.numpy() - low
        # coarser than the free-space map where the area would have more than _GAIN_CELLS
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

        reachable = area.free.allows(torch.from_numpy(x)).numpy().reshape(height, width)
        return surface, reachable, origin, resolution

    def _publish_gain(self, future) -> None:
        """Publish the surface as 0 to 98, 98 its largest value; −1 where the robot cannot go."""
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._node.get_logger().error(f"~/gain could not be drawn: {error!r}")
            return
        surface, reachable, origin, resolution = future.result()
        top = max(float(surface[reachable].max()) if reachable.any() else 0.0, 1e-300)
        cells = np.where(reachable, np.rint(98.0 * surface / top).clip(0, 98), -1).astype(np.int8)

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


def _plan_topics(node) -> list[tuple[str, Transform | None]]:
    """Topics with other robots' plans: those of other_plans, else of the robots that are merged.

    Returns:
        Each topic with the place of its frame in the map's frame: x, y (m) and yaw (rad), or None
        where it is the map's.
    """
    s = node.settings
    topics = [part.strip() for part in s.other_plans.split(",") if part.strip()]
    transforms = transforms_of(s.merge_transforms)

    return [(topic, None) for topic in topics] or [
        (f"/{robot}/mapping/plan", transforms.get(robot)) for robot in others_of(node)
    ]


def _refuse_trigger(response, error: BaseException) -> None:
    response.success, response.message = False, str(error)


def _position_of(pose: PoseStamped, name: str, frame: str) -> tuple[float, float] | None:
    """(x, y) in m of a pose in the map's frame; None for one that was not given.

    A pose was not given where it has no frame and lies at 0, 0.

    Raises:
        ValueError: The pose is in another frame, not finite, or too far away.
    """
    x, y, pose_frame = pose.pose.position.x, pose.pose.position.y, pose.header.frame_id.lstrip("/")
    if not pose_frame and x == 0.0 and y == 0.0:
        return None
    if pose_frame and pose_frame != frame.lstrip("/"):
        raise ValueError(
            f"{name} is in frame {named(pose_frame)} and the map in {frame!r}; give it in {frame!r}"
        )
    if not are_valid_places([[x, y]]).all():
        raise ValueError(
            f"{name} is ({x}, {y}), expected finite metres, at most {FARTHEST:g} from the origin"
        )
    return x, y
