"""A map of classes is the exact GP on the Dirichlet targets of each class, and an honest map besides."""

import copy
import math

import numpy as np
import pytest
import torch
from core_data import covariance, exact_gp
from map_contract import same_state

from gp_mapping import Samples, create_map
from gp_mapping.settings.mapping import MapSettings

CLASSES, EPSILON, NOTHING = 3, 0.01, torch.zeros((0, 2), dtype=torch.float64)
SETTINGS = {
    "likelihood": "dirichlet",
    "classes": CLASSES,
    "lengthscale": 0.8,
    "signal_stddev": 3.0,
    "constant_stddev": 2.5,
    "learn_hyperparameters": False,
}
FORMS = {
    "exact": {"model": "exact"},
    "matrix_free": {"model": "wiski"},
    "dense": {"model": "wiski", "wiski_form": "dense", "max_inducing": 100},
}
PLACES = torch.from_numpy(np.random.default_rng(9).uniform(-0.3, 2.5, (40, 2)))


def probabilities(x):
    """Of three classes, one of them on top of a hill."""
    f = np.stack([3.0 * np.sin(2.0 * x[:, 0]), 3.0 * np.cos(1.5 * x[:, 1]), 0.0 * x[:, 0]], 1)
    return np.exp(f) / np.exp(f).sum(1, keepdims=True)


def labelled(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 2.2, (n, 2))
    p = probabilities(x).cumsum(1)
    return Samples(x, (rng.uniform(size=(n, 1)) > p).sum(1).astype(float))


def made(form="matrix_free", batch=None, **settings):
    field = create_map(**SETTINGS | FORMS[form] | settings)
    for start in range(0, 0 if batch is None else len(batch), 40):
        field.update(batch[start : start + 40])
    return field


@pytest.fixture(scope="module")
def data():
    return labelled(100)


@pytest.fixture(scope="module")
def exactly(data):
    return by_hand(data, PLACES)


@pytest.fixture(scope="module")
def maps(data):
    return {form: made(form, data) for form in FORMS}


def by_hand(batch, places):
    """Mean and variance (N, C) of the exact GP of each class, in NumPy, and the class probabilities."""
    x, label = batch.x.numpy(), batch.y.numpy()[:, 0].astype(int)
    alpha = EPSILON + np.eye(CLASSES)[label]
    noise = np.log(1 + 1 / alpha)
    targets = np.log(alpha) - noise / 2
    own, other = (math.log(a) - math.log(1 + 1 / a) / 2 for a in (1 + EPSILON, EPSILON))
    centre = (own + (CLASSES - 1) * other) / CLASSES
    theta = {"length": 0.8, "signal": 3.0, "constant": 2.5}
    mean, variance = [], []
    for c in range(CLASSES):
        m, v = exact_gp(x, targets[:, c : c + 1] - centre, noise[:, c], places.numpy(), **theta)
        mean.append(m[:, 0] + centre)
        variance.append(np.diag(v))
    mean, variance = np.stack(mean, 1), np.stack(variance, 1)
    draws = np.random.default_rng(1).normal(size=(10_000, 1, CLASSES))
    f = mean + np.sqrt(variance) * np.concatenate([draws, -draws])
    p = np.exp(f - f.max(-1, keepdims=True))
    return mean, variance, (p / p.sum(-1, keepdims=True)).mean(0)


@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_exact_gp_of_each_class_s_targets(exactly, maps, form):
    """To rounding where the model is exact, else to what the lattice and its solve may miss."""
    mean, variance, chances = exactly
    told, seen = maps[form].predict(PLACES), maps[form].observable(PLACES)
    off = np.abs(told.mean.numpy() - mean) / np.sqrt(variance)
    wider = np.abs(np.log(told.variance.numpy() / variance))
    assert off.max() < (1e-8 if form == "exact" else 0.06)
    assert wider.max() < (1e-8 if form == "exact" else 0.06)
    assert np.abs(seen.mean.numpy() - chances).max() < 0.006
    assert torch.allclose(seen.mean.sum(1), torch.ones(len(PLACES), dtype=torch.float64))
    # the classes' noise differs, and so do their variances: no shared one would do
    assert float((told.variance.max(1).values / told.variance.min(1).values).max()) > 1.2


def test_probabilities_of_labels_that_it_has_not_seen():
    """A stream with learned θ comes near the probabilities that the labels were drawn with."""
    stream = labelled(360)
    field = made(lengthscale=0.4, alpha_epsilon=0.1, learn_hyperparameters=True)
    for start in range(0, len(stream), 120):
        field.update(stream[start : start + 120])
        field.refine()
    held_out = labelled(400, seed=5)
    label = held_out.y.long()[:, 0]
    true = torch.from_numpy(probabilities(held_out.x.numpy()))
    nlpd = -float(field.log_predictive(held_out).mean())
    floor = -float(true[torch.arange(400), label].log().mean())
    frequent = torch.bincount(stream.y.long()[:, 0]).double() / len(stream)
    assert floor < nlpd < floor + 0.05
    assert nlpd < -float(frequent[label].log().mean()) - 0.3
    assert field.learning_steps > 0
    lengths = [one.hyperparameters()["lengthscale"] for one in field.fields]
    assert len(set(lengths)) == CLASSES  # each class has its own
    assert field.hyperparameters()["lengthscale"] == min(lengths)
    assert field.hyperparameters()["time_offset"] == 0.0


