"""Evidence of the tiles of a fleet's map for the constants of passes, and its product.

As in a map of one process (core/models/tiled/shared_constants.py): each tile has evidence for the
differences between the constants, the evidence of all is multiplied as a tree, and a tile gets the
product without its own. The spread s_b of the constants is that of the product.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.bias import BiasSpread
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.fleet.agreed import Agreed
from gp_mapping.fleet.sums import Tile, TileSums
from gp_mapping.fleet.tiles import map_of

__all__ = ["evidence_of", "evidence_to_keep", "joined_evidence", "spread_of", "with_spread"]

_MOST = 1000  # passes whose constants are told apart while evidence is joined


@torch.no_grad()
def evidence_of(tile: Tile, sums: TileSums, z: Tensor, agreed: Agreed) -> PassEvidence | None:
    """Evidence of a tile's samples for the constants; None with fewer than two passes.

    Args:
        tile: the tile.
        sums: of all bags.
        z: (M, 2) its inducing inputs, inner.
        agreed: by all bags.
    """
    if agreed.theta.bias_stddev <= 0 or len(sums.sites.passes) < 2:
        return None

    # the map without remembered cells, with the constants of more passes than a map keeps apart
    bare = replace(sums, kept=sums.kept[:0], keys=sums.keys[:0])
    settings = replace(agreed.settings, max_biases=_MOST)
    evidence = map_of(bare, z, replace(agreed, settings=settings)).posterior.pass_evidence()

    if evidence is None or len(evidence) < 2:
        return None
    if tile.layout is None:
        return evidence
    # no tile knows the common level, and a sample of a halo is in several tiles
    return evidence.of_differences().scale(tile.layout.core_fraction(tile.key))


def joined_evidence(
    first: PassEvidence | None, second: PassEvidence | None, variance: float
) -> PassEvidence | None:
    """The evidence of two sets of tiles together, of so many passes.

    Args:
        first: of the one set; None where it has none.
        second: of the other.
        variance: s_b² at which the oldest of more passes are integrated out.
    """
    parts = tuple(part for part in (first, second) if part is not None)
    product = PassEvidence.product(parts)
    return None if product is None else product.of_newest(_MOST, variance)


def spread_of(evidence: PassEvidence | None, agreed: Agreed) -> BiasSpread | None:
    """How much the constants differ; None where that is not learned, or there is no evidence."""
    if evidence is None or not agreed.settings.learns_bias:
        return None
    start = make_theta_and_learner(agreed.settings)[0].bias_stddev
    return evidence.spread(start, segments=True)


def evidence_to_keep(evidence: PassEvidence | None, agreed: Agreed) -> PassEvidence | None:
    """The part of all evidence that the map keeps: of the newest `max_biases` passes.

    Args:
        evidence: of all tiles.
        agreed: by all bags, with s_b.
    """
    if evidence is None:
        return None
    return evidence.of_newest(agreed.settings.max_biases, agreed.theta.bias_stddev**2)


def with_spread(agreed: Agreed, spread: BiasSpread | None) -> Agreed:
    """What is agreed on, with the s_b that was found; as before where none was."""
    if spread is None:
        return agreed
    found = {"bias_stddev": spread.stddev, "bias_correlation": spread.correlation}
    return replace(agreed, theta=replace(agreed.theta, **found))
