"""The content of /diagnostics: numbers, drops by reason, and warnings. No rclpy."""

from __future__ import annotations

import math
import os
import resource
from collections import Counter
from dataclasses import dataclass, field

from gp_mapping.intake.drops import DropReason
from gp_mapping.mapping.notes.fullness import full_budget_note, left_out_note
from gp_mapping.runtime.stream import StreamWatch

__all__ = ["Area", "Health", "InputWatch", "resident_megabytes"]

OK, WARN, ERROR = 0, 1, 2
_LAGS = 3.0  # s for which driven ground may be missing in the picture
_SLOW = 2.0  # times the usual period: a rate far below the normal one
# what to look at, of what is counted before the intake
_EXPLAINED = {
    "queue_full": "more than worker_queue_size messages waited for the map; mapping: timing says what takes "
    "the time",
    "abandoned": "not taken in any more when the node was stopped; raise exit_timeout",
    "service_busy": "calls that were refused at once, since service_queue_size others waited",
    "lost_by_error": "an error inside the map; the log has the traceback",
}
# What is counted outside the intake: these are measurements; with "pose_" before their names they
# are poses, with "fix_" fixes of a satellite receiver.
_BEFORE = ("queue_full", "paused", "abandoned", "lost_by_error")
# least measurements in a report, and the fraction of them that may be dropped for one reason
_FEW, _MOST = (10, 0.9)


@dataclass
class Area:
    """One DiagnosticStatus; its warnings are joined to the message.

    Attributes:
        name: of the area, 'input' and so on.
        level: OK, WARN or ERROR.
        warnings: sentences.
        values: by name, in the order in which they are shown.
    """

    name: str
    level: int = OK
    warnings: list[str] = field(default_factory=list)
    values: dict[str, object] = field(default_factory=dict)

    def warn(self, text: str, level: int = WARN) -> None:
        """Add a warning, and raise the level to at least its own.

        Args:
            text: the warning, in words.
            level: WARN or ERROR, as in diagnostic_msgs/DiagnosticStatus.
        """
        self.level = max(self.level, level)
        self.warnings.append(text)

    @property
    def message(self) -> str:
        """All warnings in one text, or 'ok'."""
        return "; ".join(self.warnings) or "ok"


class InputWatch:
    """Arrivals on one topic: rate since the last report, silence since the last message.

    All times are the caller's, in seconds.

    Attributes:
        topic: name of the input.
        steady: silence is a fault, as it is not on /tf_static.
        label: the resolved topic, for people.
        publishers: number of publishers; None where it is not known.
        listening: False while nothing is subscribed to.
        stream: period and losses, from the stamps.
        count: messages that arrived.
        lost: messages that the middleware reported as lost.
    """

    def __init__(self, topic: str, steady: bool = True, label: str = ""):
        self.topic, self.steady, self.label = topic, steady, label or topic
        self.publishers: int | None = None
        self.listening, self.stream = True, StreamWatch()
        self.count = self.lost = 0
        self._since: tuple[float, int] | None = None
        self._last: float | None = None
        self._opened = -math.inf  # when this was last listened to anew

    def open(self, now: float) -> None:
        """Note that it is listened to from now on: what came, or did not, before is no silence."""
        self.stream.note_pause()
        self._opened = now

    def arrived(self, now: float) -> None:
        """Count one message."""
        self.count += 1
        self._last = now

    def rate(self, now: float) -> float:
        """Messages per second since the last call."""
        before, self._since = self._since, (now, self.count)
        if before is None or now <= before[0]:
            return 0.0
        return (self.count - before[1]) / (now - before[0])

    def silence(self, now: float) -> float | None:
        """Seconds since the last message, or the opening; None where there never was a message."""
        return None if self._last is None else max(0.0, now - max(self._last, self._opened))

    def has_come_within(self, seconds: float, now: float) -> bool:
        """Whether a message has come in the last so many seconds.

        Args:
            seconds: so many.
            now: monotonic s.
        """
        return self._last is not None and now - self._last <= seconds


def _no_frame(area: Area, status) -> None:
    """Warn of a map whose frame is not known, with the cause."""
    if status.used:
        area.warn(
            "the poses have an empty frame_id, so the map is in no frame and cannot be shown: have their "
            "source fill in header.frame_id"
        )
    else:
        area.warn(
            "the frame of the loaded map is not known before the first pose; set map_frame to see the map "
            "now"
        )


