"""`gp-mapping check`: the maps behind the report, made from samples that were read once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gp_mapping.analysis.changed import ChangeFollower, at_changes, plain
from gp_mapping.analysis.residuals import Residuals, residuals
from gp_mapping.core.types import Samples
from gp_mapping.errors import UsageError
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = [
    "REFITS",
    "changes_along",
    "changes_of",
    "fit",
    "positions",
    "quality",
    "rmse_of",
    "split",
    "ways_to_refit",
    "whole",
]

# names of ways_to_refit, and words for a person
REFITS = {
    "without_offset": "time offset held at 0",
    "without_heading": "nothing that turns with the robot",
    "without_both": "neither of the two",
    "without_bias": "no bias of a pass",
    "with_lever_arm": "lever arm learned too",
}
_SHARE = 0.7  # of a lone recording maps, the rest tests
_NEAR = 0.1  # a boundary between passes this near to the share is preferred to a cut through one
_ENOUGH = 50  # samples on either side


def whole(parts) -> list[Samples]:
    """Passes from the stream of (begins a new pass, samples)."""
    passes: list[list[Samples]] = []
    for new_pass, samples in parts:
        if new_pass or not passes:
            passes.append([])
        passes[-1].append(samples)
    return [Samples.concatenate(p) for p in passes]


def split(passes: list[Samples]) -> tuple[list[Samples], list[Samples], str]:
    """Those that map, those that test, and how they were told apart. UsageError where there is too little."""
    sizes = np.array([len(p) for p in passes])
    total, ends = int(sizes.sum()), np.cumsum(sizes)
    if total < 2 * _ENOUGH:
        raise UsageError(
            f"only {total} measurements: too few to map with one part and test on another; give a longer "
            "recording, or a second one with --against"
        )
    at = int(np.abs(ends[:-1] / total - _SHARE).argmin()) if len(passes) > 1 else -1
    if at >= 0 and abs(ends[at] / total - _SHARE) <= _NEAR:
        words = f"passes 1 to {at + 1} of {len(passes)} map, the others test"
        return passes[: at + 1], passes[at + 1 :], words
    cut = round(_SHARE * total)
    k = int(np.searchsorted(ends, cut, side="right"))
    inside = cut - (int(ends[k - 1]) if k else 0)
    first = passes[:k] + ([passes[k][:inside]] if inside else [])
    words = f"the first {100 * _SHARE:.0f} % maps, the rest tests (no --against was given)"
    return first, [passes[k][inside:], *passes[k + 1 :]], words


def fit(passes: list[Samples], settings: MapSettings) -> MapSession:
    """Each pass in turn, as `gp-mapping map` does."""
    session = MapSession(settings)
    for samples in passes:
        session.break_pass()
        session.ingest(samples)
    session.break_pass()
    return session


def positions(passes: list[Samples]) -> np.ndarray:
    """(N, 2) m."""
    return torch.cat([p.x for p in passes]).numpy()


def rmse_of(train: list[Samples], test: list[Samples], settings: MapSettings) -> float:
    """RMSE on the test of a map with these settings, in the unit that is displayed."""
    return residuals(fit(train, settings), test, positions(train)).summary()["rmse_ut"]


def ways_to_refit(settings: MapSettings, biased: bool = False) -> dict[str, MapSettings]:
    """Maps to compare with: no time offset, no part that turns, neither, or a learned lever arm.

    biased: no constants of passes, too.

    Only what the settings have is left out, and a lever arm is tried where it is not learned already.
    """
    ways: dict[str, dict] = {}
    if settings.learn_time_offset or settings.time_offset:
        ways["without_offset"] = {"learn_time_offset": False, "time_offset": 0.0}
    if settings.heading_stddev > 0:
        ways["without_heading"] = {"heading_stddev": 0.0}
    if len(ways) == 2:
        ways["without_both"] = ways["without_offset"] | ways["without_heading"]
    if biased and settings.learns_bias:
        ways["without_bias"] = {"learn_bias": False, "bias_stddev": 0.0}
    if not settings.learn_lever_arm:
        ways["with_lever_arm"] = {"learn_lever_arm": True}
    return {name: replace(settings, **change) for name, change in ways.items()}


def changes_along(session: MapSession, test: list[Samples]) -> list[dict]:
    """Changes of the field that the finished map finds as it goes on through the test passes; it is not kept."""
    follower = ChangeFollower(session)
    for samples in test:
        follower.add(samples, new_pass=True)
    return follower.found()


def changes_of(session: MapSession) -> list[dict]:
    """Those found while mapping."""
    return [plain(c, session.settings.field_scale) for c in session.changes]


def quality(found: Residuals, changes: list[dict]) -> dict:
    """The summary, and where the squared error lies: share of it beyond 10 cm of the training path.

    With changes that the test found, `changed` and `unchanged` too: the summary at their places, and elsewhere.
    """
    square, apart = found.error**2, {}
    if changes:
        at = at_changes(found.x, changes)
        apart = {
            name: found.part(there).summary()
            for name, there in (("changed", at), ("unchanged", ~at))
            if there.any()
        }
    beyond = float(square[found.distance >= 0.1].sum() / max(square.sum(), 1e-300))
    return apart | found.summary() | {"square_beyond": beyond}
