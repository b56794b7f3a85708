"""Heading from the path of a point before the axle, and vectors turned by an attitude that was late."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.analysis.residuals import residuals
from gp_mapping.mapping.motion.attitude import (
    AttitudeLag,
    HeadingTrack,
    rotate_about_vertical,
    with_attitude_lag,
)
from gp_mapping.mapping.session import MapSession

AHEAD, LAG, RATE = 0.06, 0.15, 50.0
# near what the field is: to find starts takes the first cells in again and again
STARTS = {
    "lengthscale": 0.8,
    "signal_stddev": 4e-6,
    "noise_stddev": 0.5e-6,
    "constant_stddev": 12e-6,
}


def turning_robot(seconds: float, seed: int = 0):
    """Straight at 0.2 m/s for 2 s, then on the spot at up to 1.6 rad/s for 1 s, and so on: t, x of the point, ψ, ω."""
    rng, n = np.random.default_rng(seed), int(seconds * RATE)
    t = np.arange(n) / RATE
    spins = rng.uniform(0.8, 1.6, n) * rng.choice([-1, 1], n)
    leg, within = (t // 3).astype(int), t % 3
    rate = np.where(within >= 2, spins[leg], 0.0)
    speed = np.where(within < 2, 0.2, 0.0)
    psi = np.cumsum(rate) / RATE
    ahead = np.stack([np.cos(psi), np.sin(psi)], 1)
    axle = np.cumsum(speed[:, None] * ahead, 0) / RATE
    return t, axle + AHEAD * ahead, psi, rate


def field(x: np.ndarray) -> np.ndarray:
    """(N, 3) tesla, the gradient of −15 x − 44 z + 6 e^z sin x e^{…}: close to a room's."""
    u, v = 1.3 * x[:, 0], 1.3 * x[:, 1]
    k = math.sqrt(2.0)
    return 1e-6 * np.stack(
        [
            -15 + 4 * np.cos(u) * np.sin(v),
            4 * np.sin(u) * np.cos(v),
            -44 + 4 * k * np.sin(u) * np.sin(v),
        ],
        1,
    )


def late(seconds: float, lag: float, seed: int = 0) -> Samples:
    """What that robot records where the attitude is `lag` newer than the field."""
    t, x, psi, rate = turning_robot(seconds, seed)
    y = np.array([rotate_about_vertical(b, w * lag) for b, w in zip(field(x).tolist(), rate)])
    y += 0.3e-6 * np.random.default_rng(seed).standard_normal(y.shape)
    return Samples(x, y, stamp=t, heading=np.stack([np.cos(psi), np.sin(psi)], 1))


def test_the_path_of_a_point_before_the_axle_says_the_heading_on_the_spot_too():
    t, x, psi, rate = turning_robot(60.0)
    track = HeadingTrack(AHEAD)
    steps = [track.step(place, stamp, None) for place, stamp in zip(x.tolist(), t.tolist())]
    found = np.array([h for h, _ in steps])
    away = np.arccos(np.clip((found * np.stack([np.cos(psi), np.sin(psi)], 1)).sum(1), -1, 1))
    assert steps[0][0] == [0.0, 0.0] and away[60:].max() < 0.05
    travel = np.gradient(x, axis=0)
    travel /= np.linalg.norm(travel, axis=1, keepdims=True)
    wrong = np.arccos(np.clip((travel * np.stack([np.cos(psi), np.sin(psi)], 1)).sum(1), -1, 1))
    assert wrong[rate != 0].mean() > 1.4, "the direction of travel is no heading there"
    steady = np.abs(np.gradient(rate)) < 1e-9
    for k in range(12):
        steady &= np.roll(np.abs(np.gradient(rate)) < 1e-9, k)
    assert np.abs(np.array([w for _, w in steps]) - rate)[60:][steady[60:]].max() < 0.1


