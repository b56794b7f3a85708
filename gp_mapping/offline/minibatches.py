"""θ by minibatches on bound (8): natural gradients for q, Adam for θ, and the best epoch's θ.

It serves SOLVE-GP, and with one set of inducing inputs SVGP under any likelihood
(solve_gp_batch.py). Before θ moves, q is brought to its optimum at the given θ, so that a gain is
due to θ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.solve_gp.model import SolveGP
from gp_mapping.core.types import Samples
from gp_mapping.errors import NumericalError
from gp_mapping.offline.solve_gp_batch import BatchTrainer

__all__ = ["TrainingResult", "train"]

_MINIBATCH = 256  # cells
_SETTLING = 20  # epochs at most for q alone; a Gaussian likelihood needs one
_PATIENCE = 4  # epochs without a gain after which training stops


@dataclass(frozen=True)
class TrainingResult:
    """The result of training.

    Attributes:
        theta: the best θ.
        before: bound (8) at the given θ, nats.
        after: bound (8) at the best θ, nats.
        epochs: that moved θ.
        open_share: the largest fraction of the field's prior variance that the inducing inputs
            leave open at a cell.
        converged: whether it stopped by itself.
    """

    theta: Theta
    before: float
    after: float
    epochs: int
    open_share: float
    converged: bool


def train(
    model: SolveGP,
    data: Samples,
    most: int,
    tolerance: float,
    progress: Callable[[float], None],
    learn: bool = True,
) -> TrainingResult:
    """Train an empty model.

    Args:
        model: at the θ to start from.
        data: all cells, SI.
        most: epochs that move θ, at most.
        tolerance: nats; q is settled where an epoch gains less, θ where _PATIENCE epochs do.
        progress: called with bound (8) after each epoch.
        learn: False: only q is trained.
    """
    # q alone, at the given θ
    trainer = BatchTrainer(model, data, minibatch=_MINIBATCH, learn=False)

    value = -torch.inf
    for _ in range(_SETTLING):
        trainer.epoch()
        previous, value = value, trainer.evidence()
        progress(value)
        if value - previous < tolerance or model.likelihood.conjugate:
            break

    residual = model.basis.residual(trainer.x, model.basis.whitened(trainer.x, trainer.heading))
    open_share = float((residual / model.basis.kernel.diag(trainer.x)).max())

    # then θ, and q with it
    best, theta, before, without_gain, count = value, model.theta, value, 0, 0

    trainer.learn = learn
    while learn and count < most and without_gain < _PATIENCE:
        count += 1
        try:
            trainer.epoch()
            value = trainer.evidence()
        except NumericalError:  # q does not factor at this θ: the best one before counts
            break

        progress(value)
        without_gain = 0 if value > best + tolerance else without_gain + 1
        if value > best:
            best, theta = value, model.theta
    return TrainingResult(theta, before, best, count, open_share, without_gain >= _PATIENCE)
