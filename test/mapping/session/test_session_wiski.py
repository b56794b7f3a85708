"""A session whose map is a WISKI: it learns, scores, draws, and goes on from a checkpoint exactly."""

import copy

import numpy as np
import torch

from benchmark.robots import Robot, survey
from gp_mapping import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

SETTINGS = {"model": "wiski", "learn_hyperparameters": True}


def test_a_session_learns_draws_and_resumes():
    drive, test = survey(Robot(), 3, width=1.6, depth=1.4)
    session = MapSession(MapSettings(**SETTINGS))
    half = len(drive) // 2
    session.ingest(drive[:half])
    resumed = MapSession.from_state_dict(copy.deepcopy(session.state_dict()))
    for each in (session, resumed):
        each.ingest(drive[half:])
        each.flush()
    p, q = session.predict(test.x[::20]), resumed.predict(test.x[::20])
    assert torch.equal(p.mean, q.mean) and torch.equal(p.variance, q.variance)
    assert session.noise_variance == resumed.noise_variance and len(session.scores.noise)
    grid = session.render()
    assert np.isfinite(grid.mean.numpy()).all() and bool(grid.known.any())
    before = session.predict(test.x[::20]).mean
    assert torch.equal(before, p.mean), "drawing changed the map"
    report = session.report()
    assert (
        report["memory"] == report["cells"]
        and report["jitter"] == 0.0
        and report["learning_steps"] > 2
    )


def test_neither_cells_nor_live_drawings_wait_for_a_solve():
    """A drawing with a budget shows the newest refresh; when the robot stands still, the next ones end with all."""
    drive, _ = survey(Robot(), 4, width=1.6, depth=1.4)
    session = MapSession(MapSettings(**SETTINGS))
    session.ingest(drive[:300])
    session.render(2000)
    solve, session.map.solve_refresh = (
        session.map.solve_refresh,
        None,
    )  # whoever waits for a solve now fails
    for i in range(300, len(drive), 150):
        session.ingest(drive[i : i + 150])
        grid = session.render(2000)
        assert session.renderer.points_drawn <= 2000
    session.flush()
    # 47 cells: with the 32nd the starts are found anew, and what the rough ones said does not count
    assert len(session.scores.noise) >= 8 and session.scores.fitted is not None
    assert session.noise_variance > 0.0 and session.report()["noise_stddev"] > 0.0
    for _ in range(60):
        grid = session.render(2000)
        if not session.renderer.points_stale:
            break
    assert not session.renderer.points_stale
    session.map.solve_refresh = solve
    told = MapSession.from_state_dict(session.state_dict()).predict(grid.centres())
    known, mean, stddev = grid.known.reshape(-1), grid.mean.reshape(-1), grid.stddev.reshape(-1)
    error = (mean - told.mean[:, 0]).abs() / told.measurement_variance[:, 0].sqrt()
    assert int(known.sum()) > 500 and float(error[known].max()) < 0.15
    assert float((stddev / told.stddev[:, 0] - 1).abs()[known].max()) < 0.05


def test_a_report_counts_what_the_lattice_cannot_hold():
    session = MapSession(MapSettings(**SETTINGS, max_grid_nodes=16384, cells=False))
    x = torch.tensor([[0.0, 0.0], [40.0, 0.0], [9000.0, 0.0]]).double()
    for i in range(3):
        session.ingest(
            Samples(x, torch.full((3, 1), 48e-6), stamp=torch.arange(3).double())[i : i + 1]
        )
        session.flush()
        assert (session.report()["coarsened"] > 0) == (i > 0)
    report = session.report()
    assert report["refused"] == 1 and report["samples"] == 3
    assert session.map.grid.spacing <= 0.25, "what is refused coarsens nothing"
    assert "coarsened" not in MapSession(MapSettings()).report()
