"""A wild value among the first ones costs no more than itself, of fast sensors and of slow ones."""

import copy
import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.errors import NumericalError
from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.beginning.first_values import FIRST, FirstValues
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for

SENSORS = {
    "magnetic": (MapSettings(), 1e-6),
    "scalar": (map_settings_for("scalar", MapSettings()), 1.0),
}


def _lanes(n: int, step: float) -> np.ndarray:
    away = np.arange(n) * step
    lane = np.floor(away / 6.0)
    along = away - 6.0 * lane
    return np.stack([np.where(lane % 2 == 0, along, 6.0 - along), 0.4 * lane], 1)


def _field(x: np.ndarray) -> np.ndarray:
    return 45.0 + 6.0 * np.sin(1.1 * x[:, 0] + 0.3) * np.cos(0.9 * x[:, 1])


def _drive(
    unit: float, wild: dict[int, float], n: int = 200, step: float = 0.25, dt: float = 0.5
) -> Samples:
    """A slow sensor: each cell is one sample."""
    x = _lanes(n, step)
    y = _field(x) + 0.3 * np.random.default_rng(0).standard_normal(n)
    for i, value in wild.items():
        y[i] = value
    return Samples(x=torch.tensor(x), y=torch.tensor(y * unit), stamp=torch.arange(n).double() * dt)


def _mapped(settings: MapSettings, samples: Samples, cut: int = 50) -> MapSession:
    session = MapSession(settings)
    for part in range(0, len(samples), cut):
        session.ingest(samples[part : part + cut])
    session.flush()
    return session


CELLS = 120  # beyond those of the beginning (100), after which the map judges by itself
FEWER = 44  # beyond the first values (9) and the starts that they make; all that a wild one among them can spoil


def _given(unit: float) -> dict[str, float]:
    """Starts near what the field is: to find them takes the first cells in again and again."""
    return {
        "lengthscale": 1.5,
        "signal_stddev": 5.0 * unit,
        "noise_stddev": 0.3 * unit,
        "constant_stddev": 15.0 * unit,
    }


@functools.cache
def _begun(sensor: str, count: int) -> MapSession:
    """A map of the first ones, all good, which no test changes."""
    settings, unit = SENSORS[sensor]
    given = _given(unit) if count >= 100 else {}  # to find starts is over by then
    session = MapSession(replace(settings, inducing_information=0.0, **given))
    session.ingest(_drive(unit, {}, CELLS)[:count])
    return session


def _gone_on(sensor: str, count: int, samples: Samples) -> MapSession:
    """Of that many good ones, and then of the samples."""
    session = copy.deepcopy(_begun(sensor, count))
    session.ingest(samples)
    session.flush()
    return session


@functools.cache
def _of_the_good(sensor: str, wild: frozenset[int], cells: int) -> MapSession:
    """The map of all but the wild ones, whatever their values."""
    samples, first = _drive(SENSORS[sensor][1], {}, cells), min(wild)
    return _gone_on(
        sensor, first, samples[torch.tensor([i for i in range(first, cells) if i not in wild])]
    )


@pytest.mark.parametrize(
    "wild",
    [
        {0: 450.0},
        {0: 1e6},
        {0: 1e12},
        {0: -450.0},
        {0: 1e15, 1: -1e7, 2: 400.0, 3: 9e9},
        {30: 1e154},
        {30: 450.0},
        {29: 1e12, 60: -1e9},
        {110: 1e308},
    ],
    ids=str,
)
@pytest.mark.parametrize("sensor", SENSORS)
def test_the_map_is_that_of_the_good_values_alone(sensor, wild):
    """With inducing inputs wherever they change anything: which of them a map does without is not the question here."""
    unit, first = SENSORS[sensor][1], min(wild)
    cells = next((n for n in (FEWER, 80) if max(wild) < n - 10), CELLS)
    samples = _drive(unit, wild, cells)
    told, alone = (
        _gone_on(sensor, first, samples[first:]),
        _of_the_good(sensor, frozenset(wild), cells),
    )

    x = torch.tensor(_lanes(cells, 0.25) + 0.07)
    p, q = told.predict(x), alone.predict(x)
    assert float(((p.mean - q.mean).abs() / q.stddev).max()) < 1.0
    assert float(((p.mean - q.mean).abs() / q.stddev).mean()) < 0.2
    assert (
        float(
            (
                (p.mean[:, 0] / unit - torch.tensor(_field(x.numpy()))).abs()
                / (p.stddev[:, 0] / unit)
            ).mean()
        )
        < 1.2
    )
    report = told.report()
    assert report["gross_errors"] + report["refused_samples"] == len(wild)
    assert told.raw_count + told.refused == len(samples)


