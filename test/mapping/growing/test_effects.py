"""Each mechanism of a session by its own effect: a wrong factor in any of them fails here, without a recording."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from mapping_data import UT

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.growing import cell_map
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.session import MapSession

GIVEN = {
    "learn_hyperparameters": False,
    "learn_noise": False,
    "learn_time_offset": False,
    "heading_stddev": 0.0,
    "lengthscale": 1.0,
    "signal_stddev": 8 * UT,
    "noise_stddev": 0.3 * UT,
    "constant_stddev": 20 * UT,
}


def settings(**more) -> MapSettings:
    return MapSettings(**(GIVEN | more))


def lane(
    start: float,
    y: float = 0.0,
    length: float = 4.0,
    speed: float = 0.5,
    rate: float = 20.0,
    field=None,
    backwards: bool = False,
) -> Samples:
    """One straight pass from x = 0 (or back to it), stamps from `start` on; values 45 µT + field(x)."""
    t = np.arange(0.0, length / speed, 1.0 / rate)
    along = length - speed * t if backwards else speed * t
    x = np.stack([along, np.full_like(along, y)], 1)
    values = 45 * UT + (6 * UT * np.sin(along) if field is None else field(along))
    return Samples(x, values[:, None], stamp=start + t)


@pytest.mark.parametrize("robust", [True, False])
def test_a_whole_wrong_cell_hardly_moves_a_map_that_knows_the_place(robust):
    """Weight (ν + 1)/(ν + z²): 30 µT of error at .3 µT of noise move the map by far less than the noise."""
    session = MapSession(settings(robust=robust))
    for i in range(4):
        session.ingest(lane(100.0 * i, backwards=i % 2 == 1))
        session.break_pass()
    place = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    before = float(session.predict(place).mean)
    # twenty samples of one place, all of them wrong by the same amount: no sample of the cell is unlike the others
    at = np.tile([[2.0, 0.0]], (20, 1))
    session.ingest(
        Samples(at, np.full((20, 1), before + 30 * UT), stamp=1000.0 + 0.02 * np.arange(20))
    )
    session.break_pass()
    moved = abs(float(session.predict(place).mean) - before)
    if robust:
        assert moved < 0.05 * UT and session.report()["weakened_cells"] == 1
    else:
        assert moved > 1.0 * UT and session.report()["weakened_cells"] == 0


@pytest.mark.parametrize("speed", [0.4, 1.2])
def test_a_known_delay_is_taken_out_by_the_velocity_as_it_is(speed):
    """A sensor that is δ late says f(x − δ v); the map of it, asked for the field, says f(x): half a v would not."""
    delay = 0.25

    def late(along):
        return 6 * UT * np.sin(2.0 * (along - delay * speed))

    session = MapSession(settings(time_offset=delay, lengthscale=0.8))
    session.ingest(lane(0.0, length=6.0, speed=speed, field=late))
    session.flush()
    x = torch.linspace(1.0, 5.0, 30, dtype=torch.float64)
    told = session.predict(torch.stack([x, torch.zeros_like(x)], 1)).mean[:, 0]
    wanted = 45 * UT + 6 * UT * torch.sin(2.0 * x)
    assert float((told - wanted).abs().max()) < 0.15 * 12 * UT * delay * speed


@pytest.mark.parametrize("rate", [20.0, 2.0])
def test_a_delay_is_found_whatever_the_rate_of_the_sensor(rate):
    """Lanes up and down, measured .25 s late: by many samples in each cell, or by one sample in each that is driven."""

    def late(backwards):
        return lambda along: 6 * UT * np.sin(1.1 * (along + (0.3 if backwards else -0.3)))

    session = MapSession(settings(learn_time_offset=True))
    for i in range(6):
        session.ingest(lane(30.0 * i, 0.4 * i, 8.0, 1.2, rate, late(bool(i % 2)), bool(i % 2)))
        session.break_pass()
    # its prior, 0 ± .2 s, pulls a little
    assert session.map.hyperparameters()["time_offset"] == pytest.approx(0.25, abs=0.06)


@pytest.mark.parametrize("elapsed", [20.0, 70.0, 300.0])
def test_what_was_said_counts_exp_of_the_time_since(elapsed):
    """One place measured once: its precision β becomes β exp(−Δt/τ), and the variance what that leaves of s²."""
    tau, s, noise = 100.0, 8 * UT, 2.0 * UT
    session = MapSession(
        settings(
            forgetting_time=tau,
            noise_stddev=noise,
            constant_stddev=1e-15,
            cells=False,
            predictive_noise=False,
            follow_changes=False,
            lengthscale=0.5,
        )
    )
    place, far = np.zeros((1, 2)), np.array([[60.0, 0.0]])
    session.ingest(Samples(place, [[45 * UT]], stamp=[0.0]))
    session.flush()
    session.ingest(Samples(far, [[45 * UT]], stamp=[elapsed]))
    session.flush()
    weight = math.exp(-elapsed / tau)
    expected = s**2 * (1 - s**2 / (s**2 + noise**2 / weight))
    assert float(
        session.map.predict(torch.zeros((1, 2), dtype=torch.float64)).variance
    ) == pytest.approx(expected, rel=1e-6, abs=0.0)


def scored(spike: float) -> OneStepAhead:
    """Scores of a lane that was driven before, of which two samples are wrong by `spike`."""
    session = MapSession(settings(score_distance=0.5))
    session.ingest(lane(0.0))
    session.break_pass()
    again = lane(100.0, backwards=True)
    values = again.y.clone()
    values[60:62] += spike  # of two samples one is scored
    session.ingest(Samples(again.x, values, stamp=again.stamp))
    session.flush()
    return session.scores


def test_a_surprise_counts_as_five_standard_deviations_and_no_more():
    plain, spiked = scored(0.0), scored(5000 * UT)
    assert len(plain.noise) == len(spiked.noise)
    total = spiked.noise.latent + float(spiked.settings.noise_stddev) ** 2
    worst = float((spiked.noise.residual_square / total).max())
    assert worst <= 25.0 * 1.5  # the noise in use follows the scores a little
    assert worst > 9.0 > float((plain.noise.residual_square / total).max())


def changed(y: float) -> int:
    """Changes reported of a lane at y, driven twice, that says 60 µT more than what y = 0 said twice before."""
    session = MapSession(settings(score_distance=0.5, lengthscale=0.6, noise_stddev=1.0 * UT))
    for i in range(2):
        session.ingest(lane(100.0 * i, backwards=i % 2 == 1))
        session.break_pass()
    for i in range(2):
        session.ingest(
            lane(1000.0 + 100.0 * i, y=y, field=lambda along: 60 * UT + 6 * UT * np.sin(along))
        )
        session.break_pass()
    return session.report()["changes"]


def test_a_change_is_one_only_where_the_map_knew_better():
    """On ground that was never driven the same error is a guess that was wrong, not a field that changed."""
    assert changed(0.0) >= 1
    assert changed(1.1) == 0


def test_an_edge_of_the_field_is_no_gross_error_but_a_wild_cell_is():
    """Six lanes across a step of 20 µT, in a field that the map takes for smooth."""
    rng, wild = np.random.default_rng(1), []

    def edge(along):
        out = 20 * UT * (along > 2.05) + 3 * UT * np.sin(along)
        for at in wild:
            out = out + 15 * UT * (abs(along - at) < 0.05)
        return out + 0.3 * UT * rng.standard_normal(len(along))

    session = MapSession(settings(signal_stddev=10 * UT))
    for i in range(6):
        wild = [3.45] if i == 3 else []
        session.ingest(lane(100.0 * i, 0.3 * i, field=edge, backwards=bool(i % 2)))
        session.break_pass()
    # the edge is crossed six times, and four of these at a place that the map knows by then
    assert session.report()["weakened_cells"] == 1
    # of five samples each, but for a cell that ends at the edge before its last
    assert session.raw_count == 6 * 160 and session.cell_count == 193


def test_a_source_that_is_narrow_on_level_ground_is_no_gross_error():
    """Its foot falls to less than half from cell to cell; a map with no variation expects none of it."""
    rng = np.random.default_rng(3)

    def source(along):
        peak = 20 * UT * np.exp(-0.5 * ((along - 2.0) / 0.25) ** 2)
        return peak + 0.3 * UT * rng.standard_normal(len(along))

    session = MapSession(settings(signal_stddev=1 * UT))
    session.ingest(lane(0.0, field=source))
    session.finish()
    assert session.report()["weakened_cells"] == 0 and session.gross_errors == 0
    # of 65 µT, with a lengthscale of four times the source's width; 49 µT without it
    assert float(session.predict(torch.tensor([[2.0, 0.0]]).double()).mean) > 57 * UT


def test_samples_that_are_alone_in_their_cells_are_judged_before_the_map_has_learned():
    """Each sample is a cell of its own; no look at starts comes that could mend it later."""
    rng, x = np.random.default_rng(4), 0.17 * np.arange(70.0)
    edge = 20 * UT * (x > 8.0)
    values = 45 * UT + 6 * UT * np.sin(x) + edge + 0.3 * UT * rng.standard_normal(70)
    wild = [32, 38, 39, 60]
    values[wild] += np.array([50, -30, -40, 40]) * UT
    given = {"learn_hyperparameters": True, "signal_stddev": 10 * UT, "lengthscale": 0.8}
    session = MapSession(settings(**given))
    session.taken = []
    session.ingest(Samples(np.stack([x, 0 * x], 1), values[:, None], stamp=0.17 * np.arange(70.0)))
    session.finish()
    assert session.map.learning_steps < 60 and session.gross_errors == 0
    cells = Samples.concatenate(session.taken, common=True)
    weak = (cells.sensor_variance > (5 * UT) ** 2).nonzero()[:, 0].tolist()
    assert weak == wild and session.report()["weakened_cells"] == 4


def test_cells_that_wait_are_part_of_what_is_saved_and_of_the_map_in_the_end():
    """A spike before the last cells of a pass, or of the drive; a resume while it waits."""
    rng = np.random.default_rng(2)
    noisy = lane(900.0, 0.2, 2.0).y.flatten().numpy() + 0.3 * UT * rng.standard_normal(80)
    last = replace(lane(900.0, 0.2, 2.0), y=noisy + np.where(np.arange(80) < 70, 0.0, 20 * UT))

    session = MapSession(settings())
    for i in range(4):
        session.ingest(lane(100.0 * i, backwards=i % 2 == 1))
        session.break_pass()
    before = session.cell_count
    session.ingest(last)
    state = session.state_dict()
    assert len(state["suspects"]) == 1 and session.cell_count == before + 14
    # all are counted as used, five of them in the cell that waits
    assert session.raw_count == 720 and session.report()["samples_to_confirm"] == 5

    at = torch.stack([torch.linspace(0.0, 2.0, 9), torch.full((9,), 0.2)], 1).double()
    resumed = MapSession.from_state_dict(state)
    session.flush(), resumed.break_pass()
    for each in (session, resumed):
        # the one that waited, and the one that was open
        assert each.cell_count == before + 16 and each.report()["weakened_cells"] == 2
        assert each.state_dict()["suspects"] == [] and each.report()["samples_to_confirm"] == 0
        torch.testing.assert_close(
            each.predict(at).mean, session.predict(at).mean, rtol=1e-9, atol=0.0
        )


def test_cells_that_waited_are_counted_where_the_map_fails_to_take_one(monkeypatch):
    """Of three, all weakened at the end of a pass, the second one fails: used + refused are still all that came."""
    session = MapSession(settings())
    for i in range(4):
        session.ingest(lane(100.0 * i, backwards=i % 2 == 1))
        session.break_pass()
    last = lane(900.0, 0.2, 2.0)
    session.ingest(replace(last, y=last.y + 20 * UT * (torch.arange(80) >= 55)[:, None]))
    waiting, came = len(session.state_dict()["suspects"]), session.raw_count + session.refused
    assert waiting >= 3

    absorb, taken = cell_map.absorb_batch, []

    def fails(field, cell, lose):
        taken.append(cell)
        if len(taken) == 2:
            raise OSError("the disk is full")
        return absorb(field, cell, lose)

    monkeypatch.setattr(cell_map, "absorb_batch", fails)
    before = session.cell_count
    with pytest.raises(OSError, match="disk"):
        session.break_pass()
    assert session.raw_count + session.refused == came
    assert (session.cell_count, session.map.samples) == (before + 1, before + 1)
    assert session.refused >= 5 * (waiting - 2) and "disk" in session.last_refusal
