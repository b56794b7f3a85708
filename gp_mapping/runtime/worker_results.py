"""Values that the map's thread hands to other threads: frozen results and plain numbers."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from gp_mapping.intake.drops import DropReason

__all__ = ["Results", "Status"]


@dataclass(frozen=True)
class Results:
    """The requested results as of one revision of the map; its tensors are copies.

    Attributes:
        revision: of the map.
        grid: FieldGrid.
        limits: Limits; None where nothing is known.
        inducing: places of inducing inputs (M, 2), metres.
        memory: places of remembered samples (m, 2), metres.
        path: (K, 2) metres.
        path_starts: where a new stretch of the path begins, (K,) bool.
        suggestions: planning.Suggestions.
        position: newest position of the robot, metres.
    """

    revision: int
    grid: object
    limits: object = None
    inducing: object = None
    memory: object = None
    path: object = None
    path_starts: object = None
    suggestions: object = None
    position: tuple[float, float] | None = None


@dataclass(frozen=True)
class Status:
    """Numbers about the worker at one moment, for diagnostics.

    Attributes:
        made: time.monotonic() of that moment.
        report: of the session.
        received: messages that the intake got, by kind.
        used: measurements that went into the map since the node began, even if that map has been
            cleared or replaced.
        drops: dropped messages by reason.
        explanations: what to look at, by reason of a drop.
        warnings: sentences of intake and session.
        waiting: measurements that wait for a pose.
        last_stamp: newest stamp, s.
        queue: entries that wait for the worker.
        counts: of queue_full, paused, errors by stage.
        timings: summaries of Durations by stage.
        lag: fraction of the path that is not drawn yet, and for how long (s).
    """

    made: float
    report: dict
    received: dict[str, int]
    used: int
    drops: dict[str, int]
    explanations: dict[str, str]
    warnings: list[str]
    waiting: int
    last_stamp: float | None
    queue: int
    counts: dict[str, int]
    timings: dict[str, dict[str, float]] = field(default_factory=dict)
    lag: tuple[float, float] = (0.0, 0.0)

    @staticmethod
    def gather(
        session,
        intake,
        queue: int,
        counts: dict[str, int],
        timings,
        lag=(0.0, 0.0),
        abandoned: int = 0,
    ) -> Status:
        """The current status; only for the thread that owns session and intake.

        Args:
            session: MapSession.
            intake: Intake.
            queue: messages that wait for that thread.
            counts: what the worker itself counts, by name.
            timings: stage -> Durations.
            lag: fraction of the path that is not drawn yet, and for how long (s).
            abandoned: measurements that the intake has handed out, and that were then dropped.
        """
        counted = Counter(dict(list(counts.items())))  # others count meanwhile
        counted["abandoned"] += abandoned
        not_used = intake.drops[DropReason.REFUSED] + counted["lost_by_error"] + abandoned
        return Status(
            made=time.monotonic(),
            report=dict(session.report()),
            received=dict(intake.received),
            used=intake.samples - not_used,
            drops=intake.drops.as_dict(),
            explanations=intake.drops.explanations(),
            warnings=[*intake.warnings, *session.warnings],
            waiting=intake.waiting,
            last_stamp=intake.last_stamp,
            queue=queue,
            counts={name: n for name, n in counted.items() if n},
            timings={name: timing.summary() for name, timing in timings.items()},
            lag=lag,
        )
