"""Gains that are left while a path grows: those of the whole path, however it was cut into legs."""

import planning_scene as scene
import torch

from gp_mapping.planning.worth.growing_path import GrowingPath
from gp_mapping.planning.worth.path_value import PathValue, Visits


def test_what_is_left_is_that_of_the_whole_path_after_each_leg():
    field = scene.measured_map("exact")
    places, cells = scene.grid_of(field).centres(), scene.grid_of(field, 18, 15, 0.17).centres()
    value = PathValue.from_map(field, places, cells)

    generator = torch.Generator().manual_seed(0)
    index = torch.randint(len(places), (14, 4), generator=generator)
    weights = torch.rand(14, 4, generator=generator, dtype=torch.float64) - 0.2
    scale = 0.5 + torch.rand(14, generator=generator, dtype=torch.float64)

    growing, end = GrowingPath(value), 0
    torch.testing.assert_close(growing.remaining_gains, value.remaining_gains([]))
    for count in (3, 0, 1, 6, 4):
        rows = slice(end, end + count)
        growing.add(Visits(index[rows], weights[rows], scale[rows]))
        end += count

        whole = Visits(index[:end], weights[:end], scale[:end])
        torch.testing.assert_close(
            growing.remaining_gains,
            value.remaining_gains(whole),
            rtol=1e-8,
            atol=1e-11 * float(value.gains_at(range(len(value))).max()),
        )
    assert end == 14
