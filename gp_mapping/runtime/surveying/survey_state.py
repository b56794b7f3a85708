"""What a survey tells, and what is asked of it."""

from __future__ import annotations

import math
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from gp_mapping.planning.plan import Plan

__all__ = ["Request", "SurveyState"]


@dataclass(frozen=True)
class SurveyState:
    """What diagnostics and people are told. Metres, seconds, SI.

    phase: idle, running, paused or done.  reason: why it ended, or why there is no plan.
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


@dataclass
class Request:
    """A plan that somebody asked for: from start or the robot, to goal or anywhere."""

    start: tuple[float, float] | None
    goal: tuple[float, float] | None
    future: Future = field(default_factory=Future)

    def answer(self, plan: Plan | Exception) -> None:
        """Whoever asked gets it; the first answer counts."""
        with suppress(InvalidStateError):
            if isinstance(plan, Exception):
                self.future.set_exception(plan)
            else:
                self.future.set_result(plan)
