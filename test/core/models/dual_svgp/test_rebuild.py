"""Another θ, or other inducing inputs, slice by slice: what the map becomes is what it would be had it been at once."""

import copy
import functools
import math
import time
from dataclasses import replace

import pytest
import torch
from map_contract import same_state

import gp_mapping.core.models.dual_svgp.rebuild as rebuilds
from gp_mapping import Samples, create_map
from gp_mapping.core.models.dual_svgp.rebuild import SLICE, Rebuild
from gp_mapping.errors import NumericalError

UT = 1e-6
GIVEN = {
    "lengthscale": 0.5,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.4 * UT,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "centre": [45 * UT],
}

SHIFT = torch.tensor([1.0, -0.5], dtype=torch.float64)
QUARTER = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def samples(count, seed=0, side=4.0):
    g = torch.Generator().manual_seed(seed)
    x = side * torch.rand(count, 2, generator=g, dtype=torch.float64)
    w = torch.randn(100, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64) / 0.5
    y = 45 * UT + UT * torch.sin(x @ w.mT).sum(1, keepdim=True)
    return Samples(x, y + 0.4 * UT * torch.randn(count, 1, generator=g, dtype=torch.float64))


def built(count=500, model="dual_svgp", **settings):
    return copy.deepcopy(_built(count, model, rebuilds.SLICE, **settings))


@functools.cache
def _built(count, model, slices, **settings):
    """Which no test changes; slices: as large as they are meanwhile."""
    field = create_map(model, **(GIVEN | {"max_inducing": 300, "memory_size": 600} | settings))
    data, size = samples(count), max(10, count // 25)
    for start in range(0, count, size):
        field.update(data[start : start + size])
    return field


def same(a, b, tolerance=0.0):
    x = samples(200, seed=9).x
    p, q = a.predict(x), b.predict(x)
    worst = (
        float(((p.mean - q.mean) / q.stddev).abs().max()),
        float((p.stddev / q.stddev - 1).abs().max()),
    )
    assert max(worst) <= tolerance, worst
    assert torch.equal(a.inducing_inputs(), b.inducing_inputs())
    assert torch.equal(a.memory.x, b.memory.x) and a.samples == b.samples


def go_through(field, data, between=None):
    """One batch at a time until the rebuild is over; how many it took."""
    for i in range(len(data)):
        if field.rebuild is None:
            return i
        field.update(data[i : i + 1])
        if between is not None:
            field = between(field)
    raise AssertionError(
        f"still under way after {len(data)} updates: {field.rebuild.steps_left[:1]}"
    )


@pytest.fixture
def small_slices(monkeypatch):
    """A hundredth of a slice, so that a map of a test takes as many as a large one."""
    monkeypatch.setattr("gp_mapping.core.models.dual_svgp.rebuild.SLICE", 2e-3 * SLICE)
    monkeypatch.setattr("gp_mapping.core.models.dual_svgp.rebuilding.SLICE", 2e-3 * SLICE)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("dual_svgp", {}),
        ("dual_svgp", {"memory_size": 150}),
        ("dual_svgp", {"max_inducing": 120}),
        ("solve_gp", {}),
        ("dual_svgp", {"inducing_information": 0.0, "max_inducing": 100}),
    ],
    ids=["all remembered", "a rest", "a full budget", "solve_gp", "by residual"],
)
def test_in_slices_is_at_once_bit_for_bit(small_slices, model, settings):
    once, sliced = (built(model=model, **settings) for _ in range(2))
    theta, more = (
        replace(once.theta, lengthscale=0.55, signal_stddev=11.0, noise_stddev=0.5),
        samples(200, seed=1),
    )
    sliced.in_slices(True)
    assert sliced.adopt_in_slices(theta) is False and sliced.theta != theta, (
        "a slice is not all of it"
    )
    count = go_through(sliced, more)
    assert count > 3 and sliced.theta == theta
    assert once.adopt(theta)
    for i in range(count):
        once.update(more[i : i + 1])
    same(sliced, once, 1e-9)
    sliced.in_slices(False)
    for field in (once, sliced):  # and goes on as that one does
        field.update(more[count:])
    same(sliced, once, 1e-9)


@pytest.mark.parametrize(
    "settings",
    [{"max_inducing": 120}, {"max_inducing": 120, "memory_size": 150}, {"memory_size": 150}],
)
def test_at_the_same_hyper_parameters_what_stands_is_what_carrying_makes(monkeypatch, settings):
    """Sites at the θ and the inputs that they have are not made again; they are as if they were."""
    stood, stand = [], vars(Rebuild)["_stand"]
    monkeypatch.setattr(Rebuild, "_stand", lambda self: stood.append(1) or stand(self))
    field = built(**settings)
    assert stood
    monkeypatch.setattr(Rebuild, "_same", False)
    same(field, built(**settings), 1e-9)