def test_a_heading_of_the_pose_is_kept_and_without_either_there_is_none():
    track = HeadingTrack(0.0)
    assert track.step([0.0, 0.0], 0.0, None) == (None, 0.0)
    track = HeadingTrack(AHEAD)
    for k in range(30):
        heading = [math.cos(0.02 * k + 3.0), math.sin(0.02 * k + 3.0)]  # through ±π
        kept, rate = track.step([0.1 * k, 0.0], 0.02 * k, heading)
        assert kept == heading
    assert rate == pytest.approx(1.0, rel=1e-6)


def test_a_yaw_rate_is_that_of_a_fifth_of_a_second():
    """So what headings tremble by, 2 hundredths of a radian from one to the next, is no turn of 1 rad/s."""
    track, n = HeadingTrack(0.0), 60
    psi = [0.5 * k / RATE + 0.01 * (-1) ** k for k in range(n)]
    for steps in (1, n):  # one by one, and together
        rates = []
        for i in range(0, n, steps):
            part = range(i, i + steps)
            headings = [[math.cos(psi[k]), math.sin(psi[k])] for k in part]
            rates += track.steps([[0.0, 0.0] for _ in part], [k / RATE for k in part], headings)[1]
        track.begin_pass()
        assert rates[12:] == pytest.approx([0.5] * (n - 12), abs=0.11)


def test_where_headings_end_the_path_goes_on_from_the_last_of_them():
    """A pose that loses its attitude; also in a map, batch after batch, and where it was saved between them."""
    t, x, psi, _ = turning_robot(8.0)
    known = np.stack([np.cos(psi), np.sin(psi)], 1)
    track, half = HeadingTrack(AHEAD), len(t) // 2
    track.steps(x[:half].tolist(), t[:half].tolist(), known[:half].tolist())
    state = track.state_dict()
    found, _ = track.steps(x[half:].tolist(), t[half:].tolist(), [None] * (len(t) - half))
    assert np.arccos(np.clip((np.array(found) * known[half:]).sum(1), -1, 1)).max() < 0.05

    resumed, older = HeadingTrack(AHEAD), HeadingTrack(AHEAD)
    resumed.load_state_dict(state)
    older.load_state_dict(state | {"last": None})
    for other in (resumed, older):
        again, _ = other.steps(x[half:].tolist(), t[half:].tolist(), [None] * (len(t) - half))
        assert np.abs(np.array(again) - found).max() < 0.05

    session = MapSession(MapSettings(axle_distance=AHEAD, learn_hyperparameters=False, **STARTS))
    y = 1e-6 * (45.0 + x[:, :1])
    session.ingest(Samples(x[:half], y[:half], stamp=t[:half], heading=known[:half]))
    session.ingest(Samples(x[half:], y[half:], stamp=t[half:]))
    session.flush()
    assert session.raw_count == len(t) and session.refused == 0


@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_the_lag_is_the_regression_of_errors_on_the_yaw_rate(unit):
    rng, lag = np.random.default_rng(0), AttitudeLag()
    mean = np.array([-15.0, 3.0, -44.0]) + rng.normal(0, 4, (900, 3))
    rate = np.where(rng.random(900) < 0.2, rng.uniform(-1.5, 1.5, 900), 0.0)
    for part in np.split(
        np.arange(900), 30
    ):  # what is left each time, turned back by what is known so far
        recorded = [
            rotate_about_vertical(b, w * LAG) for b, w in zip(mean[part].tolist(), rate[part])
        ]
        back = np.array(
            [rotate_about_vertical(b, -w * lag.seconds) for b, w in zip(recorded, rate[part])]
        )
        error = back - mean[part] + rng.normal(0, 1, (len(part), 3))
        lag.add(rate[part], unit * error, unit * mean[part], np.full((len(part), 3), unit**2))
    assert lag.seconds == pytest.approx(LAG, abs=0.02)
    nothing = AttitudeLag()
    nothing.add(rate, rng.normal(0, 1, (900, 3)), mean, np.ones((900, 3)))
    assert abs(nothing.seconds) < 0.02


