"""A robot and the field's hyper-parameters from the first cells of a bag, by a map of their own.

Time offset, lever arm and body-fixed field are the robot's; lengthscale, signal and noise are the
field's, and every bag knows something of them: the Fisher information of its cells, by which they
are agreed on (agreed.py).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path as FilePath

import torch
from torch import Tensor

from gp_mapping.analysis.calibration import calibration_report, turning_part
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.outcomes import make_judge
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.errors import UserError, one_line
from gp_mapping.fleet.cells import Job
from gp_mapping.fleet.workers.step_progress import StepProgress
from gp_mapping.intake import Intake
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining
from gp_mapping.mapping.earth import Fixes
from gp_mapping.mapping.motion.path import Path
from gp_mapping.mapping.scoring.local_scale import LocalScale
from gp_mapping.mapping.scoring.predictive_noise import PredictiveNoise
from gp_mapping.mapping.session import MapSession
from gp_mapping.offline.ascent import information
from gp_mapping.offline.fit import theta_from_report
from gp_mapping.offline.stored_cells import StoredCells
from gp_mapping.recording.replay import Taken, plan_bags, samples_of
from gp_mapping.settings.mapping import AUTOMATIC
from gp_mapping.store.archive import read_state, write_state

__all__ = [
    "Robot",
    "Scores",
    "calibrate",
    "joined_fixes",
    "joined_paths",
    "joined_scores",
    "robot_of",
    "scores_of",
]


@dataclass(frozen=True)
class Robot:
    """What the first cells of one bag tell.

    Attributes:
        failed: why there is nothing; '' where there is.
        theta: hyper-parameters that were learned, in inner units.
        information: (P, P), what the cells know of θ's vector.
        starts: what the first cells gave, by name of setting, SI.
        body: (2, C) SI, what is added where the robot looks along x, along y of the map; zeros
            where nothing is learned.
        learned: whether hyper-parameters were learned.
        offset: time offset of the calibration, s.
        offset_stddev: s.
        offset_seen: whether it differs from 0.
        turning: amplitude of `body`, SI.
        noise: predictive standard deviation, SI.
        white: standard deviation of the white noise of one measurement, SI; 0: not known.
        weakened: cells that contradicted the map.
        density: inducing inputs per square of a lengthscale.
        cells: number of them.
    """

    failed: str = ""
    theta: Theta | None = None
    information: Tensor | None = None
    starts: dict[str, float] | None = None
    body: Tensor | None = None
    learned: bool = False
    offset: float = 0.0
    offset_stddev: float = math.inf
    offset_seen: bool = False
    turning: float = 0.0
    noise: float = 0.0
    white: float = 0.0
    weakened: int = 0
    density: float = 0.0
    cells: int = 0


@dataclass(frozen=True)
class Scores:
    """One-step-ahead scores of some bags.

    Attributes:
        noise: predictive noise.
        local: local scale.
        white_variance: of a raw sample.
        averaged: the part of that which is left in a cell.
    """

    noise: PredictiveNoise
    local: LocalScale
    white_variance: float
    averaged: float


def calibrate(job: Job, most: int) -> tuple[Robot, Scores | None]:
    """Calibrate a robot by the first cells of its bag.

    A bag whose cells cannot be mapped is reported as failed, and no other bag stops. Where the job
    keeps cells, the map is kept from time to time as well, and a repeated step goes on with it.

    Args:
        job: the bag.
        most: cells to use.
    """
    kept = FilePath(job.keep) / f"{job.number}.robot" if job.keep else None
    if kept is not None and kept.is_file():
        return _unpacked(read_state(kept))

    halfway = StepProgress(None if kept is None else kept.with_suffix(".calibrating"))
    try:
        made = _calibrated(job, most, halfway)
    except UserError as error:
        return Robot(failed=one_line(error)), None
    except Exception as error:  # one bag, whatever is in it, does not cost the others
        return Robot(failed=f"{type(error).__name__}: {one_line(error, 300)}"), None

    if kept is not None and made[1] is not None:
        write_state(kept, _packed(*made), lasting=False)
    halfway.remove()
    return made


def _packed(robot: Robot, scores: Scores) -> dict:
    """Robot and scores as a state for a file."""
    state = {f.name: getattr(robot, f.name) for f in fields(Robot)} | {"theta": asdict(robot.theta)}
    return {
        "robot": state,
        "noise": scores.noise.state_dict(),
        "window": scores.noise.window,
        "local": scores.local.state_dict(),
        "white": scores.white_variance,
        "averaged": scores.averaged,
    }


def _unpacked(state: dict) -> tuple[Robot, Scores]:
    """Robot and scores from a state of a file."""
    robot = Robot(**state["robot"] | {"theta": Theta(**state["robot"]["theta"])})
    noise, local = PredictiveNoise(int(state["window"])), LocalScale(1.0)
    noise.load_state_dict(state["noise"])
    local.load_state_dict(state["local"])
    return robot, Scores(noise, local, state["white"], state["averaged"])


def _begun(job: Job, halfway: StepProgress) -> tuple[Intake, MapSession, Taken | None]:
    """Intake, map, and what they have had of a bag: nothing yet, or as far as was kept."""
    found = halfway.load()
    if found is None:
        # maps of different kernels could not be summed
        settings = replace(job.parameters.map, learn_smoothness=False)
        session, cells, before = MapSession(settings), [], None
        intake = Intake(
            job.parameters.intake,
            judge=make_judge(job.parameters.map),
            as_received=True,
        )
    else:
        (intake, state, cells, before), _ = found
        session = MapSession.from_state_dict(state)

    session.taken = cells  # from now on it collects its cells, for their information
    return intake, session, before


def _calibrated(job: Job, most: int, halfway: StepProgress) -> tuple[Robot, Scores | None]:
    """Map the first `most` cells of a bag, and take from the map what it has learned."""
    intake, session, before = _begun(job, halfway)

    def keep_if_due(taken: Taken) -> None:
        """Keep the map so far, where the last time is long enough ago."""
        if halfway.due():
            halfway.save((intake, session.state_dict(), session.taken, taken))

    plans = plan_bags([job.bag], job.parameters.intake, job.topics)
    samples = samples_of(plans, intake, "", shown=False, before=before, taken=keep_if_due)
    for _ in ingest_batches(samples, session, intake.drops):
        if session.cell_count >= most:
            break
    ingest_remaining(session, intake.drops)
    if not session.map.started:
        return Robot(failed=f"{job.bag}: its measurements make no map"), None

    started, hyperparameters = session.started_settings, session.map.hyperparameters()
    first, learner = make_theta_and_learner(started)
    theta = theta_from_report(first, hyperparameters, started.field_scale)
    known = torch.zeros((len(theta.vector()),) * 2, dtype=torch.float64)
    if learner is not None:
        known = information(
            learner, theta, StoredCells.from_batches(session.taken, started.field_scale, theta)
        )

    offset, spread, seen, turning = 0.0, math.inf, False, 0.0
    try:
        found = calibration_report(session.map, session.noise_variance)
        offset, spread, seen, turning = (
            found.offset,
            found.offset_stddev,
            found.has_offset,
            found.turning,
        )
    except (RuntimeError, ValueError, ArithmeticError):
        # too few samples are remembered: nothing is known of it
        pass

    # squares of a lengthscale that the robot has touched
    squares = session.memory.div(theta.lengthscale).floor().unique(dim=0)
    robot = Robot(
        "",
        theta,
        known,
        {name: getattr(started, name) for name in AUTOMATIC},
        _turning_part(session),
        learner is not None,
        offset,
        spread,
        seen,
        turning,
        math.sqrt(session.noise_variance),
        math.sqrt(session.scores.white_variance),
        session.scores.weakened,
        len(session.inducing) / max(1, len(squares)),
        session.cell_count,
    )

    scores = session.scores
    return robot, Scores(scores.noise, scores.local, scores.white_variance, scores.white_averaged)


def _turning_part(session: MapSession) -> Tensor:
    """What is added where the robot looks along x, along y of the map: (2, C) SI; else zeros."""
    part = turning_part(session) if session.settings.learn_hyperparameters else None
    return torch.zeros((2, session.map.channels), dtype=torch.float64) if part is None else part


def robot_of(made: tuple[Robot, Scores | None]) -> Robot:
    """The robot alone, which is all that the main process needs."""
    return made[0]


def scores_of(made: tuple[Robot, Scores | None]) -> Scores:
    """The scores of a bag that has not failed."""
    assert made[1] is not None, "a bag that failed goes no further"
    return made[1]


def joined_scores(first: Scores, second: Scores) -> Scores:
    """Scores of two sets of bags together, in bounded memory.

    Args:
        first: of one set; it is not changed.
        second: of the other; likewise.
    """
    noise, local = PredictiveNoise(first.noise.window), LocalScale(first.local.width)
    counts = len(first.noise), len(second.noise)
    for part in (first, second):
        noise.join(part.noise)
        local.join(part.local)

    weight = counts[0] / sum(counts) if sum(counts) else 0.5
    return Scores(
        noise,
        local,
        weight * first.white_variance + (1 - weight) * second.white_variance,
        weight * first.averaged + (1 - weight) * second.averaged,
    )


def joined_fixes(one: dict, other: dict, most: int) -> dict:
    """Fixes of two robots as one state.

    Args:
        one: state of a robot's Fixes.
        other: of another robot's.
        most: fixes that are kept.
    """
    return _joined(Fixes(most), one, Fixes(most), other)


def joined_paths(one: dict, other: dict, step: float) -> dict:
    """Paths of two robots as one state.

    Args:
        one: state of a robot's Path.
        other: of another robot's.
        step: distance between points of a path, m.
    """
    return _joined(Path(step), one, Path(step), other)


def _joined(first, one: dict, second, other: dict) -> dict:
    """State of the first, whose own is `one`, joined with the second, whose own is `other`."""
    first.load_state_dict(one)
    second.load_state_dict(other)
    first.join(second)
    return first.state_dict()
