"""The kernel that remembered samples are likeliest under: its evidence, and when it is clear."""

import math
from dataclasses import replace

import pytest
import torch
from survey_paths import lawnmower

from gp_mapping.core.hyper.evidence import evidence_score, negative_log_evidence
from gp_mapping.core.hyper.smoothness import (
    Evidence,
    KernelSearch,
    Neighbourhoods,
    is_clear,
    negative_evidence,
)
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels import make_kernel

THETA = Theta(0.8, 3.0, 0.1, 6.0, 0.3, 0.02, 0.1, bias_stddev=0.2)
NAMES = ("x", "velocity", "heading", "y", "extra", "pass_number", "extent")


def columns(kernel="matern52", seed=0, n=300, length=0.8):
    """Samples on lanes, .1 m apart, of a field of that kernel, spread 3, with a noise of .1."""
    x, generator = lawnmower(6.0, 0.4, 0.1)[:n], torch.Generator().manual_seed(seed)
    gram = make_kernel(kernel, 9.0, length)(x, x) + 1e-8 * torch.eye(n).double()
    normal = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    velocity = torch.cat([x[1:] - x[:-1], x[-1:] - x[-2:-1]])
    heading = velocity / velocity.norm(dim=1, keepdim=True)
    y = torch.linalg.cholesky(gram) @ normal[:, :1] + 0.1 * normal[:, 1:]
    whole = [x, velocity, heading, y, torch.full((n,), 1e-3).double(), torch.arange(n) // 90]
    whole.append(torch.full((n,), 0.03).double())
    return dict(zip(NAMES, (column.double() for column in whole)))


def search(data, theta):
    """A search that is done."""
    done = KernelSearch(theta, Neighbourhoods.of([data], theta))
    done.finish()
    return done


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_the_evidence_is_that_of_each_neighbourhood(correlation):
    """Value, gradient and information are those of evidence.py, one neighbourhood at a time."""
    theta, data = replace(THETA, bias_correlation=correlation), columns()
    given = Neighbourhoods.of([data], theta)
    assert not given.present.all(), "some have fewer samples than others"
    found = negative_evidence(theta, "matern52", theta.vector()[:3], given)

    behind = theta.sensor_place(data["x"], data["velocity"], data["heading"]).tolist()
    by_place = {tuple(place): i for i, place in enumerate(behind)}
    value, gradient, information = 0.0, 0.0, 0.0
    for x, present in zip(given.x, given.present):
        rows = torch.tensor([by_place[tuple(place)] for place in x[present].tolist()])
        part = [data[name][rows] for name in NAMES]
        normal = 0.5 * math.log(2.0 * math.pi)
        value += len(rows) * (negative_log_evidence(theta, theta.vector(), *part) - normal)
        free = [True] * 3 + [False] * 4
        slope, known = evidence_score(theta, theta.vector(), free, *part, average=True)
        gradient, information = gradient + slope[:3], information + known[:3, :3]
    torch.testing.assert_close(found[0].sum(), value, rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(found[1], gradient, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(found[2], information, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("true", "wrong"), [("matern92", "matern32"), ("matern32", "matern92")])
def test_a_wrong_kernel_is_found_out(true, wrong):
    n = 700
    data = columns(true, 1, n)
    theta = replace(THETA, heading_stddev=0.0, time_offset=0.0, lever_arm_along=0.0)
    found = search(data, replace(theta, kernel_name=wrong)).clearly
    order = ("matern32", "matern52", "matern72", "matern92")
    towards = order.index(found.kernel_name) - order.index(wrong)
    assert towards * (order.index(true) - order.index(wrong)) > 0
    assert search(data, replace(theta, kernel_name=true)).clearly is None


def test_the_likeliest_numbers_are_those_of_a_maximum():
    done = search(columns(), replace(THETA, heading_stddev=0.0))
    theta = done.theta_of("matern32")
    assert theta.kernel_name == "matern32"
    best = done.found["matern32"]
    for entry in range(3):
        for step in (-0.2, 0.2):
            other = best.vector.clone()
            other[entry] += step
            parts, _, _ = negative_evidence(done.theta, "matern32", other, done.data)
            assert float(parts.sum()) > -float(best.parts.sum()) - 0.05


def test_one_neighbourhood_does_not_decide():
    """An object with an edge is worth many nats, where it lies: all others say the opposite."""
    present = Evidence(0.0, torch.zeros(8).double(), torch.zeros(3))
    one = torch.full((8,), -1.0).double()
    one[3] = 40.0
    every = torch.tensor([3.0, 4.0, 5.0, 4.0, 3.0, 6.0, 4.0, 4.0]).double()
    assert not is_clear(Evidence(33.0, one, torch.zeros(3)), present)
    assert is_clear(Evidence(33.0, every, torch.zeros(3)), present)
    assert not is_clear(Evidence(4.0, every / 8.0, torch.zeros(3)), present)


def test_a_search_goes_on_where_it_was_saved():
    one = KernelSearch(THETA, Neighbourhoods.of([columns()], THETA))
    for _ in range(4):
        one.advance()
    two = KernelSearch.restored(one.state_dict())
    one.finish()
    two.finish()
    assert {name: each.nats for name, each in one.found.items()} == {
        name: each.nats for name, each in two.found.items()
    }


def test_a_robot_that_stands_tells_nothing():
    data = columns(n=400)
    data["x"] = data["x"][:1].expand(400, 2).clone()
    assert Neighbourhoods.of([data], THETA) is None
