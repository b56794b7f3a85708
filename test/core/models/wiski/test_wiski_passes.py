"""A constant of each pass on the lattice: the dense GP with its kernel and s_b² δ(p, p′), and the exact GP."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, correlation, drive, feed, samples

from gp_mapping import Samples, create_map
from gp_mapping.core.models.wiski.lattice import toeplitz, windows
from gp_mapping.core.models.wiski.lattice.features import FEATURES
from gp_mapping.core.models.wiski.lattice.interpolation import interpolation_matrix
from gp_mapping.core.models.wiski.pass_constants import bias_evidence_of
from gp_mapping.errors import NumericalError

BIAS, COUNT = 3.0, 3  # s_b, µT
OFFSETS = np.array([-4.0, 1.0, 5.0])
PASSES = SETTINGS | {"bias_stddev": BIAS * UT, "centre": [48.0 * UT]}


def passes(n=90, seed=0, first=0.0):
    """A drive in three passes, each with a constant of its own: the samples, and their passes."""
    x, y = drive(n, seed)
    of = np.arange(n) // (n // COUNT)
    return samples(x, y + OFFSETS[of][:, None], pass_number=first + of.astype(float)), of


def mapped(form="dense", n=90, seed=0, first=0.0, **settings):
    field = create_map("wiski", wiski_form=form, **(PASSES | settings))
    feed(field, passes(n, seed, first)[0], 15)
    return field


def asked(field, n=90, count=30):
    """Places on the path and off it, metres; fewer than one lengthscale away."""
    apart = np.random.default_rng(3).uniform(-0.25, 0.25, (count, 2))
    return torch.from_numpy(drive(n)[0][:: n // count] + apart)


def dense_parts(field, places):
    """Covariance of the memory's samples, and with the field at `places` (K, 2); that field's prior variance."""
    theta, memory, grid = field.theta, field.memory, field.grid
    inner, low = field.scaling.inner_x(places), torch.tensor(grid.low)
    w, v = (
        interpolation_matrix(grid.units(p) - low, grid.shape).numpy() for p in (memory.x, inner)
    )
    used = (np.abs(w).sum(0) + np.abs(v).sum(0)) > 0
    nodes = np.stack(np.meshgrid(*map(np.arange, grid.shape), indexing="ij"), -1).reshape(-1, 2)
    nodes = nodes[used] * grid.spacing
    distance = np.linalg.norm(nodes[:, None] - nodes[None], axis=-1)
    gram = theta.signal_stddev**2 * correlation("matern52", distance / theta.lengthscale)
    w, v, of = w[:, used], v[:, used], memory.pass_number.numpy()
    level, bias = theta.constant_stddev**2, theta.bias_stddev**2
    shared = bias * (of[:, None] == of) * (of >= 0)[:, None]
    full = w @ gram @ w.T + level + shared + np.diag(1.0 / memory.beta.numpy())
    projected = v @ gram
    return full, projected @ w.T + level, np.einsum("ij,ij->i", projected, v) + level


def dense(field, places, number=None, parts=None):
    """Mean, variance at `places` (K, 2) of the field, or of what pass `number` measures, of the memory's samples.

    parts: what dense_parts says, where it is known.
    """
    memory, bias = field.memory, field.theta.bias_stddev**2
    full, cross, prior = dense_parts(field, places) if parts is None else parts
    if number is not None:
        of = memory.pass_number.numpy()
        cross, prior = cross + bias * (of == number), prior + bias
    solved = np.linalg.solve(full, np.hstack([memory.y.numpy(), cross.T]))
    return cross @ solved[:, :1], prior - np.einsum("ij,ji->i", cross, solved[:, 1:])


def assert_is_dense(field, digits=1e-6):
    """The field, and measurements of each pass and of one to come."""
    places = asked(field)
    numbers = sorted(set(field.memory.pass_number.tolist()))
    parts = dense_parts(field, places)
    for number in (None, *numbers, 77.0):
        told = (
            field.predict(places)
            if number is None
            else field.posterior.predict_in_pass(places, number)
        )
        mean, variance = dense(field, places, number, parts)
        centre = field.scaling.centre.numpy() / UT
        assert np.abs(told.mean.numpy() / UT - centre - mean).max() < digits
        assert np.abs(told.variance.numpy()[:, 0] / UT**2 - variance).max() < digits


@pytest.fixture
def whole(monkeypatch):
    """K_uu is not cut: by default it is to 1e-8 of s²."""
    monkeypatch.setattr(toeplitz, "_NEGLIGIBLE", 1e-14)


def changed(field, change):
    """The map after an operation."""
    if change == "theta":
        field.adopt(replace(field.theta, noise_stddev=1.5, lengthscale=0.55, bias_stddev=2.0))
    if change == "lattice":
        field.respace(field.grid.spacing / 2)
    if change == "place":
        assert field.forget_near(asked(field)[:1], 0.3, newest=5) > 2
    if change == "forget":
        field.forget(0.5)
    if change == "merge":
        field.merge(mapped(seed=1, n=60))
        assert len(set(field.memory.pass_number.tolist())) == 6
    if change == "file":
        again = mapped(n=15)
        again.load_state_dict(field.state_dict())
        return again
    return field


@pytest.mark.parametrize("change", [None, "theta", "lattice", "place", "forget", "merge", "file"])
def test_it_is_the_dense_gp_with_a_constant_of_each_pass(change, whole):
    field = changed(mapped(), change)
    assert field.counters()["root_outgrown"] == 0
    assert_is_dense(field)


def test_constants_and_their_evidence_are_the_dense_gp_s(whole):
    field = mapped()
    place = asked(field)[:1]
    assert [told.number for told in field.biases()] == [0.0, 1.0, 2.0]
    for told in field.biases():
        apart = dense(field, place, told.number)[0] - dense(field, place)[0]
        assert float(told.mean) / UT == pytest.approx(float(apart[0, 0]), abs=1e-6)
    evidence = field.posterior.bias_evidence()
    for stddev in (0.5, 8.0):
        other = mapped(bias_stddev=stddev * UT).posterior.bias_evidence()
        assert torch.allclose(other.precision, evidence.precision, rtol=1e-6, atol=1e-9)
        assert torch.allclose(other.linear, evidence.linear, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", ("dense", "matrix_free"))
def test_both_forms_say_what_the_exact_gp_says(form):
    field, exact = mapped(form), create_map("exact", **PASSES)
    feed(exact, passes()[0], 15)
    places = asked(field)
    for one, best in (
        (field.predict(places), exact.predict(places)),
        *(
            (field.posterior.predict_in_pass(places, p), exact.predict_in_pass(places, p))
            for p in (0.0, 2.0, 9.0)
        ),
        (field.predict_in_pass(places, 1.0), exact.predict_in_pass(places, 1.0)),
    ):
        assert float(((one.mean - best.mean) / best.stddev).abs().max()) < 0.25
        assert float((one.stddev / best.stddev - 1.0).abs().max()) < 0.1
    apart = [float(b.mean) / UT for b in field.biases()]
    best = [float(b.mean) / UT for b in exact.biases()]
    assert np.abs(np.array(apart) - best).max() < 0.05


def test_passes_beyond_the_bound_share_a_constant_and_the_memory_follows(whole):
    field = create_map("wiski", wiski_form="dense", **PASSES, max_biases=4)
    exact = create_map("exact", **PASSES)
    x, y = drive(90)
    of = np.arange(90) // 15
    offsets = np.array([-4.0, 1.0, 5.0, 0.0, -3.0, 2.0])[of][:, None]
    for one in (field, exact):
        feed(one, samples(x, y + offsets, pass_number=of.astype(float)), 15)
    assert field.counters()["closed_passes"] == 2
    assert [b.number for b in field.biases()][-1] == 5.0 and len(field.biases()) == 4
    assert any("max_biases" in note for note in field.notes())
    assert_is_dense(field)  # the sums are those of the samples that are remembered
    told, best = (one.predict(asked(one)) for one in (field, exact))
    assert float(((told.mean - best.mean) / best.stddev).abs().max()) < 0.5
    assert 0.8 < float((told.stddev / best.stddev).min())
    again = mapped(n=15, max_biases=4)
    again.load_state_dict(field.state_dict())
    assert again.counters() == field.counters() and again.notes() == field.notes()


def test_a_large_lattice_has_fewer_columns():
    field = mapped("matrix_free", n=15)
    assert field.most_passes == 50
    field.max_nodes = field.grid.nodes // 4
    assert field.most_passes == 3


@pytest.mark.parametrize("form", ("dense", "matrix_free"))
def test_the_spread_is_learned_and_kept(form):
    settings = {"bias_stddev": 0.0, "learn_noise": True}
    field = mapped(form, n=210, **settings)
    field.refine()
    found = field.hyperparameters()["bias_stddev"] / UT
    assert 0.5 * OFFSETS.std() < found < 2.0 * OFFSETS.std()
    assert float(field.bias_variance()) > (found * UT) ** 2, "of three passes little is known"
    kept = field.feature_weights()
    field.features = None
    assert all(
        torch.allclose(a, b, rtol=0.2, atol=0.2) for a, b in zip(kept, field.feature_weights())
    )
    again = mapped(form, n=15, **settings)
    again.load_state_dict(field.state_dict())
    assert torch.equal(again.bias_variance(), field.bias_variance())


@pytest.mark.parametrize("form", ("dense", "matrix_free"))
def test_a_refused_update_opens_no_pass(form):
    field = mapped(form)
    places, before = asked(field), field.state_dict()["grid"]
    expected = field.predict(places)
    with pytest.raises(NumericalError):
        field.update(Samples(drive(90)[0][:2], [[1e12], [48 * UT]], pass_number=[2.0, 3.0]))
    after = field.state_dict()["grid"]
    assert all(
        torch.equal(after[name], part) if torch.is_tensor(part) else after[name] == part
        for name, part in before.items()
    )
    assert torch.equal(field.predict(places).mean, expected.mean)


@pytest.mark.parametrize("form", ("dense", "matrix_free"))
def test_a_fantasy_is_of_no_pass_and_keeps_the_mean(form):
    field = mapped(form)
    places, before = asked(field), field.predict(asked(field))
    after = field.fantasize(places[:10]).predict(places)
    assert float(((after.mean - before.mean) / before.stddev).abs().max()) < 0.1
    assert bool((after.variance[:10] < before.variance[:10]).all())


def test_constants_are_known_as_well_where_aggregates_are_merged(monkeypatch):
    """A common mean of passes that cross would say nothing of what they differ by."""
    exact = create_map("exact", **PASSES)
    feed(exact, passes(300)[0], 100)
    best = [float(b.stddev_apart) for b in exact.biases()]
    monkeypatch.setattr(windows, "_FEATURE_AGGREGATES", 150)
    told = [float(b.stddev_apart) for b in mapped("matrix_free", n=300).biases()]
    assert all(0.9 < one / other < 1.5 for one, other in zip(told, best))


def test_a_new_pass_is_known_before_the_weights_are_computed_anew():
    """Its measurements are predicted from its own, although f has no constant of it yet."""
    field = mapped("matrix_free")
    field.refine()
    x, y = drive(90)
    field.update(samples(x[:3], y[:3] + 4.0, pass_number=np.full(3, 7.0)))
    assert len(field.features[0]) < field.grid.width
    told, exact = field.predict_in_pass(torch.from_numpy(x[:3]), 7.0), create_map("exact", **PASSES)
    feed(exact, passes()[0], 15)
    exact.update(samples(x[:3], y[:3] + 4.0, pass_number=np.full(3, 7.0)))
    best = exact.predict_in_pass(torch.from_numpy(x[:3]), 7.0)
    assert float(((told.mean - best.mean) / told.stddev).abs().max()) < 2.0
    field.refine()
    assert len(field.features[0]) == field.grid.width


def test_of_passes_beyond_the_bound_those_share_whose_difference_is_known_best():
    """Not those with most in common: of two in a place of their own neither is known, for nobody knows the field."""
    rng = np.random.default_rng(0)
    ground = np.stack(np.meshgrid(np.arange(0.0, 2.5, 0.35), np.arange(0.0, 2.5, 0.35)), -1)
    ground, apart = ground.reshape(-1, 2), 5.0 + 0.05 * rng.standard_normal((8, 2))
    field = create_map("wiski", wiski_form="dense", **PASSES, max_biases=6)
    again = [ground[::2] + 0.02 * k for k in range(4)]
    ways = [apart[:4], again[0], apart[4:], *again[1:]]
    for number, x in enumerate([*ways, np.array([[0.0, 5.0]])]):
        y = 48.0 + np.sin(x[:, :1]) + 0.2 * rng.standard_normal((len(x), 1))
        field.update(samples(x, y, pass_number=np.full(len(x), float(number))))
    assert field.counters()["closed_passes"] == 1
    assert {0.0, 2.0, 6.0} < {bias.number for bias in field.biases()}


def test_two_passes_tell_how_much_passes_differ_and_one_does_not():
    theta = replace(mapped().theta, bias_stddev=0.5)
    for count in (1, 2):
        size = FEATURES + count
        weights = torch.arange(size, dtype=torch.float64)[:, None]
        told = bias_evidence_of(theta, weights, torch.eye(size, dtype=torch.float64) / 5.0)
        assert (told is not None) == (count == 2)
    assert told.numbers == (0.0, 1.0)
