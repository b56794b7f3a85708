"""Streams of classes, counts and gross errors: robustness, exposures, settings, sessions.

Hyper-parameters are learned by gp_mapping.core.hyper.pseudo_data; what a sample says comes from
gp_mapping.core.sparse.observing.
"""

import copy
import math

import numpy as np
import pytest
import torch
from likelihood_maps import KINDS, LIMITS, METRIC, PLACES, build, data, settle, stream, truth

from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.mapping.session import MapSession


def rmse(field, x):
    return float(
        np.sqrt(((field.predict(torch.from_numpy(x)).mean.numpy() - truth(x)) ** 2).mean())
    )


def test_gross_errors_cost_a_student_t_little():
    """5 % of errors of 4 to 12 (the field's sd is 1): at most 10 % of RMSE; a Gaussian loses most of its own."""
    grid = np.random.default_rng(9).uniform(0.2, 2.8, (200, 2))
    ratios = {"student_t": [], "gaussian": []}
    for seed in range(2):
        clean, dirty = data("student_t", 300, seed), data("student_t", 300, seed, errors=0.05)
        for kind, found in ratios.items():
            noise = {"noise_stddev": 0.3 if kind == "gaussian" else 0.27}
            maps = [
                stream(
                    build(kind, inducing_tolerance=1e-2, inducing_information=0.0, **noise), *d, 20
                )
                for d in (clean, dirty)
            ]
            found.append([rmse(field, grid) for field in maps])
    student, gaussian = (np.mean(ratios[k], 0) for k in ("student_t", "gaussian"))
    assert student[1] < 1.10 * student[0], f"{student}"
    assert gaussian[1] > 2.0 * gaussian[0], "the errors are gross indeed"
    assert student[0] < 1.15 * gaussian[0], "without errors, robustness costs little"


def test_a_mean_of_counts_weighs_as_many():
    x, y = data("poisson", 30, seed=3)
    apart, together = build("poisson"), build("poisson")
    counts = np.random.default_rng(1).poisson(np.exp(truth(x)), (30, 4)).astype(float)
    for i in range(0, 30, 10):
        for j in range(4):
            apart.update(Samples(x[i : i + 10], counts[i : i + 10, j]))
        together.update(Samples(x[i : i + 10], counts[i : i + 10].mean(1), count=np.full(10, 4.0)))
    for field in (apart, together):
        settle(field, 1e-9)
    a, b = apart.predict(PLACES), together.predict(PLACES)
    assert torch.allclose(a.mean, b.mean, atol=1e-4) and torch.allclose(
        a.variance, b.variance, atol=1e-4
    )


def test_settings_of_classes_and_counts():
    s = MapSettings(likelihood="poisson")
    assert (s.field_scale, s.heading_stddev, s.robust, s.follow_changes, s.cells) == (
        1.0,
        0.0,
        True,
        False,
        True,
    )
    assert (
        not MapSettings(likelihood="softmax").cells
        and not MapSettings(likelihood="bernoulli").robust
    )
    assert MapSettings(likelihood="bernoulli", signal_stddev=3.0).signal_stddev == 3.0
    assert MapSettings(likelihood="student_t").field_scale == 1e-6
    with pytest.raises(ValueError, match="Gaussian measurements only"):
        create_map("exact", likelihood="bernoulli")
    with pytest.raises(ValueError, match="field_scale"):
        create_map("dual_svgp", likelihood="poisson", field_scale=2.0)
    with pytest.raises(ValueError, match="centre"):
        create_map("dual_svgp", likelihood="poisson", centre=[1.0])


def test_is_it_above_the_threshold():
    """A field in tesla, a threshold in tesla: the probability is high inside the hill and low outside."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, (300, 2))
    y = 40e-6 + 20e-6 * np.exp(-((x - 1.5) ** 2).sum(1)) + rng.normal(0, 1e-6, 300)
    field = stream(
        create_map(
            "dual_svgp",
            likelihood="bernoulli",
            threshold=50e-6,
            learn_time_offset=False,
            inducing_tolerance=1e-3,
            inducing_information=0.0,
        ),
        x,
        y,
        25,
    )
    field.refine(math.inf)
    p = field.observable(torch.tensor([[1.5, 1.5], [0.1, 0.1], [40.0, 40.0]])).mean[:, 0]
    assert p[0] > 0.95 and p[1] < 0.05 and 0.1 < p[2] < 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_maps_it(kind):
    """Cells, learning, drawing and resume, from the defaults of the likelihood."""
    x, y = data(kind, 48, seed=3)
    x = x[np.argsort(x[:, 0])]
    metric = {"field_scale": 1.0, "signal_stddev": 1.5} if kind in METRIC else {}
    metric |= {"lower_limit": LIMITS[0], "upper_limit": LIMITS[1]}
    session = MapSession(
        MapSettings(likelihood=kind, classes=3, max_inducing=24, resolution=0.3, **metric)
    )
    batch = Samples(x, y, stamp=np.arange(48) * 0.2)
    session.ingest(batch[:30])
    again = MapSession.from_state_dict(copy.deepcopy(session.state_dict()))
    for one in (session, again):
        one.ingest(batch[30:])
        one.flush()
    assert session.report()["samples"] == 48 and session.settings == again.settings
    assert torch.equal(session.predict(PLACES).mean, again.predict(PLACES).mean)
    assert bool(torch.isfinite(session.render().mean).all())


@pytest.mark.parametrize(
    "kind, y, expected",
    [
        ("student_t", [[-1.5], [2.0]], [[-1.5], [2.0]]),
        ("bernoulli", [[0.0], [1.0]], [[0.0], [1.0]]),
        ("poisson", [[0.0], [7.0]], [[0.0], [7.0]]),
        ("softmax", [[2.0], [0.0]], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    ],
)
def test_outcomes_are_what_is_predicted_of_them(kind, y, expected):
    field = build(kind)
    stream(field, *data(kind, 40))
    outcome = field.outcome(torch.tensor(y, dtype=torch.float64))
    assert outcome.tolist() == expected
    told = field.observed(field.predict(PLACES[:2])).mean
    assert told.shape == outcome.shape
