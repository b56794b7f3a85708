"""How often a session asks its map with each cell: what is asked costs as much as what is learned."""

import torch

from gp_mapping import Samples
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

UT = 1e-6
SETTINGS = {
    "lengthscale": 0.6,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.3 * UT,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "tiles": False,
}


def driven(**settings):
    """There and back along a line of 5 m at 0.5 m/s, 50 Hz: the way back is held against the way there."""
    t = torch.arange(1000, dtype=torch.float64) / 50.0
    x = torch.stack([5.0 - (0.5 * t - 5.0).abs(), 0.05 * (t > 10.0)], 1)
    noise = (
        0.3
        * UT
        * torch.randn(1000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )
    y = 45 * UT + 8 * UT * torch.sin(3.0 * x[:, :1]) + noise
    session = MapSession(MapSettings(**(SETTINGS | settings)))
    for start in range(0, 1000, 20):
        session.ingest(
            Samples(x[start : start + 20], y[start : start + 20], stamp=t[start : start + 20])
        )
    return session


def test_a_cell_and_its_samples_are_one_question(monkeypatch):
    asked, whole = [], Posterior.predict_in_pass
    monkeypatch.setattr(
        Posterior,
        "predict_in_pass",
        lambda self, x, *others: asked.append(len(x)) or whole(self, x, *others),
    )
    joint = driven()
    once, cells = len(asked), joint.cell_count
    assert cells > 80 and once < 2.3 * cells, (
        once,
        cells,
    )  # that one, and the cell to the map as it is now

    plain = vars(OneStepAhead)["_asked"]
    monkeypatch.setattr(
        OneStepAhead, "_asked", lambda self, *others: plain(self, *others[:-1], None)
    )
    asked.clear()
    apart = driven()
    assert len(asked) > once + 0.4 * cells
    at = torch.rand(
        50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ) * torch.tensor([5.0, 0.2])
    p, q = joint.predict(at), apart.predict(at)
    assert float(((p.mean - q.mean) / q.stddev).abs().max()) < 1e-9
    assert float((p.measurement_variance / q.measurement_variance - 1.0).abs().max()) < 1e-9
    assert joint.report()["scores"] == apart.report()["scores"] > 50