@pytest.mark.parametrize("settings", [{}, {"memory_size": 150}], ids=["all remembered", "a rest"])
def test_inputs_that_go_leave_what_would_be_made_anew(monkeypatch, settings):
    """Features are made once for each θ; those on the inputs that stay, and the sites, follow from them."""
    whitened, whiten = [], vars(Rebuild)["_whiten"]
    monkeypatch.setattr(
        Rebuild, "_whiten", lambda self, *block: whitened.append(block) or whiten(self, *block)
    )
    field = built(max_inducing=120, **settings)
    assert field.moves > 0 and not whitened, "room was made at the θ that the map had"
    theta = replace(
        field.theta, lengthscale=0.55, noise_stddev=6.0
    )  # with which fewer are worth theirs
    other = field.duplicate()
    assert field.adopt(theta) and len(field.basis) < len(other.basis)
    assert len(whitened) == len({start for start, _ in whitened}), "each block once"

    memory = field.memory
    white = field.basis.whitened(field.memory_places(theta), memory.heading)
    assert float((memory.whitened(field.basis.size) - white).abs().max()) < 1e-9
    if not settings:
        told = torch.eye(len(white), dtype=torch.float64) + (white * memory.beta) @ white.mT
        assert float((field.sites.precision - told).abs().max() / told.abs().max()) < 1e-12
    monkeypatch.setattr(type(other), "may_slice", False)  # all of it again on the inputs that stay
    assert other.adopt(theta)
    same(field, other, 1e-9)


def test_who_adopts_hyper_parameters_has_them_at_once_also_in_slices(small_slices):
    one, other = built(count=150), built(count=150)
    one.in_slices(True)
    for field in (one, other):
        assert field.adopt(replace(field.theta, lengthscale=0.6)) and field.theta.lengthscale == 0.6
    same(one, other)


def test_meanwhile_the_map_answers_as_it_was(small_slices):
    plain, sliced = built(), built()
    sliced.in_slices(True)
    sliced.adopt_in_slices(replace(plain.theta, lengthscale=0.6))
    more = samples(3, seed=1)
    for i in range(3):
        plain.update(more[i : i + 1])
        sliced.update(more[i : i + 1])
        assert sliced.rebuild is not None
        same(sliced, plain)


def test_a_full_budget_gives_room_in_slices(small_slices):
    once, sliced = (built(count=150, max_inducing=100) for _ in range(2))
    sliced.in_slices(True)
    more, moved = samples(400, seed=3), []
    for i in range(len(more)):
        sliced.update(more[i : i + 1])
        moved.append(sliced.moves)
        assert len(sliced.basis) <= 100
    assert moved[-1] >= 1, "the budget was never full"
    for i in range(len(more)):
        once.update(more[i : i + 1])
    x = samples(300, seed=9).x
    a, b = sliced.predict(x), once.predict(x)
    assert float(((a.mean - b.mean) / b.stddev).square().mean().sqrt()) < 0.5
    assert abs(float((a.stddev / b.stddev).median()) - 1) < 0.05


def test_saved_on_the_way_it_goes_on_exactly(small_slices):
    """Saved and read again, or copied, four times on the way."""
    one = built(memory_size=200)
    one.in_slices(True)
    one.adopt_in_slices(replace(one.theta, lengthscale=0.55))
    more, other, copied, states = samples(200, seed=1), one, one, []
    for i in range(100):
        if i in (1, 4, 8, 14):
            assert other.rebuild is not None
            state = other.state_dict()
            states.append((state, copy.deepcopy(state)))
            other = create_map("dual_svgp", **(GIVEN | {"max_inducing": 300, "memory_size": 200}))
            other.load_state_dict(state)
            other.in_slices(True)
            copied = copy.deepcopy(copied)
        for field in {id(field): field for field in (one, other, copied)}.values():
            field.update(more[i : i + 1])
        assert (one.rebuild is None) == (other.rebuild is None) == (copied.rebuild is None)
    assert one.rebuild is None
    same(other, one)
    same(copied, one)
    for state, kept in states:
        assert same_state(state, kept), "the state that was loaded from was written into"


def test_saved_while_inputs_are_removed_it_goes_on_exactly(small_slices, monkeypatch):
    """A few in each slice: which of them are gone already is part of its state."""
    monkeypatch.setattr(rebuilds, "_LET_GO", 2)
    one, more, other = built(150), samples(100, seed=1), None
    one.in_slices(True)
    one.adopt_in_slices(replace(one.theta, lengthscale=0.7))
    for i in range(100):
        one.update(more[i : i + 1])
        if other is not None:
            other.update(more[i : i + 1])
        elif one.rebuild.removal is not None and not bool(one.rebuild.removal.alive.all()):
            other = create_map("dual_svgp", **(GIVEN | {"max_inducing": 300, "memory_size": 600}))
            other.load_state_dict(copy.deepcopy(one.state_dict()))
            other.in_slices(True)
            assert torch.equal(other.rebuild.removal.alive, one.rebuild.removal.alive)
        if one.rebuild is None:
            break
    assert other is not None and other.rebuild is None
    same(other, one)


