"""Sums of bags for one tile."""

from types import SimpleNamespace

import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.core.hyper.theta import Theta
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
