"""An update that would spoil a map leaves no trace of itself: every model, bit for bit."""

import copy
import functools
import itertools
import math

import pytest
import torch
from map_contract import same_state

from gp_mapping.core.registry import create_map, model_names
from gp_mapping.core.transaction import transaction
from gp_mapping.core.types import Samples
from gp_mapping.errors import MapFullError, NumericalError

_SMALL = {"max_inducing": 6, "memory_size": 16, "max_orthogonal": 3, "tile_samples": 5}
_N = 6  # samples of a batch: of three of them the memory is full


def _samples(seed: int, n: int, channels: int) -> Samples:
    """A stretch of a drive that makes new inducing inputs, and pushes old samples out of a memory of 16."""
    g = torch.Generator().manual_seed(seed)
    x = 1.5 * seed + torch.rand(n, 2, generator=g, dtype=torch.float64) * 3
    y = (
        45e-6
        + 5e-6 * torch.sin(2 * x[:, :1])
        + 1e-6 * torch.randn(n, channels, generator=g, dtype=torch.float64)
    )
    return Samples(
        x=x,
        y=y,
        velocity=torch.full((n, 2), 0.3),
        sensor_variance=torch.full((n,), 1e-14),
        count=torch.full((n,), 3.0),
        position_variance=torch.full((n,), 1e-4),
    )


def _map(name: str):
    return create_map(name, seed=3, **_SMALL)


@functools.cache
def _made(name: str, batches: int):
    """Which no test changes; with the third of its batches the memory of 16 is full."""
    if not batches:
        return _map(name)
    field = copy.deepcopy(_made(name, batches - 1))
    _drive_on(field, batches - 1, 3 if name == "curl_free" else 1)
    return field


def _drive_on(field, batch: int, channels: int) -> None:
    """The next batch, and all that it leaves to be done."""
    field.update(_samples(batch, _N, channels))
    while field.refine(math.inf):
        pass


def _driven(name: str, batches: int = 4):
    return copy.deepcopy(_made(name, batches))


# what a driver, a filter that has diverged or a bad cable may send; each is one column of one sample
_HOSTILE = {
    "x": 1e200,
    "y": 1e300,
    "velocity": 1e200,
    "noise_variance": 1e-320,
    "count": 1e-310,
    "sensor_variance": 1e308,
    "position_variance": 1e308,
}


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("column", _HOSTILE)
def test_hostile_number_leaves_the_map_as_it_was(name, column):
    field, channels = _driven(name), 3 if name == "curl_free" else 1
    before = field.state_dict()
    batch = _samples(7, _N, channels)
    values = {f: getattr(batch, f) for f in batch.__dataclass_fields__}
    values[column] = torch.full((_N,), 1e-12) if values[column] is None else values[column].clone()
    values[column][4] = _HOSTILE[column]

    try:
        field.update(Samples(**values))
    except (ValueError, NumericalError):
        assert same_state(field.state_dict(), before)
    else:  # it may be used, as far as it says anything
        prediction = field.predict(batch.x)
        assert torch.isfinite(prediction.mean).all() and torch.isfinite(prediction.variance).all()

    good = _samples(8, 4, channels)
    field.update(good)
    assert torch.isfinite(field.predict(good.x).mean).all()


def _fails(self):
    raise NumericalError("a pivot is NaN")


@pytest.mark.parametrize(
    "settings",
    (
        {"likelihood": "student_t"},
        {"likelihood": "censored", "upper_limit": 5e-5},
        {"likelihood": "poisson"},
        {"model": "wiski", "wiski_form": "dense"},
    ),
    ids=str,
)
def test_failure_of_another_kind_of_map_is_taken_back(settings, monkeypatch):
    """Sites that change with every batch, and a root that follows every sample."""
    field = create_map(**{"model": "dual_svgp"} | settings, seed=3, **_SMALL)
    scale = 1e-7 if settings.get("likelihood") == "poisson" else 1.0

    def batch(k: int) -> Samples:
        made = _samples(k, _N, 1)
        return Samples(x=made.x, y=(made.y / scale).round() if scale != 1.0 else made.y)

    for k in range(6):
        field.update(batch(k))
    before = field.state_dict()
    with monkeypatch.context() as patch:
        patch.setattr(type(field), "check", _fails)
        for k in (7, 8):
            with pytest.raises(NumericalError):
                field.update(batch(k))
    assert same_state(field.state_dict(), before)


