"""Where the tensors of a map are: all on its device, without waiting for each sample; and which device is chosen."""

import itertools

import numpy as np
import pytest
import torch
from core_data import SETTINGS, drive, feed, lattice, samples
from pretended_card import CARD, pretended_card
from torch.utils._python_dispatch import TorchDispatchMode

from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.core import registry
from gp_mapping.core.linalg import InverseFactor
from gp_mapping.core.models import device as devices
from gp_mapping.core.models.device import faster_device, grid_of
from gp_mapping.core.registry import build_map, device_of, model_names
from gp_mapping.errors import NumericalError

X, Y = drive(24, 0)
PLACES = torch.from_numpy(lattice(0.8))
LEARNS = SETTINGS | {"learn_hyperparameters": True, "learn_time_offset": True, "seed": 3}
VECTORS = ("curl_free",)


def life_of_a_map(model: str, device: str, **settings) -> dict[str, torch.Tensor]:
    """Numbers of a map that is fed, learns, is asked, saved, opened, merged and forgets; all here."""
    own = LEARNS | settings
    y = Y.repeat(3, 1) if model in VECTORS else Y
    field, other = (create_map(model, device=device, **own) for _ in range(2))
    feed(field, samples(X, y, pass_number=1.0 * (X[:, 0] > 1.5)), 12)
    told = {"field": field.predict(PLACES).mean, "kept": field.snapshot().predict(PLACES).variance}
    told["covariance"] = field.covariance(PLACES[:5], PLACES)

    opened = create_map(model, device=device, **own)
    opened.load_state_dict(field.state_dict())
    told["opened"] = opened.predict(PLACES).mean
    told["guessed"] = opened.fantasize(PLACES[:3]).predict(PLACES).variance

    feed(other, samples(X + 0.4, y), len(X))
    opened.merge(other)
    opened.forget(0.9)
    told["merged"] = opened.predict(PLACES).variance
    assert {t.device.type for t in told.values()} == {device}
    return {name: t.cpu() for name, t in told.items()}


@pytest.mark.parametrize("model", model_names())
def test_all_tensors_of_a_map_are_on_its_device(model):
    here = life_of_a_map(model, "cpu")
    with pretended_card():  # fails where an operation has tensors of both
        there = life_of_a_map(model, CARD)
    for name, told in here.items():  # a card adds in another order
        allowed = 1e-9 * told.abs().max()
        if model == "wiski" and name in ("field", "opened"):  # and each iterates up to .05 sd
            allowed = 0.1 * here["kept"].min().sqrt()
        assert (there[name] - told).abs().max() <= allowed, name


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_update_waits_for_the_card_as_often_whatever_its_samples(dtype):
    x, y = drive(300, 1)
    with pretended_card() as counts:
        field = create_map(
            "dual_svgp", device=CARD, inducing_inputs=lattice(0.6), dtype=dtype, **SETTINGS
        )
        field.update(samples(x[:100], y[:100]))
        spent = []
        for part in (slice(100, 120), slice(120, 300)):
            counts.clear()
            field.update(samples(x[part], y[part]))
            spent.append(dict(counts))
    assert spent[0] == spent[1]
    assert spent[0]["waits"] <= 2, spent


# most waits: of an update that takes inputs and lets some go, of one in a known place, of a learner's step
WAITS = {
    "dual_svgp": (18, 6, 17),
    "curl_free": (18, 7, 11),
    "wiski": (4, 2, 0),
    "exact": (7, 7, 17),
}


@pytest.mark.parametrize("model", WAITS)
def test_a_card_is_waited_for_a_few_times_a_batch_and_never_for_each_sample(model):
    x, y = drive(240, 2)
    y = y.repeat(3, 1) if model in VECTORS else y
    growing, known, stepping = WAITS[model]
    with pretended_card() as counts:
        field = create_map(model, device=CARD, **LEARNS)
        for start in range(0, 240, 60):
            counts.clear()
            field.update(samples(x[start : start + 60], y[start : start + 60]))
            assert not start or counts["waits"] <= growing, (start, counts)
        counts.clear()
        field.update(samples(x[60:180], y[60:180]))
        assert counts["waits"] <= known and counts["copied to the card"] <= 5, counts

        learning = field.rows if model in VECTORS else field
        counts.clear()
        if stepping:
            learning.learner.step(learning.learning_data(), learning.generator)
        assert counts["waits"] <= stepping, counts


def test_the_pretended_card_is_as_strict_as_one():
    with pretended_card() as counts:
        there, here = torch.ones(3, device=CARD), torch.ones(3)
        with pytest.raises(RuntimeError, match="two devices"):
            there + here
        with pytest.raises(RuntimeError, match="indexed by one on the card"):
            here[there > 0]
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        assert (there * 2.0 + torch.tensor(1.0)).tolist() == [3.0, 3.0, 3.0]
        assert there[[0, 2]].sum().item() == 2.0
        copied = torch.ones(2).to(CARD, non_blocking=True)
        assert torch.linalg.solve(torch.eye(2, device=CARD), copied[:, None]).device.type == CARD
    # copied from it, a list of indices copied to it, a number of it, and whether it solved
    assert counts == {"copied from the card": 1, "copied to the card": 2, "waits": 4}


class Float64(TorchDispatchMode):
    """Notes float64 results of at least so many numbers."""

    def __init__(self, least: int):
        super().__init__()
        self.least, self.seen = least, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for t in result if isinstance(result, tuple | list) else [result]:
            if torch.is_tensor(t) and t.dtype == torch.float64 and t.numel() >= self.least:
                self.seen.append((str(func), tuple(t.shape)))
        return result


