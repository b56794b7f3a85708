"""Point queries: positions on ~/query, the same positions with mean and stddev on ~/query_result.

Both are PointCloud2 topics, not a service: no stock service type carries points, and this package
brings no messages of its own. An answer has the stamp of its question, by which a client that asks
several at once tells them apart. A question that cannot be answered gets an empty cloud with its
stamp, and diagnostics say why.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError
from contextlib import suppress

import numpy as np
import torch
from rclpy.exceptions import InvalidHandle
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Header

from gp_mapping.errors import named
from gp_mapping.mapping.drawing.channels import layer_names, show
from gp_mapping.mapping.drawing.vector import excess
from gp_mapping.planning.area.places import FARTHEST, are_valid_places
from gp_mapping.ros.wire import outbound

__all__ = ["PENDING", "PointQueries", "predict_columns", "read_positions"]

PENDING = 10  # questions that may wait for the map
_DTYPES = {PointField.FLOAT32: "f4", PointField.FLOAT64: "f8"}
_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=10 * PENDING, reliability=ReliabilityPolicy.RELIABLE
)


def read_positions(message: PointCloud2, third: str = "z") -> np.ndarray:
    """Positions of all points of a cloud.

    Args:
        message: The cloud.
        third: Name of the field that is read in addition to x and y.

    Returns:
        (N, 3), x y z; float32 where the cloud's x is, else float64; z is 0 where it has none.

    Raises:
        ValueError: The cloud has no x and y of float32 or float64, or fewer bytes than it says.
    """
    height, width, step = message.height, message.width, message.point_step
    if height * width == 0:
        return np.empty((0, 3), np.float32)

    order = ">" if message.is_bigendian else "<"
    fields = {f.name: f for f in message.fields if f.name in ("x", "y", third)}
    for name in ("x", "y"):
        if name not in fields:
            raise ValueError(
                f"it has the fields {', '.join(f.name for f in message.fields) or 'none'}, and no {name}"
            )

    for f in fields.values():
        size = 8 if f.datatype == PointField.FLOAT64 else 4
        if f.datatype not in _DTYPES or f.count > 1 or f.offset + size > step:
            raise ValueError(f"its field {f.name} is no single float32 or float64 inside a point")

    # row_step matters only where there are several rows
    row = message.row_step if height > 1 else width * step
    data = np.frombuffer(message.data, np.uint8)
    if row < width * step or len(data) < (height - 1) * row + width * step:
        raise ValueError(
            f"it has {len(data)} bytes, too few for {height} × {width} points of {step} bytes"
        )

    point_dtype = np.dtype(
        {
            "names": list(fields),
            "formats": [order + _DTYPES[f.datatype] for f in fields.values()],
            "offsets": [f.offset for f in fields.values()],
            "itemsize": step,
        }
    )
    points = np.ndarray((height, width), point_dtype, data.tobytes(), strides=(row, step)).reshape(
        -1
    )

    xyz = np.zeros(
        (len(points), 3), np.float32 if fields["x"].datatype == PointField.FLOAT32 else np.float64
    )
    for column, name in enumerate(("x", "y", third)):
        if name in fields:
            xyz[:, column] = points[name]
    return xyz


def predict_columns(session, positions: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """What the map predicts at positions, as the columns of a cloud.

    The columns are x y z mean stddev, SI; with classes also class; with several components also
    mean_x stddev_x …. The published quantity is predicted: of classes a probability, of counts a
    rate. Values are NaN where a position is not finite or beyond FARTHEST, and everywhere while the
    map is empty.

    Args:
        session: MapSession.
        positions: (N, 3), m, in the map's frame.

    Returns:
        The columns (N, F) in the precision of the positions, and their F names.
    """
    finite = are_valid_places(positions[:, :2])
    if not session.cell_count:
        names, values = (), np.full((2, len(positions)), np.nan)
    else:
        prediction = session.published(torch.from_numpy(positions[finite, :2].astype(np.float64)))
        # (C, K): a row for each component or class, a column for each finite position
        mean, variance = (part.mT.cpu() for part in (prediction.mean, prediction.variance))
        beyond = torch.from_numpy(excess(prediction))
        shown = show(mean, variance, session.settings.of_classes, beyond)

        per_component = shown.mean_each is not None
        axes = layer_names(len(mean), shown.classes is not None) if per_component else ()
        names = tuple(f"{what}_{axis}" for axis in axes for what in ("mean", "stddev"))

        rows = [shown.mean, shown.stddev]
        if shown.classes is not None:
            names, rows = ("class", *names), [*rows, shown.classes]
        for mean_row, stddev_row in (
            zip(shown.mean_each, shown.stddev_each) if per_component else ()
        ):
            rows += [mean_row, stddev_row]

        values = np.full((len(rows), len(positions)), np.nan)
        values[:, finite] = torch.stack([row.to(torch.float64) for row in rows]).numpy()

    return (
        np.column_stack([positions, values.T.astype(positions.dtype)]),
        ("x", "y", "z", "mean", "stddev", *names),
    )


class PointQueries:
    """Answers ~/query on ~/query_result.

    Args:
        node: The node that listens and publishes.
        worker: MapWorker.
        frame: Returns the map's frame as it is now, '' while it is not known.
        max_points: Positions that a question may have.

    Attributes:
        problem: What was wrong with the newest question, '' where it was answered.
    """

    def __init__(self, node, worker, frame, max_points: int):
        self._node, self._worker, self._frame, self._max_points = node, worker, frame, max_points
        self._pending: list[Header] = []  # headers of questions that wait for the map
        self._answers: deque = deque()  # (header, future) that the map's thread has finished
        self.problem = ""

        self._publisher = node.create_publisher(PointCloud2, "~/query_result", _QOS)
        self._ready = node.create_guard_condition(self._publish)
        self._subscription = node.create_subscription(PointCloud2, "~/query", self._on_query, _QOS)

    def destroy(self) -> None:
        """Stop listening; questions that wait get an empty cloud, also those not taken yet."""
        self._publish()

        for _ in range(_QOS.depth):
            with self._subscription.handle:
                taken = self._subscription.handle.take_message(PointCloud2, False)
            if taken is None:
                break
            self._pending.append(taken[0].header)

        # answers that the map's thread finishes from now on are passed over
        publisher, self._publisher = self._publisher, None
        for header in self._pending:
            publisher.publish(_empty(header))
        self._pending = []

        self._node.destroy_subscription(self._subscription)
        self._node.destroy_guard_condition(self._ready)
        self._node.destroy_publisher(publisher)

    def _on_query(self, message: PointCloud2) -> None:
        """Pass a question on to the map's thread, or answer it by an empty cloud."""
        frame, query_frame = self._frame(), message.header.frame_id.lstrip("/")
        if query_frame != frame:
            self._worker.count("query_frame")
            self.problem = (
                f"a question on ~/query is in frame {named(query_frame)} and the map in {named(frame)}: it was "
                "answered by an empty cloud; ask in the map's frame"
            )
        elif message.height * message.width > self._max_points:
            self._worker.count("query_too_large")
            self.problem = (
                f"a question on ~/query has {message.height * message.width} positions, and "
                f"max_query_points is {self._max_points}: it was answered by an empty cloud; ask in parts"
            )
        elif len(self._pending) >= PENDING:
            self._worker.count("query_busy")
            self.problem = (
                f"more than {PENDING} questions on ~/query wait for the map: the newest was answered by an "
                "empty cloud; wait for an answer before the next question"
            )
        else:
            try:
                return self._ask(message, read_positions(message), frame)
            except ValueError as error:
                self._worker.count("query_malformed")
                self.problem = f"a question on ~/query cannot be read: {error}; it was answered by an empty cloud"
        self._publisher.publish(_empty(message.header))

    def _ask(self, message: PointCloud2, positions: np.ndarray, frame: str) -> None:
        """Have the map's thread answer positions (N, 3); note those that cannot be answered."""
        finite = np.isfinite(positions[:, :2]).all(1)
        far = int((finite & ~are_valid_places(positions[:, :2])).sum())
        self.problem = ""

        if bad := int((~finite).sum()):
            self._worker.count("query_not_finite", bad)
            self.problem = f"{bad} positions of a question on ~/query are not finite: their mean and stddev are NaN"
        if far:
            self._worker.count("query_too_far", far)
            self.problem = (
                f"{far} positions of a question on ~/query are farther than {FARTHEST:g} m from the "
                "origin: their mean and stddev are NaN; ask in metres, in the map's frame"
            )

        header = Header(stamp=message.header.stamp, frame_id=frame)
        self._pending.append(header)
        future = self._worker.ask(lambda session: predict_columns(session, positions))
        future.add_done_callback(lambda done: self._done(header, done))

    def _done(self, header: Header, future) -> None:
        """Wake the executor, which publishes; called in the worker's thread."""
        self._answers.append((header, future))
        if self._publisher is not None:
            with suppress(InvalidHandle):  # destroyed at this moment
                self._ready.trigger()

    def _publish(self) -> None:
        """Publish the answers that are ready, in the executor's thread."""
        while self._answers:
            header, future = self._answers.popleft()
            if self._publisher is None:
                continue  # destroy() has answered it
            self._pending.remove(header)

            error = CancelledError() if future.cancelled() else future.exception()
            if error is not None:
                self._node.get_logger().error(f"a question on ~/query failed: {error!r}")
                self._publisher.publish(_empty(header))
                continue

            points, names = future.result()
            self._publisher.publish(
                outbound.cloud(points, names, header, bool(np.isfinite(points).all()))
            )


def _empty(header: Header) -> PointCloud2:
    """The answer to a question that cannot be answered: a cloud without points."""
    return outbound.cloud(np.empty((0, 5), np.float32), ("x", "y", "z", "mean", "stddev"), header)
