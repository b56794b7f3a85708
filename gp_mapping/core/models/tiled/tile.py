"""One tile at hand: its map, what it has still to take in, and what it was when it was last written."""

from __future__ import annotations

import math

import torch

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.stored import StoredState
from gp_mapping.core.transaction import Revertible

__all__ = ["Tile"]


class Tile(Revertible):
    """A map of some ground.

    seeds: what its neighbours remembered of its ground and it has not taken in yet.  forgot: log of what has been
    forgotten of it.  touched: number of the update that needed it last.
    """

    def __init__(
        self,
        map_: DualSVGP,
        seeds: tuple[DualSVGP, ...] = (),
        forgot: float = 0.0,
        touched: int = 0,
    ):
        self.map, self.seeds, self.forgot, self.touched = map_, seeds, forgot, touched
        self._stored: tuple[StoredState, tuple] | None = None  # the newest state, and of when it is

    def sow(self) -> None:
        """Take in one slice of what the neighbours remembered; not while the map is being carried to another θ."""
        if not self.seeds or self.map.rebuild is not None:
            return
        seed, self.seeds = self.seeds[0], self.seeds[1:]
        if seed.theta != self.map.theta:
            seed = seed.excerpt(torch.arange(seed.samples, device=seed.device), self.map.theta)
        self.map.merge_own(seed)

    def sow_all(self) -> None:
        """Take in all of it, now."""
        self.map.finish()
        while self.seeds:
            self.sow()

    def catch_up(self, forgot: float, learner: HyperLearner | None) -> None:
        """What was forgotten, and learned, since the tile was needed last."""
        if forgot < self.forgot:
            self.map.forget(math.exp(forgot - self.forgot))
            self.forgot = forgot
        if learner is not None and learner.left(self.map.theta):
            if not self.map.started:
                self.map.theta = learner.theta
            elif not self.map.sliced:
                self.map.adopt(learner.theta)

    def go_on(self, learner: HyperLearner | None) -> bool:
        """A slice of what the map is being carried to, or of carrying it to what was learned; False: nothing to do."""
        if self.map.rebuild is not None:
            self.map.go_on()
            return True
        if (
            learner is None
            or self.seeds
            or not self.map.started
            or not learner.left(self.map.theta)
        ):
            return False
        self.map.adopt_in_slices(learner.theta)
        return True

    def rest(self) -> None:
        """Nobody needs it for now: what is under way is given up, and begins again when somebody does."""
        self.map.rebuild = None

    def stored(self, name: str) -> StoredState:
        """Its state now: the same object as long as nothing has changed, so that nobody writes it twice."""
        now = self._moment()
        if self._stored is None or self._stored[1] != now:
            state = {
                "map": self.map.state_dict(),
                "forgot": self.forgot,
                "seeds": [seed.state_dict() for seed in self.seeds],
            }
            self._stored = StoredState(name, state), now
        return self._stored[0]

    def is_as(self, stored: StoredState) -> None:
        """It was made from that state just now."""
        self._stored = stored, self._moment()

    def _moment(self) -> tuple:
        """Differs wherever the state does: each change of a map adds samples, moves its epoch or its θ."""
        under_way = None if self.map.rebuild is None else self.map.rebuild.moment
        return (
            self.map.epoch,
            self.map.samples,
            self.map.theta,
            self.forgot,
            len(self.seeds),
            under_way,
        )
