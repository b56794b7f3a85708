"""The constants of passes, which all tiles share: each gives the others its evidence for them.

    from a tile       its samples' likelihood of the constants, its field integrated out
                      (core/sparse/pass_evidence.py), to the power of the fraction of its ground
                      that is its core: a sample of a halo is in several tiles
    to a tile         the product of the others', the nearest first, as long as these are of no more
                      than twice `max_biases` passes: in the place of the constants' prior
    on the shelf      the product of the tiles there, one likelihood of at most `max_biases` passes:
                      beyond, the oldest are integrated out

As in expectation propagation, a tile's evidence is its message, and the product of the others' is
its cavity prior. The evidence is of the differences between the constants of a tile's passes, not
of their common level, which its samples cannot separate from the field's own constant: that is the
same in all tiles. Otherwise the fields of different tiles count as independent.

With each ten samples, or each update, one tile at most renews its evidence and its prior:
one that the robot has left, or that has _RENEWED more samples, else one whose neighbours have
renewed theirs. It adopts a prior that differs from its own by _SAME nats or more.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass

from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.models.tiled.layout import Key
from gp_mapping.core.models.tiled.tile import Tile
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.transaction import transaction

__all__ = [
    "SharedEvidence",
    "exchange_all",
    "exchange_due",
    "shared_evidence",
    "shelve_evidence",
    "unshelve_evidence",
]

_EACH = 10  # samples, with which one tile has its turn
_RENEWED = 100  # samples after which a tile where the robot is renews its evidence
_PASSES = 2  # times max_biases: passes in the evidence that a tile is given, at most
_SAME = 0.02  # nats between the priors before and after, below which a tile keeps its own
_AWAY = 0.5  # the same for tiles on the shelf, which are drawn anew all together


def exchange_due(model, stack: ExitStack, new: int) -> None:
    """Let one tile renew its evidence and its prior, where any has a reason to.

    Args:
        model: the map of tiles, in a transaction.
        stack: of that transaction, which the tile joins.
        new: number of samples that have just come; of many, several tiles have their turn.
    """
    turns = math.ceil(new / _EACH)
    if model.former is not None or model.current_map.theta.bias_stddev <= 0:
        return

    for key in sorted(
        model.tiles, key=lambda k: (k != model.current, model.tiles[k].seen_version, k)
    ):
        tile = model.tiles[key]
        if not tile.map.started or tile.seeds:
            continue
        more = tile.map.samples - max(tile.evidence_samples, 0)
        anew = (
            tile.evidence_samples < 0
            or more >= _RENEWED
            or (more > 0 and tile.touched < model.turn)
        )
        if anew or tile.seen_version != model.evidence_version:
            stack.enter_context(transaction(tile))
            turns -= _exchange(model, key, tile, anew)
            if turns <= 0:
                return


def exchange_all(model) -> None:
    """Let all tiles in memory renew their evidence, and then their priors."""
    if model.layout is None or model.current_map.theta.bias_stddev <= 0:
        return
    ready = [(k, t) for k, t in sorted(model.tiles.items()) if t.map.started and not t.seeds]
    for anew in (True, False):
        for key, tile in ready:
            if tile.evidence_samples != tile.map.samples or not anew:
                _exchange(model, key, tile, anew)
    model.copies.clear()


def _exchange(model, key: Key, tile: Tile, anew: bool) -> bool:
    """Renew the evidence of a tile, where `anew`, and then its prior.

    Returns:
        Whether that took more than a look.
    """
    tile.seen_version = model.evidence_version
    if anew:
        _note_evidence(model, key, tile)
        tile.seen_version = model.evidence_version

    shared = shared_evidence(model)
    changed = _adopt(tile.map, shared.others(key))
    if changed:
        model.note_change(key)

    # the prior of those on the shelf, as near the robot
    if shared.shelved is not None:
        now = shared.others(model.current, with_own=True)
        if _differs(model.shelf_prior, now, shared.shelved.numbers, tile.map, _AWAY):
            model.shelf_prior = now
            model.copies.clear()
            model.note_change()
    return anew or changed


def _note_evidence(model, key: Key, tile: Tile) -> None:
    """Compute a tile's evidence for the constants, where it has more samples than that is of."""
    if tile.evidence_samples == tile.map.samples or not tile.map.started:
        return

    own = tile.map.joint_posterior.pass_evidence()
    if own is None or len(own) < 2:
        tile.evidence = None
    else:
        tile.evidence = own.of_differences().scale(model.layout.core_fraction(key))
    tile.evidence_samples = tile.map.samples
    model.evidence_version += 1


