"""The learning loop of every map: pending steps, each of which takes effect whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.transaction import Revertible, require_finite, transaction
from gp_mapping.errors import NumericalError

__all__ = ["learn"]


def learn(
    owner: Revertible,
    learner: HyperLearner,
    step: Callable[[], None],
    follow: Callable[[], None],
    budget_s: float,
) -> bool:
    """Take the pending steps.

    Args:
        owner: the map. Where a step fails, it is put back as it was before that step, which counts
            as rejected.
        learner: has the pending steps.
        step: takes one step.
        follow: moves the map to the θ found where that is worth it, or leaves it as it is; the step
            stands in both cases, or the next one would be the same one again.
        budget_s: no step begins later than that, s.

    Returns:
        Whether steps are still pending.
    """
    end = perf_counter() + budget_s
    while learner.pending >= 1.0 and perf_counter() < end:
        try:
            with transaction(owner):
                step()
                require_finite("hyper-parameters", learner.vector)
        except (NumericalError, torch.linalg.LinAlgError):
            learner.pending -= 1.0
            learner.rejected += 1
        else:
            follow()

    return learner.pending >= 1.0
