"""What a session answers of what it has taken in, without its map."""

import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

GIVEN = {"model": "exact", "lengthscale": 1.0, "signal_stddev": 1e-5, "noise_stddev": 1e-6}
GIVEN |= {"constant_stddev": 5e-5, "learn_hyperparameters": False, "learn_time_offset": False}


def test_the_position_is_that_of_the_newest_sample_and_each_cell_is_another_revision():
    session = MapSession(MapSettings(**GIVEN | {"cell_length": 0.4}))
    assert session.position is None
    revisions = []
    for k in range(20):
        x = torch.tensor([[0.5 * k, -0.25 * k]], dtype=torch.float64)
        value = torch.full((1, 1), 48e-6 + 1e-7 * (k % 3), dtype=torch.float64)
        session.ingest(Samples(x, value, stamp=torch.tensor([float(k)]).double()))
        assert session.position == (0.5 * k, -0.25 * k)
        revisions.append(session.revision)
    assert session.cell_count == 19 and revisions == sorted(revisions)
    assert len(set(revisions[-10:])) == 10