@pytest.mark.parametrize("sensor", SENSORS)
def test_centre_and_origin_are_medians_however_the_stream_is_cut(sensor):
    settings, unit = SENSORS[sensor]
    samples = _drive(unit, {0: 1e9}, FEWER)
    far = samples.x.clone()
    far[0] = torch.tensor([9e5, -9e5])
    samples = Samples(x=far, y=samples.y, stamp=samples.stamp)
    a, b = _mapped(settings, samples, FEWER), _mapped(settings, samples, 1)
    assert (
        torch.equal(a.map.centre, b.map.centre) and 39 * unit < float(a.map.centre[0]) < 51 * unit
    )
    x = torch.tensor(_lanes(FEWER, 0.25))
    assert torch.equal(a.predict(x).mean, b.predict(x).mean)


def test_a_source_that_is_really_there_is_mapped():
    """Three cells in a row that agree are a field, however far they lie from all before."""
    samples = _drive(1.0, {40: 900.0, 41: 950.0, 42: 930.0, 43: 910.0}, 80)
    session = _mapped(SENSORS["scalar"][0], samples)
    assert session.report()["gross_errors"] == 0 and session.cell_count == 80
    assert float(session.predict(samples.x[41:42]).mean) > 500.0


@functools.cache
def _after(many: int) -> MapSession:
    """The map of what comes after so many, which no test changes."""
    settings, unit = SENSORS["scalar"]
    return _mapped(settings, _drive(unit, {}, 60)[torch.arange(many, 60)])


@pytest.mark.parametrize(
    "said",
    [lambda i: 85.0, lambda i: 0.0, lambda i: 1e30, lambda i: 1e10 * (1.0 + i % 3)],
    ids=["85", "0", "1e30", "noise"],
)
@pytest.mark.parametrize("many", [5, 12])
def test_a_sensor_that_has_not_begun_to_measure_is_no_beginning_of_the_field(many, said):
    """More cells than their median leaves out; before, all good ones were then refused, or the map lay between both."""
    settings, unit = SENSORS["scalar"]
    samples = _drive(unit, {i: said(i) for i in range(many)}, 60)
    told, alone = _mapped(settings, samples), _after(many)
    x = torch.tensor(_lanes(60, 0.25) + 0.07)[many:]
    p, q = told.predict(x), alone.predict(x)
    assert float(((p.mean - q.mean).abs() / q.stddev).max()) < 1.0
    assert told.report()["gross_errors"] == many and told.refused == 0 and told.raw_count == 60
    assert any("had not begun to measure" in text for text in told.warnings)
    assert (
        not any("had not begun" in text for text in alone.warnings)
        and alone.report()["gross_errors"] == 0
    )


@pytest.mark.parametrize("closed", [False, True])
def test_a_map_that_is_more_than_its_first_cells_does_not_begin_again(closed):
    """As one to which another robot's was added."""
    settings, unit = SENSORS["scalar"]
    first, samples = FirstValues(settings), _drive(unit, dict.fromkeys(range(12), 85.0), 60)
    if closed:
        first.close()
    again = [first.check_warm_up(samples[i : i + 1]) for i in range(60)]
    assert all(cells is None for cells in again) is closed and bool(first.notes) is not closed


def test_what_was_refused_before_the_sensor_had_begun_is_used_and_counted_so():
    """In small batches, as live: the map had refused good ones beside 1e10, and takes them when it begins again."""
    settings, unit = SENSORS["scalar"]
    samples = _drive(unit, dict.fromkeys(range(12), 1e10), 60)
    session, drops = MapSession(settings), DropCounter()
    most = 0
    for count, one in enumerate(
        ingest_batches(((False, samples[i : i + 1]) for i in range(60)), session, drops)
    ):
        most = max(most, drops[DropReason.REFUSED])
        open_cell = session.raw_count + drops.measurements - count
        assert open_cell == len(one), "each is used or dropped, at any time"
    ingest_remaining(session, drops)
    assert most > 0 and drops.measurements == session.refused == 0 and session.raw_count == 60
    with pytest.raises(ValueError, match="are counted"):
        drops.uncount(DropReason.REFUSED, 1)


def test_no_field_is_taken_for_a_sensor_that_has_not_begun():
    """Plateaus and slopes, a source at the start that is left behind, a sensor that rounds, and out of the sun."""
    settings, unit = SENSORS["scalar"]
    samples = _drive(unit, {}, 60)
    slope = torch.linspace(0.0, 1.0, 60, dtype=torch.float64)[:, None]
    for y in (
        45.0 + 20.0 * (0.2 - slope).clamp_min(0.0) + 0.01 * samples.y,
        400.0 + 3000.0 * torch.exp(-slope * 20.0),
        4.0 * torch.round(samples.y / 4.0),
        torch.where(slope < 0.2, 44.0, 48.0),
        torch.where(slope < 0.2, 50_000.0 + 20.0 * samples.y, samples.y),
    ):
        told = _mapped(settings, replace(samples, y=y))
        assert told.report()["gross_errors"] == 0 and told.cell_count == 60, y[:, 0]


