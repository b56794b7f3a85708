"""The offline fit of θ, and which objective fits which model.

exact                      log evidence of the exact GP
dual_svgp, sor, dtc, fitc, Titsias' bound on it, on the model's budget of inducing inputs (for
fic, pitc, pic             the anytime family too, whose paper leaves θ open)
solve_gp                   bound (8) in minibatches, then bound (9)
wiski                      its own evidence, eq. 13
another likelihood         bound (8) in minibatches
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods import make_likelihood
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.core.types import Samples
from gp_mapping.offline.ascent import ascend, information
from gp_mapping.offline.lattice_evidence import LatticeEvidence
from gp_mapping.offline.minibatches import train
from gp_mapping.offline.objectives import CollapsedBound, ExactEvidence, Objective, tolerance_at
from gp_mapping.offline.stored_cells import StoredCells
from gp_mapping.settings.mapping import MapSettings

__all__ = ["FITTED", "Fit", "check_fits", "fit_theta", "join_batches", "theta_from_report"]

_ROUNDS = 3  # of choosing inducing inputs, and θ with these inputs held
# cells of a block per inducing input that it may have: with more cells the budget, and not θ, would
# determine the bound
_INPUTS = 1.0
_LEAST = 200  # cells in a block of the collapsed bound, at least


@dataclass(frozen=True)
class Fit:
    """The result of a fit.

    Attributes:
        objective: name of what was raised, for a person.
        before: the objective at the given θ, nats.
        after: the objective at the θ found, nats.
        evidence_before: log evidence of the exact GP at the given θ, in blocks of at most 1000
            cells, nats; None where the likelihood is not Gaussian.
        evidence_after: the same at the θ found.
        theta_before: the given θ, inner units.
        theta: the θ found, inner units.
        cells: number of cells.
        blocks: number of blocks of cells.
        iterations: of all steps.
        steps: what the steps were, for a person.
        converged: whether nothing was left to gain when it stopped.
        learner: settled at θ.
        notes: sentences for a person.
    """

    objective: str
    before: float
    after: float
    evidence_before: float | None
    evidence_after: float | None
    theta_before: Theta
    theta: Theta
    cells: int
    blocks: int
    iterations: int
    steps: str
    converged: bool
    learner: HyperLearner
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Way:
    """How θ of a model is fitted.

    Attributes:
        objective: made from settings and cells, for a Gaussian likelihood.
        bound: name of what minibatches raise, for a person.
        first: whether minibatches precede the objective.
        orthogonal: whether inducing inputs of the second kind count.
    """

    objective: Callable[[MapSettings, StoredCells], Objective]
    bound: str = "evidence lower bound of SVGP"
    first: bool = False
    orthogonal: bool = False


def _collapsed(settings: MapSettings, cells: StoredCells) -> Objective:
    """The collapsed bound on the model's budget of inducing inputs."""
    second = _second(settings)
    most = max(_LEAST, round(_INPUTS * (settings.max_inducing + second)))
    return CollapsedBound(cells, settings.max_inducing, second, most)


_WAYS = {
    "dual_svgp": _Way(_collapsed),
    "solve_gp": _Way(_collapsed, "bound (8) of SOLVE-GP", first=True, orthogonal=True),
    "wiski": _Way(lambda settings, cells: LatticeEvidence(cells, settings.grid_density)),
    "exact": _Way(lambda settings, cells: ExactEvidence(cells)),
    **{name: _Way(_collapsed) for name in ("sor", "dtc", "fitc", "fic", "pitc", "pic")},
}
FITTED = tuple(_WAYS)


def _second(settings: MapSettings) -> int:
    """Number of inducing inputs of SOLVE-GP's second kind; 0 for another model."""
    return settings.max_orthogonal if _WAYS[settings.model].orthogonal else 0


def check_fits(settings: MapSettings) -> None:
    """Raise where there is no offline fit with these settings.

    Raises:
        ValueError: another model, classes with hyper-parameters of their own, a learned lever arm,
            or nothing to learn.
    """
    if settings.model not in FITTED:
        raise ValueError(
            f"model {settings.model!r} has no offline fit; expected one of {', '.join(FITTED)}"
        )

    if settings.has_class_targets:
        raise ValueError(
            f"likelihood {settings.likelihood!r} has no offline fit: each class learns its own "
            "hyper-parameters while it maps; write likelihood: softmax with model: dual_svgp"
        )
    if settings.learn_lever_arm:
        raise ValueError(
            "learn_lever_arm: an offline fit keeps no lever arm; write --set learn_lever_arm=false, and "
            "what the robot has learned as sensor_offset_x and sensor_offset_y"
        )

    if make_theta_and_learner(settings)[1] is None:
        raise ValueError(
            "nothing is to be learned with these settings; write --set learn_hyperparameters=true"
        )


