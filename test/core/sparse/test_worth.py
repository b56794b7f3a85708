"""What an inducing input is worth: against brute force, and what a map does with it."""

import copy
import functools
import math

import pytest
import torch

from gp_mapping import create_map
from gp_mapping.core.kernels import make_kernel
from gp_mapping.core.sparse.worth import InputRemoval, bits_of, ratio_of
from gp_mapping.core.types import Samples

UT = 1e-6
SETTINGS = {
    "lengthscale": 1.0,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.3 * UT,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "max_inducing": 1000,
}


def lanes(side, gap=0.4, step=0.15):
    """(N, 2) positions of a lawnmower over a square."""
    rows = []
    for i, y in enumerate(torch.arange(0.0, side + 1e-9, gap).double()):
        xs = torch.arange(0.0, side + 1e-9, step).double()
        rows.append(torch.stack([xs if i % 2 == 0 else side - xs, y.expand(len(xs))], 1))
    return torch.cat(rows)


def field_at(x, lengthscale):
    """A smooth field with that lengthscale, SI."""
    g = torch.Generator().manual_seed(5)
    w = torch.randn(200, 2, generator=g).double() / lengthscale
    phase = 2 * math.pi * torch.rand(200, generator=g).double()
    return 45 * UT + UT * (torch.cos(x @ w.mT + phase).sum(1, keepdim=True))


@functools.cache
def drive(lengthscale, side, passes=1, gap=0.4, step=0.15, size=3, **settings):
    """A map of a drive, so many cells at a time, with white noise of .3 µT, which no test changes."""
    field = create_map("dual_svgp", **(SETTINGS | {"lengthscale": lengthscale} | settings))
    g = torch.Generator().manual_seed(1)
    for _ in range(passes):
        for x in lanes(side, gap, step).split(size):
            field.update(
                Samples(
                    x,
                    field_at(x, lengthscale)
                    + 0.3 * UT * torch.randn(len(x), 1, generator=g).double(),
                )
            )
    return field


def remaining(kernel, z, x, beta, j):
    """w of input j by its definition: innovation variance times the precision of the samples on the innovation."""
    rest = [i for i in range(len(z)) if i != j]
    gain = torch.linalg.solve(kernel(z[rest], z[rest]), kernel(z[rest], z[j : j + 1]))
    variance = float(kernel.diag(z[j : j + 1]) - (kernel(z[j : j + 1], z[rest]) @ gain).sum())
    covariance = kernel(x, z[j : j + 1]) - kernel(x, z[rest]) @ gain
    return float((beta[:, None] * covariance.square()).sum() / variance)


def test_what_goes_is_what_brute_force_takes_away():
    """One by one the input of least w, computed from its definition each time."""
    g = torch.Generator().manual_seed(2)
    kernel = make_kernel("matern52", 2.0, 0.7)
    z, x = 2 * torch.rand(12, 2, generator=g).double(), 2 * torch.rand(60, 2, generator=g).double()
    beta = 5 * torch.rand(60, generator=g).double()
    factor = torch.linalg.cholesky(kernel(z, z))
    white = torch.linalg.solve_triangular(factor, kernel(z, x), upper=False)

    left, gone, least = list(range(12)), 0.0, 4.0
    while True:
        worth = [remaining(kernel, z[left], x, beta, i) for i in range(len(left))]
        if min(worth) >= least:
            break
        gone = max(gone, min(worth))
        left.pop(worth.index(min(worth)))
    assert 2 < len(left) < 12

    excess = (white * beta) @ white.mT
    state = InputRemoval.start(factor, excess, least, 12).state_dict()
    kept = copy.deepcopy(state)
    assert InputRemoval.from_state_dict(state, "cpu").advance(least, None)
    assert all(torch.equal(state[name], kept[name]) for name in ("prior", "told", "alive")), (
        "who goes on from a state writes nothing into it"
    )

    sparing = InputRemoval.start(factor, excess, least, 12)
    while not sparing.advance(least, None, most=2):  # as it may be cut into steps
        assert torch.equal(
            sparing.alive, InputRemoval.from_state_dict(sparing.state_dict(), "cpu").alive
        )
    assert sparing.alive.nonzero()[:, 0].tolist() == left and sparing.remaining == len(left)
    assert sparing.worst == pytest.approx(gone, rel=1e-8)
    few = InputRemoval.start(factor, excess, 0.0, 5)
    assert few.advance(0.0, 5) and few.remaining == 5
    assert (
        InputRemoval.start(factor, excess, 0.0, 11) is not None
        and InputRemoval.start(factor, excess, 0.0, 12) is None
    )