@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp", "fitc"])
def test_in_float32_a_prediction_has_no_matrix_in_float64(model):
    x = PLACES.repeat(10, 1)
    for dtype in ("float32", "float64"):
        field = create_map(model, dtype=dtype, **SETTINGS)
        feed(field, samples(X, Y), 20)
        field.predict(x[:3])
        with Float64(5 * len(x)) as made:
            field.predict(x)
        assert bool(made.seen) == (dtype == "float64"), made.seen


# --- the other likelihoods ------------------------------------------------------------------------
UNITS = {"field_scale": 1.0, "signal_stddev": 1.0, "constant_stddev": 1.0, "noise_stddev": 0.1}
TARGETS = {
    "student_t": (Y - 48.0, UNITS),
    "poisson": (np.abs(Y - 48.0).round(), UNITS),
    "bernoulli": (1.0 * (Y > 48.0), UNITS),
    "softmax": (
        np.clip(np.round((Y - 44.0) / 4.0), 0, 2),
        UNITS | {"classes": 3, "learn_hyperparameters": False, "learn_time_offset": False},
    ),
}


@pytest.mark.parametrize("likelihood", TARGETS)
def test_maps_of_other_likelihoods_are_on_their_device(likelihood):
    y, own = TARGETS[likelihood]

    def asked(device: str) -> list[torch.Tensor]:
        """What such a map answers; here."""
        field = create_map("dual_svgp", device=device, **LEARNS | own, likelihood=likelihood)
        for part in (slice(0, 12), slice(12, 24)):
            field.update(Samples(X[part], y[part], position_variance=np.full(12, 1e-4)))
        field.refine()
        p = field.predict(PLACES)
        answers = [p.variance, field.observed(p).mean, field.covariance(PLACES[:3], PLACES)]
        assert {t.device.type for t in answers} == {device}
        return [t.cpu() for t in answers]

    with pretended_card():
        there = asked(CARD)
    for told, wanted in zip(there, asked("cpu")):
        assert (told - wanted).abs().max() <= 1e-9 * wanted.abs().max()


def test_very_many_places_are_predicted_by_products_to_the_same_numbers(monkeypatch):
    inverted = []
    init = InverseFactor.__init__
    monkeypatch.setattr(
        InverseFactor, "__init__", lambda self, *given: (inverted.append(1), init(self, *given))[1]
    )
    for model in ("dual_svgp", "solve_gp"):
        maps = {}
        with pretended_card():
            for name in ("cpu", CARD):
                maps[name] = create_map(model, device=name, **SETTINGS)
                feed(maps[name], samples(X, Y), 20)
            few, many = PLACES[:3], PLACES.repeat(20, 1)
            maps[CARD].predict(few)
            assert not inverted, "three solves are cheaper than an inverse"
            told = maps[CARD].predict(many)
            assert inverted
            mean, variance = told.mean.cpu(), told.variance.cpu()
        wanted = maps["cpu"].predict(many)
        torch.testing.assert_close(mean, wanted.mean, rtol=1e-9, atol=0)
        torch.testing.assert_close(variance, wanted.variance, rtol=1e-8, atol=0)
        inverted.clear()


def test_a_float32_map_solves_for_many_columns_of_float64_on_a_card():
    """Leverages of a memory that is many times as large as the basis."""
    x, y = drive(200, 3)
    own = {"inducing_inputs": lattice(2.0), "memory_size": 60, "memory_rule": "leverage"}
    told = {}
    with pretended_card():
        for device in ("cpu", CARD):
            field = create_map("dual_svgp", device=device, dtype="float32", **SETTINGS | own)
            feed(field, samples(x, y), 50)
            told[device] = field.predict(PLACES).variance.cpu()
    assert (told["cpu"] - told[CARD]).abs().max() <= 1e-4 * told["cpu"].max()


# --- device: auto ---------------------------------------------------------------------------------
def test_without_a_card_auto_is_the_processor(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    # a size of its own: a trial of another test is not taken for this one's
    open_ = MapSettings(device="auto", max_inducing=77, tiles=False)
    assert device_of(open_) == devices.Device("cpu", "no CUDA device here")
    assert build_map(open_).device.type == "cpu"
    assert device_of(MapSettings(device="cpu")).reason == "as set"


@pytest.mark.parametrize(("faster", "slower"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_auto_is_the_device_that_took_less_time_and_says_so(monkeypatch, faster, slower):
    seconds = {faster: 0.002, slower: 0.005}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "trial_seconds", lambda field, size: seconds[field])
    chosen = faster_device(str, 400)
    assert chosen.name == faster
    assert f"{1e3 * seconds['cuda']:g} ms on cuda" in chosen.reason
    assert "400 inducing inputs" in chosen.reason


def test_a_card_that_fails_its_trial_is_not_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def make(name: str):
        """A map here; none there."""
        if name == "cuda":
            raise NumericalError("out of memory")
        return create_map("dual_svgp", inducing_inputs=grid_of(9), **SETTINGS)

    assert faster_device(make, 9) == devices.Device(
        "cpu", "the CUDA device failed a trial: out of memory"
    )


def test_a_trial_takes_updates_and_drawings_to_their_end(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(devices, "perf_counter", lambda: next(clock))
    with pretended_card() as counts:
        field = create_map("dual_svgp", device=CARD, inducing_inputs=grid_of(9), **SETTINGS)
        assert devices.trial_seconds(field, 9) == 1.0
        assert counts["copied to the card"], "the trial was on the card"


def test_a_map_of_a_card_opens_where_none_is():
    saved = registry.with_device_here({"device": "cuda:7"})
    assert saved == {"device": "cpu"}
    for same in ({"device": "auto"}, {"device": "cpu"}, {"device": 5}, {}):
        assert registry.with_device_here(same) is same


def test_places_of_a_trial():
    assert grid_of(5).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    assert len(grid_of(400)) == 400 and len(grid_of(0)) == 0
