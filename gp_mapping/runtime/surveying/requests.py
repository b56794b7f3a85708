"""Plans on demand: what is asked of a survey in addition to its own plans. No rclpy."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from gp_mapping.planning.plan import Plan

__all__ = ["Request", "Requests"]

_MOST = 10  # requests that may wait


@dataclass
class Request:
    """A plan on demand.

    Attributes:
        start: (x, y) m; None: the robot's position.
        goal: (x, y) m where it ends; None: anywhere.
        future: carries the answer.
    """

    start: tuple[float, float] | None
    goal: tuple[float, float] | None
    future: Future = field(default_factory=Future)

    def answer(self, plan: Plan | Exception) -> None:
        """Deliver the plan, or the error; the first answer counts."""
        with suppress(InvalidStateError):
            if isinstance(plan, Exception):
                self.future.set_exception(plan)
            else:
                self.future.set_result(plan)


class Requests:
    """Requests that wait, oldest first; its owner's lock guards it."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Request:
        """The oldest one."""
        return self._waiting[0]

    def add(self, request: Request, kind: str) -> None:
        """Add a request, or answer that too many wait, with an empty plan.

        Args:
            request: the request.
            kind: the planner's name, for the empty plan.
        """
        if len(self._waiting) < _MOST:
            self._waiting.append(request)
        else:
            request.answer(Plan(kind, reason=f"{_MOST} plans wait already"))

    def take(self) -> Request:
        """Remove the oldest one and return it."""
        return self._waiting.popleft()

    def again(self, request: Request) -> None:
        """Put back one that was taken; it is the oldest."""
        self._waiting.appendleft(request)
