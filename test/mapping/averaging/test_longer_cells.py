"""In a smooth field cells are longer than `cell_length`, for as long as the map expects what comes."""

import math
from dataclasses import replace

import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.averaging.cell_length import least_lengthscale, lengthened
from gp_mapping.mapping.averaging.unexpected import Unexpected
from gp_mapping.mapping.cells import CellAverager
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for


def test_a_longer_cell_blurs_less_than_its_white_noise():
    generator = torch.Generator().manual_seed(0)
    found = lengthened(0.1, 4.0, "matern52", 12.0, 4.0, 2e-5)
    assert found == 0.8

    # a draw of the process by its spectrum: the error of the mean, as it is and twice as long
    chi = torch.randn(4000, 5, dtype=torch.float64, generator=generator).square().sum(1)
    waves = torch.randn(4000, dtype=torch.float64, generator=generator) * (5 / chi).sqrt() / 12.0
    for cell, inside in ((found, True), (2.0 * found, False)):
        lost = 1.0 - torch.sinc(waves * cell / (2 * math.pi))  # of a wave's amplitude
        blur = 4.0 * float(lost.square().mean())
        assert (blur <= 2e-5 / cell) is inside


@pytest.mark.parametrize(
    ("lengthscale", "white", "expected"),
    [
        (19.9, 1.0, 1.6),  # doublings of .1 m, up to a tenth of the lengthscale
        (1.99, 1.0, 0.1),
        (0.5, 1.0, 0.1),
        (12.0, 1e-12, 0.1),  # a sensor without noise tells what lies within a cell
    ],
)
def test_longer_cells_are_doublings_up_to_a_share_of_the_lengthscale(lengthscale, white, expected):
    found = lengthened(0.1, 0.1 * lengthscale, "matern52", lengthscale, 4.0, white)
    assert found == pytest.approx(expected)


def test_in_a_rough_field_longer_cells_have_to_pass_the_same_criterion():
    """A tenth of the lengthscale is not short in every field: of `matern12` the mean is no value."""
    assert lengthened(0.1, 1.2, "matern12", 12.0, 4.0, 1e-3) == 0.1
    assert lengthened(0.1, 1.2, "matern52", 12.0, 4.0, 1e-3) == 0.8


def test_a_map_that_does_not_say_how_well_it_knows_the_lengthscale_knows_nothing():
    assert least_lengthscale(None) == 0.0


def test_what_was_not_expected_makes_cells_short_for_a_lengthscale_of_the_way():
    looks = Unexpected()
    for at in range(7):
        looks.note(1.0, float(at), 5.0)
        assert not looks.is_over(float(at))  # too few cells so far
    looks.note(36.0, 7.0, 5.0)  # one of six deviations
    assert not looks.is_over(11.9) and looks.is_over(12.0)

    resumed = Unexpected()
    resumed.load_state_dict(looks.state_dict())
    assert not resumed.is_over(11.9) and resumed.is_over(12.0)
    for at in range(8, 20):
        resumed.note(4.5, float(at), 5.0)  # none by itself is beyond what chance brings
    assert not resumed.is_over(23.9)


def drive(count: int, rough_from: int) -> Samples:
    """A straight way at 5 m/s in a field of some 20 m, with waves of 9 m from one sample on."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(count, 2, dtype=torch.float64)
    x[:, 0] = 0.5 * torch.arange(count)
    y = field(x) + 0.1 * torch.randn(count, 1, dtype=torch.float64, generator=generator)
    y[rough_from:] += 10.0 * (x[rough_from:, :1] / 1.5).sin()
    return Samples(x, y, stamp=0.1 * torch.arange(count, dtype=torch.float64))


def field(x: torch.Tensor) -> torch.Tensor:
    return 20.0 + 2.0 * (x[:, :1] / 9.0).sin() + 1.5 * (x[:, :1] / 6.0 + 1.0).sin()


def test_cells_are_longer_once_the_lengthscale_is_known_and_short_again_where_it_was_wrong():
    settings = MapSettings(cell_length=0.5, max_inducing=60, learn_time_offset=False)
    session, samples = MapSession(map_settings_for("temperature", settings)), drive(180, 150)
    session.ingest(samples[:60])
    assert session.cells.length == 0.5  # 30 cells tell little of the lengthscale
    session.ingest(samples[60:150])
    assert session.cells.length == 1.0
    assert session.cell_count < 65  # 75 of half a metre
    there = samples.x[:150:3] + torch.tensor([0.0, 1.0])
    error = session.predict(there).mean - field(there)
    assert float(error.square().mean().sqrt()) < 0.05  # half the noise of one measurement
    assert MapSession.from_state_dict(session.state_dict()).cells.length == 1.0

    session.ingest(samples[150:165])  # 8 m of it
    assert session.cells.length == 0.5


def test_before_cells_are_longer_those_of_one_sample_are_told_their_noise():
    """Else it is a part of s_p, which longer cells have as well: .11 in place of .03."""
    settings = MapSettings(cell_length=0.3, max_inducing=20, learn_time_offset=False)
    session = MapSession(map_settings_for("temperature", settings))
    session.ingest(drive(130, 130)[:90])
    assert session.cells.length > 0.3
    state = session.state_dict()
    session = MapSession.from_state_dict(state)
    for part in (state["renewal"]["waiting"], session.state_dict()["renewal"]["waiting"]):
        white = [float(each["cell"]["sensor_variance"][0]) for each in part]
        assert len(white) > 60 and min(white) > 0.005  # of .01; neighbours tell at least so much


def test_where_samples_would_stay_alone_nothing_changes():
    """They are .5 m apart, and cells may be .4 m long: no map begins again, and no cell is longer."""
    settings = MapSettings(cell_length=0.2, cell_lengthscales=0.03, max_inducing=20)
    found = []
    for share in (0.03, 0.06):
        session = MapSession(
            map_settings_for("temperature", replace(settings, cell_lengthscales=share))
        )
        session.ingest(drive(130, 130)[:90])
        found.append((session.cells.length > 0.2, session.is_renewing))
    assert found == [(False, False), (True, True)]


def test_samples_of_a_longer_cell_are_judged_with_those_before_and_after_it():
    cells = CellAverager(0.1, 10.0)
    cells.length = 0.4  # three samples, too few to be judged by themselves
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(90, dtype=torch.float64, generator=generator).tolist()
    for i, value in enumerate(noise):
        cells.add([0.2 * i, 0.0], [value + (50.0 if i in (40, 61, 83) else 0.0)], 0.1 * i)
    assert cells.gross == 3


def test_patches_that_are_looked_at_for_changes_are_as_long_as_cells():
    """A visit has several cells in each, else no single visit could show a change."""
    scores = OneStepAhead(MapSettings(lengthscale=20.0, signal_stddev=1.0, noise_stddev=0.1))
    before = scores.detector
    scores.note_cells(0.05)  # shorter ones leave them as they are
    assert scores.detector is before and before.size == 0.5
    scores.note_cells(0.8)
    assert scores.detector.size == 4.0
    longer = scores.detector
    scores.note_cells(0.8)
    assert scores.detector is longer
