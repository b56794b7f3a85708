"""A map that is moved while it is carried to other hyper-parameters lies where it was moved to."""

import copy
from dataclasses import replace

import pytest
import torch
from mapping_data import drive

from gp_mapping import MapSettings
from gp_mapping.core.models.dual_svgp.rebuild import SLICE
from gp_mapping.mapping.moving import move_session, rotation
from gp_mapping.mapping.session import MapSession

PLACES = torch.cartesian_prod(*2 * [torch.arange(0.1, 1.2, 0.4, dtype=torch.float64)])


@pytest.fixture(scope="module")
def checkpoint():
    """Of a session whose map is on the way to another lengthscale."""
    with pytest.MonkeyPatch.context() as patch:
        # so small that a small map takes several
        for module in ("rebuild", "rebuilding"):
            patch.setattr(f"gp_mapping.core.models.dual_svgp.{module}.SLICE", 1e-4 * SLICE)
        # all starts are given: nothing is begun again at the end of the stream
        starts = {"signal_stddev": 8e-6, "noise_stddev": 1e-6, "field_scale": 8e-6}
        session = MapSession(MapSettings(learn_hyperparameters=False, lengthscale=0.8, **starts))
        session.ingest(drive(lanes=3, length=2.0, rate=10.0))
        session.flush()
        one = session.map.current_map
        assert not one.adopt_in_slices(replace(one.theta, lengthscale=0.9))
        assert one.rebuild is not None
        return session.state_dict()


@pytest.mark.parametrize("yaw", [0.0, 0.6])
def test_a_checkpoint_that_is_moved_stays_where_it_was_moved_to(checkpoint, yaw):
    stays, goes = (MapSession.from_state_dict(copy.deepcopy(checkpoint)) for _ in range(2))
    goes = move_session(goes, 100.0, -30.0, yaw)
    for session in (stays, goes):
        session.finish()
        assert session.map.current_map.rebuild is None
        assert session.map.hyperparameters()["lengthscale"] == 0.9

    # of the maps themselves: what scales their variances by place has bins along the axes
    there = PLACES @ rotation(yaw).mT + torch.tensor([100.0, -30.0], dtype=torch.float64)
    now, before = goes.map.predict(there), stays.map.predict(PLACES)
    assert float(((now.mean - before.mean) / before.stddev).abs().max()) < 1e-6
    assert float((now.stddev / before.stddev - 1.0).abs().max()) < 1e-6
