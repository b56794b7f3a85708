"""Watch the running demo, and judge its map.

It follows what has arrived so far, whether the processes live, and how good the map is.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gp_mapping.commands.demo.limits import NEAR, Limits
from gp_mapping.commands.demo.survey import HOME, Curve, truth_of, worth
from gp_mapping.planning import SurveyArea
from gp_mapping.sim.evaluation import MapScore, near_path, score_map
from gp_mapping.sim.world import DipoleWorld

__all__ = ["UT", "DemoError", "DemoResult", "DemoWatch", "SurveyResult", "verdict"]

UT = 1e6  # microtesla in a tesla
STANDSTILL = 20.0  # s without a new sample in the map: what is missing then will not come

# names in /diagnostics
DRIVE, INPUT, MAP = "simulator: drive", "mapping: input", "mapping: map"
SURVEY = "mapping: survey"
AT_HOME = 0.5  # m from home, at the end
# measurements waiting for the map: with more than BEHIND, time is held until CATCH_UP are left
BEHIND, CATCH_UP = (
    800,
    300,
)
_AGREE = 0.05  # standard deviations between a live drawing and one that is drawn from scratch


class DemoError(RuntimeError):
    """The demo failed; the text says why."""


@dataclass(frozen=True)
class DemoResult:
    """What the demo found.

    Attributes:
        score: of the map near the path.
        sent: measurements sent by the simulator.
        received: measurements received by the mapper.
        used: measurements in the map.
        dropped: measurements by reason.
        share: processor seconds of the mapper for a second of driving, until all is in the map, its
            start left out; NaN: not measured.
        memory: of the mapper, MB; NaN: not measured.
        survey: result of the robot's own plan; None where it drove lanes, or not to the end.
    """

    score: MapScore
    sent: int
    received: int
    used: int
    dropped: dict[str, int]
    share: float = float("nan")
    memory: float = float("nan")
    survey: SurveyResult | None = None


@dataclass(frozen=True)
class SurveyResult:
    """Result of a survey by the robot's own plans.

    Attributes:
        phase: as the mapper reported it last.
        reason: as the mapper reported it last.
        budget: m.
        driven: m.
        from_home: m from home at the end.
        bumps: into walls.
        plans: how many were made.
        error: RMSE of the whole area at the end, as a fraction of the field's own stddev.
        area: mean of that error over the metres of the budget.
        lanes_error: `error` of the best lanes; NaN where none were driven.
        lanes_area: `area` of the best lanes; NaN where none were driven.
    """

    phase: str
    reason: str
    budget: float
    driven: float
    from_home: float
    bumps: int
    plans: int
    error: float = float("nan")
    area: float = float("nan")
    lanes_error: float = float("nan")
    lanes_area: float = float("nan")


def verdict(result: DemoResult, limits: Limits) -> list[str]:
    """Return what is wrong with the map, in sentences; empty where it is good.

    Args:
        result: of the demo.
        limits: that a good map keeps to.
    """
    # conditions are written as `not … <= …`, so that NaN is wrong, too
    s, wrong = result.score, []
    if not s.rmse <= limits.error * s.field_stddev:
        wrong.append(
            f"RMSE {UT * s.rmse:.2f} µT is more than {limits.error:.0%} of the field's own standard "
            f"deviation, {UT * s.field_stddev:.2f} µT"
        )
    if not s.coverage >= limits.coverage:
        wrong.append(
            f"the 95 % interval holds {s.coverage:.1%} of the truth, expected at least {limits.coverage:.0%}"
        )

    if result.received != result.sent:
        wrong.append(f"{result.sent} measurements were sent and {result.received} received")
    if result.used != result.received or sum(result.dropped.values()):
        reasons = (
            ", ".join(f"{n} {reason}" for reason, n in result.dropped.items() if n)
            or "no reason given"
        )
        wrong.append(
            f"{result.received} measurements were received and {result.used} are in the map ({reasons})"
        )
    return wrong + ([] if result.survey is None else _survey_verdict(result.survey))


def _survey_verdict(s: SurveyResult) -> list[str]:
    """Return what is wrong with the drive, in sentences."""
    wrong = []
    if s.phase != "done":
        wrong.append(
            f"the survey did not end: it is {s.phase or 'not there'} ({s.reason or 'no reason given'})"
        )
    if not s.driven <= s.budget:
        wrong.append(f"{s.driven:.1f} m were driven, and the budget was {s.budget:g} m")
    if not s.from_home <= AT_HOME:
        wrong.append(f"the robot ended {s.from_home:.1f} m from home, expected at most {AT_HOME} m")
    if s.bumps:
        wrong.append(f"the robot ran into a wall {s.bumps} times")
    return wrong


class DemoWatch:
    """Watch a running demo to its end.

    Args:
        watcher: ros.clients.map_watcher.MapWatcher.
        mapper: NodeProcess.
        simulator: NodeProcess.
        world: the truth.
        deadline: monotonic s.
        interrupted: called often; raises where the user wants to stop.
        area: that a robot surveys by plans of its own; None where it drives lanes.
    """

    def __init__(
        self,
        watcher,
        mapper,
        simulator,
        world: DipoleWorld,
        deadline: float,
        interrupted=lambda: None,
        area: SurveyArea | None = None,
    ):
        self.watcher, self.mapper, self.simulator = watcher, mapper, simulator
        self.area = area
        self._time_held = False
        # when (monotonic s), and metres driven, as the simulator reported them
        self._driven: list[tuple[float, float]] = [(0.0, 0.0)]
        self.world, self.deadline, self._interrupted = world, deadline, interrupted
        self._shown = float("-inf")
        # the mapper's processor time when the first measurement was sent, s
        self._start_seconds: float | None = None
        self._load = float("nan")

    def _spin(self, seconds: float) -> None:
        """Listen, then raise DemoError where a process has died or time is up."""
        self.watcher.spin(seconds)
        self._check()

    def _check(self) -> None:
        """Raise DemoError where a process has died or time is up."""
        self._interrupted()
        for process, may_end in ((self.mapper, False), (self.simulator, True)):
            if process.code is not None and not (may_end and process.code == 0):
                raise DemoError(
                    f"the {process.name} ended early with code {process.code}; its last lines:\n"
                    f"{process.last_lines()}"
                )
        if time.monotonic() > self.deadline:
            raise DemoError(
                f"time is up; the last lines were:\n{self.mapper.last_lines(5)}\n"
                f"{self.simulator.last_lines(5)}"
            )

    def _number(self, status: str, key: str) -> int:
        """Return a count from /diagnostics, 0 while it is not reported."""
        return int(self.watcher.values(status).get(key, 0))

    def drive(self, bar) -> None:
        """Watch until the simulator has ended and the mapper has taken in all that it ever will.

        Args:
            bar: tqdm in %.

        Raises:
            DemoError: a process died, time is up, or the simulator did not end its route.
        """
        if self.area is not None:
            self._begin()

        while self.simulator.code is None:
            self._spin(0.5)
            self._keep_pace()
            self._look()
            self._show(bar)
            # loading torch and the like comes before the first measurement, and does not count
            if self._start_seconds is None and self._number(DRIVE, "sent_magnetic_field"):
                self._start_seconds = self.mapper.processor_seconds()

        self._spin(0.2)
        if self.watcher.values(DRIVE).get("state") != "done":
            raise DemoError(
                "the simulator stopped before the end of its route; its last lines:\n"
                f"{self.simulator.last_lines()}"
            )

        # as long as the count grows, it may still come to all that was sent
        settled, moved = -1, time.monotonic()
        while self._settled() < self._number(DRIVE, "sent_magnetic_field"):
            if self._settled() > settled:
                settled, moved = self._settled(), time.monotonic()
            if time.monotonic() - moved > STANDSTILL:
                break  # the verdict names what is missing
            self._spin(0.5)
            self._show(bar)

        # the survey ends with the plan after the last drive: nothing is left within the budget
        moved = time.monotonic()
        while (
            self.area is not None
            and self.watcher.values(SURVEY).get("phase") == "running"
            and time.monotonic() - moved < STANDSTILL
        ):
            self._spin(0.5)

        elapsed = float(self.watcher.values(DRIVE).get("elapsed", 0.0))
        if self._start_seconds is not None and elapsed:
            self._load = (self.mapper.processor_seconds() - self._start_seconds) / elapsed
        self._show(bar, last=True)

    def _begin(self) -> None:
        """Start the survey; the robot stands until its first plan is there."""
        try:
            self.watcher.start_survey(60.0, self._check)
        except RuntimeError as error:
            if isinstance(error, DemoError):
                raise
            raise DemoError(
                f"the survey did not begin: {error}\n{self.mapper.last_lines()}"
            ) from error

    def _keep_pace(self) -> None:
        """Hold the simulated time where the mapper of a busy machine is behind.

        Its plans would be of long ago.
        """
        behind = self._number(DRIVE, "sent_magnetic_field") - self._settled()
        # two limits, so that it does not switch at every measurement
        if self.area is not None and self._time_held != (
            behind > (CATCH_UP if self._time_held else BEHIND)
        ):
            self._time_held = not self._time_held
            self.watcher.hold(self._time_held)

    def _look(self) -> None:
        """Ask the mapper for its predictions over the whole area; watcher.answers collects them."""
        if self.area is None:
            return

        metres = float(self.watcher.values(DRIVE).get("driven (m)", 0.0))
        if metres != self._driven[-1][1]:
            self._driven.append((time.monotonic(), metres))
        if self._number(MAP, "cells"):
            self.watcher.ask(self.area.cells.numpy(), "odom")

    def curve(self) -> Curve | None:
        """Return the error of the whole area by metres, so far; None where nothing is surveyed."""
        if self.area is None:
            return None

        # an answer has the time at which it was asked for; the metres driven follow from that
        times, metres = np.array(self._driven).T
        rows = [
            (float(np.interp(asked_at, times, metres)), answer["mean"], answer["stddev"])
            for asked_at, answer in self.watcher.answers
            if len(answer["mean"]) and np.isfinite(answer["mean"]).all()
        ]
        return Curve.from_evaluations(rows, self.area, truth_of(self.world, self.area))

    def worth(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rate the path part by part (survey.worth); None where nothing is surveyed or driven."""
        status, path = self.watcher.values(MAP), self.watcher.path
        if self.area is None or len(path) < 2:
            return None

        learned = {
            name: float(status[f"hyperparameters.{name}"])
            for name in ("lengthscale", "signal_stddev", "noise_stddev")
        }
        return worth(path, self.area, learned)

    def _surveyed(self, budget: float) -> SurveyResult:
        """Return the result of the survey, without errors of the map; budget: m."""
        status, drive, path = (
            self.watcher.values(SURVEY),
            self.watcher.values(DRIVE),
            self.watcher.path,
        )
        away = float(np.hypot(*(path[-1] - HOME))) if len(path) else float("nan")
        metres = float(drive.get("driven (m)", "nan"))
        return SurveyResult(
            status.get("phase", ""),
            status.get("reason", ""),
            budget,
            metres,
            away,
            int(drive.get("bumps", 0)),
            int(status.get("plans", 0)),
        )

    def _dropped(self) -> dict[str, int]:
        """Return how many measurements were dropped, by reason."""
        return {
            key.removeprefix("dropped: "): int(n)
            for key, n in self.watcher.values(INPUT).items()
            if key.startswith("dropped: ")
        }

    def _settled(self) -> int:
        """Return how many measurements are in the map or were dropped."""
        return self._number(MAP, "samples") + sum(self._dropped().values())

    def _show(self, bar, last: bool = False) -> None:
        """Update the bar, at most once a second on a terminal, and seldom in a log."""
        if not last and time.monotonic() - self._shown < (1.0 if sys.stderr.isatty() else 10.0):
            return

        drive, score, self._shown = self.watcher.values(DRIVE), self.score(), time.monotonic()
        bar.n = round(100.0 * self._progress(drive), 1)
        bar.set_postfix_str(
            f"{float(drive.get('elapsed', 0.0)):.0f} s of driving, {self._number(MAP, 'samples')} of "
            f"{self._number(DRIVE, 'sent_magnetic_field')} samples in the map"
            + (f", RMSE {UT * score.rmse:.2f} µT" if score else "")
        )

    def _progress(self, drive: dict[str, str]) -> float:
        """Fraction of the drive that is done; of a survey, of its budget.

        Args:
            drive: what the simulator reports.
        """
        if self.area is None:
            return float(drive.get("progress", 0.0))

        survey = self.watcher.values(SURVEY)
        done, left = (float(survey.get(f"{name} (m)", 0.0)) for name in ("driven", "budget left"))
        return 1.0 if drive.get("state") == "done" else done / max(done + left, 1e-9)

    def settle(self, saved: Path) -> None:
        """Have the map saved and drawn, until what comes over DDS is what was saved.

        Saving closes the last cell of the map. A drawing from before the end may still be on its
        way, hence the loop.

        Args:
            saved: npz that the mapper writes.

        Raises:
            DemoError: the mapper does not save, or never publishes that map.
        """
        try:
            self.watcher.save(timeout=60.0, check=self._check)
            for _ in range(10):
                self.watcher.refresh(timeout=60.0, check=self._check)
                if self._shows(saved):
                    break
            else:
                raise DemoError(
                    f"the map that is published is not the one in {saved}; the mapper's last lines:\n"
                    f"{self.mapper.last_lines()}"
                )
            self._look()  # the finished map is the end of the curve
        except RuntimeError as error:
            if isinstance(error, DemoError):
                raise
            raise DemoError(
                f"the finished map did not come: {error}\n{self.mapper.last_lines()}"
            ) from error
        self._spin(1.5)  # one more report of the counts, and the suggestions

    def _shows(self, saved: Path) -> bool:
        """Return whether the newest cloud is the saved map, and the markers' path its path.

        The live window is wider than the saved one, so that a robot that explores need not move it
        at once: only cells inside the saved one are compared. The saved map is drawn at once and
        from scratch, the live one where something changed: they agree up to what a drawing leaves
        for later, a twentieth of a standard deviation.
        """
        with np.load(saved) as file:
            known, cloud = file["known"], self.watcher.cloud
            row, column = (
                np.rint((cloud[axis] - file[axis][0]) / float(file["resolution"])).astype(int)
                for axis in ("y", "x")
            )
            inside = (row >= 0) & (row < known.shape[0]) & (column >= 0) & (column < known.shape[1])
            # also known in the saved map; `clip` keeps indices of cells outside valid
            both = (
                inside
                & known[np.clip(row, 0, known.shape[0] - 1), np.clip(column, 0, known.shape[1] - 1)]
            )

            at = (row[both], column[both])
            apart = np.maximum(
                *(np.abs(cloud[name][both] - file[name][at]) for name in ("mean", "stddev"))
            )
            close = int((apart <= _AGREE * file["stddev"][at]).sum())
            # 2 % may differ, such as cells that are known in one of the two only
            same = close >= 0.98 * max(int(known.sum()), int(inside.sum()))
            return same and bool(near_path(file["path"], self.watcher.path, 0.1).all())

    def cells(self, within: float) -> dict[str, np.ndarray] | None:
        """Return the grid cells of the newest map near the path.

        Args:
            within: m from the path.

        Returns:
            Columns x, y (m), mean, stddev, truth (T); None where there are none.
        """
        cloud = self.watcher.cloud
        if cloud is None:
            return None

        xy = np.column_stack([cloud["x"], cloud["y"]])
        near = near_path(xy, self.watcher.path, within)
        return (
            {
                **{name: column[near] for name, column in cloud.items()},
                "truth": self.world.norm(xy[near]),
            }
            if near.any()
            else None
        )

    def score(self) -> MapScore | None:
        """Score the newest map near the path so far; None while there is none."""
        cells = self.cells(NEAR)
        return None if cells is None else score_map(cells["mean"], cells["stddev"], cells["truth"])

    def result(self, budget: float = 0.0, lanes: Curve | None = None) -> DemoResult:
        """Return the numbers at the end.

        Args:
            budget: m, of a survey; 0 where there is none.
            lanes: curve of the lanes that the survey is compared with; None: it is not.

        Raises:
            DemoError: no map came.
        """
        score, survey = self.score(), None
        if score is None:
            raise DemoError(
                f"no map came over DDS; the mapper's last lines:\n{self.mapper.last_lines()}"
            )

        if budget:
            survey, curve = self._surveyed(budget), self.curve()
            survey = replace(survey, error=float(curve.rmse[-1]), area=curve.mean_rmse(budget))
            if lanes is not None:
                survey = replace(
                    survey, lanes_error=float(lanes.rmse[-1]), lanes_area=lanes.mean_rmse(budget)
                )

        return DemoResult(
            score,
            self._number(DRIVE, "sent_magnetic_field"),
            self._number(INPUT, "magnetic_field received"),
            self._number(MAP, "samples"),
            self._dropped(),
            self._load,
            float(self.watcher.values(MAP).get("memory (MB)", "nan")),
            survey,
        )
