"""The real robot: protocol P and leave-one-trial-out, with hyper-parameters learned online from the default start."""

import copy
import math

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.recording.magnetic_csv import read_trial

BATCH = 100
# of the room, which goes to x = 4.6 m, the half with most of the drives: what is mapped, and where it is tested, which
# is away from the edge by more than half a lengthscale
MAPPED, TESTED = 1.74, 1.44  # m, the largest x


def trial(folder, name: int) -> Samples:
    """|B| in tesla at the robot's position in the plane."""
    t = read_trial(folder, str(name))
    return Samples(t.position[:, :2], np.linalg.norm(t.field, axis=1, keepdims=True), stamp=t.time)


@pytest.fixture(scope="module")
def trials(recordings):
    """What was measured in one half of the room: with gaps, where the robot was in the other one."""
    whole = {k: trial(recordings, k) for k in range(1, 6)}
    return {k: samples[samples.x[:, 0] < MAPPED] for k, samples in whole.items()}


def mapped(trials, names, **settings) -> MapSession:
    """One pass after the other, in batches of 100 raw samples, nothing learned beforehand."""
    return driven(MapSession(MapSettings(**settings)), trials, names)


def driven(session, trials, names) -> MapSession:
    """The session after some more passes."""
    for k in names:
        for i in range(0, len(trials[k]), BATCH):
            session.ingest(trials[k][i : i + BATCH])
        session.break_pass()
    return session


def maps_of(trials, **settings):
    """Maps of some trials, one pass after the other; what begins alike is mapped once."""
    known = {(): MapSession(MapSettings(**settings))}

    def of(*names) -> MapSession:
        if names not in known:
            known[names] = driven(copy.deepcopy(of(*names[:-1])), trials, names[-1:])
        return known[names]

    return of


@pytest.fixture(scope="module")
def learned(trials):
    """With default settings."""
    return maps_of(trials)


@pytest.fixture(scope="module")
def given(trials):
    """With hyper-parameters that were found before."""
    return maps_of(trials, **GIVEN)


def velocity_of(samples: Samples) -> torch.Tensor:
    """Over half a second, as the stream has it: what the robot knows of its own motion when it is asked."""
    x, t = samples.x, samples.stamp
    early, late = torch.arange(len(x)) - 12, torch.arange(len(x)) + 12
    early, late = early.clamp_min(0), late.clamp_max(len(x) - 1)
    return (x[late] - x[early]) / (t[late] - t[early])[:, None]


def scores(session, test: Samples) -> tuple[float, float, float]:
    """RMSE (µT), NLPD of values in µT, coverage of the 95 % interval, on every raw sample away from the edge."""
    inner = test.x[:, 0] < TESTED
    velocity, test = velocity_of(test)[inner], test[inner]
    p = session.predict(test.x, velocity)
    error = ((test.y - p.mean) / 1e-6)[:, 0].numpy()
    variance = (p.measurement_variance / 1e-12)[:, 0].numpy()
    nlpd = 0.5 * np.log(2 * math.pi * variance) + 0.5 * error**2 / variance
    return (
        float(np.sqrt((error**2).mean())),
        float(nlpd.mean()),
        float((np.abs(error) < 1.96 * variance**0.5).mean()),
    )


def test_protocol_p_learned_online(trials, learned):
    """Trials 1, 2, 3, 5 in time order, tested on all of trial 4: nothing is tuned on it."""
    session = learned(1, 2, 3, 5)
    rmse, nlpd, coverage = scores(session, trials[4])
    report = session.report()
    # errors persist over half a second: the drive's 2679 measurements say as much as 75, and 95 % ± 5 % is 90 to 100 %,
    # and a little more, since the bias of a pass that nobody has seen is in the interval, and this one has hardly any
    assert rmse <= 1.5 and nlpd <= 2.0 and 0.90 <= coverage <= 0.99, (rmse, nlpd, coverage)
    assert (
        report["jitter"] == 0.0 and report["learning_rejected"] == 0 and report["inducing"] <= 400
    )
    assert 0.2 < report["hyperparameters"]["lengthscale"] < 1.5

    # by what was learned beside the start: that measurements are late is part of what is predicted
    test = trials[4][trials[4].x[:, 0] < TESTED]
    punctual = (session.predict(test.x).mean - test.y).square().mean().sqrt() / 1e-6
    assert rmse < 0.95 * float(punctual), (rmse, punctual)


GIVEN = {
    "learn_hyperparameters": False,
    "heading_stddev": 0.0,
    "lengthscale": 0.446,
    "signal_stddev": 160**0.5 * 1e-6,
    "noise_stddev": 1.2**0.5 * 1e-6,
    "constant_stddev": 3.0 * 160**0.5 * 1e-6,  # as it would be found
}


def test_a_later_trial_with_theta_given(trials, given):
    """Matérn-5/2, ℓ .446 m, s² 160, noise 1.2 µT²; the time offset is learned, as by default.

    Three drives, tested on the next: its ground is known after them, and a fourth would be tested on the same.
    """
    rmse, nlpd, coverage = scores(given(1, 2, 3), trials[5])
    # too wide, since the noise given holds what the offset explains; nothing narrows it but the scores
    assert rmse <= 2.0 and nlpd <= 2.15 and 0.92 <= coverage <= 0.997, (rmse, nlpd, coverage)


def test_raw_samples_make_a_fair_map_too(trials):
    """Without cells: fifty samples a second, correlated; worse, but no disaster. Of half a minute."""
    first = {1: trials[1][:1500]}
    session = mapped(first, (1,), cells=False, memory_size=500, max_inducing=200, **GIVEN)
    raw, averaged = (scores(one, trials[3])[0] for one in (session, mapped(first, (1,), **GIVEN)))
    assert raw < 1.5 * averaged + 0.5, (raw, averaged)


def test_leave_one_trial_out(trials, learned):
    """Each is predicted by a map of others, in an order in which most of them begin alike.

    The ground of two is known after three of the others, and that of two more well enough after two: what the rest
    would add is not needed.
    """
    rows = [
        scores(learned(*names), trials[left])
        for left, names in (
            (5, (1, 2, 3)),
            (4, (1, 2, 3, 5)),
            (3, (1, 2, 4)),
            (2, (1, 3)),
            (1, (3, 2)),
        )
    ]
    rmse, nlpd, coverage = np.mean(rows, axis=0)
    assert rmse <= 3.2 and nlpd <= 2.6 and coverage >= 0.88, rows


def test_the_drawing_of_a_real_map_is_what_predict_says(learned):
    session = learned(1)
    grid = session.render()
    told = session.predict(grid.centres())
    mean = (grid.mean.reshape(-1) - told.mean[:, 0]).abs() / told.measurement_variance[:, 0].sqrt()
    stddev = (grid.stddev.reshape(-1) / told.stddev[:, 0] - 1).abs()
    assert float(mean.max()) <= 0.02 and float(stddev.max()) <= 0.02, (
        float(mean.max()),
        float(stddev.max()),
    )
