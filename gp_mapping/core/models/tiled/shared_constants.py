"""The constants of passes, which all tiles share: each tells the others what its samples say.

    from a tile       its samples' likelihood of the constants, its field integrated out
                      (core/sparse/pass_evidence.py), to the power of the fraction of its ground
                      that is its core: a sample of a halo is in several tiles
    to a tile         the product of the others', the nearest first, as long as these are of no more
                      than twice `max_biases` passes: in the place of the constants' prior
    on the shelf      the product of the tiles there, one likelihood of at most `max_biases` passes:
                      beyond, the oldest are integrated out

A tile tells the differences between the constants of its passes, not their common level, which
cannot be told from the field's own constant: that is the same in all tiles. Otherwise the fields of
different tiles count as independent.

With each ten samples, or each update, one tile at most tells and is told:
one that the robot has left, or that has _TOLD more samples, else one whose neighbours have told
something. It is told what changes the prior of its constants by _SAME nats or more.
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

__all__ = ["Said", "put_on_shelf", "said_by", "settle", "share", "take_from_shelf"]

_EACH = 10  # samples, with which one tile has its turn
_TOLD = 100  # samples after which a tile where the robot is tells the others anew
_SHARES = 2  # times max_biases: passes of which a tile is told at most
_SAME = 0.02  # nats between the priors before and after, below which a tile keeps its own
_AWAY = 0.5  # the same for tiles on the shelf, which are drawn anew all together


def share(model, stack: ExitStack, new: int) -> None:
    """Let a tile tell, or be told, where any has a reason to.

    Args:
        model: the map of tiles, in a transaction.
        stack: of that transaction, which the tile joins.
        new: number of samples that have just come; of many, several tiles have their turn.
    """
    turns = math.ceil(new / _EACH)
    if model.former is not None or model.current_map.theta.bias_stddev <= 0:
        return

    for key in sorted(model.tiles, key=lambda k: (k != model.current, model.tiles[k].heard, k)):
        tile = model.tiles[key]
        if not tile.map.started or tile.seeds:
            continue
        more = tile.map.samples - max(tile.told, 0)
        anew = tile.told < 0 or more >= _TOLD or (more > 0 and tile.touched < model.turn)
        if anew or tile.heard != model.evidence_version:
            stack.enter_context(transaction(tile))
            turns -= _exchange(model, key, tile, anew)
            if turns <= 0:
                return


def settle(model) -> None:
    """Let all tiles in memory tell, and then be told."""
    if model.layout is None or model.current_map.theta.bias_stddev <= 0:
        return
    ready = [(k, t) for k, t in sorted(model.tiles.items()) if t.map.started and not t.seeds]
    for tell in (True, False):
        for key, tile in ready:
            if tile.told != tile.map.samples or not tell:
                _exchange(model, key, tile, tell)
    model.copies.clear()


def _exchange(model, key: Key, tile: Tile, anew: bool) -> bool:
    """One tile tells what it knows, where `anew`, and is told what it does not know.

    Returns:
        Whether that took more than a look.
    """
    tile.heard = model.evidence_version
    if anew:
        _note_evidence(model, key, tile)
        tile.heard = model.evidence_version

    said = said_by(model)
    changed = _tell(tile.map, said.others(key))
    if changed:
        model.note_change(key)

    # of those on the shelf, what they are told near the robot
    if said.shelved is not None:
        now = said.others(model.current, with_own=True)
        if _differs(model.announced, now, said.shelved.numbers, tile.map, _AWAY):
            model.announced = now
            model.copies.clear()
            model.note_change()
    return anew or changed


def _note_evidence(model, key: Key, tile: Tile) -> None:
    """Find out what a tile's samples say of the constants, where that is not known yet."""
    if tile.told == tile.map.samples or not tile.map.started:
        return

    own = tile.map.posterior.pass_evidence()
    if own is None or len(own) < 2:
        tile.evidence = None
    else:
        tile.evidence = own.of_differences().scale(model.layout.core_fraction(key))
    tile.told = tile.map.samples
    model.evidence_version += 1


@dataclass(frozen=True)
class Said:
    """What all tiles say of the constants at one moment.

    Attributes:
        tiles: of each tile in memory that says anything.
        shelved: of those on the shelf together; None: nothing.
        most: passes beyond which a tile is told no more.
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
        """What a tile is told: by the nearest others first, until there are enough passes.

        What is left out is information that is not used; what is told is right without it.

        Args:
            key: of the tile.
            own: what it says itself, where it is on the shelf.
            on_shelf: whether it is there: then those on the shelf come first, else last.
            with_own: whether what it says itself in memory is counted, too.

        Returns:
            The product of what they say; None where nobody says anything.
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
        """Tell a copy of a shelved tile what all others say.

        Args:
            key: of the tile.
            copy: its map.
            state: of the tile.
        """
        own = state.get("evidence")
        if copy.started:
            own = None if own is None else PassEvidence.from_state_dict(own, copy.device)
            _tell(copy, self.others(key, own, on_shelf=True))


def said_by(model) -> Said:
    """What the tiles of a map say now."""
    return Said(
        {key: t.evidence for key, t in model.tiles.items() if t.evidence is not None},
        model.shelved_evidence,
        _SHARES * model.current_map.max_biases,
        model.current_map.theta.bias_stddev**2,
    )


def put_on_shelf(model, key: Key, tile: Tile) -> None:
    """Keep what a tile says of the constants while it is on the shelf.

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


def take_from_shelf(model, tile: Tile) -> None:
    """Count what a tile says of the constants as its own again."""
    if tile.evidence is None or model.shelved_evidence is None:
        return
    model.shelved_evidence = model.shelved_evidence.without(
        tile.evidence, model.current_map.theta.bias_stddev**2
    )


def _tell(tile_map: DualSVGP, others: PassEvidence | None) -> bool:
    """Tell a tile's map what all others say, where that differs from what it was told."""
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
