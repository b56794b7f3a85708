"""Messages as ROS and rosbags have them: the same attribute names, no ROS."""

from types import SimpleNamespace as Namespace

import numpy as np


def header(stamp_ns, frame):
    return Namespace(stamp=Namespace(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9), frame_id=frame)


def field_message(seconds, field=(30e-6, 0.0, 40e-6), frame="magnetometer", covariance=None):
    x, y, z = field
    return Namespace(header=header(round(seconds * 1e9), frame), magnetic_field=Namespace(x=x, y=y, z=z),
                     magnetic_field_covariance=np.zeros(9) if covariance is None else np.asarray(covariance, float))


def odometry_message(seconds, position=(0.0, 0.0, 0.0), quaternion=(0.0, 0.0, 0.0, 1.0), frame="odom"):
    (px, py, pz), (qx, qy, qz, qw) = position, quaternion
    pose = Namespace(position=Namespace(x=px, y=py, z=pz), orientation=Namespace(x=qx, y=qy, z=qz, w=qw))
    return Namespace(header=header(round(seconds * 1e9), frame), child_frame_id="base_link", pose=Namespace(pose=pose))


def feed(intake, messages):
    for message in messages:
        (intake.add_odometry if hasattr(message, "pose") else intake.add_field)(message)


def drain(intake, finish=True):
    """All samples as rows (stamp, x, y, value) and the indices of the rows that begin a new pass."""
    rows, breaks = [], []
    for new_pass, samples in intake.batches(finish=finish):
        if new_pass:
            breaks.append(len(rows))
        rows += np.column_stack([samples.stamp, samples.x, samples.y]).tolist()
    return np.array(rows).reshape(-1, 4), breaks
