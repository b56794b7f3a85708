"""Classes and counts are published as what people ask for: probability, rate, class; checked by quadrature of f."""

import copy
import json

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import ndtr

from gp_mapping import MapSettings, Samples
from gp_mapping.analysis.metrics import PredictionScores
from gp_mapping.mapping.session import MapSession
from gp_mapping.ros.mapper.queries import predict_columns
from gp_mapping.store.exports.export import export_all

CLASSES = ("softmax", "dirichlet")
KINDS = ("bernoulli", "poisson", *CLASSES)
DURATION = 0.5
NODES, WEIGHTS = hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def truth(x):
    return 2.0 * np.sin(1.5 * x[:, :1]) * np.cos(1.2 * x[:, 1:])


def samples(kind, n=1200, seed=0):
    """Lanes over 3 m × 3 m, one measurement in 2 cm, drawn from the likelihood about `truth`."""
    rng = np.random.default_rng(seed)
    along = np.linspace(0.0, 24.0, n)
    lane, at = np.divmod(along, 3.0)
    x = np.stack([np.where(lane % 2 == 0, at, 3.0 - at), 0.4 * lane], 1)
    f = truth(x)

    def label():
        return np.argmax(np.hstack([f, -f, 0 * f]) + rng.gumbel(0, 1, (n, 3)), 1)[:, None] * 1.0

    y = {
        "bernoulli": lambda: (f + rng.normal(0, 1, f.shape) > 0) * 1.0,
        "poisson": lambda: rng.poisson(np.exp(f)) * 1.0,
    }.get(kind, label)()
    return Samples(x, y, stamp=np.arange(n) * 0.04)


def mapped(kind, **settings) -> MapSession:
    given = {
        "likelihood": kind,
        "classes": 3,
        "max_inducing": 60,
        "lengthscale": 0.8,
        "count_duration": DURATION,
        "learn_hyperparameters": False,
        "learn_time_offset": False,
        "resolution": 0.1,
        "cell_length": 0.2,
    }
    if kind == "dirichlet":
        given |= {"model": "wiski", "alpha_epsilon": 0.1}
    session = MapSession(MapSettings(**given | settings))
    session.ingest(samples(kind)[:: 3 if kind == "dirichlet" else 1])
    session.flush()
    return session


@pytest.fixture(scope="module")
def sessions():
    return {kind: mapped(kind) for kind in KINDS}


def by_quadrature(kind, mean, variance):
    """Mean and stddev (N, C) of what f ~ N(mean, variance), (N, C), stands for."""
    f = mean[..., None] + np.sqrt(variance)[..., None] * NODES  # (N, C, n)
    if kind not in CLASSES:
        g = ndtr(f) if kind == "bernoulli" else np.exp(f) / DURATION
        first, second = g @ WEIGHTS, g**2 @ WEIGHTS
    else:
        a, b, c = (np.exp(f[:, k]) for k in range(3))
        total = a[:, :, None, None] + b[:, None, :, None] + c[:, None, None, :]
        parts = [
            a[:, :, None, None] / total,
            b[:, None, :, None] / total,
            c[:, None, None, :] / total,
        ]
        first, second = (
            np.stack([np.einsum("nijk,i,j,k->n", p**power, *[WEIGHTS] * 3) for p in parts], 1)
            for power in (1, 2)
        )
    return first, np.sqrt(np.maximum(second - first**2, 0.0))


def test_a_cell_is_known_where_every_class_is():
    session = mapped("dirichlet", unknown_ratio=0.2)
    grid = session.render()
    bound = 0.2 * session.map.hyperparameters()["signal_stddev"]
    known = session.predict(grid.centres()).variance.sqrt() <= bound
    drawn = grid.known.reshape(-1)
    assert int((drawn != known.all(1)).sum()) <= 0.01 * len(drawn)  # splined
    assert all(int((drawn != known[:, c]).sum()) > 0.015 * len(drawn) for c in range(3))