def test_a_bit_is_a_ratio():
    assert ratio_of(1.0) == 3.0 and bits_of(3.0) == 1.0 and ratio_of(0.0) == 0.0


def test_far_fewer_inputs_say_the_same():
    """Against a map in which every residual counts: under two thirds of the inputs, the mean within a third of its sd,
    which is what the information given up allows, and no interval that is too narrow for it."""
    dense = {"inducing_information": 0.0, "inducing_tolerance": 1e-3}
    full, thin = (drive(0.6, 4.0, step=0.1, size=1, **kind) for kind in (dense, {}))
    assert len(thin.basis) < 0.62 * len(full.basis)
    x = 4 * torch.rand(500, 2, generator=torch.Generator().manual_seed(3)).double()
    truth, a, b = field_at(x, 0.6), full.predict(x), thin.predict(x)
    assert float(((a.mean - b.mean) / a.stddev).square().mean().sqrt()) < 0.35
    rmse = [float((p.mean - truth).square().mean().sqrt()) for p in (a, b)]
    assert rmse[1] < 1.05 * rmse[0]
    assert float((b.stddev / a.stddev).median()) > 1.0 and float((b.stddev / a.stddev).min()) > 0.9


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_field_much_larger_than_its_noise_is_as_the_exact_gp_has_it(dtype):
    """A slope: smooth, and 2000 times the noise. What the inputs leave out is beside the noise, not beside the field;
    in float32 it cannot be, which the map says."""
    g = torch.Generator().manual_seed(1)
    x = lanes(6.0, gap=1.5, step=0.3)
    rise = 30 * UT * (x @ torch.tensor([[0.8], [0.6]], dtype=torch.float64))
    y = rise + field_at(x, 2.5) + 0.3 * UT * torch.randn(len(x), 1, generator=g).double()
    given = SETTINGS | {"lengthscale": 30.0, "signal_stddev": 600 * UT, "dtype": dtype}
    maps = [create_map(model, **given) for model in ("dual_svgp", "exact")]
    for field in maps:
        field.update(Samples(x, y))
    single = dtype == "float32"
    assert [len(field.notes()) for field in maps] == [single, 0]
    if not single:
        places = 6 * torch.rand(300, 2, generator=g).double()
        sparse, exact = (field.predict(places) for field in maps)
        away = (sparse.mean - exact.mean) / exact.stddev
        assert float(away.square().mean().sqrt()) < 0.3
        assert float((sparse.stddev / exact.stddev).median()) == pytest.approx(1.0, abs=0.1)


def test_noise_decides_how_many():
    """Ten times the noise, a hundredth of the precision: what could not be told anyway is not held."""
    assert len(drive(1.0, 4.0, noise_stddev=3 * UT).basis) < 0.6 * len(drive(1.0, 4.0).basis)


def test_it_is_the_lengthscale_that_counts():
    """The same drive in lengthscales takes the same inputs: a 25th for each square metre at five times the length."""
    one, other = drive(0.5, 4.0), drive(2.5, 20.0, gap=2.0, step=0.75)
    assert len(other.basis) == pytest.approx(len(one.basis), rel=0.05)


def test_a_smooth_field_takes_fewer():
    """The same drive, so that there are 25 times as many samples in each square of a lengthscale, and edges."""
    assert len(drive(2.5, 4.0).basis) < len(drive(0.5, 4.0).basis) / 4


def test_more_passes_make_it_finer():
    """What accumulates counts: each pass tells more of the same directions."""
    once, often = drive(2.5, 4.0), drive(2.5, 4.0, passes=4)
    assert len(often.basis) > len(once.basis)


def test_a_full_budget_gives_up_what_is_worth_least_and_says_so():
    tight = drive(0.5, 5.0, max_inducing=120)
    assert tight.moves > 0 and tight.floor > 1.0
    assert 100 <= len(tight.basis) <= 120
    again = create_map("dual_svgp", **(SETTINGS | {"lengthscale": 0.5, "max_inducing": 120}))
    again.load_state_dict(tight.state_dict())
    assert (again.moves, again.floor, again.thinned) == (tight.moves, tight.floor, tight.thinned)


def test_an_input_that_is_worth_just_the_least_stays():
    """One that no sample touches is worth 0, exactly: where 0 is enough, nothing is to be removed."""
    excess = torch.diag(torch.tensor([2.0, 0.0, 0.5])).double()
    eye = torch.eye(3, dtype=torch.float64)
    assert InputRemoval.start(eye, excess, 0.0, 3) is None
    assert InputRemoval.start(eye, excess, 0.5, 3) is not None
    removal = InputRemoval.start(eye, excess, 0.5, 3)
    assert removal.advance(0.5, None) and removal.alive.tolist() == [True, False, True]
    assert removal.worst == 0.0
