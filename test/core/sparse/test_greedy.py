"""Inducing inputs are picked alike where each pick is read at once, and where a card is not waited for."""

import math

import pytest
import torch

from gp_mapping.core.sparse import greedy


@pytest.mark.parametrize(("room", "worth"), [(4, 0.0), (30, 0.5), (30, 1e6), (1, 0.0)])
def test_a_card_picks_what_a_processor_does(room, worth, monkeypatch):
    """Each given those before it: the largest w of what they leave, by Schur complements."""
    generator = torch.Generator().manual_seed(1)
    x = 3.0 * torch.rand(40, 2, dtype=torch.float64, generator=generator)
    precision = torch.rand(40, dtype=torch.float64, generator=generator) + 0.1
    gram, candidates = torch.exp(-0.5 * torch.cdist(x, x).square()), torch.arange(0, 40, 2)

    told = []
    for synchronous in (True, False):
        monkeypatch.setattr(greedy, "is_synchronous", lambda _, yes=synchronous: yes)
        given = gram[candidates].clone(), candidates, 1e-6, room, precision, worth
        told.append(greedy.select_inputs(*given))
    (picked, rows), (on_card, rows_on_card) = told
    assert torch.equal(picked, on_card) and torch.allclose(rows, rows_on_card)

    left, expected = gram.clone(), []
    while len(expected) < room:
        own = left.diagonal().clamp_min(1e-300)
        worths = (left.square() @ precision / own).masked_fill(left.diagonal() <= 1e-6, -math.inf)
        p = int(candidates[worths[candidates].argmax()])
        if not float(worths[p]) > worth:
            break
        expected.append(p)
        left = left - torch.outer(left[p], left[p]) / left[p, p]
    assert picked.tolist() == expected and len(expected) == (0 if worth > 1e5 else len(rows))
    assert torch.allclose(gram - rows.mT @ rows, left, atol=1e-9)
