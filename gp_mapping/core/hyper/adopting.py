"""How a map learns: steps, each of which takes effect whole or not at all, and what follows.

The map then takes over the hyper-parameters found, and tries again later where it could not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from time import perf_counter

import torch

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.transaction import Revertible, require_finite, transaction
from gp_mapping.errors import NumericalError

__all__ = ["Adopting", "go_on_with_kernel", "learn"]

# after a transfer has failed: samples, or change of θ (Theta.distance), until it is tried again
_LATER, _ELSEWHERE = 100, 0.05


class Adopting:
    """A map that adopts what its learner finds; a transfer that failed is not tried at each step.

    Attributes:
        failed: θ of the last transfer if it failed, and the samples then.
    """

    theta: Theta
    learner: HyperLearner | None
    samples: int
    failed: tuple[Theta, int] | None = None

    def promises(self, theta: Theta) -> bool:
        """Whether a transfer to θ may succeed: not if one has failed about there a moment ago."""
        if self.failed is None:
            return True
        there, samples = self.failed
        return self.samples >= samples + _LATER or theta.distance(there) > _ELSEWHERE

    def not_adopted(self, theta: Theta) -> bool:
        """Note and count a θ that the map could not take over; False."""
        self.failed = theta, self.samples
        self.count_rejected()
        return False

    def count_rejected(self) -> None:
        """Count a θ that the map could not take over."""
        if self.learner is not None:
            self.learner.rejected += 1

    # --- files ------------------------------------------------------------------------------------
    def saved_failure(self) -> dict:
        """Entries of a checkpoint: the last transfer if it failed."""
        if self.failed is None:
            return {}
        theta, samples = self.failed
        return {"failed": {"theta": asdict(theta), "samples": samples}}

    def restored_failure(self, state: dict) -> tuple[Theta, int] | None:
        """θ and samples of the transfer that had failed when the state was taken, or None."""
        kept = state.get("failed")
        return kept and (type(self.theta)(**kept["theta"]), int(kept["samples"]))


def go_on_with_kernel(learner: HyperLearner, theta: Theta) -> None:
    """Let a learner go on with another kernel.

    What is known of θ's numbers counts as about as much as before, until blocks are asked again.

    Args:
        learner: of the hyper-parameters.
        theta: with the kernel, and the numbers likeliest under it.
    """
    vector = learner.vector.clone()
    vector[:3] = theta.vector()[:3]
    learner.low = torch.minimum(learner.low, vector)
    learner.high = torch.maximum(learner.high, vector)
    learner.vector, learner.blocks = vector, None
    other = replace(learner.theta, kernel_name=theta.kernel_name)
    learner.theta = other.with_vector(learner.supported_vector())


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
