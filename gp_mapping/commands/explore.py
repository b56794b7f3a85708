"""`gp-mapping explore`: a survey from its start to the saved map.

mapping_node maps and plans, explorer_node drives; this process starts, watches and ends them.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gp_mapping.commands.output import make_folder
from gp_mapping.commands.plan.request import places
from gp_mapping.commands.processes import (
    NodeProcess,
    Signals,
    check_domain,
    domain_of_environment,
    node_environment,
    ros_arguments,
    ros_client,
)
from gp_mapping.errors import UsageError
from gp_mapping.planning import Polygon, planner_names
from gp_mapping.settings.build import KNOWN, Parameters, model_file, read_parameter_file
from gp_mapping.settings.explorer import ExplorerSettings
from gp_mapping.settings.plan import home_of, of_a_whole_survey
from gp_mapping.sim.room import WALLS, WAYPOINTS
from gp_mapping.store.sessions import CHECKPOINT, map_folder

__all__ = ["ExploreError", "run"]

SURVEY = "mapping: survey"  # name in /diagnostics
STARTING, SAVING = 60.0, 120.0  # s, longest wait for the nodes to start, and for a save


class ExploreError(RuntimeError):
    """The survey failed; the text says why."""


def _check(args: argparse.Namespace) -> dict:
    """Check the options; returns the mapper's parameters, or raises UsageError."""
    check_domain(args.domain_id)
    for name in ("budget", "budget_time", "target_stddev", "timeout"):
        if not 0 <= (getattr(args, name) or 0.0) < math.inf:
            raise UsageError(
                f"--{name.replace('_', '-')} {getattr(args, name)}: expected 0 or more"
            )

    if not args.patience > 0:
        raise UsageError(f"--patience {args.patience}: expected more than 0 seconds")

    malformed = [
        word
        for word in args.remap
        if word.count(":=") != 1 or word.startswith(":=") or word.endswith(":=")
    ]
    if malformed:
        raise UsageError(f"--remap {malformed[0]}: expected FROM:=TO, for example odometry:=/odom")

    if args.kind is not None and args.kind not in planner_names():
        raise UsageError(f"--kind {args.kind}: expected one of {', '.join(planner_names())}")
    if args.simulate and args.drive not in (None, "cmd_vel"):
        raise UsageError(
            f"--drive {args.drive}: a simulated robot is driven by cmd_vel; leave it out"
        )

    try:
        home_of(args.home or "none")
        corners = places(args.region, "--region")
        if args.region:
            Polygon.from_corners(corners, name="--region")
    except ValueError as error:
        raise UsageError(str(error).replace("plan_home", "--home")) from error

    # the model's file, then the user's, then the options: the later ones win
    stated: dict = {}
    for path in ([model_file(args.model)] if args.model else []) + (
        [args.params] if args.params else []
    ):
        stated.update(read_parameter_file(path))
    values = stated | of_a_whole_survey(stated.__contains__)
    options = {
        "plan_budget": args.budget,
        "plan_budget_time": args.budget_time,
        "plan_home": args.home,
        "plan_kind": args.kind,
        "plan_speed": args.speed,
        "target_stddev": args.target_stddev,
    }

    # what was not given leaves what the files say
    values |= {name: value for name, value in options.items() if value is not None}
    try:
        ExplorerSettings(**_driving(args, values))
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    Parameters.build(values)  # raises for what the node would refuse
    return values | {"save_directory": str(args.output.resolve())}


def _driving(args: argparse.Namespace, values: dict) -> dict:
    """Return the explorer's parameters; its speed is that of the plan in the mapper's values."""
    speed = values.get("plan_speed", KNOWN["plan_speed"].default)
    return {"drive": "cmd_vel" if args.simulate else args.drive or "none", "speed": speed}


def _domain(args: argparse.Namespace) -> int:
    """Return the ROS_DOMAIN_ID: as given, of this simulation alone, or the environment's."""
    if args.domain_id is not None:
        return args.domain_id
    return 1 + os.getpid() % 101 if args.simulate else domain_of_environment()


def run(args: argparse.Namespace) -> int:
    """Run the whole survey; returns the exit code that --help states.

    Raises:
        UsageError: the options do not go together, ROS is not installed, or the folder cannot be
            made.
    """
    values, domain, watcher_class = (
        _check(args),
        _domain(args),
        ros_client("survey_watcher", "SurveyWatcher"),
    )

    make_folder(args.output)

    if args.simulate:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"

    map_file = map_folder(values["save_directory"], values.get("map_name", "")) / CHECKPOINT
    signals = Signals()
    try:
        with ExitStack() as stack:
            watcher = watcher_class(domain)
            stack.callback(watcher.close)
            processes = _start(args, values, domain, stack)
            print(f"the survey runs on ROS_DOMAIN_ID={domain}; logs in {args.output}", flush=True)
            survey = _Survey(args, watcher, processes, signals.check)
            survey.go()
            survey.save(map_file, values["save_on_exit"])
    except ExploreError as error:
        print(f"gp-mapping explore: {error}", file=sys.stderr)
        return 1
    finally:
        signals.restore()

    print(map_file)
    return 0


