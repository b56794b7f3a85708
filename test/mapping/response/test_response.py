"""A sensor that follows the field slowly: its map is of the field, not of what it tells."""

import math
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch
from slow_sensor import drive, field

from gp_mapping.core.types import Samples
from gp_mapping.mapping.moving import move_session
from gp_mapping.mapping.response.lag import Lag
from gp_mapping.mapping.response.response import Response
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import check_model, map_settings_for
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint

# numbers that need no learning, where it is not looked at
GIVEN = {
    "lengthscale": 2.0,
    "signal_stddev": 1.5,
    "noise_stddev": 0.05,
    "constant_stddev": 4.5,
    "learn_hyperparameters": False,
}


@lru_cache
def mapped(seed, tau, **settings):
    """A map of the whole drive."""
    session = MapSession(map_settings_for("temperature", MapSettings(**settings)))
    session.ingest(drive(seed, tau))
    session.finish()
    return session


def errors(session, seed):
    """RMSE of the field, and the fraction of it that 95 % intervals hold."""
    x = torch.rand(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    x = x * torch.tensor([8.0, 6.0])
    told, truth = session.predict(x), 21.0 + 1.5 * field(x, seed)
    error = truth - told.mean[:, 0]
    inside = error.abs() <= 1.96 * told.variance[:, 0].sqrt()
    return float(error.square().mean().sqrt()), float(inside.double().mean())


def test_a_slow_thermometer_is_found_and_its_map_is_honest():
    """With nothing set but the sensor; one that is taken for a fast one covers half."""
    session = mapped(1, 3.0)
    rmse, inside = errors(session, 1)
    left, inside_left = errors(mapped(1, 3.0, learn_response_time="never", **GIVEN), 1)
    assert 2.3 < session.response.seconds < 3.7
    assert rmse < 0.43 * left
    assert inside > 0.85 > 0.7 > inside_left
    assert session.report()["response_time"] == session.response.seconds
    assert any("time constant of about" in note for note in session.warnings)


def test_what_the_last_look_says_of_its_sureness_counts():
    """It comes after the last cell, and may keep the time constant: the one before stayed."""
    session = MapSession(map_settings_for("temperature", MapSettings()))
    samples = drive(1, 0.0)
    session.ingest(Samples(samples.x[:60], samples.y[:60], stamp=samples.stamp[:60]))
    session.finish()
    revision = session.revision
    session.response.deviation = 0.3
    session.finish()
    assert session.slow.own.deviation == 0.3 and session.revision > revision


class Told(Response):
    """One that is told what looks have found."""

    def told(self, seconds, deviation=0.1, blocks=48, last=False) -> bool:
        lag = seconds and Lag(seconds, 2.0, 30.0, deviation, 1.0, 0.1, 2.0)
        search = SimpleNamespace(blocks=blocks, found=lag or None, final=False)
        return self._adopt(search, last)


@pytest.mark.parametrize(
    "times, deviation, last, another",
    [
        (1.09, 0.1, False, False),  # within what it is uncertain by
        (1 / 1.09, 0.1, False, False),
        (1.12, 0.1, False, True),
        (1 / 1.12, 0.1, False, True),
        (1.04, 0.1, True, False),  # at last within half of that
        (1.06, 0.1, True, True),
        (1.015, 0.001, False, False),  # and two hundredths in any case
        (1.025, 0.001, False, True),
    ],
)
def test_another_time_constant_is_taken_where_the_map_would_be_another_one(
    times, deviation, last, another
):
    """What stays is uncertain by what it is off, too."""
    response = Told(MapSettings(learn_response_time="sensor"))
    assert response.told(3.0, 0.4) and response.seconds == 3.0 and response.deviation == 0.4
    assert response.told(3.0 * times, deviation, last=last) == another
    assert response.seconds == pytest.approx(3.0 * times if another else 3.0)
    off = 0.0 if another else math.log(times)
    assert response.deviation == pytest.approx(math.hypot(deviation, off))


def test_a_time_constant_is_given_up_where_a_look_finds_none():
    response = Told(MapSettings(learn_response_time="sensor"))
    assert not response.told(3.0, blocks=47) and not response.notes() and not response.is_active
    assert not response.told(None) and response.told(3.0) and response.notes()
    assert not response.told(9.0, blocks=47) and response.seconds == 3.0
    assert response.told(None) and not response.notes()
    assert (response.seconds, response.deviation) == (0.0, 0.0) and not response.told(None)


def test_a_fast_thermometer_is_left_as_it_is():
    """To the bit."""
    session, without = (
        mapped(1, 0.0, learn_response_time=learned, **GIVEN) for learned in ("sensor", "never")
    )
    assert not session.response.is_active and not session.response.notes()
    x = torch.tensor([[3.3, 2.2]], dtype=torch.float64)
    assert torch.equal(session.predict(x).mean, without.predict(x).mean)


def test_a_given_time_constant_counts_from_the_start():
    """Nothing is looked for; a test drive is compared as it is mapped."""
    session = mapped(2, 3.0, response_time=3.0, **GIVEN)
    fast = mapped(2, 3.0, learn_response_time="never", **GIVEN)
    assert session.response.seconds == 3.0 and not session.response.found
    assert errors(session, 2)[0] < 0.4 * errors(fast, 2)[0]

    samples = drive(2, 3.0)
    truth = 21.0 + 1.5 * field(samples.x, 2)
    raw, settled = ((s.y[:, 0] - truth)[20:-20] for s in (samples, session.as_mapped(samples)))
    assert settled.square().mean() < 0.1 * raw.square().mean()


@pytest.mark.parametrize("tau", [0.7, 4.0])
def test_blocks_say_what_a_sensor_without_noise_would_settle_at(tau):
    """Of a field that changes linearly along the way, exactly, wherever the sensor began."""
    response = Response(MapSettings(response_time=tau, learn_response_time="never"))
    out = []
    for i in range(200):
        t = 0.1 * i
        slope = 0.3 * 2.0  # in a second, at 2 m/s
        y = 5.0 + slope * (t - tau) + 3.0 * math.exp(-t / tau)
        cell = Samples([[2.0 * t, 0.0]], [[y]], stamp=[t], velocity=[[2.0, 0.0]], count=[1.0])
        out += response.add(cell, 1, math.inf)
    assert len(out) >= 15
    for made in out:
        # averages of an exponential over a block are no values of it: 1/384 of the quarter of τ
        assert abs(float(made.y) - (5.0 + 0.3 * float(made.x[0, 0]))) < 0.02
        assert torch.allclose(made.velocity, torch.tensor([[2.0, 0.0]]).double())


def test_a_saved_map_goes_on_as_if_it_had_not_been(tmp_path):
    """From its file, in the middle of a block; before the time constant is known, and after."""
    samples = drive(1, 3.0)
    whole = mapped(1, 3.0)
    part = MapSession(map_settings_for("temperature", MapSettings()))
    for start, end in ((0, 150), (150, 333), (333, 430), (430, len(samples))):
        part.ingest(samples[start:end])
        file = save_checkpoint(tmp_path / "map.gpm", part.state_dict())
        part = MapSession.from_state_dict(load_checkpoint(file))
    part.finish()
    x = torch.tensor([[3.3, 2.2], [7.0, 5.5]], dtype=torch.float64)
    assert part.response.seconds == whole.response.seconds
    assert torch.equal(part.predict(x).mean, whole.predict(x).mean)
    assert part.raw_count + part.refused == len(samples)


def of_an_older_version(session):
    """As a map comes back that kept no cells."""
    state = session.state_dict()
    del state["response"]
    return MapSession.from_state_dict(state)


def with_another(session):
    """As a map comes back to which another one was added."""
    other = MapSession(session.settings)
    other.ingest(drive(5, 3.0)[:80])
    session.merge(other)
    return session


def elsewhere(session):
    """As a map comes back in a frame of another origin."""
    return move_session(session, 0.0, 20.0, 0.0)


@pytest.mark.parametrize(
    "changed, end", [(of_an_older_version, 480), (with_another, 380), (elsewhere, 380)]
)
def test_a_map_that_holds_more_than_was_kept_does_not_begin_again(changed, end):
    """It would lose all that it was given before: where the sensor has only now shown that it is slow."""
    samples = drive(1, 3.0)
    session = MapSession(map_settings_for("temperature", MapSettings(**GIVEN)))
    session.ingest(samples[:80])
    session = changed(session)
    held = session.cell_count
    session.ingest(samples[80:end])
    session.finish()
    assert session.cell_count > held and not session.response.found


def test_what_is_kept_is_bounded():
    """A drive of any length keeps no more cells than the last look needs."""
    response = Response(map_settings_for("temperature", MapSettings()), looks=True)
    for i in range(7000):
        cell = Samples([[0.1 * i, 0.0]], [[20.0]], stamp=[0.2 * i], count=[1.0])
        response.add(cell, 1, math.inf)
        response.look(lambda: 1e9)
    assert response.state_dict()["kept"] is None


def test_a_vector_has_no_response_time():
    """It would be taken from one component."""
    with pytest.raises(ValueError, match="response_time: 2 is of one number"):
        check_model(IntakeSettings(field_component="xyz"), MapSettings(response_time=2.0))


def test_a_pass_is_settled_over_the_way_of_a_block_before_and_after():
    """Of y = t² that is, with E for the time of a block and a = exp(−E/τ), t² + E²/3 + t E (1 + a)/(1 − a)."""
    tau, step, speed = 2.0, 0.4, 0.5
    response = Response(map_settings_for("temperature", MapSettings(response_time=tau)))
    response.load_state_dict(response.state_dict() | {"step": step})
    t = 0.004 * torch.arange(2501, dtype=torch.float64)
    samples = Samples(torch.stack([speed * t, 0 * t], 1), t.square(), stamp=50.0 + t)
    block = step / speed
    a = math.exp(-block / tau)
    told = t.square() + block**2 / 3 + t * block * (1 + a) / (1 - a)
    inside = (t > 2 * block) & (t < 10.0 - 2 * block)
    settled = response.settled(samples)
    torch.testing.assert_close(settled.y[inside, 0], told[inside], rtol=0.003, atol=0.02)
    assert response.settled(samples[:1]) is not None and len(response.settled(samples[:1])) == 1
    untimed = Samples(samples.x, samples.y)
    assert response.settled(untimed) is untimed
