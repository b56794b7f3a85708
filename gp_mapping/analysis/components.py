"""`gp-mapping check` of a map of vectors: each component and the norm, and what it has learned."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.residuals import Residuals, norm_residuals
from gp_mapping.mapping.drawing.vector import AXES, axis_names
from gp_mapping.mapping.session import MapSession

__all__ = ["component_scores", "learned_sentences"]

_KEPT = ("n", "rmse_ut", "nlpd", "coverage", "coverage_levels", "pit", "bias")


def component_scores(
    session: MapSession, found: Residuals, passes, trained: np.ndarray
) -> dict[str, dict]:
    """Return the scores of each component, and of the norm; {} of a map of one channel.

    Args:
        session: the map.
        found: `residuals` of those passes.
        passes: the test.
        trained: (N, 2) m, training positions.
    """
    names = axis_names(session.map.channels)
    if not names:
        return {}

    parts = {}
    for c, name in enumerate(names):
        # `residuals` numbers the components of a pass one after the other.
        members = found.which % len(names) == c
        parts[name] = replace(
            found, **{f.name: getattr(found, f.name)[members] for f in fields(Residuals)}
        )
    parts["norm"] = norm_residuals(session, passes, trained)

    summaries = {name: part.summary() for name, part in parts.items()}
    return {name: {key: summary[key] for key in _KEPT} for name, summary in summaries.items()}


def learned_sentences(session: MapSession, sensor: str, unit: str) -> list[str]:
    """Return sentences on what a map of vectors has learned of the robot.

    Without standard deviations: it remembers rows, not samples, of which no calibration can be
    made.

    Args:
        session: the map.
        sensor: its name in a sentence, such as magnetometer.
        unit: in which numbers are shown, that of field_scale.
    """
    values, scale = session.map.hyperparameters(), session.settings.field_scale

    out = [
        f"no calibration: model {session.settings.model} does not remember what it is made from; with --set "
        "model=dual_svgp the offset and what turns come with standard deviations"
    ]

    offset, lag = values.get("time_offset", 0.0), session.scores.lag.seconds
    out.append(
        f"the {sensor} {'lags' if offset >= 0 else 'is ahead of'} the pose by {abs(offset):.2f} s; the attitude "
        f"by which its vectors are turned is {abs(lag):.2f} s too {'new' if lag >= 0 else 'old'}"
    )

    body = session.map.body_field()
    if body is not None:
        text = ", ".join(
            f"{decimals(v / scale, 2, '+')} ± {decimals(sd / scale, 2)}"
            for v, sd in zip(*(part.tolist() for part in body))
        )
        out.append(
            f"({text}) {unit} forward, left and up turn with the robot (noise taken as white)"
        )

    # Of each axis, one new measurement about the map.
    noise = ", ".join(
        f"{name} {v**0.5 / scale:.2g}"
        for name, v in zip(AXES, session.scores.component_variances(session.map).tolist())
    )
    out.append(
        f"a new measurement scatters about the map, where it knows the field, by {noise} {unit}"
    )
    return out
