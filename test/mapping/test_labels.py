"""Labels in cells: a cell keeps how many of its labels are 1, so that probabilities are what they say."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from gp_mapping.commands.fit.fitting import fit_and_map
from gp_mapping.core.types import Samples
from gp_mapping.mapping.cells import CellAverager
from gp_mapping.mapping.labels import by_side, fractions_above
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

RATE, SIDE, LANES, SPEED = 200.0, 1.6, 5, 0.5


def truth(x):
    return ndtr(1.2 * np.sin(2.5 * x[:, 0]) * np.cos(2.0 * x[:, 1]) - 0.3)


def drive(seed: int = 0) -> Samples:
    """Lanes over a square, 40 labels to a cell, drawn from a smooth probability."""
    along = np.arange(round(LANES * SIDE / SPEED * RATE)) * SPEED / RATE
    lane, at = np.divmod(along, SIDE)
    x = np.stack([np.where(lane % 2 == 0, at, SIDE - at), SIDE / (LANES - 1) * lane], 1)
    y = np.random.default_rng(seed).random(len(x)) < truth(x)
    return Samples(x, y[:, None].astype(float), stamp=np.arange(len(x)) / RATE)


def mapped(session: MapSession, samples: Samples) -> None:
    for part in range(0, len(samples), 500):
        session.ingest(samples[part : part + 500])
    session.finish()


def deciles(session: MapSession) -> np.ndarray:
    """By how much the map's probability is beside the truth in each tenth of the places, in order of the truth."""
    x = np.random.default_rng(1).uniform(0.05, SIDE - 0.05, (1000, 2))
    told = session.map.observed(session.predict(x)).mean[:, 0].numpy()
    order = np.argsort(truth(x))
    return np.array([(told - truth(x))[part].mean() for part in np.array_split(order, 10)])


def test_probabilities_are_calibrated_as_they_stream_and_after_a_fit():
    """With the settings as they are; the side of each cell's mean, a majority vote, is .2 and more beside it.

    Two standard errors of the 320 labels of a tenth are allowed, ½/√320 each.
    """
    samples = drive()
    session = MapSession(MapSettings(likelihood="bernoulli"))
    session.taken = []
    mapped(session, samples)
    assert np.abs(deciles(session)).max() < 0.056

    fitted = fit_and_map(session, lambda one: mapped(one, samples), most=2).session
    assert np.abs(deciles(fitted)).max() < 0.056
    assert fitted.raw_count == session.raw_count == len(samples)


@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp"])
def test_a_cell_says_what_its_labels_say_one_by_one(model):
    """At places where the robot stands: of 30 labels there 9 are 1."""
    settings = {"lengthscale": 0.5, "learn_hyperparameters": False, "learn_time_offset": False}
    places = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]).double().repeat_interleave(30, 0)
    labels = torch.tensor([[1.0], [0.0], [0.0], [1.0], [0.0], [0.0], [0.0], [1.0], [0.0], [0.0]])
    samples = Samples(places, labels.repeat(9, 1), stamp=torch.arange(90) * 0.1)
    told = []
    for cells in (True, False):
        session = MapSession(
            MapSettings(model=model, likelihood="bernoulli", cells=cells, **settings)
        )
        mapped(session, samples)
        told.append(session.map.observed(session.predict(places[::30])).mean)
        assert session.raw_count == 90
    assert float((told[0] - told[1]).abs().max()) < 0.01
    assert float((told[0] - 0.3).abs().max()) < 0.03


def test_a_cell_has_a_row_for_either_side_of_the_threshold():
    """At one place, which weighs as many measurements as lie on that side; all on one side are one row."""
    for values, counts in (([0.1, 0.9, 0.2, 0.3], [3, 1]), ([0.1, 0.2], [2]), ([0.9], [1])):
        cells = CellAverager(1.0, 1.0, robust=False, threshold=0.5)
        for i, value in enumerate(values):
            cells.add([0.01 * i, 0.0], [value], 0.01 * i)
        cell = cells.flush()
        assert cell.count.tolist() == counts
        assert len(torch.unique(cell.x, dim=0)) == len(torch.unique(cell.stamp)) == 1
        assert float((cell.count * cell.y[:, 0]).sum()) == pytest.approx(sum(values))


def test_a_long_cell_counts_all_of_its_labels():
    """Of a robot that stands only some are kept; the shares are theirs, and the sum is that of all."""
    cells = CellAverager(1.0, 1e4, robust=False, threshold=0.5)
    for i in range(2999):
        assert cells.add([0.0, 0.0], [float(i % 7 < 2)], 0.01 * i) is None
    cell = cells.flush()
    assert float(cell.count.sum()) == 2999 and cell.count.tolist() == cell.count.round().tolist()
    assert float(cell.count[1]) / 2999 == pytest.approx(2 / 7, abs=0.01)