def _other_time(area: Area, stamp_age: float, simulated: bool) -> None:
    """Warn of stamps that are far from the node's clock."""
    side = "behind" if stamp_age > 0 else "ahead of"
    if abs(stamp_age) <= 3600.0:
        return
    if simulated:
        area.warn(
            f"measurement stamps are {abs(stamp_age):.0f} s {side} /clock, which the node follows: are both of "
            "one recording, or of one simulator, and does /clock go on?"
        )
    else:
        area.warn(
            f"measurement stamps are {abs(stamp_age):.0f} s {side} the node's clock; for a recording, play it "
            "with /clock and set use_sim_time: true"
        )


def _group_of(reason: str) -> str:
    """The group under which a count is reported.

    Measurements received = used + all that are "dropped" + waiting, exactly.
    """
    known = next((drop for drop in DropReason if drop.value == reason), None)
    if known is not None and known.is_used:
        return "poses used in part"
    if reason.startswith("fix_"):
        return "fixes dropped"
    if reason in _BEFORE or (known is not None and not known.concerns_pose):
        return "dropped"
    return "poses dropped" if reason.startswith("pose_") else "refused"


def resident_megabytes() -> float:
    """Memory of this process, MB: the current resident set (Linux), else its peak."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


class Health:
    """Collects what the node knows into areas 'input', 'map', 'timing', and 'survey' and 'team'.

    Args:
        silence_warning: seconds without a message before a warning.
    """

    def __init__(self, silence_warning: float):
        self.silence_warning = silence_warning
        # at the last report: dropped messages, and counts of the map; both know a "refused"
        self._drops_before: dict[str, int] = {}
        self._map_before: dict[str, int] = {}
        self._lost_before: dict[str, int] = {}
        self._unsent_before: dict[str, int] = {}
        self._received_before = 0
        self._started: float | None = None

    def areas(
        self,
        *,
        now,
        status,
        watches,
        paused,
        notes,
        limits,
        published,
        stamp_age,
        queue,
        enqueued: int = 0,
        active: bool = True,
        simulated: bool = False,
        frameless: bool = False,
        facts: dict | None = None,
        survey=None,
        team=None,
    ) -> list[Area]:
        """The areas of one report.

        Args:
            now: monotonic s.
            status: worker_results.Status.
            watches: an InputWatch for each input.
            paused: whether measurements are not used.
            notes: (level, text) from the node.
            limits: mapping.drawing.levels.Limits or None.
            published: number of Results that were published.
            stamp_age: node clock − newest measurement stamp, s, or None.
            queue: entries that wait for the worker.
            enqueued: as MapWorker.enqueued.
            active: whether the node is active; an inactive one subscribes to no input.
            simulated: whether the node's clock is /clock.
            frameless: whether there is a map, in a frame that is not known.
            facts: more values of the map, by name, or None.
            survey: runtime.surveying.survey_state.SurveyState or None.
            team: numbers and sentences about other robots' maps, or None.
        """
        self._started = now if self._started is None else self._started
        return [
            self._input(
                now,
                status,
                watches,
                paused,
                active,
                notes,
                stamp_age,
                simulated,
                frameless,
                enqueued,
            ),
            self._map(status, limits, published, facts or {}),
            self._timing(now, status, queue),
            *([] if survey is None else [_survey(survey)]),
            *([] if team is None else [_team(*team)]),
        ]

    def _input(
        self,
        now,
        status,
        watches,
        paused,
        active,
        notes,
        stamp_age,
        simulated,
        frameless,
        enqueued,
    ) -> Area:
        """What arrives, and what is dropped of it."""
        area = Area("input")
        for watch in watches:
            area.values[f"{watch.topic} rate (Hz)"] = watch.rate(now)
            area.values[f"{watch.topic} received"] = watch.count
            area.values[f"{watch.topic} lost by the middleware"] = watch.lost
            area.values[f"{watch.topic} lost before the node (about)"] = max(
                watch.lost, watch.stream.lost
            )
            area.values[f"{watch.topic} left out by its publisher (about)"] = watch.stream.unsent
            if watch.publishers is not None:
                area.values[f"{watch.topic} publishers"] = watch.publishers
            if active and not paused and watch.steady:
                self._silence(area, watch, now)
                self._stream(area, watch)

        if paused:
            area.warn("paused: measurements are not used")
        for level, text in notes:
            area.warn(text, level)
        if frameless:
            _no_frame(area, status)

        counted = {name: n for name, n in status.counts.items() if not name.startswith("error")}
        self._refused(area, status)
        # a sum: both the worker and the intake have a queue_full
        dropped = Counter(status.drops) + Counter(counted)
        for reason, n in dropped.items():
            area.values[f"{_group_of(reason)}: {reason}"] = n
            if n > self._drops_before.get(reason, 0):
                hint = _EXPLAINED.get(reason.removeprefix("pose_").removeprefix("fix_"), "")
                explained = (
                    hint if reason in counted and hint else status.explanations.get(reason, "")
                )
                area.warn(f"{n} {reason}: {explained}" if explained else f"{n} {reason}")
            self._drops_before[reason] = n

        for text in status.warnings:
            area.warn(text)

        area.values["measurements used"] = status.used
        area.values["waiting for a pose"] = status.waiting
        # the first input is the sensor; the map's thread has not taken them, or not reported so
        taken = next(iter(status.received.values()), 0)
        area.values["waiting for the map"] = max(0, enqueued - taken)
        if stamp_age is not None:
            area.values["age of the newest stamp (s)"] = stamp_age
            _other_time(area, stamp_age, simulated)
        return area

    def _silence(self, area: Area, watch: InputWatch, now: float) -> None:
        """Warn of an input without messages, with the likely cause."""
        silence, waited = (
            watch.silence(now),
            now - (now if self._started is None else self._started),
        )
        if silence is not None and silence > self.silence_warning:
            area.warn(f"no {watch.label} for {silence:.1f} s")
        elif silence is None and waited > self.silence_warning:
            if watch.publishers == 0:
                area.warn(
                    f"no {watch.label} since the start {waited:.1f} s ago: nobody publishes it; start its "
                    "driver, or remap the topic"
                )
            elif not watch.listening:
                area.warn(
                    f"no {watch.label} since the start {waited:.1f} s ago: it is not subscribed to, for its "
                    "publisher shows no type that can be read"
                )
            else:
                area.warn(
                    f"no {watch.label} since the start {waited:.1f} s ago, although it has a publisher: does "
                    "that send, and over a network and with a quality of service that reach this node?"
                )

    def _stream(self, area: Area, watch: InputWatch) -> None:
        """Warn of losses while they grow, and of a slow stream and two clocks while they last."""
        stream = watch.stream
        lost = max(watch.lost, stream.lost)
        if lost > self._lost_before.get(watch.topic, 0):
            area.warn(
                f"{watch.label}: about {lost} messages lost before they reached the node; raise "
                "input_queue_depth, or look at the network"
            )
        self._lost_before[watch.topic] = lost
        if stream.unsent > self._unsent_before.get(watch.topic, 0):
            area.warn(
                f"{watch.label}: about {stream.unsent} messages are missing by its stamps, and the middleware lost "
                "none: its driver left them out, or stamps them late; is that computer, or its cable, overloaded?"
            )
        self._unsent_before[watch.topic] = stream.unsent

        if stream.apart is not None:
            area.warn(
                f"{watch.label}: stamps leap to and fro by {stream.apart:.3g} s, as of two publishers with "
                f"different clocks on one topic; it has {watch.publishers} now: remap one, or mend its clock"
            )
        elif stream.several:
            area.warn(
                f"{watch.label}: several publishers send on this topic, and count as one; it has "
                f"{watch.publishers} now: two robots, two sensors, or a recording beside the robot? Remap all but one"
            )
        if (
            stream.period is not None
            and stream.usual is not None
            and stream.period > _SLOW * stream.usual
        ):
            area.warn(
                f"{watch.label} comes at {1.0 / stream.period:.3g} Hz, and came at {1.0 / stream.usual:.3g} Hz "
                "before: is its driver or the network overloaded?"
            )

    def _refused(self, area: Area, status) -> None:
        """Warn, before all else, where most of what came was dropped for one reason."""
        received = next(iter(status.received.values()), 0)  # the first input is the sensor
        came, self._received_before = received - self._received_before, received

        for reason, n in status.drops.items() if came >= _FEW else ():
            new = n - self._drops_before.get(reason, 0)
            # what is chosen of many may be few of them
            most = _MOST * came if reason != "not_chosen" else came - 1
            if new > most and (not reason.startswith(("pose_", "fix_")) or reason == "pose_gap"):
                percent, why = (
                    round(100 * min(new / came, 1.0)),
                    status.explanations.get(reason, "see the log"),
                )
                area.warn(
                    f"{percent} % of the last {came} measurements were dropped as {reason}: {why}"
                )
                area.warnings.insert(0, area.warnings.pop())

    def _map(self, status, limits, published, facts) -> Area:
        """What the map holds, and what a bound made it leave out."""
        area = Area("map")
        for name, value in _flat(status.report):
            area.values[name] = value
        if limits is not None:
            for name, value in limits._asdict().items():
                area.values[f"{name} (SI)"] = value
        area.values["published"] = published
        area.values |= facts

        fraction, seconds = status.lag
        area.values["undrawn share of the path"] = fraction
        if seconds > _LAGS:
            area.warn(
                f"driven ground is not drawn yet: {100 * fraction:.0f} % of the path, for {seconds:.0f} s; it is in "
                "the map, and comes with the next drawings; raise draw_budget or resolution"
            )

        coarser, refused, more = (
            self._grown(name, status.report.get(name, 0))
            for name in ("coarsened", "refused", "left_out")
        )
        if coarser:
            area.warn(
                f"the map's lattice would exceed max_grid_nodes: its spacing has been doubled, {coarser} times "
                "by now"
            )
        if refused:
            area.warn(
                f"{refused} cells or measurements lie where the map's lattice cannot reach, and are left out"
            )
        full = left_out_note(status.report)
        if more and full:
            area.warn(full)
        thin = full_budget_note(status.report)
        if thin:
            area.warn(thin)

        area.values["memory (MB)"] = resident_megabytes()
        for name, n in status.counts.items():
            if name.startswith("error"):
                area.values[name] = n
                if self._grown(name, n):
                    area.warn(
                        f"{n} failures at {name.removeprefix('error_')}; the log has the traceback",
                        ERROR,
                    )
        return area

    def _grown(self, name: str, count: int) -> int:
        """A count of the map if it has grown since the last report, else 0."""
        before, self._map_before[name] = self._map_before.get(name, 0), count
        return count if count > before else 0

    def _timing(self, now, status, queue) -> Area:
        """How long the worker's stages take, and whether it responds."""
        area = Area("timing", values={"queue": queue})
        for name, summary in status.timings.items():
            for key, value in summary.items():
                area.values[f"{name} {key}"] = value

        age = now - status.made
        if age > max(2.0, self.silence_warning):
            area.warn(f"the map has been busy for {age:.1f} s without an answer")
        return area


