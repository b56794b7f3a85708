"""Which of the routes that are known may be chosen: those that leave little enough in the end."""

from types import SimpleNamespace

import pytest

from gp_mapping.planning.planners.bending import Bend
from gp_mapping.planning.planners.route import (
    _Seeds,
)  # private: a plan shows one of its choices alone

OLD, SOON, LATE = (1,), (2,), (3,)


def seeds_of(rated, old=(), gain=0.1, total=100.0):
    """Of routes with their final gains and ratings; those of an old route among them."""
    problem = SimpleNamespace(
        gain=gain,
        value=SimpleNamespace(total=total),
        rate_both=lambda routes: [rated[stops] for stops in routes],
    )
    seeds = _Seeds(problem, old)
    seeds.add(list(rated))
    return seeds


@pytest.mark.parametrize(
    ("rated", "old", "bound"),
    [
        ({SOON: (0.6, 1.0), LATE: (0.8, 0.5)}, (), 0.8),  # the best of lanes
        # the old route leaves .4: what is clearly better leaves less than .36
        ({OLD: (0.6, 1.0), LATE: (0.63, 0.5)}, OLD, 0.6),
        ({OLD: (0.6, 1.0), LATE: (0.65, 0.5)}, OLD, 0.65),
        ({OLD: (0.6, 1.0), LATE: (0.3, 0.5)}, OLD, 0.6),
    ],
)
def test_a_route_leaves_no_more_than_lanes_or_the_old_route_do(rated, old, bound):
    """However much one that leaves more brings soon."""
    seeds = seeds_of(rated, old)
    seeds.leave_no_more_than([LATE, ()])
    for stops, gained in (((4,), bound - 1e-6), ((5,), bound)):
        rated[stops] = gained, 9.0
        seeds.add([stops])
        assert (seeds.top[0] == stops) == (gained == bound)


def test_without_lanes_or_an_old_route_any_is_allowed():
    seeds = seeds_of({SOON: (0.01, 1.0), LATE: (0.8, 0.5)})
    seeds.leave_no_more_than([])
    assert seeds.top[0] == SOON


def test_a_bend_counts_by_what_it_gains_more_than_its_start_and_so_does_the_old_routes():
    """As measured densely: half of it lies between the measurements of ordinary ratings."""
    for rating, expected in ((0.4, (LATE, 0.72 + 0.10 - 0.02)), (0.9, (OLD, 0.9 + 0.04 + 0.10))):
        seeds = seeds_of({OLD: (0.5, rating), SOON: (0.6, 0.7), LATE: (0.62, 0.72)}, OLD)
        seeds.add_bent(SOON, Bend(stops=LATE, more=10.0, more_of_old=4.0))
        assert seeds.top == (expected[0], pytest.approx(expected[1]))


@pytest.mark.parametrize(
    ("end", "rating", "kept"),
    [
        (
            0.6,
            0.69,
            True,
        ),  # the old route's .6 and .7 lack .4 and .3: a tenth of that is hardly more
        (0.6, 0.72, True),
        (0.6, 0.74, False),
        (0.63, 0.71, True),
        (0.65, 0.71, False),
    ],
)
def test_the_old_route_goes_on_where_another_is_hardly_better(end, rating, kept):
    seeds = seeds_of({OLD: (0.6, 0.7), LATE: (end, rating)}, OLD)
    seeds.leave_no_more_than([])
    assert seeds.best == (OLD if kept or rating < 0.7 else LATE)


def test_without_an_end_that_counts_only_what_is_known_sooner_is_better():
    seeds = seeds_of({OLD: (0.6, 0.7), LATE: (0.9, 0.72)}, OLD)
    assert seeds.best == OLD
    seeds.leave_no_more_than([])
    assert seeds.best == LATE
