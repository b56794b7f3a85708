"""Sites are sums: every operation against the sum written out."""

import copy

import pytest
import torch
from core_data import close
from torch.utils._python_dispatch import TorchDispatchMode

from gp_mapping.core.linalg import factor_upper, mirror_upper
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.transaction import transaction
from gp_mapping.errors import NumericalError

GENERATOR = torch.Generator().manual_seed(0)


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=GENERATOR)


WHITE, LAM, BETA = rand(6, 40), rand(40, 2), rand(40).square() + 0.1


def written_out(white, beta, lam):
    d = torch.eye(len(white), dtype=torch.float64)
    for i in range(white.shape[1]):
        d = d + beta[i] * torch.outer(white[:, i], white[:, i])
    return (
        d,
        sum(torch.outer(white[:, i], lam[i]) for i in range(white.shape[1])),
        white @ beta[:, None],
    )


def filled(part=slice(None), capacity=10, size=6):
    sites = Sites(size, 2, capacity, "cpu")
    sites.add(WHITE[:size, part], BETA[part], LAM[part])
    return sites


def agrees(sites, expected, tolerance=1e-12):
    for name, got, want in zip(
        ("precision", "linear", "ones"), (sites.precision, sites.linear, sites.ones), expected
    ):
        close(got, want, tolerance, name)


def test_empty_is_the_prior():
    agrees(Sites(6, 2, 10, "cpu"), (torch.eye(6), torch.zeros(6, 2), torch.zeros(6, 1)))


def test_add_and_subtract():
    sites = filled()
    agrees(sites, written_out(WHITE, BETA, LAM))
    sites.subtract(WHITE[:, 10:], BETA[10:], LAM[10:])
    agrees(sites, written_out(WHITE[:, :10], BETA[:10], LAM[:10]))


def test_scale():
    sites = filled()
    sites.scale(0.3)
    agrees(sites, written_out(WHITE, 0.3 * BETA, 0.3 * LAM))


def test_pad_and_border_are_as_if_the_rows_had_always_been_there():
    """What the border brings, for those of whom the new features are known."""
    sites = filled(size=4)
    sites.pad(2)
    padded = WHITE.clone()
    padded[4:] = 0.0
    agrees(sites, written_out(padded, BETA, LAM))
    sites.border(WHITE[4:, :25], WHITE[:4, :25], BETA[:25], LAM[:25])
    padded[4:, :25] = WHITE[4:, :25]
    agrees(sites, written_out(padded, BETA, LAM))
    with pytest.raises(ValueError, match="capacity"):
        sites.pad(5)


def test_more_rows_than_the_buffers_hold_and_back():
    """Buffers double where they are full; a refused change is undone in those of before."""
    wide = rand(200, 12)
    beta, lam = BETA[:12], LAM[:12]
    sites = Sites(6, 2, 200, "cpu")
    sites.add(wide[:6], beta, lam)
    with pytest.raises(RuntimeError), transaction(sites):
        sites.pad(1)
        sites.border(wide[6:7], wide[:6], beta, lam)
        sites.pad(193)
        sites.border(wide[7:], wide[:7], beta, lam)
        agrees(sites, written_out(wide, beta, lam), 1e-11)
        raise RuntimeError
    agrees(sites, written_out(wide[:6], beta, lam))
    sites.pad(30)  # behind what was undone: the identity, and 0
    padded = torch.cat([wide[:6], torch.zeros(30, 12).double()])
    agrees(sites, written_out(padded, beta, lam))


