"""A number that a sensor tells again is no new measurement, unless the sensor rounds or the field ends there."""

import functools

import numpy as np
import pytest
import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.repeated.recurring import Recurring, keys_of
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for


def field(n: int = 1200, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    """A temperature along a drive, °C."""
    k = np.arange(n)
    rng = np.random.default_rng(seed)
    return 21.0 + 2.0 * np.sin(0.021 * k) + np.cos(0.0067 * k) + noise * rng.standard_normal(n)


def left_out(values: np.ndarray) -> tuple[np.ndarray, Recurring]:
    """Which of the values (N,) are left out: (N,) bool."""
    recurring, keys, k = Recurring(), values.tolist(), 0
    void = np.zeros(len(values), bool)
    while (k := recurring.first_void(keys, k, len(keys))) < len(keys):
        void[k], k = True, k + 1
    assert recurring.held + recurring.hung + recurring.beyond == void.sum()
    single = Recurring()
    assert [single.first_void(keys, k, k + 1) == k for k in range(len(keys))] == void.tolist()
    assert single.state_dict() == recurring.state_dict(), "one by one is as all at once"
    return void, recurring


@pytest.mark.parametrize(
    "values",
    [
        field(),
        np.round(field(), 1),
        np.round(field(noise=0.01), 1),
        np.round(field(noise=0.0)),
        np.round(10.0 + 0.01 * np.arange(1200), 1),
        np.float32(field(noise=0.001)).astype(float),
        np.random.default_rng(0).poisson(4.0, 1200).astype(float),
        np.random.default_rng(0).poisson(30.0 * field() - 500.0).astype(float),
        np.clip(field() - 22.0, 0.0, None),
        np.full(1200, 21.0),
        np.repeat(np.round(field(240, 0.01)), 5),
        # of a simulator without noise, along a lane on which the field is the same
        np.r_[field(400, 0.0), np.full(300, field(400, 0.0)[-1]), field(500, 0.0)[::-1]],
    ],
    ids=(
        "fine tenths smooth degrees ramp float32 counts many_counts no_gas constant "
        "coarse_and_held simulated"
    ).split(),
)
def test_of_a_working_sensor_all_counts(values):
    """Also where it rounds, or where there is nothing to measure."""
    assert not left_out(values)[0].any()


@pytest.mark.parametrize("noise", [0.1, 0.05])
def test_repeats_at_the_upper_end_of_the_range_are_left_out(noise):
    """The first of each run counts; until the sensor is known all do.

    Also where the field itself changes by as much as noise from one value to the next.
    """
    values = np.minimum(np.r_[field(noise=noise)[300:400], field(noise=noise, seed=1)], 22.5)
    void, recurring = left_out(values)
    again = np.r_[False, (values[1:] == 22.5) & (values[:-1] == 22.5)]
    assert (void == again)[150:].all() and void.sum() > 100
    assert recurring.beyond == void.sum() and recurring.end == 22.5
    assert len(recurring.notes()) == 1 and "the end of the sensor's range" in recurring.notes()[0]


def test_few_numbers_of_a_counter_do_not_make_it_a_sensor_that_never_repeats():
    """Of a hundred counts a second some twenty in a row may all differ."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        counts = rng.poisson(100.0 + 15.0 * (field(300, seed=seed) - 21.0)).astype(float)
        assert not left_out(counts)[0].any(), seed


@pytest.mark.parametrize("times", [2, 5, 10])
def test_a_number_that_the_driver_holds_counts_once(times):
    values = np.repeat(field(400), times)
    void, recurring = left_out(values)
    known = 25 * times
    assert (void == (np.arange(len(void)) % times > 0))[known:].all() and recurring.hung == 0
    assert "publishes more often than the sensor measures" in recurring.notes()[0]


def test_rates_that_do_not_divide_each_other():
    """A sensor of 20 Hz published at 50 Hz: two or three times each."""
    values = field(400)[(np.arange(1000) * 0.4).astype(int)]
    void, _ = left_out(values)
    fresh = np.r_[True, values[1:] != values[:-1]]
    assert (void == ~fresh)[100:].all()


def test_where_many_numbers_come_once_none_is_taken_for_held():
    """Two, two, one: a driver that holds each number holds all of them."""
    values = field(400)[(np.arange(660) * 0.6).astype(int)]
    assert not left_out(values)[0].any()


def test_a_hang_counts_once_and_what_comes_after_it_counts():
    values = field()
    values[500:700] = values[500]
    void, recurring = left_out(values)
    assert np.flatnonzero(void).tolist() == list(range(501, 700)) and recurring.hung == 199
    assert "it hangs or drops out" in recurring.notes()[0]


@pytest.mark.parametrize("run", [1, 5])
@pytest.mark.parametrize("rounds", [False, True])
def test_a_dropout_that_comes_back_counts_not_at_all(run, rounds):
    values = np.round(field(), 1) if rounds else field()
    at = np.arange(100, 1200, 37)[:, None] + np.arange(run)
    values[at] = 0.0
    void, _ = left_out(values)
    assert void[at[2:].ravel()].all(), "its first visits cannot be told from a source"
    assert not np.delete(void, at.ravel()).any()


def test_of_a_sensor_that_rounds_a_far_number_may_come_twice():
    """Once more could be chance; what comes for the third time is no measurement."""
    values = np.round(field(400), 1)
    values[[150, 200, 250, 300]] = 85.0
    assert np.flatnonzero(left_out(values)[0]).tolist() == [250, 300]


@pytest.mark.parametrize("start", [200, 700])
def test_a_single_dropout_to_the_smallest_number_counts_once(start):
    """A cable that is loose for five seconds: its zeros made the map wrong by 5 °C there."""
    values = field()
    values[start : start + 50] = 0.0
    void, recurring = left_out(values)
    assert np.flatnonzero(void).tolist() == list(range(start + 1, start + 50))
    assert recurring.hung == 49


def test_a_source_is_no_dropout():
    """Strong and short, visited four times: it has never one number twice."""
    values = field()
    for k in (200, 500, 800, 1100):
        values[k : k + 6] += 40.0
    assert not left_out(values)[0].any()


def test_vectors_count_by_their_norm():
    angle = torch.linspace(0.0, 3.0, 300, dtype=torch.float64)
    turned = 45e-6 * torch.stack([angle.cos(), angle.sin(), 0.0 * angle], 1)
    assert len(set(keys_of(turned))) == 1
    assert keys_of(turned[:, :1]) == turned[:, 0].tolist()


def drive(values: np.ndarray, rate: float) -> Samples:
    """Along six lanes of 9 m, at 0.5 m/s."""
    t = np.arange(len(values)) / rate
    way = 0.5 * t
    lane, along = np.floor(way / 9.0), way % 9.0
    x = np.where(lane % 2 == 0, along, 9.0 - along)
    return Samples(np.column_stack([x, 1.5 * lane]), values[:, None], stamp=1000.0 + t)


KNOWN = MapSettings(
    learn_hyperparameters=False,
    lengthscale=3.0,
    signal_stddev=2.0,
    noise_stddev=0.1,
    constant_stddev=6.0,
    cell_length=0.5,
    follow_changes=False,
    learn_bias=False,
)


def session_of(samples: Samples, cut: int = 97) -> MapSession:
    session = MapSession(map_settings_for("temperature", KNOWN))
    for start in range(0, len(samples), cut):
        session.ingest(samples[start : start + cut])
    session.finish()
    return session


def test_a_map_of_held_numbers_is_that_of_each_number_once():
    values = field(108)
    told = session_of(drive(np.repeat(values, 10), 10.0))
    once = session_of(drive(values, 1.0))
    assert told.raw_count == 1080 and told.refused == 0
    # all but those before the sensor was known
    assert 9 * 80 <= told.report()["repeated_samples"] <= 9 * 90
    there = torch.tensor([[4.0, 7.5], [8.0, 6.0], [2.0, 4.5]], dtype=torch.float64)
    ratio = told.predict(there).stddev / once.predict(there).stddev
    assert float(ratio.min()) > 0.75, "ten repeats of a number are one witness"
    assert any("each number counts once" in note for note in told.warnings)


@functools.cache
def spoiled():
    """A drive with held and hung numbers, and its map at once, which no test changes."""
    values = field(400)
    values[100:120] = values[100]
    values[np.arange(200, 400, 30)] = 0.0
    samples = drive(values, 5.0)
    return samples, session_of(samples)


@pytest.mark.parametrize("cut", [1, 50, 2000])
def test_cuts_and_a_resume_change_nothing(cut):
    samples, whole = spoiled()
    first = session_of(samples[:160], cut)
    assert whole.report()["gross_errors"] >= 24
    resumed = MapSession(map_settings_for("temperature", KNOWN))
    resumed.ingest(samples[:160])
    resumed = MapSession.from_state_dict(resumed.state_dict())
    for start in range(160, len(samples), cut):
        resumed.ingest(samples[start : start + cut])
    resumed.finish()
    assert resumed.report() == whole.report() and first.raw_count == 160
    assert (resumed.predict(samples.x).mean == whole.predict(samples.x).mean).all()
