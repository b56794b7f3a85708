"""Honest intervals where noise is correlated in time: synthetic passes of a known field, held-out passes."""

import copy
import functools

import numpy as np
import pytest
import torch
from mapping_data import drive

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession


def coverage(session, run) -> float:
    p = session.predict(run.x)
    inside = (run.y - p.mean).abs() <= 1.96 * p.measurement_variance.sqrt()
    return float(inside.double().mean())


def passes(count, start=0, rate=25.0):
    """Every other pass across, each with an error of its own; 6 m × 4 m, about 20 minutes a dozen."""
    return [
        drive(
            start + i,
            start=1000.0 * i,
            noise=1.2,
            rate=rate,
            length=4.0,
            lanes=4,
            across=bool(i % 2),
            origin=(0.05 * i, -0.03 * i),
        )
        for i in range(count)
    ]


# near what the field is: to find starts takes the first cells in again and again, which is test_start.py's
STARTS = {
    "lengthscale": 1.0,
    "signal_stddev": 8e-6,
    "noise_stddev": 0.7e-6,
    "constant_stddev": 24e-6,
    "cell_length": 0.2,
}


@functools.cache
def mapped(seed: int, count: int) -> MapSession:
    """A room after so many passes, which no test changes."""
    session = copy.deepcopy(mapped(seed, count - 1)) if count else MapSession(MapSettings(**STARTS))
    if count:
        session.ingest(passes(count, seed)[-1])
        session.break_pass()
    return session


def test_coverage_of_held_out_passes():
    """Two rooms, two held-out passes each: one pass has a single error of its own, so single ones vary by .03."""
    got = []
    for seed in (0, 50):
        session = mapped(seed, 3)
        got += [coverage(session, run) for run in passes(5, seed)[3:]]
        # the noise is that of the passes (1.2 and .16 white), not that of the cells or of the likelihood
        assert 0.9e-6 < session.noise_variance**0.5 < 1.7e-6
    assert 0.90 <= np.mean(got) <= 0.98 and min(got) > 0.87, got


def test_white_noise_taken_at_its_word_is_over_confident():
    """What the cells and the predictive noise are for: without them the same data are believed too much."""
    runs = passes(5)
    naive = MapSession(
        MapSettings(
            cells=False,
            predictive_noise=False,
            memory_size=200,
            noise_stddev=0.2e-6,
            learn_hyperparameters=False,
            lengthscale=1.2,
        )
    )
    naive.ingest(runs[0])
    naive.break_pass()
    # more passes would be believed still more
    assert coverage(naive, runs[4]) < 0.7 < 0.88 < coverage(mapped(0, 2), runs[4])


def test_scores_need_a_metre_of_path():
    """No score against a map that has just seen the place: a run of less than a metre gives none."""
    session = MapSession(
        MapSettings(
            lengthscale=1.0, signal_stddev=10e-6, noise_stddev=0.7e-6, constant_stddev=20e-6
        )
    )
    run = drive(0, lanes=1)
    session.ingest(run[:220])  # 0.9 m
    assert session.report()["scores"] == 0
    session.ingest(run[220:900])
    assert session.report()["scores"] > 10
    off = MapSession(MapSettings(predictive_noise=False))
    off.ingest(run)
    # the model's, which is of a cell, and what averaging took out of it
    of_cell = float(off.map.predict(torch.zeros(1, 2)).noise_variance[0])
    averaged_out = off.scores.white_variance - off.scores.white_averaged
    assert averaged_out > 0.05 * of_cell
    assert off.noise_variance == pytest.approx(of_cell + averaged_out, rel=1e-9, abs=0.0)


def test_a_standing_robot_does_not_fill_the_scores():
    run = drive(0, lanes=2)
    session = MapSession(MapSettings(**STARTS))
    session.ingest(run)
    before = session.report()["scores"]
    n = 3000
    stamp = run.stamp[-1] + 0.02 * torch.arange(1, n + 1)
    still = Samples(run.x[-1:].repeat(n, 1), run.y[-1:].repeat(n, 1), stamp=stamp)
    session.ingest(still)
    session.flush()
    assert session.report()["scores"] <= before + 10


@pytest.mark.parametrize("cells", [True, False])
def test_nothing_changed_and_nothing_is_found_changed(cells):
    """Correlated noise of four passes is no change of the field: a false alarm forgets what was learned."""
    session = MapSession(
        MapSettings(
            cells=cells,
            memory_size=200,
            max_inducing=60,
            **STARTS | {"lengthscale": 1.2, "noise_stddev": 1e-6},
            heading_stddev=0.0,
            learn_hyperparameters=False,
            learn_time_offset=False,
        )
    )
    for run in passes(4, 20):
        session.ingest(run)
        session.break_pass()
    assert session.changes == ()


def test_exploring_lane_beside_lane_is_no_noise():
    """A first survey never comes back to a place: its wrong guesses half a metre ahead are not the sensor's noise."""
    session = MapSession(MapSettings(lengthscale=2.0, lengthscale_prior=2.0, cell_length=0.2))
    session.ingest(drive(3, noise=0.5, rate=25.0, length=5.0, lanes=8))
    session.flush()
    assert session.noise_variance**0.5 < 2e-6, session.noise_variance**0.5