@pytest.mark.parametrize("name", model_names())
def test_step_of_learning_that_fails_is_taken_back_and_counted(name, monkeypatch):
    field, channels = _driven(name, 4), 3 if name == "curl_free" else 1
    field.update(_samples(5, 15, channels))
    owed, before, x = field.learner.pending, field.state_dict(), _samples(5, 15, channels).x
    rejected, mean = field.learner.rejected, field.predict(x).mean
    assert owed >= 1.0

    step = type(field.learner).step

    def spoils(self, data, generator):
        done = step(self, data, generator)
        self.vector = self.vector * math.nan
        return done

    with monkeypatch.context() as patch:
        patch.setattr(type(field.learner), "step", spoils)
        field.refine(math.inf)
    assert field.learner.rejected - rejected == int(owed) and field.learner.pending < 1.0
    after = field.state_dict()
    for state in (before, after):
        del state["learner"]
    if name != "wiski":  # which goes on solving
        assert same_state(after, before)
    assert torch.equal(field.predict(x).mean, mean)


@pytest.mark.parametrize("name", model_names())
def test_failure_at_the_end_of_an_update_takes_back_all_of_it(name, monkeypatch):
    """Whatever has been written by then: basis, sites, memory, generator, learner, the centre."""
    channels = 3 if name == "curl_free" else 1
    for batches in (0, 1, 2, 4):
        field, before = _driven(name, batches), _made(name, batches).state_dict()
        with monkeypatch.context() as patch:
            patch.setattr(type(field), "check", _fails)
            for k in range(2 if batches == 2 else 1):
                with pytest.raises(NumericalError):
                    field.update(_samples(9 + k, _N, channels))
        assert same_state(field.state_dict(), before), batches

        # what comes later is as if nobody had tried
        _drive_on(field, batches, channels)
        assert same_state(field.state_dict(), _made(name, batches + 1).state_dict()), batches


def test_full_exact_map_is_as_it_was():
    field = create_map("exact", max_exact_samples=50)
    field.update(_samples(0, 40, 1))
    before = field.state_dict()
    with pytest.raises(MapFullError):
        field.update(_samples(1, 15, 1))
    assert same_state(field.state_dict(), before)


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("batches", (0, 1, 4))
def test_failure_at_the_end_of_a_merge_takes_back_all_of_it(name, batches):
    field, before = _driven(name, batches), _made(name, batches).state_dict()
    other, spoilt = _made(name, 2), _driven(name, 2)  # a merge leaves the other as it is
    # no number, which is found after all else has been added
    (spoilt.rows if name == "curl_free" else spoilt).newest_pass = None
    with pytest.raises(TypeError):
        field.merge(spoilt)
    assert same_state(field.state_dict(), before)

    never_asked = _driven(name, batches)
    for one in (field, never_asked):  # what comes later is as if nobody had tried
        one.merge(other)
        one.update(_samples(9, 4, 3 if name == "curl_free" else 1))
    assert same_state(field.state_dict(), never_asked.state_dict())


@pytest.mark.parametrize("name", ["exact", "wiski"])
def test_a_theta_that_cannot_be_adopted_is_tried_again_later_and_learning_goes_on(
    name, monkeypatch
):
    """Each step was undone with it and the next one was the same again, for as long as the map lived."""
    field, tried = _driven(name, 4), []
    monkeypatch.setattr(type(field.learner), "should_adopt", lambda self, theta: True)
    adopt = type(field).adopt

    def fails(self, theta):
        tried.append(theta)
        adopt(self, theta)
        raise NumericalError("does not factor")

    with monkeypatch.context() as patch:
        patch.setattr(type(field), "adopt", fails)
        theta, steps, rejected = field.theta, field.learner.steps, field.learner.rejected
        field.update(_samples(5, 15, 1))
        field.learner.pending = 8.0
        field.refine(math.inf)
        taken = field.learner.steps - steps
        assert field.theta == theta and taken >= 6, "the learner stood still"
        apart = [b.distance(a) > 0.05 for a, b in itertools.pairwise(tried)]
        assert all(apart) and len(tried) < taken, "it was tried with every step"
        assert field.counters()["learning_rejected"] == rejected + len(tried)
        assert name == "exact" or any("could not be taken over" in note for note in field.notes())
        resumed = _driven(name, 4)
        resumed.load_state_dict(field.state_dict())
        assert resumed.failed == field.failed is not None

    for k in range(6, 13):
        field.update(_samples(k, 15, 1))
    field.learner.pending = 1.0
    field.refine(math.inf)
    assert field.theta == field.learner.theta and field.failed is None
    assert not any("taken over" in note for note in field.notes())


@pytest.mark.parametrize("name", model_names())
def test_a_copy_that_is_made_in_a_transaction_is_in_none(name):
    """Nothing of the transaction is in it, and what is taken back afterwards stays as it was in the copy."""
    field, x = _driven(name, 2), torch.full((1, 2), 0.7, dtype=torch.float64)
    outside, copied = field.fantasize(x), []
    with pytest.raises(RuntimeError, match="taken back"), transaction(field):
        copied.append(field.fantasize(x))
        raise RuntimeError("taken back")
    assert not copied[0].marked and vars(copied[0]).keys() == vars(outside).keys()
    assert same_state(copied[0].state_dict(), outside.state_dict())