@pytest.mark.parametrize("many", [25, 100])
def test_wild_samples_of_a_fast_sensor_are_not_its_noise(many):
    """Whole cells of them: they were left out, and what they differ by was the sensor's white noise for ever."""
    settings, unit = SENSORS["scalar"]
    wild = np.random.default_rng(5).standard_normal(many) * 1e11
    samples = _drive(unit, dict(enumerate(wild)), 1200, step=0.005, dt=0.02)
    told, alone = _mapped(settings, samples), _mapped(settings, samples[torch.arange(many, 1200)])
    assert told.cells.single_variance < 2.0 * alone.cells.single_variance
    x = samples.x[many::20] + 0.03
    p, q = told.predict(x), alone.predict(x)
    assert float(((p.mean - q.mean).abs() / (q.variance + q.noise_variance).sqrt()).max()) < 1.0


@pytest.mark.parametrize("model", ["dual_svgp", "pitc", "exact"])
@pytest.mark.parametrize("pause", [False, True])
def test_without_cells_a_wild_first_value_costs_itself(model, pause):
    """Alone before a pause it said how much the field varies, and so was no error."""
    settings, unit = replace(SENSORS["scalar"][0], cells=False, model=model), SENSORS["scalar"][1]
    samples, session = _drive(unit, {0: 4.5e4}, 60), MapSession(settings)
    session.ingest(samples[:1])
    if pause:
        session.break_pass()
    session.ingest(samples[1:])
    session.flush()
    alone = _mapped(settings, samples[torch.arange(1, 60)])
    p, q = session.predict(samples.x + 0.07), alone.predict(samples.x + 0.07)
    assert float(((p.mean - q.mean).abs() / (q.variance + q.noise_variance).sqrt()).max()) < 1.0
    assert session.report()["gross_errors"] == 1


@pytest.mark.parametrize("where", [(30,), (30, 140, 200, 260, 320), (140, 141, 142, 260, 261)])
def test_without_cells_a_spike_costs_itself_and_not_its_batch(where):
    settings, unit = replace(SENSORS["scalar"][0], cells=False), SENSORS["scalar"][1]
    samples = _drive(unit, dict.fromkeys(where, 1e4 * unit), 360)
    told = _mapped(settings, samples)
    alone = _mapped(
        settings, _drive(unit, {}, 360)[torch.tensor([i for i in range(360) if i not in where])]
    )
    assert told.report()["gross_errors"] == len(where) and told.raw_count == 360
    p, q = told.predict(samples.x + 0.07), alone.predict(samples.x + 0.07)
    assert float(((p.mean - q.mean).abs() / (q.variance + q.noise_variance).sqrt()).max()) < 1.0


def test_without_cells_a_source_is_mapped_where_three_batches_agree():
    settings, unit = replace(SENSORS["scalar"][0], cells=False), SENSORS["scalar"][1]
    samples = _drive(unit, {i: 1e3 * unit + 0.1 * unit * (i % 3) for i in range(150, 250)}, 300)
    told = _mapped(settings, samples)
    assert (
        told.report()["gross_errors"] == 0
        and float(told.predict(samples.x[200:201]).mean) > 500.0 * unit
    )


def test_what_waits_among_the_first_values_is_counted():
    """An absurd cell is used by the count of samples, and waits for the next ones to confirm it."""
    settings, unit = SENSORS["scalar"]
    session = MapSession(settings)
    session.ingest(_drive(unit, {30: 1e5 * unit}, 31))
    session.flush()
    report = session.report()
    assert report["samples_to_confirm"] == 1 and report["gross_errors"] == 0
    session.ingest(_drive(unit, {30: 1e5 * unit}, 40)[31:])
    session.flush()
    report = session.report()
    assert report["samples_to_confirm"] == 0 and report["gross_errors"] == 1


def test_of_a_sensor_that_rounds_the_next_number_is_no_error():
    settings, unit = SENSORS["scalar"]
    samples = _drive(unit, {}, 600, step=0.01, dt=0.02)
    told = _mapped(settings, replace(samples, y=4.0 * torch.round(samples.y / 4.0)))
    assert told.report()["gross_errors"] == 0


RESUMED = {0: 1e6, 21: 1e5, 30: 700.0, 31: 710.0, 32: 705.0}


