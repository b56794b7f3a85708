"""What looks like a drift: each covariance is that of the fault it is named after."""

import math

import pytest
import torch
from drifting import LENGTH, SPEED, crossing, lanes, passes, way

from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.drift.alternatives import change_window, follow, roughness
from gp_mapping.mapping.drift.evidence import DriftSearch

STEP = LENGTH / 5.0


def test_a_wandering_pose_adds_the_curvature_of_the_kernel():
    """−∇²k by differences."""
    kernel, step = make_kernel("matern52", 1.0, LENGTH), 1e-3
    for apart in (0.0, 0.7, 2.5):
        here = torch.tensor([[apart, 0.0]], dtype=torch.float64)
        around = here + step * torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]]).double()
        origin = torch.zeros((1, 2), dtype=torch.float64)
        curved = (4.0 * kernel(here, origin) - kernel(around, origin).sum()) / step**2
        told = roughness(torch.tensor(apart, dtype=torch.float64), LENGTH)
        # half of the trace: of one of two coordinates
        assert float(told) == pytest.approx(0.5 * float(curved) * LENGTH**2, abs=1e-3)


def test_velocity_is_that_of_the_way_and_ends_with_a_pass():
    whole = way(passes(1, crossing(STEP)))
    speed = whole.velocity().norm(dim=1)
    assert float(speed.median()) == pytest.approx(SPEED, rel=1e-6) and float(speed.max()) < 0.51
    first = int((whole.passes == 1).sum())
    ahead = (whole.x[first + 1] - whole.x[first]) / (whole.stamp[first + 1] - whole.stamp[first])
    assert torch.allclose(whole.velocity()[first], ahead)


def test_a_slow_sensor_settles_and_begins_settled():
    whole = way(passes(1, [lanes(10.0, 0.0, 1.0, STEP)] * 2))
    follows = follow(whole, 2.0, torch.eye(len(whole.y)).double())
    assert torch.allclose(follows.sum(1), torch.ones(len(whole.y)).double())
    n = int((whole.passes == 1).sum())
    assert float(follows[n, n]) == 1.0 and float(follows[n:, :n].abs().max()) == 0.0
    keep = math.exp(-float(whole.stamp[1] - whole.stamp[0]) / 2.0)
    assert float(follows[3, 1]) == pytest.approx((1.0 - keep) * keep**2)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_place_that_changed_is_found(seed):
    """At (5, 4) m, seen by the second of two passes; there alone the evidence is better than everywhere."""
    whole = way(passes(seed, crossing(STEP), moved=1.0))
    search = DriftSearch(whole, LENGTH, "matern52")
    apart = (whole.x[:, None] - whole.x).norm(dim=2)
    field = make_kernel("matern52", 1.0, LENGTH)(whole.x, whole.x)
    alone = field + search.free + 0.01 * search.eye
    window = change_window(alone, search.y, field * search.same, apart, LENGTH)
    centre = whole.x[int(window.argmax())]
    assert float((centre - torch.tensor([5.0, 4.0])).norm()) < 0.75 * LENGTH

    def told(which):
        return search._evidence(alone + 0.1 * field * search.same * which)  # noqa: SLF001

    assert told(window[:, None] * window) > told(1.0) + 5.0