def join_batches(parts: list[Samples]) -> Samples:
    """One batch from several, with the columns that all of them have."""
    given = [
        f.name for f in fields(Samples) if all(getattr(part, f.name) is not None for part in parts)
    ]
    return Samples(**{name: torch.cat([getattr(part, name) for part in parts]) for name in given})


def theta_from_report(theta: Theta, reported: dict[str, float], scale: float) -> Theta:
    """θ with the numbers that a map reports.

    Args:
        theta: of the numbers that are not given, inner units.
        reported: hyper-parameters as of FieldMap.hyperparameters, SI.
        scale: SI in an inner unit.
    """
    known = {f.name for f in fields(theta)}
    values: dict[str, Any] = {
        name: value / (scale if name.endswith("stddev") else 1.0)
        for name, value in reported.items()
        if name in known
    }
    return replace(theta, **values)


def objective_of(settings: MapSettings, cells: StoredCells) -> Objective:
    """The objective by which θ of a model with a Gaussian likelihood is fitted.

    Args:
        settings: name the model, and give its budgets.
        cells: all of them.
    """
    return _WAYS[settings.model].objective(settings, cells)


def fit_theta(
    settings: MapSettings,
    given: dict[str, float],
    parts: list[Samples],
    *,
    slope=None,
    most: int = 60,
    tolerance: float = 0.05,
    progress: Callable[[str, float], None] = lambda what, value: None,
) -> Fit:
    """Find θ from all cells at once.

    Args:
        settings: with a number for each start; the priors follow from these.
        given: hyper-parameters to begin with, as of FieldMap.hyperparameters (SI).
        parts: batches of cells, SI.
        slope: as of StoredCells.from_batches.
        most: iterations, or epochs, of each step at most.
        tolerance: nats; a step ends where an iteration gains less.
        progress: called after each iteration with the name of what is raised and its value, nats.

    Raises:
        ValueError: as check_fits.
    """
    check_fits(settings)
    theta, learner = make_theta_and_learner(settings)
    assert learner is not None, "check_fits has seen to it"

    start = theta_from_report(theta, given, settings.field_scale)
    cells = StoredCells.from_batches(parts, settings.field_scale, start, slope)
    if not make_likelihood(settings).conjugate:
        return _by_minibatches(
            settings, start, learner, cells, join_batches(parts), most, tolerance, progress
        )

    found, epochs, steps, notes = start, 0, [], []
    if _WAYS[settings.model].first:
        found, epochs, step, notes = _by_bound_first(
            settings, start, cells, join_batches(parts), most, tolerance, progress
        )
        steps.append(step)

    objective = objective_of(settings, cells)
    # the priors' medians may be nearer to the maximum than what was learned
    medians = replace(theta, bias_stddev=start.bias_stddev)
    values: dict[Theta, float] = {}
    for candidate in (medians, found, start):
        objective.renew(candidate)
        values[candidate] = objective.value(candidate)

    before, found = values[start], max(values, key=lambda candidate: values[candidate])
    found, ascents, converged = _raised(objective, learner, found, cells, most, tolerance, progress)
    steps += [f"{n} iterations of L-BFGS on the {objective.name}" for n in ascents]

    objective.renew(found)
    after, judge = objective.value(found), ExactEvidence(cells)
    evidence = judge.value(start), judge.value(found)

    # each value is at inducing inputs chosen at its own θ: the one found may be lower
    if after < before:
        notes.append("the streamed hyper-parameters were the better ones, and stay")
        found, after, evidence = start, before, (evidence[0], evidence[0])

    # a map goes on learning from this θ
    learner.continue_from(found, information(learner, found, cells))
    return Fit(
        objective=objective.name,
        before=before,
        after=after,
        evidence_before=evidence[0],
        evidence_after=evidence[1],
        theta_before=start,
        theta=found,
        cells=len(cells),
        blocks=len(objective.blocks),
        iterations=epochs + sum(ascents),
        steps="; ".join(steps),
        converged=converged,
        learner=learner,
        notes=tuple(notes),
    )


