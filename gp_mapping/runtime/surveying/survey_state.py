"""What a survey reports."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["SurveyState"]


@dataclass(frozen=True)
class SurveyState:
    """What diagnostics show. Metres, seconds, SI.

    Attributes:
        phase: idle, running, paused or done.
        reason: why it ended, or why there is no plan.
        driven: metres since the start of the survey.
        metres_left: of the budget; infinite without one.
        seconds_left: of the budget; infinite without one.
        area: m² of the survey area.
        stddev_now: SI, root of the mean variance over the area.
        stddev_then: SI, the same after the plan.
        share_done: fraction of the area that is known well enough.
        plan_metres: length of the plan.
        plans: how many were made.
        closed: goals that are left out for now.
        improving: whether the plan is a first answer, and a better one is looked for.
        leaps: seconds by which stamps leapt, which no budget counts.
        forgotten: metres that were driven and are not remembered for the way home.
    """

    phase: str = "idle"
    reason: str = ""
    driven: float = 0.0
    metres_left: float = math.inf
    seconds_left: float = math.inf
    area: float = 0.0
    stddev_now: float = math.nan
    stddev_then: float = math.nan
    share_done: float = math.nan
    plan_metres: float = 0.0
    plans: int = 0
    closed: int = 0
    improving: bool = False
    leaps: float = 0.0
    forgotten: float = 0.0