@dataclass(frozen=True)
class SharedEvidence:
    """The evidence of all tiles for the constants at one moment.

    Attributes:
        tiles: of each tile in memory that has any.
        shelved: of those on the shelf together; None: nothing.
        most: passes beyond which a tile is given no more.
        variance: s_b².
    """

    tiles: dict[Key, PassEvidence]
    shelved: PassEvidence | None
    most: int
    variance: float

    def others(
        self,
        key: Key,
        own: PassEvidence | None = None,
        on_shelf: bool = False,
        with_own: bool = False,
    ) -> PassEvidence | None:
        """The evidence of all other tiles, the nearest first, until there are enough passes.

        What is left out is information that is not used; what is given is right without it.

        Args:
            key: of the tile.
            own: its own evidence, where it is on the shelf.
            on_shelf: whether it is there: then those on the shelf come first, else last.
            with_own: whether its own evidence in memory is counted, too.

        Returns:
            Their product; None where there is none.
        """
        near = sorted(self.tiles, key=lambda k: (max(abs(k[0] - key[0]), abs(k[1] - key[1])), k))
        order = [self.tiles[other] for other in near if other != key or with_own]
        if self.shelved is not None:
            shelved = self.shelved if own is None else self.shelved.without(own, self.variance)
            order.insert(0 if on_shelf else len(order), shelved)

        parts, numbers = [], set()
        for part in order:
            numbers |= set(part.numbers)
            if len(numbers) > self.most:
                break
            parts.append(part)
        return PassEvidence.product(tuple(parts))

    def prepare(self, key: Key, copy: DualSVGP, state: dict) -> None:
        """Give a copy of a shelved tile the evidence of all others.

        Args:
            key: of the tile.
            copy: its map.
            state: of the tile.
        """
        own = state.get("evidence")
        if copy.started:
            own = None if own is None else PassEvidence.from_state_dict(own, copy.device)
            _adopt(copy, self.others(key, own, on_shelf=True))


def shared_evidence(model) -> SharedEvidence:
    """The evidence of the tiles of a map as of now."""
    return SharedEvidence(
        {key: t.evidence for key, t in model.tiles.items() if t.evidence is not None},
        model.shelved_evidence,
        _PASSES * model.current_map.max_biases,
        model.current_map.theta.bias_stddev**2,
    )


def shelve_evidence(model, key: Key, tile: Tile) -> None:
    """Keep a tile's evidence for the constants while it is on the shelf.

    Args:
        model: the map of tiles, without the tile.
        key: of the tile.
        tile: with its map.
    """
    if tile.map.theta.bias_stddev > 0:
        _note_evidence(model, key, tile)
    if tile.evidence is None:
        return
    kept = model.shelved_evidence
    kept = tile.evidence if kept is None else kept.plus(tile.evidence)

    used = {n for t in model.tiles.values() if t.evidence is not None for n in t.evidence.numbers}
    model.shelved_evidence = kept.of_newest(
        model.current_map.max_biases, model.current_map.theta.bias_stddev**2, used
    )


def unshelve_evidence(model, tile: Tile) -> None:
    """Count a tile's evidence for the constants as its own again."""
    if tile.evidence is None or model.shelved_evidence is None:
        return
    model.shelved_evidence = model.shelved_evidence.without(
        tile.evidence, model.current_map.theta.bias_stddev**2
    )


def _adopt(tile_map: DualSVGP, others: PassEvidence | None) -> bool:
    """Give a tile's map the evidence of all others, where it differs from what the map has."""
    passes = tile_map.sites.passes
    if others is None or not len(passes):
        return False
    if not _differs(passes.elsewhere, others, passes.numbers, tile_map, _SAME):
        return False
    tile_map.adopt_pass_evidence(others)
    return True


def _differs(
    before: PassEvidence | None,
    after: PassEvidence,
    numbers: tuple[float, ...],
    tile_map: DualSVGP,
    least: float,
) -> bool:
    """Whether the prior of some passes' constants differs by so many nats."""
    before = after.scale(0.0) if before is None else before
    theta = tile_map.theta
    return after.divergence(before, numbers, theta.bias_stddev**2, theta.bias_correlation) >= least
