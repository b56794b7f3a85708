"""Points known as of the last drawing are followed; with a budget few are, the others interpolated."""

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.core.registry import build_map
from gp_mapping.mapping.drawing.following import Follower
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
LIMIT = 0.02  # predictive standard deviations of the mean, or of the stddev relative to it


class Counted:
    """A map, and at how many places it was asked for predictions and for changes."""

    def __init__(self, field):
        self.field, self.predicted, self.followed = field, 0, 0

    def __getattr__(self, name):
        return getattr(self.field, name)

    def predict(self, x):
        self.predicted += len(x)
        return self.field.predict(x)

    def since(self, moment):
        change = self.field.since(moment)

        def counted(x):
            self.followed += len(x)
            return change(x)

        return None if change is None else counted


def surveyed():
    """A map of a few lanes over 8 × 4 m, and a lattice of twice the ground that is exact of it."""
    field = build_map(MapSettings(**SETTINGS))
    x = torch.cartesian_prod(
        torch.arange(0.0, 8.1, 0.4).double(), torch.arange(0.0, 4.1, 0.8).double()
    )
    field.update(Samples(x, (48 + 5 * torch.sin(x[:, :1])) * UT))
    lattice = Lattice(GridWindow(0, 0, 320, 80, 0.05), 0.5, np.full(1, 48 * UT), np.full(1, 1e-10))
    follower = Follower(lambda _, prediction: prediction)
    everywhere = lattice.stale.nonzero()
    lattice.fill(*everywhere, field.predict(lattice.places(*everywhere)))
    lattice.exact[:] = follower.number(lattice, field)
    return field, lattice, follower


def measured(field, x, value) -> torch.Tensor:
    """One more sample, and where it was taken."""
    place = torch.tensor([x]).double()
    field.update(Samples(place, torch.full((1, 1), value * UT)))
    return place


def off(field, lattice) -> np.ndarray:
    """By how much points (R, K) are beside the map, as LIMIT."""
    told = field.predict(lattice.places(*np.indices(lattice.stale.shape).reshape(2, -1)))
    mean, variance = (
        part.numpy().reshape(lattice.stale.shape) for part in (told.mean, told.variance)
    )
    beside = np.abs(lattice.mean[0] - mean) / np.sqrt(variance + (0.5 * UT) ** 2)
    return np.maximum(beside, np.abs(np.sqrt(lattice.variance[0] / variance) - 1.0))


def test_with_a_budget_all_points_are_brought_up_to_now_from_few():
    field, lattice, follower = surveyed()
    at = measured(field, [2.0, 2.0], 60)
    assert (off(field, lattice) > LIMIT).sum() > 800

    counted = Counted(field)
    work = follower.follow(lattice, counted, 1, 0.5 * UT, 2000, at)
    assert not counted.predicted and counted.followed < 0.2 * lattice.stale.size
    assert work == counted.followed / 6
    assert off(field, lattice).max() < 0.5 * LIMIT and not lattice.stale.any()
    assert (lattice.doubt <= LIMIT).all() and lattice.doubt.any() and follower.knows(lattice).all()


class Partly:
    """A map that does not tell what has changed at x > 2, as beside a tile that has changed as a whole."""

    def __init__(self, field):
        self.field = field

    def __getattr__(self, name):
        return getattr(self.field, name)

    def since(self, moment):
        change = self.field.since(moment)

        def untold(x):
            mean, variance, told = change(x)
            here = (x[:, :1] <= 2.0).to(mean)
            return mean * here, variance * here, told & (x[:, 0] <= 2.0)

        return untold


def test_with_a_budget_what_is_not_told_is_evaluated_anew():
    field, lattice, follower = surveyed()
    at = measured(field, [2.0, 2.0], 60)
    follower.follow(lattice, Partly(field), 1, 0.5 * UT, 2000, at)
    assert off(field, lattice).max() < LIMIT and not lattice.stale.any()


def test_without_a_budget_what_is_not_told_is_known_no_more():
    field, lattice, follower = surveyed()
    at = measured(field, [2.0, 2.0], 60)
    follower.follow(lattice, Partly(field), 1, 0.5 * UT, None, at)
    told = np.broadcast_to(lattice.columns <= 2.0, lattice.stale.shape)
    assert np.array_equal(follower.knows(lattice), told)
    assert off(field, lattice)[told].max() < 1e-6


