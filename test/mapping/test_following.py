"""Points that wait are looked at: where the map has drifted they are followed, elsewhere they wait on."""

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.core.registry import build_map
from gp_mapping.mapping.drawing.following import DRIFT, Follower
from gp_mapping.mapping.drawing.grid import GridWindow
from gp_mapping.mapping.drawing.lattice import Lattice

UT = 1e-6
SETTINGS = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "heading_stddev": 0.0,
    "lengthscale": 0.5,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.5 * UT,
    "constant_stddev": 5 * UT,
    "tiles": False,
}


def surveyed():
    """A map of a few lanes over 8 × 4 m, and a lattice of twice the ground that is exact of it."""
    field = build_map(MapSettings(**SETTINGS))
    x = torch.cartesian_prod(
        torch.arange(0.0, 8.1, 0.4).double(), torch.arange(0.0, 4.1, 0.8).double()
    )
    field.update(Samples(x, (48 + 5 * torch.sin(x[:, :1])) * UT))
    lattice = Lattice(GridWindow(0, 0, 160, 40, 0.1), 0.5, np.full(1, 48 * UT), np.full(1, 1e-10))
    follower = Follower(lambda _, prediction: prediction, 0)
    everywhere = lattice.stale.nonzero()
    lattice.fill(*everywhere, field.predict(lattice.places(*everywhere)))
    lattice.exact[:] = follower.number(lattice, field)
    return field, lattice, follower


def drifted(field, lattice) -> np.ndarray:
    """Which points (R, K) are beside the map by more than a drawing may be."""
    told = field.predict(lattice.places(*np.indices(lattice.stale.shape).reshape(2, -1)))
    mean, variance = (
        part.numpy().reshape(lattice.stale.shape) for part in (told.mean, told.variance)
    )
    predictive = np.sqrt(variance + (0.5 * UT) ** 2)
    off = np.abs(lattice.mean[0] - mean) > DRIFT * predictive
    return off | (np.abs(np.sqrt(lattice.variance[0] / variance) - 1.0) > DRIFT)


def test_where_the_map_has_drifted_points_are_followed_although_no_sample_was_noted():
    field, lattice, follower = surveyed()
    assert not drifted(field, lattice).any()
    field.update(Samples(torch.tensor([[2.0, 2.0]]).double(), torch.full((1, 1), 60 * UT)))
    before = drifted(field, lattice)
    assert 200 < before.sum() < 0.18 * before.size

    done = follower.follow(lattice, field, 1, 0.5 * UT, 500, False)
    now = lattice.exact == follower.now(field)
    assert sum(len(rows) for rows, _ in done) == now.sum() < 0.5 * now.size
    assert drifted(field, lattice).sum() < 0.05 * before.sum()
    assert not drifted(field, lattice)[now].any() and not lattice.stale.any()


@pytest.mark.parametrize("budget", [None, 100_000])
def test_all_points_are_followed_where_the_budget_reaches_for_them(budget):
    field, lattice, follower = surveyed()
    field.update(Samples(torch.tensor([[2.0, 2.0]]).double(), torch.full((1, 1), 60 * UT)))
    (part,) = follower.follow(lattice, field, 1, 0.5 * UT, budget, False)
    assert len(part[0]) == lattice.stale.size and not drifted(field, lattice).any()
    told = field.predict(lattice.places(*part))
    assert float(np.abs(lattice.mean[0][part] - told.mean[:, 0].numpy()).max()) < 1e-9 * UT


def test_what_cannot_be_followed_is_known_of_no_moment():
    """With other hyper-parameters no change is known: to ask for it again would be in vain."""
    field, lattice, follower = surveyed()
    other = build_map(MapSettings(**(SETTINGS | {"lengthscale": 0.6})))
    other.update(Samples(torch.tensor([[2.0, 2.0]]).double(), torch.full((1, 1), 60 * UT)))
    assert follower.knows(lattice).all()
    (part,) = follower.follow(lattice, other, 1, 0.5 * UT, None, False)
    assert not len(part[0]) and not follower.knows(lattice).any() and not lattice.stale.any()


def test_moments_that_no_point_needs_are_let_go_of():
    """While a point is exact as of a moment it is kept, however many came after it."""
    field, lattice, follower = surveyed()
    first = int(lattice.exact[0, 0])
    for k in range(12):
        x = torch.tensor([[0.2 * k, 1.0]]).double()
        field.update(Samples(x, torch.full((1, 1), 50 * UT)))
        field.predict(x)
        lattice.exact[1:] = follower.number(lattice, field)
        assert follower.knows(lattice).all() and lattice.exact[0, 0] == first


def test_points_of_an_old_moment_are_followed_over_all_that_came_since():
    """Also where moments in between were let go of: what changed up to them is not lost."""
    field, lattice, follower = surveyed()
    waiting = np.zeros(lattice.stale.shape, dtype=bool)
    waiting[:, ::2] = True
    others = (~waiting).nonzero()
    for k in range(8):
        x = torch.tensor([[0.5 + 0.9 * k, 1.3]]).double()
        field.update(Samples(x, torch.full((1, 1), 55 * UT)))
        lattice.fill(*others, field.predict(lattice.places(*others)))
        lattice.exact[others] = follower.number(lattice, field)
    field.update(Samples(x + 0.4, torch.full((1, 1), 55 * UT)))
    assert drifted(field, lattice)[waiting].any() and len(np.unique(lattice.exact)) == 2

    follower.follow(lattice, field, 9, 0.5 * UT, None, False)
    everywhere = np.indices(lattice.stale.shape).reshape(2, -1)
    told = field.predict(lattice.places(*everywhere))
    apart = np.abs(lattice.mean[0].ravel() - told.mean[:, 0].numpy())
    assert float(apart.max()) < 1e-9 * UT and follower.knows(lattice).all()
    assert float(np.abs(lattice.variance[0].ravel() / told.variance[:, 0].numpy() - 1).max()) < 1e-9
