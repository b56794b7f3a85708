"""Rigid transforms, in plain Python, since a chain of a few of them is made for each measurement.

Quaternions are (x, y, z, w), of unit length; T_a_b takes coordinates in frame b to coordinates in
frame a.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

__all__ = ["IDENTITY", "Transform", "multiply", "rotate", "slerp", "slerp_rows", "unit"]

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


class Transform(NamedTuple):
    """A rigid transform T_a_b.

        p_a = R p_b + translation

    Attributes:
        translation: m.
        rotation: R, a unit quaternion.
    """

    translation: Vector
    rotation: Quaternion

    def __matmul__(self, other: Transform) -> Transform:
        """T_a_b @ T_b_c = T_a_c."""
        x, y, z = rotate(self.rotation, other.translation)
        a, b, c = self.translation
        return Transform((a + x, b + y, c + z), multiply(self.rotation, other.rotation))

    def inverse(self) -> Transform:
        """T_b_a of T_a_b."""
        x, y, z, w = self.rotation
        back = (-x, -y, -z, w)
        a, b, c = rotate(back, self.translation)
        return Transform((-a, -b, -c), back)


IDENTITY = Transform((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))


def unit(quaternion: Quaternion) -> Quaternion:
    """Scale a quaternion to length 1."""
    x, y, z, w = quaternion
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return x / norm, y / norm, z / norm, w / norm


def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Compose two rotations: the quaternion of R(p) R(q), that is q followed by p.

    Args:
        p: the rotation that comes second.
        q: the rotation that comes first.
    """
    (a, b, c, d), (x, y, z, w) = p, q
    return (
        d * x + a * w + b * z - c * y,
        d * y - a * z + b * w + c * x,
        d * z + a * y - b * x + c * w,
        d * w - a * x - b * y - c * z,
    )


def rotate(q: Quaternion, v: Vector) -> Vector:
    """Rotate a vector: R(q) v.

    Args:
        q: the rotation.
        v: the vector, in any unit.
    """
    a, b, c, d = q
    x, y, z = v
    # t = 2 (a, b, c) × v;  v + d t + (a, b, c) × t
    tx, ty, tz = 2.0 * (b * z - c * y), 2.0 * (c * x - a * z), 2.0 * (a * y - b * x)
    return x + d * tx + b * tz - c * ty, y + d * ty + c * tx - a * tz, z + d * tz + a * ty - b * tx


def slerp(p: Quaternion, q: Quaternion, weight: float) -> Quaternion:
    """Interpolate from p (weight 0) to q (weight 1) along the shorter arc, at a steady rate.

    Args:
        p: unit quaternion.
        q: unit quaternion.
        weight: 0…1.
    """
    (a, b, c, d), (x, y, z, w) = p, q
    cosine = a * x + b * y + c * z + d * w

    # q and −q are the same rotation: take the nearer one
    if cosine < 0.0:
        x, y, z, w, cosine = -x, -y, -z, -w, -cosine

    # the arc is as good as straight, and its sine would divide zero by zero
    if cosine > 1.0 - 1e-12:
        return unit(
            (a + weight * (x - a), b + weight * (y - b), c + weight * (z - c), d + weight * (w - d))
        )

    angle = math.acos(cosine)
    first, second = math.sin((1.0 - weight) * angle), math.sin(weight * angle)
    return unit(
        (
            first * a + second * x,
            first * b + second * y,
            first * c + second * z,
            first * d + second * w,
        )
    )


def slerp_rows(p: np.ndarray, q: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Interpolate each row as `slerp` does.

    No row depends on the others: of operations on arrays only those are used that round the same
    whatever the shape, and sines are taken one by one.

    Args:
        p: (n, 4) unit quaternions.
        q: (n, 4) unit quaternions.
        weight: (n,) 0…1; rows of weight 0 stay as they are.
    """
    cosine = p[:, 0] * q[:, 0] + p[:, 1] * q[:, 1] + p[:, 2] * q[:, 2] + p[:, 3] * q[:, 3]

    # q and −q are the same rotation: take the nearer one
    q, cosine = np.where(cosine < 0.0, -q.T, q.T).T, np.abs(cosine)

    angle = np.array(list(map(math.acos, np.minimum(cosine, 1.0).tolist())))
    first, second = (
        np.array(list(map(math.sin, part.tolist())))
        for part in ((1.0 - weight) * angle, weight * angle)
    )

    arc = first[:, None] * p + second[:, None] * q
    arc = np.where((cosine > 1.0 - 1e-12)[:, None], p + weight[:, None] * (q - p), arc)

    norm = np.sqrt(arc[:, 0] ** 2 + arc[:, 1] ** 2 + arc[:, 2] ** 2 + arc[:, 3] ** 2)
    return np.where((weight == 0.0)[:, None], p, arc / norm[:, None])