def test_forgetting_and_refused_samples_on_the_way(small_slices):
    once, sliced = built(), built()
    theta, more = replace(once.theta, lengthscale=0.45), samples(200, seed=1)
    sliced.in_slices(True)
    sliced.adopt_in_slices(theta)
    once.adopt(theta)
    wrong = Samples(torch.tensor([[1.0, 1.0]]).double(), torch.tensor([[1e15]]).double())
    for i in range(100):
        for field in (once, sliced):
            field.forget(0.995)
            with pytest.raises(NumericalError):
                field.update(wrong)
            field.update(more[i : i + 1])
    assert sliced.rebuild is None
    same(sliced, once, 1e-9)


def test_what_cannot_wait_finishes_it_first(small_slices):
    for act in (
        lambda f: f.forget_near(torch.tensor([[2.0, 2.0]]).double(), 0.5, 0),
        lambda f: f.merge(built(50)),
        lambda f: f.in_slices(False),
        lambda f: f.move(torch.eye(2, dtype=torch.float64), SHIFT),
        lambda f: f.move(QUARTER, SHIFT),
        lambda f: f.agree_on(replace(f.theta, lengthscale=0.6)),
    ):
        once, sliced = built(), built()
        theta = replace(once.theta, lengthscale=0.55)
        sliced.in_slices(True)
        sliced.adopt_in_slices(theta)
        once.adopt(theta)
        for field in (once, sliced):
            act(field)
        assert sliced.rebuild is None and sliced.theta == once.theta != built().theta
        same(sliced, once, 1e-9)


def test_one_that_does_not_factor_leaves_the_map_as_it_was(small_slices, monkeypatch):
    plain, sliced = built(), built()
    sliced.in_slices(True)
    sliced.adopt_in_slices(replace(plain.theta, lengthscale=0.6))

    def fails(matrix, rungs=6):
        raise NumericalError("does not factor")

    monkeypatch.setattr(rebuilds, "cholesky", fails)
    more = samples(200, seed=1)
    count = go_through(sliced, more)
    for i in range(count):
        plain.update(more[i : i + 1])
    same(sliced, plain)


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("settings", [{}, {"max_inducing": 60}], ids=["thinned", "full"])
def test_one_that_failed_is_not_tried_with_every_batch(small_slices, monkeypatch, sliced, settings):
    """Neither the removal of inputs nor room in a full budget; the map goes on, and later it is tried again."""
    field, more, tried = built(count=60, **settings), samples(340, seed=3), []
    field.in_slices(sliced)

    def fails(rebuild):
        tried.append(rebuild)
        raise NumericalError("does not factor")

    with monkeypatch.context() as patch:
        patch.setattr(Rebuild, "_check", fails)
        for i in range(230):
            field.update(more[i : i + 1])
        assert 1 <= len(tried) <= 3, len(tried)
        resumed = create_map(
            "dual_svgp", **(GIVEN | {"max_inducing": 300, "memory_size": 600} | settings)
        )
        resumed.load_state_dict(copy.deepcopy(field.state_dict()))
        resumed.in_slices(sliced)
        for one in (field, resumed):
            one.update(more[230:231])
        same(resumed, field)
        assert resumed.failed == field.failed is not None

    for i in range(231, len(more)):
        field.update(more[i : i + 1])
    assert field.failed is None and (field.moves > 0 if settings else field.thinned > 0)


def slices_of(field):
    """Operations and processor seconds of each slice of a rebuild, and of the floor beside it."""
    rebuild = Rebuild(field, replace(field.theta, lengthscale=0.52), 400)
    factor = torch.linalg.cholesky(torch.eye(400, dtype=torch.float64) + 0.5)
    right = torch.randn(400, 100, dtype=torch.float64)
    spent, seconds, floors = [], [], []
    while rebuild.steps_left:
        begin = time.thread_time()
        spent.append(rebuild.advance(SLICE))
        middle = time.thread_time()
        white = torch.linalg.solve_triangular(factor, right, upper=False)
        white @ white.mT
        seconds.append(middle - begin)
        floors.append(time.thread_time() - middle)
    return spent, seconds, floors


def test_no_slice_does_much_more_than_its_share():
    """Counted in operations, at the default budget and a full memory; and beside the floor in processor time."""
    field = built(count=2600, max_inducing=400, memory_size=2000)
    assert len(field.basis) > 250 and not field.unremembered_empty
    # the same work again and again: what one of them took longer was the machine's, whose memory others use as well
    spent, *others = zip(*(slices_of(copy.deepcopy(field)) for _ in range(5)))
    assert all(each == spent[0] for each in spent)
    spent, seconds = spent[0], [min(each) for each in zip(*others[0])]
    floors = [floor for each in others[1] for floor in each]
    # one step at the most beyond it: 500 candidates beside 2000 samples at M = 400, 2 · 500 · 2000 · 400 = 8e8
    assert len(spent) > 3 and max(spent) < SLICE + 8.1e8, [f"{s:.2g}" for s in spent]
    assert max(seconds) < 60 * sorted(floors)[len(floors) // 2], (max(seconds), floors)
    assert math.isfinite(sum(spent))