class Copied(TorchDispatchMode):
    """The largest tensor that is copied within."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default):
            self.numbers = max(self.numbers, args[0].numel())
        return function(*args, **(kwargs or {}))


def test_what_a_transaction_adds_is_written_at_its_end_without_a_copy_of_the_sums():
    sites, first = filled(slice(10)), slice(10)
    columns = WHITE.mT.contiguous().mT  # column by column, as a basis has them
    with Copied() as copied, transaction(sites):
        for part in (slice(10, 25), slice(25, 40)):
            sites.add(columns[:, part], BETA[part], LAM[part])
    assert copied.numbers == 0
    agrees(sites, written_out(WHITE, BETA, LAM))

    # until then nothing is written, and what is read or changed meanwhile is the sum of all
    sites = filled(first)
    before = sites.precision.clone()
    with pytest.raises(NumericalError), transaction(sites):
        sites.add(WHITE[:, 10:], BETA[10:] * torch.inf, LAM[10:])
    assert torch.equal(sites.precision, before)

    with pytest.raises(RuntimeError), transaction(sites):
        sites.add(WHITE[:, 10:], BETA[10:], LAM[10:])
        agrees(sites, written_out(WHITE, BETA, LAM))
        sites.add(WHITE[:, 10:], BETA[10:], LAM[10:])
        raise RuntimeError
    assert torch.equal(sites.precision, before)

    with transaction(sites):
        sites.add(WHITE[:, 10:], BETA[10:], LAM[10:])
        sites.pad(1)
        sites.border(torch.ones(1, 40).double(), WHITE, BETA, LAM)
    agrees(sites, written_out(torch.cat([WHITE, torch.ones(1, 40).double()]), BETA, LAM))


@pytest.mark.parametrize("read", ["before", "never"])
def test_sums_of_many_rows_are_kept_by_their_upper_triangle(read):
    """Whether or not somebody has read all of D meanwhile."""
    wide = 0.1 * rand(300, 40)
    number = (torch.arange(40) // 20).double()
    old, new, first, rest = slice(290), slice(290, None), slice(30), slice(30, None)

    def add(to, rows, part):
        to.add(wide[rows, part], BETA[part], LAM[part], number[part])
        if read == "before":
            assert torch.equal(to.precision, to.precision.mT)

    sites = Sites(290, 2, 300, "cpu")
    add(sites, old, first)
    before = sites.clone().precision
    with pytest.raises(RuntimeError), transaction(sites):
        add(sites, old, rest)
        sites.scale(0.5)
        assert torch.equal(sites.precision, sites.precision.mT)
        raise RuntimeError
    assert torch.equal(sites.precision, before)

    sites.pad(10)
    sites.border(wide[new, first], wide[old, first], BETA[first], LAM[first], number[first])
    add(sites, slice(None), rest)
    sites.merge(Sites(300, 2, 300, "cpu"))
    expected = torch.eye(300, dtype=torch.float64) + (wide * BETA) @ wide.mT
    close(sites.clone().precision, expected, 1e-12)

    # D with the constants of two passes integrated out, and its factor from the upper triangle
    for some in (number == 0.0, number == 1.0):
        sums = wide[:, some] @ BETA[some]
        expected = expected - torch.outer(sums, sums) / (1.0 / 0.3 + BETA[some].sum())
    upper, linear = sites.upper_integrated(0.3)
    assert all(map(torch.equal, sites.integrated(0.3), (mirror_upper(upper.clone()), linear)))
    close(mirror_upper(upper.clone()), expected, 1e-12)
    factor = factor_upper(upper)
    close(factor @ factor.mT, expected, 1e-11)

    sites.close({0.0, 1.0}, 0.3)
    close(sites.precision, expected, 1e-12)
    sites.scale(0.5)
    close(sites.precision.diagonal(), 0.5 + 0.5 * expected.diagonal(), 1e-12)


ROTATION = torch.linalg.qr(rand(6, 6))[0]
CHANGES = {
    "scale": lambda sites: sites.scale(0.5),
    "subtract": lambda sites: sites.subtract(WHITE[:, :9], BETA[:9], LAM[:9]),
    "merge": lambda sites: sites.merge(filled(slice(9))),
    "turn": lambda sites: sites.turn(ROTATION, torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()),
    "shift_centre": lambda sites: sites.shift_centre(torch.tensor([3.0, -7.0]).double()),
    "close": lambda sites: sites.close({3.0}, 0.3),
    "join_segments": lambda sites: sites.join_segments(3.0, 3.5),
}


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_whatever_is_changed_is_as_it_was_where_the_change_is_refused(name, adds):
    """Alone, or after samples of the same transaction that are not written yet."""
    sites, more = filled(slice(20)), slice(30, None)
    number = (3.0 + 0.5 * (torch.arange(10) // 5)).double()
    sites.add(WHITE[:, 20:30], BETA[20:30], LAM[20:30], number)

    def sums():
        return [part.clone() for part in (sites.linear, sites.ones, *sites.integrated(0.3, 0.5))]

    before = sums()
    with pytest.raises(RuntimeError), transaction(sites):
        if adds:
            sites.add(WHITE[:, more], BETA[more], LAM[more])
        CHANGES[name](sites)
        raise RuntimeError
    assert all(map(torch.equal, sums(), before))
    CHANGES[name](sites)
    assert not all(map(torch.equal, sums(), before))


@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("variance", [0.0, 0.3])
def test_to_a_power_every_sample_counts_for_that_much(variance, correlation):
    """Of open passes, of one that is closed, and of what is not read before: as with βs times the power."""
    number = (torch.arange(40) // 10).double()

    def integrated(factor, power):
        sites = Sites(6, 2, 10, "cpu")
        sites.add(WHITE, factor * BETA, factor * LAM, number)
        return sites.integrated(variance, correlation, power)

    for told, wanted in zip(integrated(1.0, 0.2), integrated(0.2, 1.0)):
        close(told, wanted, 1e-12)


def test_project():
    transfer = rand(8, 6)
    agrees(filled().project(transfer, 9), written_out(transfer @ WHITE, BETA, LAM))
    assert torch.equal(
        filled().project(transfer, 9).precision, filled().project(transfer, 9).precision.mT
    )


def test_merge():
    sites = filled(slice(0, 15))
    sites.merge(filled(slice(15, None), capacity=6))
    agrees(sites, written_out(WHITE, BETA, LAM))


def test_shift_is_what_moved_targets_would_have_added():
    """λ = βy: every y grows by delta."""
    delta = torch.tensor([3.0, -7.0], dtype=torch.float64)
    sites = filled()
    sites.shift_centre(delta)
    agrees(sites, written_out(WHITE, BETA, LAM + BETA[:, None] * delta))


def test_clone_and_state_are_independent():
    sites = filled()
    clone, state = sites.clone(), copy.deepcopy(sites.state_dict())
    sites.scale(0.1)
    agrees(clone, written_out(WHITE, BETA, LAM))
    again = Sites.from_state_dict(state, "cpu")
    agrees(again, written_out(WHITE, BETA, LAM))
    again.pad(4)
    assert again.size == 10, "the capacity came back too"
