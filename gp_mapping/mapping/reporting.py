"""Plain numbers of a session, for diagnostics and reports."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gp_mapping.core.registry import device_of

if TYPE_CHECKING:
    from gp_mapping.mapping.session import MapSession

__all__ = ["report_of"]


def report_of(session: MapSession) -> dict:
    """Counts, noise and hyper-parameters of a session by name, SI.

    Numbers of the map itself (FieldMap.counters) come last.
    """
    device = device_of(session.settings)
    return {
        "samples": session.raw_count,
        "samples_to_confirm": session.waiting_samples,
        "cells": session.cell_count,
        "passes": session.passes,
        "inducing": len(session.inducing),
        "memory": len(session.memory),
        "revision": session.revision,
        "path_length": session.path_trace.length,
        "scores": len(session.scores.noise),
        "gross_errors": session.gross_errors,
        "repeated_samples": session.recurring.held,
        "weakened_cells": session.weakened_cells,
        "changes": session.scores.change_count,
        "displaced": session.scores.run.displaced_count,
        "left_out": session.left_out,
        "stale_share": session.stale_share,
        "refused_samples": session.refused,
        "last_refusal": session.last_refusal,
        "noise_stddev": math.sqrt(session.noise_variance) if session.map.started else None,
        "error_degrees": _finite(session.error_degrees) if session.map.started else None,
        "learning_steps": session.map.learning_steps or 0,
        "learning_rejected": 0,
        "response_time": session.response.seconds,
        "attitude_lag": session.scores.lag.seconds,
        "fixes": session.fixes.count,
        "datum": session.fixes.summary()[1],
        "device": device.name,
        "device_reason": device.reason,
        "kernel": session.started_settings.kernel,
        "hyperparameters": session.map.hyperparameters(),
        **session.map.counters(),
    }


def _finite(value: float) -> float | None:
    """A number, or None where it is infinite, as JSON has it."""
    return value if math.isfinite(value) else None