def test_doubt_adds_up_until_a_point_is_evaluated_again():
    """However many drawings follow one another, none is farther off than LIMIT."""
    field, lattice, follower = surveyed()
    again, worst = 0, 0.0
    for k in range(16):
        at = measured(field, [0.2 + 0.45 * k, 1.2 + 0.3 * (k % 5)], 50 + 3 * np.sin(0.7 * k))
        follower.follow(lattice, field, k, 0.5 * UT, 2000, at)
        chosen = lattice.choose(2000, False)
        again += len(chosen[0])
        lattice.fill(*chosen, field.predict(lattice.places(*chosen)))
        lattice.exact[chosen] = follower.number(lattice, field)
        worst = max(worst, off(field, lattice).max())
    assert worst < LIMIT and 0 < again < 0.02 * 16 * lattice.stale.size


def test_doubt_grows_where_the_variance_falls():
    """The same error is a larger fraction of a smaller standard deviation."""
    field, lattice, follower = surveyed()
    lattice.doubt[:] = 0.3 * LIMIT
    before = lattice.variance[0].copy()
    at = measured(field, [10.0, 2.0], 50)  # where nobody has been
    follower.follow(lattice, field, 1, 0.5 * UT, 2000, at)
    fallen = lattice.variance[0] < 0.2 * before
    assert fallen.any() and lattice.stale[fallen].all()
    assert not lattice.stale[lattice.variance[0] > 0.9 * before].any()


def test_what_the_work_does_not_reach_for_waits_and_is_in_doubt():
    field, lattice, follower = surveyed()
    at = measured(field, [2.0, 2.0], 80)
    follower.follow(lattice, field, 1, 0.5 * UT, 60, at)
    wrong = off(field, lattice) > LIMIT
    assert lattice.stale.any() and wrong.any() and lattice.stale[wrong].mean() > 0.9
    assert (lattice.stale == (lattice.doubt > LIMIT)).all() and lattice.since[wrong].max() == 1


def test_without_a_budget_all_points_are_followed_and_none_is_in_doubt():
    field, lattice, follower = surveyed()
    lattice.doubt[3, :50], lattice.mean[0, 3, :50] = 0.01, 0.0
    at = measured(field, [2.0, 2.0], 60)
    counted = Counted(field)
    follower.follow(lattice, counted, 1, 0.5 * UT, None, at)
    assert counted.followed == lattice.stale.size - 50 and not counted.predicted
    assert lattice.stale[3, :50].all() and lattice.stale.sum() == 50
    lattice.fill(*lattice.stale.nonzero(), field.predict(lattice.places(*lattice.stale.nonzero())))
    assert off(field, lattice).max() < 1e-6 and not lattice.doubt.any()


@pytest.mark.parametrize("budget", [None, 2000])
def test_what_cannot_be_followed_is_known_of_no_moment(budget):
    """With other hyper-parameters no change is known: to ask for it again would be in vain."""
    field, lattice, follower = surveyed()
    other = build_map(MapSettings(**(SETTINGS | {"lengthscale": 0.6})))
    at = measured(other, [2.0, 2.0], 60)
    assert follower.knows(lattice).all()
    assert not follower.follow(lattice, other, 1, 0.5 * UT, budget, at)
    assert not follower.knows(lattice).any() and not lattice.stale.any()


def test_few_points_are_evaluated_as_soon():
    field, lattice, follower = surveyed()
    lattice.exact[1:] = 0
    lattice.exact[0, 90:] = 0
    measured(field, [2.0, 2.0], 60)
    assert follower.follow(lattice, field, 1, 0.5 * UT, None, torch.zeros((0, 2))) == 0.0
    assert lattice.stale[0, :90].all() and lattice.stale.sum() == 90


def test_what_has_not_changed_is_not_looked_at():
    """Most drawings of a live map see no new cell: they evaluate nothing, and what was known stays known."""
    field, lattice, follower = surveyed()
    lattice.doubt[3, :50], lattice.doubt[4, :50] = 1.5 * LIMIT, 0.5 * LIMIT
    lattice.stale[3, :50] = lattice.stale[4:20] = True
    counted = Counted(field)
    assert not follower.follow(lattice, counted, 1, 0.5 * UT, 2000, torch.zeros((0, 2)))
    assert not counted.followed and not counted.predicted and follower.knows(lattice).all()
    # what is in doubt waits as before
    assert lattice.stale[3, :50].all() and lattice.stale.sum() == 50

    # what was never evaluated is not known of any moment, and waits, too
    lattice.exact[10:12], lattice.stale[10:12] = 0, True
    assert not follower.follow(lattice, counted, 1, 0.5 * UT, 2000, torch.zeros((0, 2)))
    assert lattice.stale[10:12].all() and not counted.followed
