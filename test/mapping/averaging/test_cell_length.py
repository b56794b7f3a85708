"""Cells are as long as it takes the field's mean for its value, and no longer."""

import math

import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.averaging.cell_length import suitable_length
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for


def test_what_a_cell_blurs_is_at_most_what_its_white_noise_leaves():
    generator = torch.Generator().manual_seed(0)
    length, white = 0.15, 4e-4  # a noise of .2 each centimetre, in a cell of 1 m
    found = suitable_length(0.1, "matern52", length, 9.0, white)
    assert 0.03 < found < 0.07

    # a draw of the process by its spectrum: the error of the mean, as it is and a step longer
    chi = torch.randn(4000, 5, dtype=torch.float64, generator=generator).square().sum(1)
    waves = torch.randn(4000, dtype=torch.float64, generator=generator) * (5 / chi).sqrt() / length
    for cell, inside in ((found, True), (found * math.sqrt(2.0), False)):
        lost = 1.0 - torch.sinc(waves * cell / (2 * math.pi))  # of a wave's amplitude
        blur = 9.0 * float(lost.square().mean())
        assert (blur <= white / cell) is inside


@pytest.mark.parametrize(
    ("lengthscale", "white", "expected"), [(2.0, 0.0, 0.1), (0.15, 1.0, 0.1), (0.15, 0.0, 0.03)]
)
def test_a_cell_is_never_longer_than_asked_nor_shorter_than_a_fifth_of_the_lengthscale(
    lengthscale, white, expected
):
    assert suitable_length(0.1, "matern52", lengthscale, 9.0, white) == pytest.approx(expected)


def test_cells_become_shorter_in_a_field_that_changes_within_one_and_stay_so_after_a_resume():
    generator, n = torch.Generator().manual_seed(1), 600
    x = torch.zeros(n, 2, dtype=torch.float64)
    x[:, 0] = 0.01 * torch.arange(n)
    noise = 0.05 * torch.randn(n, 1, dtype=torch.float64, generator=generator)
    y = 13.0 + 3.0 * (16.0 * x[:, :1]).sin() + 2.0 * (9.0 * x[:, :1] + 1.0).sin() + noise
    drive = Samples(x, y, stamp=0.1 * torch.arange(n, dtype=torch.float64))
    session = MapSession(map_settings_for("range", MapSettings()))

    session.ingest(drive[:300])
    assert session.cells.length == 0.1  # the first cells tell little of the lengthscale
    session.ingest(drive[300:])
    assert session.cells.length < 0.08
    assert session.cell_count > 64  # 60 of .1 m
    assert MapSession.from_state_dict(session.state_dict()).cells.length == session.cells.length
