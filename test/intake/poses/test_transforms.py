import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation, Slerp

from gp_mapping.intake.poses.transforms import (
    IDENTITY,
    Transform,
    multiply,
    rotate,
    slerp,
    slerp_rows,
    unit,
)

quaternions = (
    st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: sum(v * v for v in q) > 1e-2).map(unit)
)
vectors = st.tuples(*[st.floats(-1e3, 1e3)] * 3)


@given(quaternions, quaternions, vectors)
def test_quaternions_agree_with_scipy(p, q, v):
    a, b = Rotation.from_quat(p), Rotation.from_quat(q)
    np.testing.assert_allclose(rotate(p, v), a.apply(v), atol=1e-9)
    np.testing.assert_allclose(rotate(multiply(p, q), v), (a * b).apply(v), atol=1e-9)


@given(quaternions, quaternions, st.floats(0, 1))
def test_slerp_agrees_with_scipy(p, q, weight):
    if abs(sum(a * b for a, b in zip(p, q))) < 1e-6:  # half a turn: both ways are as short
        return
    expected = Slerp([0.0, 1.0], Rotation.from_quat([p, q]))(weight)
    rows = slerp_rows(np.array([p] * 2), np.array([q] * 2), np.array([weight] * 2))
    np.testing.assert_allclose(rows, [slerp(p, q, weight)] * 2, atol=1e-9)
    assert (Rotation.from_quat(slerp(p, q, weight)).inv() * expected).magnitude() < 1e-6


@given(quaternions, st.floats(0, 1))
def test_between_two_turns_that_are_nearly_the_same_is_that_turn(p, weight):
    nearly = multiply(p, unit((1e-8, -2e-8, 1e-8, 1.0)))
    np.testing.assert_allclose(slerp(p, nearly, weight), p, atol=1e-7)


@given(quaternions, vectors, quaternions, vectors, vectors)
def test_chains_and_inverses(p, a, q, b, point):
    t_ab, t_bc = Transform(a, p), Transform(b, q)
    at_b = np.add(rotate(q, point), b)
    np.testing.assert_allclose(
        np.add(rotate((t_ab @ t_bc).rotation, point), (t_ab @ t_bc).translation),
        np.add(rotate(p, tuple(at_b)), a),
        atol=1e-8,
    )
    back = t_ab.inverse() @ t_ab
    np.testing.assert_allclose(back.translation, IDENTITY.translation, atol=1e-9)
    np.testing.assert_allclose(np.abs(back.rotation[3]), 1.0, atol=1e-9)


@pytest.mark.parametrize("angle", [1e-9, 1e-7, 1e-6, 3e-6, 1e-4, 1.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_between_headings_that_hardly_differ_as_between_others(angle, sign):
    """Relative to the angle itself, which a comparison of whole quaternions would not see."""
    axis = np.array([0.48, 0.6, 0.64])
    p = (0.0, 0.0, 0.0, 1.0)
    q = tuple(sign * np.append(np.sin(angle / 2) * axis, np.cos(angle / 2)))
    for weight in (0.0, 0.25, 1.0):
        turned = np.append(np.sin(weight * angle / 2) * axis, np.cos(weight * angle / 2))
        np.testing.assert_allclose(slerp(p, q, weight), turned, rtol=1e-6, atol=1e-9 * angle)
        rows = slerp_rows(np.array([p] * 2), np.array([q] * 2), np.array([weight] * 2))
        np.testing.assert_allclose(rows, [turned] * 2, rtol=1e-6, atol=1e-9 * angle)
