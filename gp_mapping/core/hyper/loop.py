"""The learning loop of every map: steps that are pending, each all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.transaction import Revertible, require_finite, transaction
from gp_mapping.errors import NumericalError

__all__ = ["learn"]


def learn(
    owner: Revertible, learner: HyperLearner, step: Callable[[], None], budget_s: float
) -> bool:
    """Take the steps that are pending.

    Args:
        owner: the map. Where a step fails it is put back as it was before it; the step counts as rejected.
        learner: of which steps are pending.
        step: takes one, and carries the map to what it has found where that is worth it.
        budget_s: no step begins later than that, s.

    Returns:
        Whether there are more.
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
    return learner.pending >= 1.0