def test_a_map_of_vectors_learns_the_lag_and_turns_them_back():
    settings = MapSettings(
        model="curl_free",
        **STARTS,
        learn_hyperparameters=False,
        learn_time_offset=False,
        heading_stddev=0.0,
        max_inducing=80,
        memory_size=100,
    )
    session = MapSession(settings)
    session.ingest(late(90.0, LAG))
    session.flush()
    assert session.scores.lag.seconds == pytest.approx(LAG, abs=0.03)
    test = late(30.0, LAG, seed=1)
    left = residuals(session, [test], test.x.numpy()).error
    session.scores.lag.product = 0.0
    assert np.std(left) < 0.6 * np.std(residuals(session, [test], test.x.numpy()).error)


def test_resuming_in_a_turn_is_exact_and_one_channel_is_not_touched():
    run = late(30.0, LAG)
    for settings, samples in (
        ({"model": "curl_free", "max_inducing": 60, "memory_size": 100}, run),
        ({"axle_distance": AHEAD}, Samples(run.x, run.y.norm(dim=1), stamp=run.stamp)),
    ):
        straight, first = (
            MapSession(MapSettings(learn_hyperparameters=False, **STARTS | settings))
            for _ in range(2)
        )
        straight.ingest(samples[:1300])
        first.ingest(samples[:640])
        again = MapSession.from_state_dict(first.state_dict())
        again.ingest(samples[640:1300])
        assert again.state_dict()["track"] == straight.state_dict()["track"]
        assert torch.equal(
            torch.tensor(again.cells.open["y"][0]), torch.tensor(straight.cells.open["y"][0])
        )
    plain = MapSession(MapSettings())
    scalar = Samples(run.x, run.y.norm(dim=1), stamp=run.stamp)
    assert plain.as_mapped(scalar) is scalar
    assert straight.as_mapped(scalar).heading is not None and torch.equal(
        straight.as_mapped(scalar).y, scalar.y
    )


@pytest.mark.parametrize("stamped", [True, False])
def test_a_whole_pass_is_turned_back_by_the_rate_of_its_headings(stamped):
    """Without stamps it is one of fifty samples a second."""
    samples = late(9.0, LAG)
    samples = samples if stamped else replace(samples, stamp=None)
    settled = with_attitude_lag(samples, 0.0, LAG)
    assert torch.equal(settled.x, samples.x) and torch.equal(settled.heading, samples.heading)
    error = [np.abs(y.numpy() - field(samples.x.numpy())).mean() for y in (samples.y, settled.y)]
    assert error[1] < 0.3e-6 and error[0] > 1.5 * error[1]
    assert with_attitude_lag(samples, 0.0, None) is samples


def test_headings_of_a_whole_pass_are_of_its_path_where_it_tells_none():
    samples = replace(late(9.0, 0.0), heading=None)
    seen = with_attitude_lag(samples, AHEAD, None)
    assert torch.equal(seen.y, samples.y)
    _, _, psi, _ = turning_robot(9.0)
    away = np.angle(np.exp(1j * (np.arctan2(*seen.heading.numpy().T[::-1]) - psi)))
    assert np.median(np.abs(away)) < 0.1
    assert with_attitude_lag(samples[:0], AHEAD, None).heading is None
    assert with_attitude_lag(samples, 0.0, LAG).heading is None, "the path of an axle has none"


def test_a_lag_goes_on_after_a_restart_as_if_nothing_had_happened():
    rng, lags = np.random.default_rng(0), (AttitudeLag(), AttitudeLag())
    rows = [
        (rng.normal(size=3), rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), np.full((3, 3), 0.4))
        for _ in range(4)
    ]
    for row in rows[:2]:
        lags[0].add(*row)
    lags[1].load_state_dict(lags[0].state_dict())
    assert lags[1].seconds == lags[0].seconds != 0.0
    for lag in lags:
        for row in rows[2:]:
            lag.add(*row)
    assert lags[1].seconds == lags[0].seconds and lags[1].square == lags[0].square
