"""TF of a simulated robot: what a real robot's driver and description would publish."""

from __future__ import annotations

from geometry_msgs.msg import TransformStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile

from gp_mapping.ros.tools.playback import lossless, time_message
from gp_mapping.ros.wire.messages import message_class

__all__ = ["RobotTransforms"]


class RobotTransforms:
    """/tf with the odometry's pose, and /tf_static with the sensor at the robot's own origin.

    Args:
        node: The node that publishes.
        sensor_frame: Frame of the measurements.
        reliable: As the odometry: a replay faster than real time must not lose a transform.

    Attributes:
        available: False where tf2_msgs, which is not on PyPI, is not installed; nothing is
            published then.
    """

    def __init__(self, node: Node, sensor_frame: str, reliable: bool):
        self._message = message_class("tf2_msgs/msg/TFMessage")
        self.available = self._message is not None
        if not self.available:
            return

        self._sensor_frame, self._mounted = sensor_frame, False
        self._tf_publisher = node.create_publisher(
            self._message, "/tf", lossless() if reliable else 100
        )
        self._static_publisher = node.create_publisher(
            self._message,
            "/tf_static",
            QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL),
        )

    def publish(self, odometry: Odometry, stamp_ns: int) -> None:
        """Publish the transform from odometry frame to robot, first also from robot to sensor.

        Args:
            odometry: The robot's pose, with the names of both frames.
            stamp_ns: Of the mounting, ns; that of the pose is the odometry's own.
        """
        if not self.available:
            return
        if not self._mounted:
            self._mounted = True
            mount = TransformStamped()
            mount.header.stamp = time_message(stamp_ns)
            mount.header.frame_id, mount.child_frame_id = (
                odometry.child_frame_id,
                self._sensor_frame,
            )
            mount.transform.rotation.w = 1.0
            self._static_publisher.publish(self._message(transforms=[mount]))

        link, pose = TransformStamped(header=odometry.header), odometry.pose.pose
        link.child_frame_id = odometry.child_frame_id
        link.transform.rotation = pose.orientation
        translation = link.transform.translation
        translation.x, translation.y, translation.z = (
            pose.position.x,
            pose.position.y,
            pose.position.z,
        )
        self._tf_publisher.publish(self._message(transforms=[link]))
