"""Where a drive crosses itself: lanes across others, or the same once more, not lanes side by side."""

from itertools import pairwise

import pytest
import torch

from benchmark.drawn import lanes
from gp_mapping import Samples
from gp_mapping.commands.check.crossings import crossings, lasting_text

MOWN = lanes(10.0, 8.0, 0.5, 0.05)


def drive(*parts):
    return [Samples(x, torch.zeros(len(x), 1)) for x in parts]


@pytest.mark.parametrize("parts", [(), (MOWN[:1],), (MOWN,), (MOWN[:1], MOWN)])
def test_lanes_side_by_side_cross_nothing(parts):
    assert crossings(drive(*parts), 3.0) == 0
    assert "does not cross itself" in lasting_text(0)[0]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_lanes_across_others_do_in_one_pass_or_two(offset):
    across = lanes(8.0, 10.0, 2.0, 0.05).flip(1) + offset
    found = crossings(drive(MOWN + offset, across), 1.0)
    # six lanes of 8 m: a place for each metre of them, at least
    assert found >= 40 and crossings(drive(torch.cat([MOWN + offset, across])), 1.0) >= 40
    assert lasting_text(found) == []


def test_the_same_lanes_once_more_are_places_that_are_come_back_to():
    for again in (MOWN + 0.01, MOWN.flip(0)):
        assert crossings(drive(MOWN, again), 1.0) >= 90


def test_a_few_crossings_are_told_as_few():
    line = torch.stack([torch.linspace(0.0, 9.0, 200), torch.full((200,), 4.2)], 1).double()
    once = crossings(drive(line, line.flip(1)), 1.0)
    assert once == 1 and "at 1 place only" in lasting_text(once)[0]
    assert "at 9 places only" in lasting_text(9)[0]


@pytest.mark.parametrize(("side", "found"), [(0.4, 0), (0.75, 1)])
def test_a_place_is_come_back_to_after_two_lengthscales_of_path(side, found):
    corners = torch.tensor([[-0.5, 0], [side, 0], [side, side], [0, side], [0, -0.5]]).double()
    ways = [
        a + (b - a) * torch.linspace(0, 1, 40).double()[:, None] for a, b in pairwise(corners + 0.5)
    ]
    assert crossings(drive(torch.cat(ways)), 1.0) == found


def test_what_another_pass_drives_is_another_time_however_near_its_beginning():
    line = torch.stack([torch.linspace(-1.0, 0.2, 40), torch.zeros(40)], 1).double()
    across = torch.stack([torch.zeros(40), torch.linspace(-0.3, 1.0, 40)], 1).double()
    assert crossings(drive(line, across), 1.0) == 1