@pytest.mark.parametrize("kind", KINDS)
def test_the_grid_and_questions_have_what_f_stands_for(sessions, kind):
    session = sessions[kind]
    grid = session.render()
    at = torch.from_numpy(
        np.random.default_rng(1).choice(np.flatnonzero(grid.known.numpy()), 40, replace=False)
    )
    x = grid.centres()[at]
    f = session.predict(x)
    mean, stddev = by_quadrature(kind, f.mean.numpy(), f.variance.numpy())
    told = session.published(x)
    np.testing.assert_allclose(told.mean, mean, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(told.stddev, stddev, rtol=2e-2, atol=1e-3)
    top = mean.argmax(1) if kind in CLASSES else np.zeros(len(x), int)
    mean, stddev = (np.take_along_axis(v, top[:, None], 1)[:, 0] for v in (mean, stddev))
    scale = mean.max()
    near = np.abs(
        grid.mean.reshape(-1)[at].numpy() - mean
    )  # splined; classes may change places where they are equal
    assert (
        near.max() < 0.02 * scale
        and np.abs(grid.stddev.reshape(-1)[at].numpy() - stddev).max() < 0.03 * scale
    )
    if kind in CLASSES:
        assert (grid.classes.reshape(-1)[at].numpy() == top).mean() > 0.9
    answer, names = predict_columns(session, np.hstack([x.numpy(), np.zeros((len(x), 1))]))
    np.testing.assert_allclose(answer[:, 3], mean, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(answer[:, 4], stddev, rtol=2e-2, atol=1e-3)
    if kind in CLASSES:
        assert (
            names[3:8] == ("mean", "stddev", "class", "mean_0", "stddev_0")
            and (answer[:, 5] == top).all()
        )
    else:
        assert len(names) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_about_the_truth_and_within_its_bounds(sessions, kind):
    grid = sessions[kind].render()
    x, known = grid.centres().numpy(), grid.known.numpy().ravel()
    inside = known & (x[:, 0] > 0) & (x[:, 0] < 3) & (x[:, 1] > 0) & (x[:, 1] < 2.8)
    f, mean = truth(x[inside])[:, 0], grid.mean.numpy().ravel()[inside]
    if kind == "poisson":
        rate = np.exp(f) / DURATION
        assert grid.mean.min() >= 0.0 and np.sqrt(((mean - rate) ** 2).mean()) < 0.3 * rate.std()
    else:
        true = (
            ndtr(f)
            if kind == "bernoulli"
            else np.exp([f, -f, 0 * f]).max(0) / np.exp([f, -f, 0 * f]).sum(0)
        )
        assert (
            0.0 <= grid.mean.min() and grid.mean.max() <= 1.0 and np.abs(mean - true).mean() < 0.1
        )
    if kind in CLASSES:
        sure = np.abs(f) > 0.8
        assert (
            grid.classes.numpy().ravel()[inside][sure] == np.where(f > 0, 0, 1)[sure]
        ).mean() > 0.95


def test_latent_is_f_and_what_is_known_does_not_depend_on_it(sessions):
    for kind in KINDS:
        other = MapSession.from_state_dict(sessions[kind].state_dict(), published="latent")
        one, two = sessions[kind].render(), other.render()
        assert torch.equal(one.known, two.known) and other.settings.field_unit == "1"
        x = two.centres()[::50]
        assert torch.equal(other.published(x).mean, other.predict(x).mean)
        if kind not in CLASSES:
            off = (two.mean.reshape(-1)[::50] - other.predict(x).mean[:, 0]).abs()
            assert float(off.max()) < 0.05
    assert (
        sessions["poisson"].settings.field_unit == "1/s"
        and sessions["bernoulli"].settings.field_unit == "1"
    )


def test_new_measurements_are_drawn_where_they_change_the_map(sessions):
    session = copy.deepcopy(sessions["bernoulli"])
    before = session.render()
    new = samples("bernoulli", seed=1)[:300]
    session.ingest(
        Samples(new.x + torch.tensor([0.0, 0.2]), torch.ones_like(new.y), stamp=new.stamp + 100.0)
    )
    session.flush()
    after, fresh = session.render(), MapSession.from_state_dict(session.state_dict()).render()
    assert float((after.mean - before.mean).abs().max()) > 0.1
    offset = [round((a - b) / fresh.resolution) for a, b in zip(fresh.origin, after.origin)]
    h, w = fresh.shape
    part = after.mean[offset[1] : offset[1] + h, offset[0] : offset[0] + w]
    both = fresh.known & after.known[offset[1] : offset[1] + h, offset[0] : offset[0] + w]
    assert float((part - fresh.mean)[both].abs().max()) < 0.03


@pytest.mark.parametrize("kind", KINDS[:3])
def test_exports_say_the_same_and_name_it(sessions, kind, tmp_path):
    session = sessions[kind]
    paths, grid = export_all(session, tmp_path), session.render()
    with np.load(paths["npz"]) as saved:
        np.testing.assert_array_equal(saved["mean"], grid.mean)
        np.testing.assert_array_equal(saved["stddev"], grid.stddev)
        assert {
            "bernoulli": "probability of more than 0.5",
            "poisson": "rate",
        }.get(kind, "probability of the most likely class") == str(saved["quantity"])
        assert ("class" in saved.files) == (kind in CLASSES) == ("mean_2" in saved.files)
        assert json.loads(str(saved["report"]))["samples"] == 1200
    assert paths["png"].stat().st_size > 10000


@pytest.mark.parametrize("kind", KINDS[:3])
def test_scores_are_the_likelihood_s_own(sessions, kind):
    session, test = sessions[kind], samples(kind, seed=7)
    scores = PredictionScores(session, samples(kind).x.numpy(), session.settings.field_scale)
    scores.add(test, True)
    result = scores.result()
    assert (
        result["n"] == 1200
        and result["coverage"] is None
        and result["bands"]["<0.1"]["coverage"] is None
    )
    assert result["nlpd"] == pytest.approx(
        -float(session.map.log_predictive(test).mean()), rel=1e-9
    )
    told = session.published(test.x).mean.numpy()
    y = test.y.numpy() if kind not in CLASSES else np.eye(3)[test.y.numpy()[:, 0].astype(int)]
    told = told * DURATION if kind == "poisson" else told
    assert result["rmse_ut"] == pytest.approx(np.sqrt(((y - told) ** 2).mean()), rel=1e-6)
