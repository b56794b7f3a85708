"""Transforms as a robot sends them; tf2_msgs is not among the wheels."""

from types import SimpleNamespace

from geometry_msgs.msg import TransformStamped
from ros_helpers import NS

from gp_mapping.ros.wire.messages import message_class

EPOCH = 1_700_000_000 * NS


def stamped(message, stamp_ns: int, frame: str):
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, NS)
    message.header.frame_id = frame
    return message


def transforms(*links):
    """(stamp in ns, parent, child, x, y) each, as a TFMessage; real TransformStamped messages in it."""
    out = []
    for stamp, parent, child, x, y in links:
        item = stamped(TransformStamped(child_frame_id=child), stamp, parent)
        item.transform.translation.x, item.transform.translation.y = float(x), float(y)
        out.append(item)
    return SimpleNamespace(transforms=out)


def with_tf(kind: str):
    """tf2_msgs is not among the wheels: a type that is stands in on the wire, messages are handed to the callback."""
    return TransformStamped if kind.startswith("tf2_msgs/") else message_class(kind)
