"""`gp-mapping check`: the maps behind the report, made from samples that were read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from gp_mapping.analysis.changed import ChangeFollower, at_changes, change_as_dict
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
    "split_passes",
    "ways_to_refit",
]

# names of ways_to_refit, and words for a person
REFITS = {
    "without_offset": "time offset held at 0",
    "without_heading": "nothing that turns with the robot",
    "without_both": "neither of the two",
    "without_bias": "no bias of a pass",
    "with_lever_arm": "lever arm learned too",
}
_SHARE = 0.7  # fraction of a single recording that maps; the rest tests
_NEAR = 0.1  # a boundary between passes this near to that fraction is preferred to a cut
_ENOUGH = 50  # samples on either side


def split_passes(parts) -> list[Samples]:
    """Return passes from the stream of (begins a new pass, samples)."""
    passes: list[list[Samples]] = []
    for new_pass, samples in parts:
        if new_pass or not passes:
            passes.append([])
        passes[-1].append(samples)
    return [Samples.concatenate(p) for p in passes]


def split(
    passes: list[Samples], dropped: Sequence[str] = ()
) -> tuple[list[Samples], list[Samples], str]:
    """Split passes into those that map and those that test.

    Args:
        passes: of the measurements that could be used.
        dropped: why others could not, which a person reads where these are too few.

    Returns:
        The former, the latter, and in words how they were divided.

    Raises:
        UsageError: there is too little.
    """
    sizes = np.array([len(p) for p in passes])
    total, ends = int(sizes.sum()), np.cumsum(sizes)
    if total < 2 * _ENOUGH:
        raise UsageError(
            f"only {total} measurements could be used: too few to map with one part and test on another; "
            + "; ".join([*dropped, "give a longer recording, or a second one with --against"])
        )

    # The boundary between passes that is nearest to the fraction, if it is near enough; else a cut.
    boundary = int(np.abs(ends[:-1] / total - _SHARE).argmin()) if len(passes) > 1 else -1
    if boundary >= 0 and abs(ends[boundary] / total - _SHARE) <= _NEAR:
        words = f"passes 1 to {boundary + 1} of {len(passes)} map, the others test"
        return passes[: boundary + 1], passes[boundary + 1 :], words

    cut = round(_SHARE * total)
    cut_pass = int(np.searchsorted(ends, cut, side="right"))
    inside = cut - (int(ends[cut_pass - 1]) if cut_pass else 0)

    first = passes[:cut_pass] + ([passes[cut_pass][:inside]] if inside else [])
    words = f"the first {100 * _SHARE:.0f} % maps, the rest tests (no --against was given)"
    return first, [passes[cut_pass][inside:], *passes[cut_pass + 1 :]], words


def fit(passes: list[Samples], settings: MapSettings) -> MapSession:
    """Map each pass in turn, as `gp-mapping map` does.

    Args:
        passes: each in order of time.
        settings: of the map.
    """
    session = MapSession(settings)
    for samples in passes:
        session.break_pass()
        session.ingest(samples)
    session.break_pass()
    session.flush()  # a map that begins again has caught up
    return session


def positions(passes: list[Samples]) -> np.ndarray:
    """Return all positions (N, 2), m."""
    return torch.cat([p.x for p in passes]).numpy()


def rmse_of(train: list[Samples], test: list[Samples], settings: MapSettings) -> float:
    """Return the test RMSE of a map with these settings, display unit.

    Args:
        train: passes that map.
        test: passes that test.
        settings: of the map.
    """
    return residuals(fit(train, settings), test, positions(train)).summary()["rmse_ut"]


def ways_to_refit(settings: MapSettings, biased: bool = False) -> dict[str, MapSettings]:
    """Return settings of maps to compare with, by name.

    Without a time offset, without a body-fixed field, without both, or with a learned lever arm.
    Only what the settings have is left out, and a lever arm is tried where it is not learned
    already.

    Args:
        settings: of the map that is checked.
        biased: try a map without constants of passes, too.
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
    """Return changes of the field that a copy of the finished map finds along the test passes.

    Args:
        session: the map, which stays as it is.
        test: passes, each in order of time.

    Returns:
        As ChangeFollower.changes.
    """
    follower = ChangeFollower(session)
    for samples in test:
        follower.add(samples, new_pass=True)
    return follower.changes()


def changes_of(session: MapSession) -> list[dict]:
    """Return the changes that were found while mapping."""
    return [change_as_dict(c, session.settings.field_scale) for c in session.changes]


def quality(found: Residuals, changes: list[dict]) -> dict:
    """Return the summary of residuals, and where the squared error lies.

    square_beyond is its fraction beyond 10 cm of the training path. With changes, `changed` and
    `unchanged` are the summaries at their places and elsewhere.

    Args:
        found: of the test.
        changes: that the test found.
    """
    square, by_change = found.error**2, {}
    if changes:
        in_changed_place = at_changes(found.x, changes)
        by_change = {
            name: found.part(mask).summary()
            for name, mask in (("changed", in_changed_place), ("unchanged", ~in_changed_place))
            if mask.any()
        }

    beyond = float(square[found.distance >= 0.1].sum() / max(square.sum(), 1e-300))
    return by_change | found.summary() | {"square_beyond": beyond}