def test_what_lies_on_the_threshold_is_not_above_it_by_rounding():
    """The mean of numbers that are all alike may be the next one."""
    for value in np.random.default_rng(0).uniform(1e-5, 1e-4, 50):
        y = np.full((13, 1), value)
        one = Samples([[0.0, 0.0]], [[value]], count=[13.0])
        assert float(by_side(one, y, value).y) <= value
        assert float(by_side(one, y, np.nextafter(value, 0.0)).y) >= value


def test_places_have_the_share_of_what_lies_above():
    """Of rows at one place together, by their counts; in the order in which they came."""
    x = [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    places, share = fractions_above(Samples(x, [0.0, 1.0, 1.0], count=[3.0, 1.0, 5.0]), 0.5)
    assert places.tolist() == [[1.0, 0.0], [0.0, 0.0]] and share.tolist() == [[0.25], [1.0]]
    assert fractions_above(Samples(x, [0.0, 1.0, 1.0]), 0.5)[1].tolist() == [[0.5], [1.0]]


LIMITS = (-100.0, np.inf)


def test_a_cell_has_a_row_for_what_is_at_the_end_of_the_range():
    """The mean of those inside, and the limit as one measurement says it: its noise is not averaged."""
    averager = CellAverager(0.1, 1.0, limits=LIMITS)
    values = [-98.0, -100.0, -97.0, -99.0, -100.0, -98.0, -100.0]
    for k, value in enumerate(values):
        averager.add([0.001 * k, 0.0], [value], 0.1 * k, 4.0)
    cell = averager.flush()
    assert cell.y[:, 0].tolist() == [-100.0, -98.0] and cell.count.tolist() == [3.0, 4.0]
    alone = cell.sensor_variance / cell.count
    assert alone[0] == pytest.approx(4.0, rel=0.1) and alone[1] == pytest.approx(1.0, rel=0.1)
    assert torch.equal(cell.x[0], cell.x[1])

    inside = CellAverager(0.1, 1.0, limits=LIMITS)
    plain = CellAverager(0.1, 1.0)
    for k, value in enumerate(np.array(values) + 10.0):
        for each in (inside, plain):
            each.add([0.001 * k, 0.0], [value], 0.1 * k)
    one, other = inside.flush(), plain.flush()
    assert torch.equal(one.y, other.y) and torch.equal(one.sensor_variance, other.sensor_variance)


def test_a_map_knows_the_field_beyond_the_end_of_the_range():
    """Its intervals there hold the truth, which those of a map of plain values do not; all counts."""
    k = np.arange(130)
    x = np.c_[0.5 * k, np.zeros(len(k))]
    truth = -95.0 + 12.0 * np.sin(0.2 * x[:, 0])
    told = np.maximum(truth + 2.0 * np.random.default_rng(0).standard_normal(len(k)), -100.0)
    starts = {"lengthscale": 8.0, "signal_stddev": 9.0, "noise_stddev": 2.0}
    given = starts | {"field_scale": 1.0, "learn_hyperparameters": False, "learn_noise": False}
    beyond = truth < -101.0
    held = {}
    for likelihood in ("gaussian", "censored"):
        session = MapSession(
            MapSettings(likelihood=likelihood, lower_limit=-100.0, heading_stddev=0.0, **given)
        )
        session.ingest(Samples(x, told[:, None], stamp=1.0 * k))
        session.finish()
        p = session.predict(torch.from_numpy(x))
        error = (truth - p.mean[:, 0].numpy()) / p.variance[:, 0].sqrt().numpy()
        held[likelihood] = np.mean(np.abs(error) < 1.96), np.mean(np.abs(error)[beyond] < 1.96)
        assert session.raw_count == len(k) and session.refused == session.gross_errors == 0
        assert session.scores.change_count == session.weakened_cells == 0
        assert any("-100" in note for note in session.warnings) == (likelihood == "gaussian")
    assert held["censored"][0] > 0.9 and held["censored"][1] > 0.85, held
    assert held["gaussian"][1] < 0.5, held


@pytest.mark.parametrize("limits", [{}, {"lower_limit": 2.0, "upper_limit": 1.0}])
def test_a_range_without_an_end_or_the_wrong_way_round_is_refused(limits):
    with pytest.raises(ValueError, match="lower_limit"):
        MapSettings(likelihood="censored", **limits)
