"""Batches are cut so that each part takes about half a second; what is over is counted."""

from types import SimpleNamespace as Namespace

import torch

from gp_mapping.core.types import Samples
from gp_mapping.runtime.slices import FIRST, SLICE, Slices


def test_parts_follow_the_time_that_they_take(monkeypatch):
    now, seconds_each, sizes, passes = [0.0], 0.001, [], []
    monkeypatch.setattr("gp_mapping.runtime.slices.time", Namespace(monotonic=lambda: now[0]))
    x = torch.arange(2000.0).repeat(2, 1).mT
    slices, seen = Slices(lambda: len(sizes) == 9), []
    for new_pass, part in slices.cut([(True, Samples(x, x[:, 0])), (False, Samples(x, x[:, 0]))]):
        if len(sizes) == 6:
            seconds_each = 0.1  # such as a map that begins to learn
        now[0] += seconds_each * len(part)
        sizes.append(len(part))
        passes.append(new_pass)
        seen.append(part.x[:, 0])
    # twice as many while that takes less than half of SLICE; then as many as take SLICE
    assert sizes == [FIRST, 64, 128, 256, 256, 256, 256, int(SLICE / 0.1), 5]
    assert passes == [True] + 8 * [False]
    assert torch.equal(torch.cat(seen), x[: sum(sizes), 0])
    assert slices.abandoned == 4000 - sum(sizes)
