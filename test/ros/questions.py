"""Questions to a map, as point clouds."""

from array import array

import numpy as np
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Header

NAMES = ("x", "y", "z", "mean", "stddev")


POINTS = np.array([[0.5, 0.1, 0.0], [1.3, 0.2, 7.0], [50.0, -50.0, 0.0]])


def question(points, number=0, frame="odom", kind="<f4", fields=None, **changes) -> PointCloud2:
    """points (N, 3) as x y z of that type; number: its stamp in seconds."""
    values = np.asarray(points).astype(kind)
    code = PointField.FLOAT64 if values.dtype.itemsize == 8 else PointField.FLOAT32
    out = PointCloud2(
        header=Header(frame_id=frame),
        height=1,
        width=len(values),
        point_step=values.strides[0],
        row_step=values.nbytes,
        is_bigendian=kind[0] == ">",
        data=array("B", values.tobytes()),
    )
    out.header.stamp.sec = number
    out.fields = (
        fields
        if fields is not None
        else [
            PointField(name=name, offset=i * values.dtype.itemsize, datatype=code, count=1)
            for i, name in enumerate("xyz")
        ]
    )
    for name, value in changes.items():
        setattr(out, name, value)
    return out