def _team(values: dict, notes: list[str]) -> Area:
    """The area of what is sent of this robot's map, and received of the others'."""
    area = Area("team", values=dict(values))
    for text in notes:
        area.warn(text)
    return area


def _survey(state) -> Area:
    """The area of the survey's progress: what remains, the stddev now and at the plan's end."""
    area = Area(
        "survey",
        values={
            "phase": state.phase,
            "driven (m)": state.driven,
            "area (m2)": state.area,
            "stddev now": state.stddev_now,
            "stddev at the plan's end": state.stddev_then,
            "plan (m)": state.plan_metres,
            "plans": state.plans,
        },
    )
    for name, value in (
        ("budget left (m)", state.metres_left),
        ("budget left (s)", state.seconds_left),
        ("share at target_stddev", state.share_done),
    ):
        if math.isfinite(value):
            area.values[name] = value

    if state.improving:
        area.values["a better plan is looked for"] = "yes"
    if state.closed:
        area.values["goals left out"] = state.closed
    if state.leaps:
        area.values["leaps of the stamps (s), not counted"] = state.leaps
    if state.forgotten:
        area.values["driven, not remembered for the way home (m)"] = state.forgotten
    if state.reason:
        area.values["reason"] = state.reason
        if state.phase == "running" and not state.plan_metres:
            area.warn(f"no plan: {state.reason}")
    return area


def _flat(report: dict, prefix: str = ""):
    """Flatten a nested dict to (name, value) pairs, 'a.b' for report['a']['b']."""
    for name, value in report.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
