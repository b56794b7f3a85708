"""The learner of a vector field: slope and information of its evidence against differences of the dense covariance."""

from dataclasses import replace

import pytest
import torch

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.rows import RowLearner
from gp_mapping.core.hyper.theta import Theta, heading_from_velocity
from gp_mapping.core.hyper.vector_theta import VectorTheta

PLAIN = Theta(
    0.8,
    3.0,
    0.7,
    5.0,
    heading_stddev=0.5,
    time_offset=0.1,
    lever_arm_along=0.05,
    lever_arm_across=-0.1,
)
FREE = (True,) * 7


def rows(places: int = 7):
    """Three rows of each place: what a learner is given."""
    draw = torch.Generator().manual_seed(0)
    x, v, y = (torch.randn(places, 2, dtype=torch.float64, generator=draw) for _ in range(3))
    each = torch.arange(places).repeat_interleave(3)
    component = torch.arange(3).repeat(places).double()[:, None]
    y = torch.randn(3 * places, 1, dtype=torch.float64, generator=draw)
    extra = torch.rand(3 * places, dtype=torch.float64, generator=draw)
    return {
        "x": torch.cat([x[each], component], 1),
        "velocity": torch.cat([v[each], 0.0 * component], 1),
        "heading": heading_from_velocity(v[each]),
        "y": 3.0 * y,
        "extra": extra,
        "pass_number": 3.0 * (each % 2) + component[:, 0],  # two passes, a constant a component
    }


def dense(theta: VectorTheta, data: dict) -> torch.Tensor:
    """C of all rows, (n, n)."""
    x, heading = data["x"], data["heading"]
    places = theta.sensor_place(x, data["velocity"], heading)
    beside = theta.feature_rows(x, heading)
    noise = torch.full((len(x),), theta.noise_stddev**2, dtype=torch.float64)
    noise[x[:, 2] == 2.0] *= theta.vertical**2
    together = data["pass_number"][:, None] == data["pass_number"]
    return (
        theta.kernel()(places, places)
        + beside.mT @ beside
        + theta.bias_stddev**2 * together
        + torch.diag(noise + data["extra"])
    )


@pytest.mark.parametrize("potential, bias", [("free", 0.0), ("harmonic", 0.0), ("harmonic", 2.0)])
def test_the_score_is_the_slope_of_the_dense_evidence(potential, bias):
    theta = VectorTheta.from_theta(
        replace(PLAIN, bias_stddev=bias),
        vertical=1.4,
        coherence=0.3 if potential == "harmonic" else 0.0,
        potential=potential,
    )
    data, learner = rows(), RowLearner(theta, replace(theta), free=FREE)
    n = len(data["x"])
    gradient, information = learner.score(theta.vector(), data, torch.arange(n))
    vector, free = theta.vector(), torch.tensor(learner.free)
    assert free.tolist() == [True] * 8 + [potential == "harmonic"]

    def energy(at):
        c = dense(theta.with_vector(at), data)
        return float(
            0.5 * torch.logdet(c) + 0.5 * (data["y"] * torch.linalg.solve(c, data["y"])).sum()
        )

    steps = 1e-5 * torch.eye(9, dtype=torch.float64)
    slope = torch.tensor(
        [(energy(vector + h) - energy(vector - h)) / 2e-5 for h in steps], dtype=torch.float64
    )
    assert torch.allclose(gradient[free], slope[free], rtol=1e-5, atol=1e-5)
    inverse = torch.linalg.inv(dense(theta, data))
    products = [
        inverse
        @ (dense(theta.with_vector(vector + h), data) - dense(theta.with_vector(vector - h), data))
        / 2e-5
        for h in steps
    ]
    fisher = torch.stack(
        [torch.stack([0.5 * (a * b.mT).sum() for b in products]) for a in products]
    )
    assert torch.allclose(information[free][:, free], fisher[free][:, free], rtol=1e-4, atol=1e-4)
    assert not gradient[~free].any() and not information[~free].any()


def test_what_is_held_has_no_slope():
    """Without the signal neither the vertical noise's ratio nor the coherence is learned."""
    theta = VectorTheta.from_theta(PLAIN)
    learner = RowLearner(theta, theta, free=(False, False, True, False, False, False, False))
    assert learner.free == [False, False, True] + [False] * 4 + [True, False]
    gradient, _ = learner.score(theta.vector(), rows(), torch.arange(9))
    assert gradient.nonzero().flatten().tolist() == [2, 7]


def test_a_step_asks_all_components_of_places_that_lie_together():
    """As of a stream: the number of a component is no distance."""
    theta, data = VectorTheta.from_theta(PLAIN), rows(60)
    learner, generator = RowLearner(theta, theta, free=FREE), torch.Generator().manual_seed(0)
    data["order"] = torch.arange(180).double()
    near, stands_for = learner.neighbourhood(data["x"], data["order"], generator)
    assert 120 <= len(near) == stands_for and len({int(i) // 3 for i in near}) == len(near) // 3
    before = learner.vector.clone()
    assert learner.step(data, generator) and learner.steps == 1 and learner.rejected == 0
    moved = (learner.vector - before).abs()
    longest = torch.tensor(learner.LONGEST, dtype=torch.float64)
    assert (
        bool((moved > 0).all()) and bool((moved <= longest * (1 + 1e-12)).all()) and learner.streams
    )


def test_neighbours_are_near_in_the_plane_whatever_their_component():
    """Beside the newest row: none is left out that is nearer than one that is taken."""
    learner = RowLearner(VectorTheta.from_theta(PLAIN), VectorTheta.from_theta(PLAIN), free=FREE)
    places = torch.rand(400, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    x = torch.cat([places * 20.0, torch.arange(400).double()[:, None] % 3], 1)
    order, generator = torch.arange(400).double(), torch.Generator().manual_seed(0)
    near, _ = learner.neighbourhood(x, order, generator)
    same = HyperLearner(PLAIN, PLAIN)
    same.NEIGHBOURS, same.LEAST = learner.NEIGHBOURS, learner.LEAST
    alone, _ = same.neighbourhood(x[:, :2], order, torch.Generator().manual_seed(0))
    assert torch.equal(near, alone) and 0 < len(near) < 400
