"""θ of a fleet from all cells at once: the sum of all bags' objectives, maximised on the workers.

    max_v  Σ_b F_b(θ(v)) + log p(v)

F_b is what `gp-mapping fit` maximises for one recording, of bag b's cells at the agreed time
offsets (offline/fit.py). A value is a step for each bag, summed as a tree; the ascent itself, in a
few numbers, is made here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.errors import NumericalError
from gp_mapping.fleet.agreed import Agreed, prepare_cells
from gp_mapping.fleet.bags import Bags
from gp_mapping.fleet.cells import BagCells, cells_of
from gp_mapping.fleet.engine import Engine
from gp_mapping.fleet.robot import Robot
from gp_mapping.offline.ascent import ascend, information
from gp_mapping.offline.fit import objective_of
from gp_mapping.offline.objectives import Objective
from gp_mapping.offline.stored_cells import StoredCells

__all__ = ["EvidenceAscent", "maximise_evidence"]

_ROUNDS = 3  # of choosing inducing inputs, then θ with these held
_NOWHERE = -float("inf")


@dataclass(frozen=True)
class EvidenceAscent:
    """Result of the ascent.

    Attributes:
        agreed: at the θ that was found.
        objective: its name, for a person.
        before: its value at the start, nats.
        after: its value at the end, nats.
        iterations: of L-BFGS.
        converged: whether nothing was left to gain when it stopped.
    """

    agreed: Agreed
    objective: str
    before: float
    after: float
    iterations: int
    converged: bool


class _Sum(Objective):
    """The objectives of all bags together, each where its cells are.

    Args:
        engine: of the steps.
        bags: handles of the objectives.
        name: of the objective.
    """

    def __init__(self, engine: Engine, bags: list, name: str):
        self.engine, self.bags, self.name, self.blocks, self._renewed = engine, bags, name, [], bags

    def renew(self, theta: Theta) -> None:
        """Choose the inducing inputs of each bag's objective anew at θ."""
        self._renewed = [self.engine.step("renew", _renewed, bag, theta) for bag in self.bags]

    def of_block(self, number: int, theta: Theta) -> Tensor:
        """Value of one bag's objective, nats.

        Args:
            number: of the bag.
            theta: θ at which it is computed.
        """
        return torch.tensor(
            self.engine.result(self.engine.step("value", _value, self._renewed[number], theta))
        )

    def value(self, theta: Theta) -> float:
        """Sum of all bags' objectives.

        Raises:
            NumericalError: one of them cannot be computed at θ.
        """
        parts = [self.engine.step("value", _value, bag, theta) for bag in self._renewed]
        value = self.engine.result(self.engine.tree("nats", _added, parts))
        if value == _NOWHERE:
            raise NumericalError("an objective cannot be computed at this θ")
        return value


def maximise_evidence(
    engine: Engine,
    bags: Bags,
    agreed: Agreed,
    most: int,
    tolerance: float,
    progress: Callable[[str, float], None],
) -> EvidenceAscent:
    """Maximise the objectives of all bags from the agreed θ on.

    Args:
        engine: where the cells are.
        bags: that were read.
        agreed: where to begin.
        most: iterations of each round.
        tolerance: nats; a round is over where an iteration gains less.
        progress: called after each iteration with the objective's name and its value, nats.
    """
    own = [
        (made, job.number, robot, agreed)
        for made, job, robot in zip(bags.cells, bags.jobs, bags.robots)
    ]
    stored = [engine.step("stored", _stored, *one) for one in own]
    objectives = [engine.step("objective", _objective, one, agreed) for one in stored]
    learner = make_theta_and_learner(agreed.settings)[1]
    assert learner is not None, "the caller checks that hyper-parameters are learned"

    name = engine.result(engine.step("name", _name_of, objectives[0]))
    total, theta, count, converged = _Sum(engine, objectives, name), agreed.theta, 0, False

    total.renew(theta)
    before = after = total.value(theta)
    best = theta

    for _ in range(_ROUNDS):
        total.renew(theta)
        first = total.value(theta)
        found = ascend(
            total,
            learner,
            theta,
            _information(engine, stored, agreed, theta),
            most,
            tolerance,
            lambda value: progress(name, value),
        )
        theta, count, converged = found.theta, count + found.iterations, found.converged

        # compared with new inducing inputs at the θ that was found
        total.renew(theta)
        value = total.value(theta)
        if value > after:
            best, after = theta, value

        # less than a nat, or out of iterations: another choice of inducing inputs is not worth it
        if found.value - first < 1.0 or found.iterations >= most:
            break

    return EvidenceAscent(
        agreed.with_theta(best, _information(engine, stored, agreed, best)),
        name,
        before,
        after,
        count,
        converged,
    )


def _information(engine: Engine, stored: list, agreed: Agreed, theta: Theta) -> Tensor:
    """Fisher information of all cells at θ."""
    parts = [engine.step("information", _known, one, agreed, theta) for one in stored]
    return engine.result(engine.tree("informations", _added, parts))


def _stored(made: BagCells, number: int, robot: Robot, agreed: Agreed) -> StoredCells:
    """A bag's prepared cells, as an objective needs them."""
    return StoredCells.from_batches(
        [prepare_cells(cells_of(made), number, robot, agreed)],
        agreed.settings.field_scale,
        agreed.theta,
    )


def _objective(stored: StoredCells, agreed: Agreed) -> Objective:
    """A bag's objective."""
    return objective_of(agreed.settings, stored)


def _name_of(objective: Objective) -> str:
    """Name of an objective."""
    return objective.name


def _known(stored: StoredCells, agreed: Agreed, theta: Theta) -> Tensor:
    """Fisher information of a bag's cells at θ."""
    learner = make_theta_and_learner(agreed.settings)[1]
    assert learner is not None, "the caller checks that hyper-parameters are learned"
    return information(learner, theta, stored)


def _added(first, second):
    """The sum of two values."""
    return first + second


@torch.no_grad()
def _renewed(objective: Objective, theta: Theta) -> Objective:
    """A copy of an objective, with inducing inputs chosen anew at θ."""
    new = copy.copy(objective)
    new.renew(theta)
    return new


def _value(objective: Objective, theta: Theta) -> float:
    """Value of an objective; −∞ where it cannot be computed at θ."""
    try:
        return objective.value(theta)
    except (NumericalError, ArithmeticError, torch.linalg.LinAlgError):
        return _NOWHERE
