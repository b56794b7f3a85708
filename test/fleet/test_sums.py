"""Sums of bags for one tile."""

from types import SimpleNamespace

import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.assembled import part_of
from gp_mapping.core.scaling import Scaling
from gp_mapping.fleet import sums


@pytest.mark.parametrize("count, most", [(3999, 3999), (4001, 2001), (7999, 4000), (8001, 2667)])
def test_inducing_inputs_are_chosen_from_no_more_cells_than_it_says(count, most, monkeypatch):
    looked = []
    cells = Samples(torch.rand(count, 2), torch.zeros(count, 1), velocity=torch.zeros(count, 2))
    monkeypatch.setattr(sums, "cells_in", lambda *_: cells)
    monkeypatch.setattr(sums, "_chosen", lambda places, _: looked.append(len(places)))
    agreed = SimpleNamespace(
        theta=Theta(1.0, 1.0, 1.0, 1.0),
        origin=torch.zeros(2),
        centre=torch.zeros(1),
        settings=MapSettings(),
    )
    sums.candidates(None, None, 0, None, agreed)
    assert looked == [most]


@pytest.mark.parametrize("signal, most", [(1.0, 0.1), (2000.0, 1.0)])
def test_inducing_inputs_leave_out_no_more_than_the_noise(signal, most, monkeypatch):
    """Of usual fields a share of the field; of one that is thousands of times its noise far less than that."""
    theta = Theta(30.0, signal, 1.0, 1.0)
    generator = torch.Generator().manual_seed(0)
    places = 6.0 * torch.rand(200, 2, dtype=torch.float64, generator=generator)
    cells = Samples(places, torch.zeros(200, 1), velocity=torch.zeros(200, 2))
    monkeypatch.setattr(sums, "cells_in", lambda *_: cells)
    agreed = SimpleNamespace(
        theta=theta, origin=torch.zeros(2), centre=torch.zeros(1), settings=MapSettings()
    )
    z = sums.candidates(None, None, 0, None, agreed)
    k = theta.kernel()
    left = k.diag(places) - (k(places, z) * torch.linalg.solve(k(z, z), k(z, places)).mT).sum(1)
    assert float(left.max()) <= most


THETA = Theta(1.0, 1.0, 0.2, 0.5, bias_stddev=0.3)
Z = torch.cartesian_prod(*2 * [torch.arange(0.0, 2.1, 0.5, dtype=torch.float64)])
SCALING = Scaling(torch.zeros(2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), 1.0)


def summed(numbers, first: int) -> tuple[sums.TileSums, Samples]:
    """The sums of so many cells, whose keys are as given; and the cells."""
    n = len(numbers)
    generator = torch.Generator().manual_seed(first)
    x = 2.0 * torch.rand(n, 2, dtype=torch.float64, generator=generator)
    cells = Samples(
        x,
        torch.sin(2.0 * x[:, :1]) + 0.3 * first,
        stamp=first + torch.arange(n, dtype=torch.float64),
        pass_number=torch.full((n,), float(first), dtype=torch.float64),
    )
    part = part_of(THETA, Z, SCALING, cells)
    keys = torch.tensor(numbers, dtype=torch.float64)
    return sums.TileSums(part.sites, n, part.newest_pass, cells, keys), cells


def matrices(sites):
    """D, r and s, and D and r with the constants of the passes integrated out."""
    return [sites.precision, sites.linear, sites.ones, *sites.integrated(0.09)]


def test_sums_of_two_sets_are_those_of_all_their_cells_and_less_one_set_those_of_the_other():
    """Sites, counts, and of the cells those with the largest keys, in their order."""
    keys = [0.1, 0.9, 0.3, 0.8], [0.2, 0.7, 0.6]
    (one, cells), (other, more) = (summed(part, k + 3) for k, part in enumerate(keys))
    was = [part.clone() for part in matrices(one.sites)]
    both = sums.joined_sums(one, other, 4)
    whole = part_of(THETA, Z, SCALING, Samples.concatenate([cells, more]))

    for told, exact in zip(matrices(both.sites), matrices(whole.sites)):
        torch.testing.assert_close(told, exact, rtol=0, atol=1e-9)
    assert both.count == 7 and both.newest_pass == whole.newest_pass == 4.0
    assert sums.joined_sums(other, one, 9).newest_pass == 4.0
    assert both.keys.tolist() == [0.9, 0.8, 0.7, 0.6]
    assert both.kept.stamp.tolist() == [4.0, 6.0, 5.0, 6.0]
    assert len(sums.joined_sums(one, other, 9).kept) == 7
    assert all(map(torch.equal, matrices(one.sites), was))

    alone = sums.subtract_sums(both, one)
    for told, exact in zip(matrices(alone.sites), matrices(other.sites)):
        torch.testing.assert_close(told, exact, rtol=0, atol=1e-9)
    assert alone.count == 3 and not len(alone.kept) and not len(alone.keys)
    assert set(alone.sites.passes.numbers) == {4.0}
