"""Messages as ROS and rosbags have them: the same attribute names, no ROS."""

from types import SimpleNamespace as Namespace

import numpy as np


def header(stamp_ns, frame):
    return Namespace(
        stamp=Namespace(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9), frame_id=frame
    )


def field_message(seconds, field=(30e-6, 0.0, 40e-6), frame="magnetometer", covariance=None):
    x, y, z = field
    return Namespace(
        header=header(round(seconds * 1e9), frame),
        magnetic_field=Namespace(x=x, y=y, z=z),
        magnetic_field_covariance=np.zeros(9)
        if covariance is None
        else np.asarray(covariance, float),
    )


def _pose(position, quaternion):
    (px, py, pz), (qx, qy, qz, qw) = position, quaternion
    return Namespace(
        position=Namespace(x=px, y=py, z=pz), orientation=Namespace(x=qx, y=qy, z=qz, w=qw)
    )


def covariance_of(xx, yy, xy=0.0):
    """A row-major 6 × 6 with this xy block."""
    out = np.zeros((6, 6))
    out[:2, :2] = [[xx, xy], [xy, yy]]
    return out.ravel()


def odometry_message(
    seconds,
    position=(0.0, 0.0, 0.0),
    quaternion=(0.0, 0.0, 0.0, 1.0),
    frame="odom",
    covariance=None,
    child="base_link",
):
    pose = Namespace(
        pose=_pose(position, quaternion),
        covariance=np.zeros(36) if covariance is None else covariance,
    )
    return Namespace(header=header(round(seconds * 1e9), frame), child_frame_id=child, pose=pose)


def pose_message(
    seconds, position=(0.0, 0.0, 0.0), quaternion=(0.0, 0.0, 0.0, 1.0), frame="map", covariance=None
):
    """PoseStamped, or with a covariance PoseWithCovarianceStamped."""
    pose = _pose(position, quaternion)
    return Namespace(
        header=header(round(seconds * 1e9), frame),
        pose=pose if covariance is None else Namespace(pose=pose, covariance=covariance),
    )


def tf_message(*links):
    """links: (seconds, parent, child, position, quaternion)."""

    def one(seconds, parent, child, position=(0.0, 0.0, 0.0), quaternion=(0.0, 0.0, 0.0, 1.0)):
        p = _pose(position, quaternion)
        return Namespace(
            header=header(round(seconds * 1e9), parent),
            child_frame_id=child,
            transform=Namespace(translation=p.position, rotation=p.orientation),
        )

    return Namespace(transforms=[one(*link) for link in links])


def scalar_message(seconds, frame="sensor", **values):
    """A stamped message with these fields; without a header where seconds is None."""
    stamp = {} if seconds is None else {"header": header(round(seconds * 1e9), frame)}
    return Namespace(**stamp, **values)


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


def drive(start=0.0, seconds=2.0, rate=50.0, odometry_rate=20.0, speed=0.2, origin=(0.0, 0.0)):
    """Fields and poses of a straight drive along x, each stream in order."""
    fields = [
        field_message(start + i / rate, (0.0, 0.0, (40 + i % 7) * 1e-6))
        for i in range(int(seconds * rate))
    ]
    poses = [
        odometry_message(
            start + i / odometry_rate, (origin[0] + speed * i / odometry_rate, origin[1], 0.0)
        )
        for i in range(int(seconds * odometry_rate) + 1)
    ]
    return fields, poses


def by_stamp(*streams):
    return sorted(
        (m for s in streams for m in s), key=lambda m: (m.header.stamp.sec, m.header.stamp.nanosec)
    )
