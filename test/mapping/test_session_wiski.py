"""A session whose map is a WISKI: it learns, scores, draws, and goes on from a checkpoint exactly."""

import copy

import numpy as np
import torch

from benchmark.robots import Robot, survey
from gp_mapping import Samples
from gp_mapping.core.config import MapSettings
from gp_mapping.core.models import wiski
from gp_mapping.mapping.session import MapSession

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
    assert report["memory"] == report["cells"] and report["jitter"] == 0.0 and report["learning_steps"] > 5


def test_cells_wait_for_no_solve():
    """What a session asks for each cell comes from the neighbourhood; the lattice is solved by slices, or to draw."""
    drive, _ = survey(Robot(), 4, width=1.6, depth=1.4)
    session = MapSession(MapSettings(**SETTINGS))
    iterations, solve = [], session.map._solution

    def counted(most=3000):
        iterations.append(most)
        return solve(most)

    session.map._solution = counted
    session.ingest(drive)
    session.flush()
    assert len(session.scores.noise) > 20 and session.scores.fitted is not None
    assert set(iterations) == {wiski._SLICE} and len(iterations) < session.cell_count / 4
    assert session.noise_variance > 0.0 and session.report()["noise_stddev"] > 0.0
    assert set(iterations) == {wiski._SLICE}, "a report is no reason to solve"


def test_a_report_counts_what_the_lattice_cannot_hold():
    session = MapSession(MapSettings(**SETTINGS, max_grid_nodes=16384, cells=False))
    x = torch.tensor([[0.0, 0.0], [40.0, 0.0], [9000.0, 0.0]]).double()
    for i in range(3):
        session.ingest(Samples(x, torch.full((3, 1), 48e-6), stamp=torch.arange(3).double())[i: i + 1])
        session.flush()
        assert (session.report()["coarsened"] > 0) == (i > 0)
    report = session.report()
    assert report["refused"] == 1 and report["samples"] == 3
    assert session.map.grid.spacing <= 0.25, "what is refused coarsens nothing"
    assert "coarsened" not in MapSession(MapSettings()).report()