def _start(
    args: argparse.Namespace, values: dict, domain: int, stack: ExitStack
) -> dict[str, NodeProcess]:
    """Start the nodes; returns them by name.

    The explorer is started last and so ends first: the robot stands before anything else goes.
    """
    environment = node_environment(domain, args.output)
    remap = [word for pair in args.remap for word in ("-r", pair)]

    nodes = {"mapper": ("mapping_node", values)}
    if args.simulate:
        nodes["simulator"] = (
            "simulator_node",
            {
                "commanded": True,
                "reliable": True,
                "wait_for_subscribers": STARTING,
                "waypoints": WAYPOINTS,
                "walls": WALLS,
            },
        )

    nodes["explorer"] = ("explorer_node", _driving(args, values))

    return {
        name: stack.enter_context(
            NodeProcess(
                name,
                f"gp_mapping.ros.{module}",
                ros_arguments(**given) + remap,
                args.output / f"{name}.log",
                environment,
                patience=SAVING if name == "mapper" else 5.0,
            )
        )
        for name, (module, given) in nodes.items()
    }


class _Survey:
    """Watch the survey from its start to its end, and have the map saved."""

    def __init__(
        self, args: argparse.Namespace, watcher, processes: dict[str, NodeProcess], interrupted
    ):
        self._args, self._watcher, self._processes, self._interrupted = (
            args,
            watcher,
            processes,
            interrupted,
        )
        self._began = self._planned = time.monotonic()
        self._shown = ""

    def go(self) -> None:
        """Watch until the explorer ends.

        Raises:
            ExploreError: a process died, no plan came, or time is up.
        """
        args, explorer = self._args, self._processes["explorer"]
        with self._errors():
            if args.region:
                self._watcher.publish_region(places(args.region, "--region"), STARTING, self._check)

            while explorer.code is None:
                self._watcher.spin(0.5)
                self._check()
                self._print_progress()

            self._watcher.spin(1.2)  # long enough for one more report
            self._check()
            self._print_progress(last=True)

    def save(self, file: Path, at_end: bool) -> None:
        """Have the map saved, once.

        Args:
            file: that is to hold the map.
            at_end: whether the mapper saves the map when it ends: then everything that it has
                received is in the map, and nothing is saved before.

        Raises:
            ExploreError: it was not saved.
        """
        if not at_end:
            with self._errors():
                print(self._watcher.save(SAVING, self._check))
            return

        before, mapper = _written(file), self._processes["mapper"]
        for process in reversed(self._processes.values()):  # the mapper last
            process.stop()
        if mapper.code or _written(file) == before:
            raise ExploreError(f"the map was not saved as {file}:\n{mapper.last_lines()}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what the watcher raises (a service that does not answer) as ExploreError."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, ExploreError):
                raise
            raise ExploreError(f"{error}\n{self._processes['mapper'].last_lines()}") from error

    def _check(self) -> None:
        """Raise after a signal, a process's end, too long without a plan, or when time is up."""
        self._interrupted()
        for name, process in self._processes.items():
            if process.code is not None and not (name == "explorer" and process.code == 0):
                raise ExploreError(
                    f"the {name} ended early with code {process.code}; its last lines:\n"
                    f"{process.last_lines()}"
                )

        now, status = time.monotonic(), self._watcher.values(SURVEY)
        # who pauses it, or cancels Nav2's goal, will say when it goes on
        if status.get("phase") in ("done", "paused") or float(status.get("plan (m)", 0.0)) > 0.0:
            self._planned = now

        if now - self._planned > self._args.patience:
            raise ExploreError(
                f"no plan for {self._args.patience:g} s: "
                + (
                    status.get("reason")
                    or f"nothing was measured; the mapper's last lines:\n"
                    f"{self._processes['mapper'].last_lines(5)}"
                )
            )

        if self._args.timeout and now - self._began > self._args.timeout:
            raise ExploreError(f"time is up after {self._args.timeout:g} s ({_progress(status)})")

    def _print_progress(self, last: bool = False) -> None:
        """Print the progress when it has changed, only in every fifth second."""
        status = self._watcher.values(SURVEY)
        text = _progress(status)
        if text != self._shown and (last or int(time.monotonic() - self._began) % 5 == 0):
            print(text, flush=True)
            self._shown = text


def _written(file: Path) -> int | None:
    """Return when a file was written, ns; None where there is none."""
    return file.stat().st_mtime_ns if file.exists() else None


def _progress(status: dict[str, str]) -> str:
    """Return what /diagnostics report of a survey, as one line."""
    if not status:
        return "waiting for the mapper"

    budget_left = status.get("budget left (m)")
    return (
        f"{status.get('phase', '')}: {float(status.get('driven (m)', 0.0)):.1f} m driven"
        + (f", {float(budget_left):.1f} m left" if budget_left else "")
        + f", {float(status.get('area (m2)', 0.0)):.1f} m² of area"
        + (f": {status['reason']}" if status.get("phase") == "done" and "reason" in status else "")
    )
