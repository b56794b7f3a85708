import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation, Slerp

from gp_mapping.intake.poses.transforms import IDENTITY, Transform, multiply, rotate, slerp, unit

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
    assert (Rotation.from_quat(slerp(p, q, weight)).inv() * expected).magnitude() < 1e-6


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
