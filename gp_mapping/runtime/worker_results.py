"""What the map's thread hands to others: frozen results, plain numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from gp_mapping.intake.drops import DropReason

__all__ = ["Results", "Status"]


@dataclass(frozen=True)
class Results:
    """What was asked for, as it was at one revision of the map. Tensors are copies that nobody changes any more."""

    revision: int
    grid: object  # FieldGrid
    limits: object = None  # Limits; None where nothing is known
    inducing: object = None  # (M, 2)
    memory: object = None  # (m, 2)
    path: object = None  # (K, 2)
    path_starts: object = None  # (K,) bool
    suggestions: object = None  # planning.Suggestions
    position: tuple[float, float] | None = None  # newest position of the robot


@dataclass(frozen=True)
class Status:
    """Plain numbers about the worker, for diagnostics; `made` is time.monotonic()."""

    made: float
    report: dict
    received: dict[str, int]
    used: (
        int  # measurements that went into the map since the node began, whatever became of that map
    )
    drops: dict[str, int]
    explanations: dict[str, str]  # drop reason -> what to look at
    warnings: list[str]
    waiting: int
    last_stamp: float | None
    queue: int
    counts: dict[str, int]  # queue_full, paused, errors by stage
    timings: dict[str, dict[str, float]] = field(default_factory=dict)
    lag: tuple[float, float] = (
        0.0,
        0.0,
    )  # share of the path that is not drawn yet, for how long (s)

    @staticmethod
    def of(session, intake, queue: int, counts: dict[str, int], timings, lag=(0.0, 0.0)) -> Status:
        """As it is now; in the thread that owns session and intake."""
        return Status(
            made=time.monotonic(),
            report=dict(session.report()),
            received=dict(intake.received),
            used=intake.samples - intake.drops[DropReason.REFUSED] - counts.get("lost_by_error", 0),
            drops=intake.drops.as_dict(),
            explanations=intake.drops.explanations(),
            warnings=[*intake.warnings, *session.warnings],
            waiting=intake.waiting,
            last_stamp=intake.last_stamp,
            queue=queue,
            counts={name: n for name, n in list(counts.items()) if n},
            timings={name: timing.summary() for name, timing in timings.items()},
        )