def _by_bound_first(
    settings: MapSettings,
    start: Theta,
    cells: StoredCells,
    data: Samples,
    most: int,
    tolerance: float,
    progress: Callable[[str, float], None],
) -> tuple[Theta, int, str, list[str]]:
    """Raise the model's bound in minibatches, before its objective.

    Args:
        settings: name the model, and give its budgets.
        start: θ to begin with.
        cells: all of them.
        data: the same as one batch.
        most: epochs at most.
        tolerance: nats; it ends where an epoch gains less.
        progress: as of fit_theta.

    Returns:
        θ found, epochs, what was done, and notes; for a person.
    """
    bound = _WAYS[settings.model].bound
    trained = train(
        _empty(settings, start, cells), data, most, tolerance, lambda value: progress(bound, value)
    )
    step = (
        f"{trained.epochs} epochs of minibatches on the {bound}, {trained.before:.1f} to "
        f"{trained.after:.1f} nats"
    )
    found = replace(trained.theta, bias_stddev=start.bias_stddev)
    return found, trained.epochs, step, _left_open(trained.open_share)


def _raised(
    objective: Objective,
    learner: HyperLearner,
    found: Theta,
    cells: StoredCells,
    most: int,
    tolerance: float,
    progress: Callable[[str, float], None],
) -> tuple[Theta, list[int], bool]:
    """Raise the objective: alternately inducing inputs at θ, and θ with these inputs held.

    Args:
        objective: is raised.
        learner: says what is free.
        found: θ to begin with.
        cells: all of them.
        most: iterations of each ascent at most.
        tolerance: nats; an ascent ends where an iteration gains less.
        progress: as of fit_theta.

    Returns:
        θ, the iterations of each ascent, and whether nothing was left to gain in the last one.
    """
    ascents: list[int] = []
    converged = False
    for _ in range(_ROUNDS):
        objective.renew(found)
        initial = objective.value(found)
        ascent = ascend(
            objective,
            learner,
            found,
            information(learner, found, cells),
            most,
            tolerance,
            lambda value: progress(objective.name, value),
        )
        found, converged = ascent.theta, ascent.converged
        ascents.append(ascent.iterations)
        if ascent.value - initial < 1.0 or ascent.iterations >= most:
            break
    return found, ascents, converged


def _empty(settings: MapSettings, theta: Theta, cells: StoredCells) -> SolveGP:
    """An empty model for minibatches at θ."""
    theta = replace(theta, bias_stddev=0.0)  # the passes' constants are in bound (9) only
    return SolveGP(
        theta,
        max_inducing=settings.max_inducing,
        max_orthogonal=_second(settings),
        memory_size=0,
        tolerance=tolerance_at(theta, cells),
        scale=settings.field_scale,
        seed=settings.seed,
        likelihood=make_likelihood(settings),
    )


def _left_open(fraction: float) -> list[str]:
    """A note where the inducing inputs leave much of the field's variance open."""
    if fraction <= 0.1:
        return []
    return [
        f"the inducing inputs leave up to {100 * fraction:.0f} % of the field's variance open at a cell; raise "
        "max_inducing"
    ]


def _by_minibatches(
    settings: MapSettings,
    start: Theta,
    learner: HyperLearner,
    cells: StoredCells,
    data: Samples,
    most: int,
    tolerance: float,
    progress: Callable[[str, float], None],
) -> Fit:
    """Fit θ by minibatches alone; arguments as of fit_theta."""
    name = _WAYS[settings.model].bound
    trained = train(
        _empty(settings, start, cells), data, most, tolerance, lambda value: progress(name, value)
    )
    learner.continue_from(trained.theta, _curvature(learner, trained.theta, cells))
    return Fit(
        objective=name,
        before=trained.before,
        after=trained.after,
        evidence_before=None,
        evidence_after=None,
        theta_before=start,
        theta=trained.theta,
        cells=len(cells),
        blocks=1,
        iterations=trained.epochs,
        steps=f"{trained.epochs} epochs of minibatches on the {name}",
        converged=trained.converged,
        learner=learner,
        notes=tuple(_left_open(trained.open_share)),
    )


def _curvature(learner: HyperLearner, theta: Theta, cells: StoredCells) -> Tensor:
    """Information about θ where there are no measurements of the field itself.

    It is computed as if each cell were such a measurement.
    """
    plain = HyperLearner(theta, learner.prior, free=tuple(learner.free))
    return information(plain, theta, cells)
