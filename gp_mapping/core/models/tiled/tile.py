"""One tile in memory: its map, the samples that it has still to take in, and its newest state."""

from __future__ import annotations

import math

import torch

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.stored import StoredState
from gp_mapping.core.transaction import Revertible

__all__ = ["Tile"]


class Tile(Revertible):
    """A map of some ground.

    Args:
        map_: of its core and halo.
        seeds: samples of its ground that its neighbours remembered and it has not taken in yet.
        forgot: logarithm of the product of the forgetting factors that were applied to it.
        touched: number of the update that needed it last.

    Attributes:
        evidence: of its samples for the passes' constants, as the others have it.
        evidence_samples: number of samples that it is of; −1: there is none yet.
        seen_version: version of all tiles' evidence that it was compared with last.
    """

    def __init__(
        self,
        map_: DualSVGP,
        seeds: tuple[DualSVGP, ...] = (),
        forgot: float = 0.0,
        touched: int = 0,
    ):
        self.map, self.seeds, self.forgot, self.touched = map_, seeds, forgot, touched
        self.evidence: PassEvidence | None = None
        self.evidence_samples, self.seen_version = -1, -1
        # whether θ is to be adopted, and of which θ and which step of the learner that was asked
        self._asked: tuple[bool, tuple, tuple] | None = None
        # the newest state, and the moment (see `_moment`) that it is of
        self._stored: tuple[StoredState, tuple] | None = None

    def absorb_seed(self) -> None:
        """Take in one slice of the waiting samples, unless a transfer to another θ is under way."""
        if not self.seeds or self.map.rebuild is not None:
            return

        seed, self.seeds = self.seeds[0], self.seeds[1:]
        # the slice was cut at the θ of its time
        if seed.theta != self.map.theta:
            seed = seed.excerpt(torch.arange(seed.samples, device=seed.device), self.map.theta)
        self.map.merge_same_robot(seed)

    def absorb_all_seeds(self) -> None:
        """Take in all waiting samples now."""
        self.map.finish_rebuild()
        while self.seeds:
            self.absorb_seed()

    def forget(self, forgot: float) -> None:
        """Apply what was forgotten and the tile has not seen yet, also to samples that wait for it.

        Args:
            forgot: logarithm of the product of all forgetting factors so far.
        """
        if forgot >= self.forgot:
            return
        factor = math.exp(forgot - self.forgot)
        for part in (self.map, *self.seeds):
            part.forget(factor)
        if self.evidence is not None:
            self.evidence = self.evidence.scale(factor)
        self.forgot = forgot

    def adopt_learned(self, learner: HyperLearner | None) -> None:
        """Adopt what was learned since the tile was needed last.

        Args:
            learner: of all tiles; None where nothing is learned.
        """
        # θ of an empty map is just set; a map that works in slices adopts it in `advance_transfer`
        if learner is not None and self._should_adopt(learner):
            if not self.map.started:
                self.map.theta = learner.theta
            elif not self.map.sliced:
                self.map.adopt_in_slices(learner.theta)

    def advance_transfer(self, learner: HyperLearner | None) -> bool:
        """Do a slice of a transfer to another θ: of the one under way, or to what was learned.

        Args:
            learner: of all tiles; None: only a transfer under way goes on.

        Returns:
            False where there was nothing to do.
        """
        if self.map.rebuild is not None:
            self.map.advance_rebuild()
            return True

        if learner is None or self.seeds or not self.map.started or not self._should_adopt(learner):
            return False
        # one that has just failed is not begun: another tile has its turn
        done = self.map.adopt_in_slices(learner.theta)
        return done or self.map.rebuild is not None

    def _should_adopt(self, learner: HyperLearner) -> bool:
        """As HyperLearner.should_adopt, asked once for each step of the learner: it takes long."""
        thetas = learner.theta, self.map.theta
        step = learner.vector, learner.metric, learner.turns, learner.blocks  # a step replaces them
        kept = self._asked
        if kept is None or kept[1] != thetas or any(a is not b for a, b in zip(step, kept[2])):
            kept = self._asked = learner.should_adopt(self.map.theta), thetas, step
        return kept[0]

    def abandon_transfer(self) -> None:
        """Give up a transfer that is under way, until the tile is needed again."""
        self.map.rebuild = None

    def stored(self, name: str) -> StoredState:
        """The tile's state, as the same object as long as nothing has changed: it is written once.

        Args:
            name: of the state.
        """
        now = self._moment()
        if self._stored is None or self._stored[1] != now:
            state = {
                "map": self.map.state_dict(),
                "forgot": self.forgot,
                "seeds": [seed.state_dict() for seed in self.seeds],
                "evidence": None if self.evidence is None else self.evidence.state_dict(),
                "told": self.evidence_samples,
            }
            self._stored = StoredState(name, state), now
        return self._stored[0]

    def restore_evidence(self, state: dict, forgot: float) -> None:
        """Take the evidence from its state; a state of before tiles had any has none.

        Args:
            state: by `stored`.
            forgot: as in the tile.
        """
        evidence = state.get("evidence")
        if evidence is not None:
            self.evidence = PassEvidence.from_state_dict(evidence, self.map.device).scale(
                math.exp(forgot - state["forgot"])
            )
        self.evidence_samples = state.get("told", -1)

    def mark_stored(self, stored: StoredState) -> None:
        """Note that the tile was made from that state just now."""
        self._stored = stored, self._moment()

    def _moment(self) -> tuple:
        """A value that differs wherever the state does.

        Each change of a map adds samples, or changes its epoch or its θ.
        """
        under_way = None if self.map.rebuild is None else self.map.rebuild.moment
        return (
            self.map.epoch,
            self.map.samples,
            self.map.theta,
            self.forgot,
            len(self.seeds),
            under_way,
            self.evidence_samples,
        )
