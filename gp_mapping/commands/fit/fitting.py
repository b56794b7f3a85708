"""A streamed map's hyper-parameters from all of its cells at once, and the map of the same samples at these."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.types import Samples
from gp_mapping.mapping.refit import learning_on, settings_at
from gp_mapping.mapping.session import MapSession
from gp_mapping.offline.anytime_limit import iterations_to_the_limit
from gp_mapping.offline.fit import Fit, fit_theta, joined
from gp_mapping.store.sessions import new_session
from gp_mapping.store.tile_room import TileRoom

__all__ = ["Refitted", "refitted"]

_SLOPE = 0.01  # lengthscales: of the difference by which the field's slope is found


@dataclass(frozen=True)
class Refitted:
    """session: the map at the θ that was found, which learns on from there.  before, after: hyper-parameters, SI.

    seconds: that the fit took.  limit: offline.anytime_limit's, of the anytime family.
    """

    session: MapSession
    fit: Fit
    before: dict[str, float]
    after: dict[str, float]
    seconds: float
    limit: dict | None


def refitted(
    streamed: MapSession,
    repeat: Callable[[MapSession], None],
    folder: Path | None = None,
    *,
    most: int = 60,
    tolerance: float = 0.05,
    told: Callable[[str, float], None] = lambda what, value: None,
) -> Refitted:
    """Fit, and map again.

    Args:
        streamed: a session that has kept its cells (`taken`).
        repeat: lets a new session take in the same samples.
        folder: in which tiles are while nobody needs them; the system's temporary one if None.
        most, tolerance, told: fit_theta's.
    """
    started, before = time.perf_counter(), streamed.map.hyperparameters()
    parts, settings = still_so(streamed), streamed.started_settings
    found = fit_theta(
        settings, before, parts, slope=slope_of(streamed), most=most, tolerance=tolerance, told=told
    )
    seconds = time.perf_counter() - started

    after = said(found.theta, before, settings.field_scale)
    settled = new_session(settings_at(settings, after), folder)
    repeat(settled)
    limit = iterations_to_the_limit(settings, found.theta, joined(parts), settled.inducing)
    return Refitted(
        learning_on(settled, streamed, found.learner, TileRoom(folder)),
        found,
        before,
        after,
        seconds,
        limit,
    )


def still_so(session: MapSession) -> list[Samples]:
    """The cells that the map has taken, but for those about a place that has changed since."""
    parts, reach = session.taken or [], session.map.hyperparameters()["lengthscale"]
    recent = round(session.settings.score_distance / session.settings.cell_length)
    for change in session.changes:
        place = torch.tensor([[change.x, change.y]], dtype=torch.float64)
        before = [
            i
            for i, part in enumerate(parts)
            if part.stamp is not None and float(part.stamp[-1]) <= change.stamp
        ]
        gone = {
            i
            for i in before[: len(before) - recent]
            if float(torch.cdist(parts[i].x, place).min()) <= reach
        }
        parts = [part for i, part in enumerate(parts) if i not in gone]
    return parts


def slope_of(session: MapSession):
    """|∇f|² of the session's map at x (N, 2): (N,), SI per m, squared, mean over channels."""

    def slope(x: Tensor) -> Tensor:
        step = _SLOPE * session.map.hyperparameters()["lengthscale"]
        total = torch.zeros(len(x), dtype=torch.float64)
        for axis in torch.eye(2, dtype=torch.float64) * step:
            ahead, behind = (
                session.map.predict(x + sign * axis).mean.cpu() for sign in (1.0, -1.0)
            )
            total += ((ahead - behind) / (2 * step)).square().mean(1)
        return total

    return slope


def said(theta: Theta, told: dict[str, float], scale: float) -> dict[str, float]:
    """θ as a map tells it: SI."""
    return {
        name: getattr(theta, name) * (scale if name.endswith("stddev") else 1.0) for name in told
    }