@pytest.mark.parametrize("form", ["matrix_free", "exact"])
def test_a_batch_changes_all_classes_or_none(data, form, monkeypatch):
    field = made(form, data[:50])
    before, told = copy.deepcopy(field.state_dict()), field.predict(PLACES)
    for bad, match in (
        (Samples(PLACES[:2], [[0.0], [3.0]]), "class labels are whole numbers 0 … 2"),
        (Samples(PLACES[:2], [[0.0], [0.5]]), "class labels are whole numbers 0 … 2"),
        (Samples([[0.0, 0.0, 0.0]], [[1.0]]), "the map is|use dual_svgp|2-D"),
    ):
        with pytest.raises(ValueError, match=match):
            field.update(bad)
        assert same_state(before, field.state_dict())

    # the last class's map refuses what the others have taken
    monkeypatch.setattr(field.fields[-1], "absorb", lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        field.update(data[50:])
    monkeypatch.undo()
    assert same_state(before, field.state_dict())
    assert torch.equal(field.predict(PLACES).mean, told.mean)


@pytest.mark.parametrize("which", [0, -1], ids=["the first", "the last"])
def test_a_class_without_a_finite_sum_takes_the_others_back(data, monkeypatch, which):
    """What fails only in the check at the end does so before the first class's map is released."""
    field = made("matrix_free", data[:50])
    before = copy.deepcopy(field.state_dict())

    def spoiled():
        raise ValueError("not finite")

    monkeypatch.setattr(field.fields[which], "check", spoiled)
    with pytest.raises(ValueError, match="not finite"):
        field.update(data[50:])
    monkeypatch.undo()
    assert same_state(before, field.state_dict())


@pytest.mark.parametrize("form", ["matrix_free", "exact"])
def test_it_goes_on_where_it_was_saved(data, form):
    field = made(form, data[:60], learn_hyperparameters=True)
    field.refine()
    other = made(form, learn_hyperparameters=True)
    other.load_state_dict(copy.deepcopy(field.state_dict()))
    for each in (field, other):
        each.update(data[60:])
        each.refine()
    assert same_state(field.state_dict(), other.state_dict())
    kept = field.snapshot().state_dict()
    if form == "matrix_free":  # a snapshot of the exact GP is too large for a file
        again = other.load_snapshot(copy.deepcopy(kept)).predict(PLACES)
        assert torch.equal(again.mean, field.predict(PLACES).mean)


def test_a_state_that_does_not_fit_is_refused_and_nothing_changes(data, maps):
    field, state = made("matrix_free", data[:50]), maps["matrix_free"].state_dict()
    before = copy.deepcopy(field.state_dict())
    for wrong, match in (
        (maps["exact"].state_dict(), "model 'exact'"),
        (made("matrix_free", classes=4).state_dict(), "likelihood"),
        (made("matrix_free", alpha_epsilon=0.1).state_dict(), "likelihood"),
        (state | {"class_format": 99}, "format 99"),
        (state | {"classes": {"0": state["classes"]["0"]}}, "class 1 is missing"),
        (state | {"classes": state["classes"] | {"2": {}}}, "not a state|model"),
        (create_map("wiski", lengthscale=0.8).state_dict(), "likelihood"),
    ):
        with pytest.raises(ValueError, match=match):
            field.load_state_dict(wrong)
        assert same_state(before, field.state_dict())


@pytest.mark.parametrize("form", ["matrix_free", "exact"])
def test_maps_of_halves_merge_to_the_map_of_all(data, maps, form):
    one, other = made(form, data[:50]), made(form, data[50:])
    kept = copy.deepcopy(other.state_dict())
    one.merge(other)
    told, expected = one.predict(PLACES), maps[form].predict(PLACES)
    assert float(((told.mean - expected.mean) / expected.stddev).abs().max()) < 0.06
    assert torch.allclose(told.variance, expected.variance, rtol=2e-2)
    assert same_state(kept, other.state_dict())

    before = copy.deepcopy(one.state_dict())
    for wrong, match in (
        (made(form, classes=2), "differ in likelihood"),
        (made(form, data[50:], kernel="matern32"), "differ in kernel"),
        (create_map("wiski", lengthscale=0.8), "into a map of classes"),
    ):
        with pytest.raises(ValueError, match=match):
            one.merge(wrong)
        assert same_state(before, one.state_dict())


@pytest.mark.parametrize("form", ["matrix_free", "exact"])
def test_fantasies_forgetting_and_plans(data, maps, form):
    field = copy.deepcopy(maps[form])
    before, at = field.predict(PLACES), PLACES[:3]
    for source in (field, field.for_planning()):
        fantasy = source.fantasize(at).predict(PLACES)
        assert torch.allclose(fantasy.mean, source.predict(PLACES).mean, atol=1e-6)
        assert bool((fantasy.variance <= before.variance * (1 + 1e-6)).all())
        # a label more, and no more: of the noise that labels have had so far
        noise, v = before.noise_variance, before.variance[:1]
        one = source.fantasize(at[:1]).predict(at[:1]).variance
        assert torch.allclose(one, v * noise / (v + noise), rtol=0.02)
    assert float(before.noise_variance.min()) > field.likelihood.least_noise

    joint = field.covariance(PLACES, PLACES)
    assert torch.allclose(joint.diagonal(), before.variance.mean(1), rtol=1e-6)
    assert float(torch.linalg.eigvalsh(joint)[0]) > -1e-9
    shared, variance = field.for_planning().covariance_with(at)(PLACES)
    assert torch.allclose(shared, joint[:, :3], rtol=1e-6, atol=1e-9)
    assert torch.allclose(variance, before.variance.mean(1), rtol=1e-6)

    field.forget(0.5)
    assert bool((field.predict(PLACES).variance > before.variance).all())
    with pytest.raises(ValueError, match="forgetting factor"):
        field.forget(0.0)
    moved = copy.deepcopy(maps[form])
    shift = torch.tensor([10.0, -4.0], dtype=torch.float64)
    moved.move(torch.eye(2, dtype=torch.float64), shift)
    assert torch.allclose(moved.predict(PLACES + shift).mean, before.mean, atol=1e-9)


def test_what_is_asked_around_a_map(maps):
    field = maps["matrix_free"]
    assert field.channels == CLASSES and torch.equal(field.prior().mean[0], field.centre)
    assert len(set(field.centre.tolist())) == 1  # before a label no class is likelier
    theta = covariance(np.zeros((1, 2)), np.zeros((1, 2)), signal=3.0)[0, 0] + 2.5**2
    assert field.prior().variance.numpy() == pytest.approx(theta)
    source, count, epoch = field.drawable(0.1)
    assert torch.equal(source.predict(PLACES).mean, field.predict(PLACES).mean)
    assert count == 100 and epoch == field.epoch
    now, then = field.predict_now(PLACES), field.predict(PLACES)
    assert float(((now.mean - then.mean) / then.stddev).abs().max()) < 0.3
    assert field.counters()["jitter"] == 0.0 and not field.notes()
    assert torch.equal(
        field.outcome(torch.tensor([[1.0]])), torch.tensor([[0.0, 1.0, 0.0]]).double()
    )
    empty = made()
    assert not empty.started and empty.update(Samples(NOTHING, NOTHING[:, :1])).used == 0
    for ask in (empty.prior, empty.snapshot, lambda: empty.predict(PLACES)):
        with pytest.raises(RuntimeError, match="no sample"):
            ask()


def test_settings_say_which_models_take_it():
    for model, likelihood, match in (
        (
            "dual_svgp",
            "dirichlet",
            "likelihood 'softmax', not likelihood 'dirichlet'; write .* wiski",
        ),
        (
            "wiski",
            "softmax",
            "with likelihood 'dirichlet', not .*write model: dual_svgp or solve_gp",
        ),
        ("curl_free", "dirichlet", "Gaussian measurements only"),
    ):
        with pytest.raises(ValueError, match=match):
            MapSettings(model=model, likelihood=likelihood)
    settings = MapSettings(model="wiski", likelihood="dirichlet")
    assert not settings.cells and not settings.metric and settings.of_classes
    with pytest.raises(ValueError, match="field_scale must be 1"):
        create_map("wiski", likelihood="dirichlet", field_scale=2.0)


def test_the_epoch_grows_where_all_of_a_class_s_map_has_changed(maps):
    """Whoever holds a drawing asks it, whether of one class or of all: by what was forgotten, merged and fantasised."""
    field = copy.deepcopy(maps["matrix_free"])
    for change in (
        lambda: field.forget(0.5),
        lambda: field.forget_near(PLACES[:2], 0.3, newest=0),
        lambda: field.merge(maps["matrix_free"]),
    ):
        before, each = field.epoch, [one.epoch for one in field.fields]
        change()
        assert all(one.epoch > was for one, was in zip(field.fields, each))
        assert field.epoch == sum(one.epoch for one in field.fields) > before
    assert made("exact").epoch == 0


def test_before_its_first_sample_it_says_that_it_has_seen_none():
    field = create_map("exact", **SETTINGS)
    for ask in (field.prior, field.noise_variance, lambda: field.predict_now(PLACES)):
        with pytest.raises(RuntimeError, match="no sample yet"):
            ask()
