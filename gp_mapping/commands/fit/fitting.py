"""Fit hyper-parameters to all cells of a streamed map, and map the same samples at these."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.types import Samples
from gp_mapping.mapping.refit import resume_learning, settings_fixed_at
from gp_mapping.mapping.session import MapSession
from gp_mapping.offline.anytime_limit import iterations_to_the_limit
from gp_mapping.offline.fit import Fit, fit_theta, join_batches
from gp_mapping.store.scratch.tile_room import TileRoom
from gp_mapping.store.sessions import new_session

__all__ = ["Refit", "fit_and_map"]

_SLOPE = 0.01  # lengthscales, step h of the central difference that gives the field's slope


@dataclass(frozen=True)
class Refit:
    """A fit, and the map at the θ that it found.

    Attributes:
        session: the map at that θ, which learns on from there.
        fit: what was found.
        before: hyper-parameters that the streamed map had learned, SI.
        after: hyper-parameters that were found, SI.
        seconds: duration of the fit.
        limit: what offline.anytime_limit found; None but for the anytime family.
    """

    session: MapSession
    fit: Fit
    before: dict[str, float]
    after: dict[str, float]
    seconds: float
    limit: dict | None


def fit_and_map(
    streamed: MapSession,
    repeat: Callable[[MapSession], None],
    folder: Path | None = None,
    *,
    most: int = 60,
    tolerance: float = 0.05,
    progress: Callable[[str, float], None] = lambda what, value: None,
) -> Refit:
    """Fit θ to all cells of a session, and map the same samples at it.

    Args:
        streamed: a session that has kept its cells (`taken`).
        repeat: makes a new session take in the same samples.
        folder: where tiles are put that are not needed in memory; None: the system's temporary one.
        most: iterations of a step at most, as in fit_theta.
        tolerance: nats; a step ends where an iteration gains less, as in fit_theta.
        progress: called after each iteration with what is raised and its value, nats.
    """
    started, before = time.perf_counter(), streamed.map.hyperparameters()
    parts, settings = unchanged_cells(streamed), streamed.started_settings
    fit = fit_theta(
        settings,
        before,
        parts,
        slope=slope_of(streamed),
        most=most,
        tolerance=tolerance,
        progress=progress,
    )
    seconds = time.perf_counter() - started

    after = theta_as_reported(fit.theta, before, settings.field_scale)
    # with θ fixed from the beginning, scores and predictive noise are of this θ
    settled = new_session(settings_fixed_at(settings, after), folder)
    repeat(settled)

    limit = iterations_to_the_limit(settings, fit.theta, join_batches(parts), settled.inducing)
    return Refit(
        resume_learning(settled, streamed, fit.learner, TileRoom(folder)),
        fit,
        before,
        after,
        seconds,
        limit,
    )


def unchanged_cells(session: MapSession) -> list[Samples]:
    """Return the cells that the map has taken, without those near a place that changed afterwards.

    A cell is left out within a lengthscale of the change, where it is older, but for the newest
    score_distance metres before it: these saw the field as it is now.
    """
    parts, reach = session.taken or [], session.map.hyperparameters()["lengthscale"]
    recent = round(session.settings.score_distance / session.cells.length)

    for change in session.changes:
        place = torch.tensor([[change.x, change.y]], dtype=torch.float64)
        parts = _without_outdated(parts, change.stamp, place, reach, recent)
    return parts


def _without_outdated(
    parts: list[Samples], stamp: float, place: Tensor, reach: float, recent: int
) -> list[Samples]:
    """Return the cells but for those near a place that were measured before it changed.

    Args:
        parts: batches of cells in the order in which they came.
        stamp: of the change, s.
        place: of the change, (1, 2) m.
        reach: m, how far from there cells are outdated.
        recent: so many of the newest cells before the change stay.
    """
    kept = []
    for part in reversed(parts):
        if part.stamp is None:
            kept.append(part)
            continue
        before = part.stamp <= stamp
        # how many before the change follow in this batch, itself among them
        newest = before.flip(0).cumsum(0).flip(0) <= recent
        recent = max(0, recent - int(before.sum()))
        outdated = before & ~newest & (torch.cdist(part.x, place)[:, 0] <= reach)
        if not bool(outdated.all()):
            kept.append(part[~outdated] if bool(outdated.any()) else part)
    return kept[::-1]


def slope_of(session: MapSession):
    """Return the function x (N, 2) m ↦ |∇f|² (N,) of the session's map, (SI per m)².

    By central differences, mean over channels:

        |∇f|² = Σ_d ((f(x + h e_d) − f(x − h e_d)) / 2h)²
    """

    def slope(x: Tensor) -> Tensor:
        """|∇m|² of the map's mean at x (N, 2) m, by differences: (N,), mean over channels."""
        step = _SLOPE * session.map.hyperparameters()["lengthscale"]
        total = torch.zeros(len(x), dtype=torch.float64)
        for axis in torch.eye(2, dtype=torch.float64) * step:
            ahead, behind = (
                session.map.predict(x + sign * axis).mean.cpu() for sign in (1.0, -1.0)
            )
            total += ((ahead - behind) / (2 * step)).square().mean(1)
        return total

    return slope


def theta_as_reported(theta: Theta, reported: dict[str, float], scale: float) -> dict[str, float]:
    """Return θ as a map reports it: by name, in SI.

    Args:
        theta: in inner units.
        reported: hyper-parameters as the map reports them, of which the names count.
        scale: one inner unit in SI.
    """
    return {
        name: getattr(theta, name) * (scale if name.endswith("stddev") else 1.0)
        for name in reported
    }
