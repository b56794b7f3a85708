"""What learning is worth: from a start that is wrong, nearly as much as the true hyper-parameters."""

import math

import pytest
import torch
from survey_paths import lawnmower, waves

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession

TRUE = {"lengthscale": 1.5, "signal_stddev": 1.0, "noise_stddev": 0.1}
SEEDS = (0, 1)


def nlpd(seed: int, learning: bool, model: str = "dual_svgp", **start) -> float:
    """Nats of a new measurement in the area that was driven, after a drive in batches."""
    g = torch.Generator().manual_seed(seed)
    field, x = waves(TRUE["lengthscale"], seed), lawnmower(6.0, 1.0, 0.3)
    places = 6.0 * torch.rand(300, 2, dtype=torch.float64, generator=g)
    noise = TRUE["noise_stddev"] * torch.randn(len(x) + 300, 1, dtype=torch.float64, generator=g)
    y, fresh = field(x) + noise[:-300], field(places) + noise[-300:]

    settings = {"field_scale": 1.0, "cells": False, "constant_stddev": 2.0, "heading_stddev": 0.0}
    settings |= {"learn_time_offset": False, "learn_bias": False, "model": model}
    session = MapSession(MapSettings(**settings, **start, learn_hyperparameters=learning))
    for i in range(0, len(x), 20):
        session.ingest(
            Samples(x[i : i + 20], y[i : i + 20], stamp=torch.arange(i, i + 20)[: len(x) - i])
        )
    session.flush()
    told = session.predict(places)
    variance = told.measurement_variance
    rows = 0.5 * (2 * math.pi * variance).log() + 0.5 * (fresh - told.mean).square() / variance
    return float(rows.mean())


ROUGH = {"lengthscale": 0.5, "signal_stddev": 3.0, "noise_stddev": 0.4}
SMOOTH = {"lengthscale": 4.0, "signal_stddev": 0.3, "noise_stddev": 0.02}


@pytest.mark.parametrize(
    "model, start",
    [("dual_svgp", ROUGH), ("dual_svgp", SMOOTH), ("exact", ROUGH)],
    ids=["dual_svgp-rough", "dual_svgp-smooth", "exact-rough"],
)
def test_learning_gains_nearly_all_that_the_truth_does(model, start):
    best, learned, left = (
        sum(nlpd(seed, on, model, **numbers) for seed in SEEDS) / len(SEEDS)
        for on, numbers in ((False, TRUE), (True, start), (False, start))
    )
    assert left - best > 1.0
    assert left - learned > 0.85 * (left - best)
