"""A drawing of the whole map in slices: the picture is made once, and is that of the map as it is at the end."""

import numpy as np
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime import whole_map


def driven(seed=0):
    """A session after 20 m among waves."""
    g = torch.Generator().manual_seed(seed)
    along = torch.linspace(0, 20, 1000, dtype=torch.float64)
    x = torch.stack([along % 5, (along / 5).floor() * 0.5], 1)
    y = (x[:, :1].sin() + x[:, 1:].cos()) * 5 + 0.1 * torch.randn(1000, 1, dtype=torch.float64, generator=g)
    session = MapSession(MapSettings(field_scale=1.0, learn_hyperparameters=False, lengthscale=0.8))
    session.ingest(Samples(x, y, stamp=0.02 * torch.arange(1000, dtype=torch.float64)))
    return session


def test_the_grid_is_made_once_and_is_the_maps(monkeypatch):
    session, calls = driven(), {"render": 0, "draw_ahead": 0}
    want = driven().render()

    def counted(name):
        work = getattr(session, name)

        def both(*given, **named):
            calls[name] += 1
            return work(*given, **named)
        return both
    for name in calls:
        monkeypatch.setattr(session, name, counted(name))
    monkeypatch.setattr(whole_map, "FIRST", 40)
    monkeypatch.setattr(whole_map, "SLICE", 0.0)

    drawing = whole_map.WholeMap()
    drawing.finish(session)
    grid, limits = drawing.future.result(0)
    assert calls["draw_ahead"] > 5, "it was cut into slices"
    assert calls["render"] == 1, "what is drawn is put together at the end only"
    np.testing.assert_allclose(grid.mean, want.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(grid.stddev, want.stddev, rtol=0, atol=1e-9)
    assert limits.mean_low <= float(np.nanmedian(want.mean)) <= limits.mean_high


def test_an_empty_map_and_a_fault_are_answers():
    empty, broken = whole_map.WholeMap(), whole_map.WholeMap()
    empty.finish(MapSession(MapSettings()))
    assert empty.future.result(0) is None

    class Broken:
        cell_count = 3

        def draw_ahead(self, points):
            raise RuntimeError("no memory")
    assert broken.go_on(Broken()) and "no memory" in str(broken.future.exception(0))