def test_resume_within_the_first_values_is_exact():
    """After any of them: saved and read again every fourth cell."""
    settings, unit = SENSORS["scalar"]
    samples = _drive(unit, RESUMED, n=60)
    whole, session, before = _mapped(settings, samples, 60), MapSession(settings), 0
    for at in range(1, 45, 4):
        session.ingest(samples[before:at])
        session, before = MapSession.from_state_dict(session.state_dict()), at
    session.ingest(samples[before:])
    session.flush()
    x = torch.tensor(_lanes(60, 0.25))
    assert torch.equal(session.predict(x).mean, whole.predict(x).mean)
    assert session.report()["gross_errors"] == whole.report()["gross_errors"] == 2


def test_spikes_are_not_taken_for_the_noise_of_a_sensor_with_few_samples_in_a_cell():
    given = MapSettings(
        learn_hyperparameters=False,
        lengthscale=1.0,
        signal_stddev=6e-6,
        noise_stddev=3e-7,
        constant_stddev=2e-5,
    )
    quiet, spiky = (
        _mapped(given, _drive(1e-6, wild, n=300, step=0.05, dt=0.1)).cells.white_variance
        for wild in ({}, {1: 1e3, 61: 9e3, 200: -5e3})
    )
    assert spiky < 3.0 * quiet


# ---- what the map refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [True, False])
def test_only_the_culprit_is_lost(cells, monkeypatch):
    """Of a batch that the map refuses, every other sample is mapped; used and refused make up all."""
    settings = MapSettings(cells=cells, learn_hyperparameters=False, learn_time_offset=False)
    samples = _drive(1e-6, {}, 120)
    session = MapSession(settings)
    update = type(session.map).update

    def refuses(self, batch):
        if float(batch.x[:, 0].min()) < 3.0 < float(batch.x[:, 0].max()) or bool(
            ((batch.x - 3.0).abs() < 1e-9).any()
        ):
            if bool(((batch.x[:, 0] - 3.0).abs() < 1e-9).any()):
                raise NumericalError("a pivot is NaN")
        return update(self, batch)

    monkeypatch.setattr(type(session.map), "update", refuses)
    session.ingest(samples[:FIRST])
    session.ingest(samples[FIRST:])
    session.flush()
    culprits = int(((samples.x[:, 0] - 3.0).abs() < 1e-9).sum())
    assert culprits > 3 and session.refused == culprits
    assert (
        session.raw_count + session.refused == len(samples)
        and session.cell_count == len(samples) - culprits
    )
    assert "pivot" in session.report()["last_refusal"]


def test_absurd_samples_leave_no_trace():
    settings, unit = SENSORS["magnetic"]
    settings = replace(settings, **_given(unit))
    samples = _drive(unit, {}, CELLS)
    x, y = samples.x.clone(), samples.y.clone()
    insert = torch.tensor([20, 60, 61, 110])
    order = torch.cat([torch.arange(len(x)), insert]).sort().values
    again = samples[order]
    x, y = again.x.clone(), again.y.clone()
    spoiled = [int((order == i).nonzero()[-1]) for i in insert]
    for k, i in enumerate(spoiled):
        if k % 2:
            x[i] = torch.tensor([1e200, -1e16], dtype=torch.float64)
        else:
            y[i] = 1e200
    told = _mapped(settings, Samples(x=x, y=y, stamp=again.stamp))
    alone = _mapped(settings, samples)
    a, b = told.state_dict(), alone.state_dict()
    assert a.pop("refused") == 4 and b.pop("refused") == 0
    assert torch.equal(a["map"]["sites"]["precision"], b["map"]["sites"]["precision"])
    assert torch.equal(a["map"]["sites"]["linear"], b["map"]["sites"]["linear"])
    assert str(a) == str(b)


def test_first_values_of_classes_are_left_alone():
    gate = FirstValues(MapSettings(model="dual_svgp", likelihood="bernoulli"))
    for value in (0.0, 1.0, 0.0, 1e9, 0.0, 0.0, 0.0, 0.0, 0.0):
        batch = gate.add_first(Samples(x=torch.zeros((1, 2)), y=torch.tensor([value])))
    assert len(batch) == 9 and gate.gross == 0


def test_the_spread_of_the_first_values_is_a_standard_deviation():
    """Of normal values, in the mean of many beginnings; a wild one among them changes little."""
    rng, told = np.random.default_rng(0), []
    for i in range(60):
        first = FirstValues(MapSettings())
        y = rng.normal(50e-6, 2e-6, 32)
        y[3] = 400e-6 if i % 2 else y[3]
        for j, value in enumerate(y):
            cell = Samples(
                torch.tensor([[0.1 * j, 0.0]]).double(), torch.tensor([[value]]).double()
            )
            first.add_first(cell) if first.is_open else first.admit(cell, settled=False)
        told.append(first.spread)
    assert np.mean(told) == pytest.approx(2e-6, rel=0.15), told
