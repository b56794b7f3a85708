"""When a map tries again to take over hyper-parameters that it could not take over."""

from __future__ import annotations

from dataclasses import asdict

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta

__all__ = ["Adopting"]

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
