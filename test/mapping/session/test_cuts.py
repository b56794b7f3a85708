"""A session is the same however its samples are cut into calls, whatever is among them."""

import random

import pytest
from states import same

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession


def drive(seed, stamps=True):
    """640 samples at 50 Hz: a stop, a leap of the position, absurd values, a place off the earth, time going back."""
    chance, x, y, t = random.Random(seed), [0.0, 0.0], [], 100.0
    places, times = [], []
    for i in range(640):
        standing = 140 < i < 200
        x = [
            x[0] + (0.0 if standing else chance.uniform(0.001, 0.012)),
            x[1] + chance.gauss(0.0, 0.002),
        ]
        t += 0.02 - 3.0 * (i == 420)
        places.append([1e9, 0.0] if i == 260 else [x[0] + 3.0 * (i > 480), x[1]])
        times.append(t)
        y.append([1e30 if i in (130, 310, 311) else 48e-6 + 2e-6 * chance.random()])
    columns = {"sensor_variance": [1e-14] * 640} if seed == 1 else {"heading": [[1.0, 0.0]] * 640}
    return Samples(places, y, stamp=times if stamps else None, **columns)


@pytest.mark.parametrize(
    "seed, stamps, settings",
    [
        (0, True, {"constant_stddev": 0.0}),  # to be found, by cells that are taken in again
        (1, True, {}),
        (2, False, {}),
        (3, True, {"cells": False, "max_exact_samples": 5000}),
        (4, True, {"axle_distance": 0.2}),
    ],
)
def test_a_session_does_not_depend_on_the_cuts(seed, stamps, settings):
    samples, states = drive(seed, stamps), []
    common = {
        "learn_hyperparameters": False,
        "lengthscale": 0.5,
        "signal_stddev": 1e-5,
        "noise_stddev": 1e-6,
        "constant_stddev": 3e-5,
        "max_inducing": 40,
        "memory_size": 80,
    }
    for lengths in ([1], [1, 2, 7, 40, 150, 300]):
        session, chance, i = MapSession(MapSettings(**common | settings)), random.Random(seed), 0
        while i < 640:
            n = chance.choice(lengths)
            session.ingest(samples[i : i + n])
            i += n
        states.append(session.state_dict())
        assert session.raw_count + session.refused == 640 and session.refused >= 3
    assert same(*states)
