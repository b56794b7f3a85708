"""Alarms about a map: poses that lie off are told from a field that has changed. The exact GP is the map."""

import math
from dataclasses import replace

import numpy as np
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.core.registry import build_map
from gp_mapping.mapping.alarms import error_run
from gp_mapping.mapping.alarms.error_run import ErrorRun
from gp_mapping.mapping.alarms.kept_posteriors import KeptPosterior
from gp_mapping.mapping.notes.displaced import displaced_note
from gp_mapping.mapping.scoring.change import Change
from gp_mapping.mapping.scoring.one_step_ahead import OneStepAhead

SETTINGS = MapSettings(
    model="exact",
    field_scale=1.0,
    lengthscale=0.8,
    signal_stddev=3.0,
    noise_stddev=0.3,
    constant_stddev=3.0,
    heading_stddev=0.0,
    learn_hyperparameters=False,
    learn_time_offset=False,
    learn_bias=False,
    cell_length=0.1,
)
NOISE = 0.3


class Scene:
    """A random field, a map of a room of it, and a robot that drives through once more."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        waves = 60
        spread = np.sqrt(5.0 / self.rng.chisquare(5, (waves, 1)))  # Matérn-5/2
        self.k = self.rng.standard_normal((waves, 2)) * spread / SETTINGS.lengthscale
        self.phase = self.rng.uniform(0.0, 2.0 * math.pi, waves)
        self.begin()

    def begin(self) -> None:
        """Map the room."""
        self.field, self.scores = build_map(SETTINGS), OneStepAhead(SETTINGS)
        lanes = np.arange(0.0, 2.1, 0.25)
        places = np.stack(np.meshgrid(np.arange(-1.0, 3.0, 0.2), lanes - 0.5), -1).reshape(-1, 2)
        self.field.update(self.cell(places, places))
        self.scores.keep_posterior(0.0, self.field, torch.zeros(1, 2, dtype=torch.float64))

    def truth(self, x: np.ndarray) -> np.ndarray:
        return 3.0 * np.sqrt(2.0 / 60) * np.cos(x @ self.k.T + self.phase).sum(1)

    def cell(self, said, real, added=0.0, stamp=0.0) -> Samples:
        """Measured at real places (n, 2), where the poses say `said`."""
        y = self.truth(real) + added + NOISE * self.rng.standard_normal(len(real))
        n = len(real)
        return Samples(
            torch.from_numpy(said),
            torch.from_numpy(y)[:, None],
            count=torch.full((n,), 4.0, dtype=torch.float64),
            sensor_variance=torch.zeros(n, dtype=torch.float64),
            velocity=torch.zeros(n, 2, dtype=torch.float64),
            stamp=torch.full((n,), stamp, dtype=torch.float64),
        )

    def drive(self, off=(0.0, 0.0), bump=0.0, cells=25):
        """A lane along x, whose poses are wrong from the tenth cell on, or whose field is another.

        The map does not learn from it: the posterior is the one before.
        """
        way = np.stack([np.arange(-0.5, 2.0, 0.1), np.full(25, 0.6)], 1)
        middle = np.array([1.1, 0.8])
        for i, real in enumerate(way[:cells]):
            said = real[None] + (off if i >= 10 else (0.0, 0.0))
            added = bump / (1.0 + ((real - middle) ** 2).sum() / 0.35**2) ** 1.5
            cell = self.cell(said, real[None], added, float(i))
            self.scores.detect_change(cell, 2.0 + 0.1 * i, self.field, 0)
        if cells == len(way):
            self.scores.settle_alarms(self.field)
        return self.scores


def test_poses_that_lie_off_are_no_change_of_the_field():
    """Also one that has leapt before the run begins, so that no step of it tells."""
    errors = []
    for seed, off in ((2, (0.2, -0.8)), (3, (0.2, -0.8)), (4, (2.0, 0.2))):
        scene = Scene(seed)
        known = len(scene.field.remembered_places())
        scores = scene.drive(off)
        assert scores.change_count == 0, "and nothing is forgotten"
        assert len(scene.field.remembered_places()) == known
        found = scores.run.displaced
        errors += [math.dist((each.off_x, each.off_y), off) for each in found if each.sure]
    assert len(errors) >= 3 and np.median(errors) < 0.1
    assert len(displaced_note(found, len(found))) == 1 and not displaced_note([], 0)


def test_a_change_of_the_field_is_found_where_no_pose_explains_it():
    scores = [Scene(seed).drive(bump=6.0 if seed % 2 else -4.0) for seed in range(4)]
    assert all(each.change_count > 0 for each in scores)
    assert sum(any(change.sure for change in each.changes) for each in scores) >= 2
    assert not any(each.sure for score in scores for each in score.run.displaced)


def test_in_a_field_without_a_shape_no_poses_are_blamed():
    """In a field without a shape no displacement makes an error."""
    flat = Scene(0)
    flat.truth = lambda x: 0.0 * x[:, 0]
    flat.begin()
    scores = flat.drive(off=(0.3, 0.2), bump=6.0)
    assert scores.change_count and scores.run.displaced_count == 0


def test_an_alarm_that_waits_goes_on_from_a_file():
    scene = Scene(2)
    scene.drive((-0.5, 0.3), cells=14)
    run = scene.scores.run
    again = ErrorRun()
    again.load_state_dict(run.state_dict())
    assert again.state_dict() == run.state_dict() and run.state_dict()["rows"]


def test_an_alarm_that_nothing_can_decide_is_an_unsure_change():
    """No posterior of before is kept, or none of the cells."""
    change = Change(1.0, 2.0, 3.0, 4.0)
    scene = Scene(2)
    for old, rows in ((None, True), (KeptPosterior(0.0, scene.field.snapshot(), None), False)):
        run = scene.drive((-0.5, 0.3), cells=14).run
        run.alarms = [change]
        if not rows:
            run.end_pass()
        (decided,) = run.decide(old, NOISE**2, 0.8, last=True)
        assert decided == replace(change, sure=False) and not run.alarms


def hot_spot(lane: float, narrow: bool) -> Scene:
    """A flat field, of which a map with a long lengthscale knows lanes .5 m apart; a drive at y = .6.

    Args:
        lane: y of the lane nearest to the drive, m.
        narrow: the spot is narrower than the lanes are apart; else the field is as it was.
    """
    flat = Scene(0)
    flat.truth = lambda x: 0.0 * x[:, 0]
    flat.field, flat.scores = build_map(replace(SETTINGS, lengthscale=3.0)), OneStepAhead(SETTINGS)
    lanes = lane + np.arange(-2, 1) * 0.5
    places = np.stack(np.meshgrid(np.arange(-1.0, 3.0, 0.1), lanes), -1).reshape(-1, 2)
    flat.field.update(flat.cell(places, places))
    flat.scores.keep_posterior(0.0, flat.field, torch.zeros(1, 2, dtype=torch.float64))
    for i, real in enumerate(np.stack([np.arange(-0.5, 2.0, 0.1), np.full(25, 0.6)], 1)):
        spot = 12.0 * math.exp(-0.5 * ((real[0] - 1.1) / 0.15) ** 2) if narrow else 0.0
        cell = flat.cell(real[None], real[None], spot, float(i))
        flat.scores.detect_change(cell, 2.0 + 0.1 * i, flat.field, 0)
    flat.scores.settle_alarms(flat.field)
    return flat


def test_a_source_beside_all_that_was_measured_is_no_change(monkeypatch):
    """The map believes that it knows the place, .5 m from its last lane; the same lane again is another thing."""
    beside, again = hot_spot(0.1, True), hot_spot(0.6, True)
    assert beside.scores.change_count == 0 and beside.scores.run.displaced_count == 0
    assert again.scores.change_count > 0
    assert hot_spot(0.6, False).scores.change_count == 0
    monkeypatch.setattr(error_run, "contradiction", lambda *_: math.inf)
    assert hot_spot(0.1, True).scores.change_count > 0, "an alarm there was"
