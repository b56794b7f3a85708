"""`gp-mapping demo`: a simulated robot maps a magnetic field over real DDS.

Simulator and mapper are processes of their own; this process only listens, judges and draws.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gp_mapping.commands.demo import survey
from gp_mapping.commands.demo.limits import FAST, FULL, LANES_SPEED, NEAR, PLAN_SPEED, PLANNED
from gp_mapping.commands.demo.watch import (
    UT,
    DemoError,
    DemoResult,
    DemoWatch,
    SurveyResult,
    verdict,
)
from gp_mapping.commands.output import make_folder
from gp_mapping.commands.processes import (
    NodeProcess,
    Signals,
    check_domain,
    node_environment,
    ros_arguments,
    ros_client,
)
from gp_mapping.errors import UsageError
from gp_mapping.settings.build import Parameters, model_file, read_parameter_file
from gp_mapping.sim.walls import parse_walls
from gp_mapping.sim.world import DipoleWorld, WorldSettings
from gp_mapping.store.marks import with_nulls

__all__ = ["run"]

FAST_ROUTE = {"sim__spacing": 0.5, "sim__crossing_spacing": 0.0}
LANES_FILE = "lanes.json"
# At several times real time, the node's default of 10 maps a second would cost several times more
# than live. On a busy machine the mapper may get no processor for seconds: its queues hold the
# whole drive.
MAPPER = {
    "publish_rate": 2.0,
    "suggestion_rate": 0.2,
    "input_queue_depth": 20000,
    "worker_queue_size": 100000,
}


def _check(args: argparse.Namespace) -> None:
    """Check the options, fill in the speed, make the output folder; else raise UsageError."""
    if args.speed is None:
        args.speed = LANES_SPEED if args.lanes else PLAN_SPEED
    if not 0 <= args.seed < 2**31:
        raise UsageError(f"--seed {args.seed}: expected 0 to {2**31 - 1}")
    if not 0.1 <= args.speed <= 100.0:
        raise UsageError(f"--speed {args.speed}: expected 0.1 to 100")
    if not (args.duration == 0.0 or 5.0 <= args.duration <= 1e6):
        raise UsageError(
            f"--duration {args.duration}: expected at least 5 seconds, or 0 for the whole route"
        )
    check_domain(args.domain_id)

    malformed = [p for p in args.parameters if ":=" not in p]
    _mapper_parameters(args)
    if malformed:
        raise UsageError(
            f"--set {malformed[0]}: expected NAME:=VALUE, for example magnetometer.lag:=0.2"
        )

    make_folder(args.output)


def _budget(args: argparse.Namespace) -> float:
    """Return the budget of the survey, m."""
    return survey.FAST_BUDGET if args.fast else survey.BUDGET


def _mapper_parameters(args: argparse.Namespace) -> dict:
    """Return the mapper's parameters: the demo's, then the model's file, then the user's.

    Raises:
        ParameterFileError: the node would refuse them.
        UsageError: they map something else than a magnetic field's strength or vector.
    """
    values = dict(MAPPER) | ({} if args.lanes else survey.survey_parameters(_budget(args)))
    for path in ([model_file(args.model)] if args.model else []) + (
        [args.params] if args.params else []
    ):
        values.update(read_parameter_file(path))

    built = Parameters.build(values)
    if built.intake.sensor != "magnetic_field" or built.intake.field_component not in (
        "norm",
        "xyz",
    ):
        raise UsageError(
            f"--params {args.params}: the demo's world is a magnetic field, judged by its strength; leave "
            "sensor at magnetic_field and field_component at norm or xyz"
        )
    return values


def _start(args: argparse.Namespace, domain: int, stack: ExitStack) -> list[NodeProcess]:
    """Start mapping_node, simulator_node and, next to a survey, the lanes.

    The simulator waits until the mapper listens.

    Args:
        args: of the command.
        domain: ROS_DOMAIN_ID.
        stack: ends the processes.

    Returns:
        The processes in this order.
    """
    environment = node_environment(domain, args.output)
    values = _mapper_parameters(args)
    route = (FAST_ROUTE if args.fast else {}) if args.lanes else survey.simulator()

    commands = [
        (
            "mapper",
            "gp_mapping.ros.mapping_node",
            ros_arguments(
                **values
                | {
                    "use_sim_time": True,
                    "reliable_inputs": True,
                    "seed": args.seed,
                    "save_directory": str(args.output.resolve()),
                    "map_name": "",
                }
            ),
        ),
        (
            "simulator",
            "gp_mapping.ros.simulator_node",
            ros_arguments(
                publish_clock=True,
                real_time_factor=args.speed,
                reliable=True,
                wait_for_subscribers=60.0,
                world__seed=args.seed,
                sim__seed=args.seed,
                sim__duration=args.duration,
                **route,
            )
            + [word for p in args.parameters for word in ("-p", p)],
        ),
    ]

    if _compared(args, values):
        # a file of an earlier run would be taken for this one's
        (args.output / LANES_FILE).unlink(missing_ok=True)
        commands.append(
            (
                "lanes",
                "gp_mapping.commands.demo.lanes",
                [
                    str(args.output / LANES_FILE),
                    str(args.seed),
                    str(_budget(args)),
                    *(
                        f"{name}:={json.dumps(value, allow_nan=False)}"
                        for name, value in values.items()
                    ),
                ],
            )
        )

    return [
        stack.enter_context(
            NodeProcess(name, module, words, args.output / f"{name}.log", environment)
        )
        for name, module, words in commands
    ]


def _compared(args: argparse.Namespace, values: dict) -> bool:
    """Return whether the plan is compared with lanes.

    Not where components of the field are mapped: those of the lanes would have to be turned as the
    robot turns.
    """
    return (
        not (args.lanes or args.duration)
        and values.get("field_component", "norm") == "norm"
        and values.get("model") != "curl_free"
    )


def run(args: argparse.Namespace) -> int:
    """Run the whole demo; returns the exit code that --help states."""
    started = time.monotonic()
    _check(args)
    watcher_class = ros_client("map_watcher", "MapWatcher")
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"  # for this process and its children

    signals = Signals()
    try:
        with ExitStack() as stack:
            result = _drive_and_draw(args, watcher_class, stack, signals, started)
    except DemoError as error:
        print(f"gp-mapping demo: {error}", file=sys.stderr)
        return 1
    finally:
        signals.restore()

    limits = PLANNED if not args.lanes else FAST if args.fast or args.duration else FULL
    return _report(result, verdict(result, limits), args.output, time.monotonic() - started)


def _drive_and_draw(
    args: argparse.Namespace, watcher_class, stack: ExitStack, signals: Signals, started: float
) -> DemoResult:
    """Start the processes, watch the drive to its end, and draw the picture.

    Args:
        args: of the command.
        watcher_class: MapWatcher.
        stack: ends the processes and the watcher.
        signals: checked while it waits.
        started: monotonic s, from which --timeout counts.

    Raises:
        DemoError: a process died, time is up, or no map came.
    """
    from tqdm import tqdm

    from gp_mapping.commands.demo.picture import draw_comparison

    domain = args.domain_id if args.domain_id is not None else 1 + os.getpid() % 101
    # first: they load while this process does
    mapper, simulator, *lanes_processes = _start(args, domain, stack)
    watcher = watcher_class(domain)
    stack.callback(watcher.close)

    model = f" (model {args.model})" if args.model else ""
    print(
        f"simulator and mapper{model} run on ROS_DOMAIN_ID={domain}, {args.speed:g} times real time; logs in "
        f"{args.output}"
    )

    world = DipoleWorld.random(WorldSettings(seed=args.seed))
    watch = DemoWatch(
        watcher,
        mapper,
        simulator,
        world,
        started + args.timeout,
        signals.check,
        None if args.lanes else survey.room(world.settings),
    )

    with tqdm(total=100.0, bar_format="{percentage:3.0f} %|{bar:20}|{postfix}") as bar:
        watch.drive(bar)
    watch.settle(args.output / "map.npz")
    lanes = _lanes(args, lanes_processes, signals, started)
    result = watch.result(_budget(args) if not (args.lanes or args.duration) else 0.0, lanes)

    cells = watch.cells(within=np.inf)  # the picture shows all of the map, the score what is near
    title = (
        f"{result.used} samples; within {NEAR} m of the path: RMSE {UT * result.score.rmse:.2f} µT, "
        f"{result.score.coverage:.0%} of the truth inside the 95 % interval"
    )
    room = watch.world.settings

    draw_comparison(
        args.output / "demo.png",
        cells=cells,
        room=(room.width, room.depth),
        path=watcher.path,
        inducing=watcher.inducing,
        suggestions=watcher.suggestions,
        title=title,
        walls=[] if args.lanes else parse_walls(survey.WALLS),
        curves=None if args.lanes else (watch.curve(), lanes),
        worth=watch.worth(),
    )
    return result


def _lanes(
    args: argparse.Namespace, lanes_processes: list[NodeProcess], signals: Signals, started: float
) -> survey.Curve | None:
    """Wait for the lanes, and return their curve; None where there are none."""
    for lanes in lanes_processes:
        while lanes.code is None:
            signals.check()
            if time.monotonic() > started + args.timeout:
                raise DemoError(
                    f"time is up; the lanes that the plan is held against are not driven yet:\n"
                    f"{lanes.last_lines(5)}"
                )
            time.sleep(0.1)
        if lanes.code:
            raise DemoError(
                f"the lanes that the plan is held against failed:\n{lanes.last_lines()}"
            )
        return survey.Curve.read(args.output / LANES_FILE)
    return None


def _survey_lines(s: SurveyResult | None) -> str:
    """Return lines about the survey, with the error of the lanes where they were driven."""
    if s is None:
        return ""
    against = (
        ""
        if math.isnan(s.lanes_error)
        else (
            f"; the best lanes of that length, chosen with the walls known: "
            f"{s.lanes_error:.0%} and {s.lanes_area:.0%}"
        )
    )
    return (
        f"survey    {s.driven:.1f} m of {s.budget:g} m in {s.plans} plans, {s.bumps} walls touched, home within "
        f"{s.from_home:.2f} m; {s.reason}\n"
        f"error     of the whole area {s.error:.0%} of the field's own sd at the end, {s.area:.0%} on the way"
        f"{against}\n"
    )


def _report(result: DemoResult, wrong: list[str], output: Path, seconds: float) -> int:
    """Write demo.json, print the numbers, the files and what is wrong.

    Args:
        result: of the demo.
        wrong: sentences; empty where the map is good.
        output: folder of the files.
        seconds: that all of it took.

    Returns:
        The exit code.
    """
    s = result.score
    numbers = asdict(result) | {"score": asdict(s), "wrong": wrong, "seconds": seconds}
    # null where something was not measured
    text = json.dumps(with_nulls(numbers), indent=2, allow_nan=False) + "\n"
    (output / "demo.json").write_text(text, encoding="utf-8")
    print(
        f"RMSE      {UT * s.rmse:.2f} µT within {NEAR} m of the path; the field's own sd there is "
        f"{UT * s.field_stddev:.2f} µT; NLPD {s.nlpd + math.log(UT):.2f}\n"
        f"coverage  {s.coverage:.1%} of the truth inside the 95 % interval\n"
        f"samples   {result.sent} sent, {result.received} received, {sum(result.dropped.values())} dropped, "
        f"{result.used} in the map\n"
        f"{_survey_lines(result.survey)}"
        f"mapper    {result.share:.2f} processor seconds for a second of driving, {result.memory:.0f} MB\n"
        f"time      {seconds:.1f} s"
    )

    for path in sorted(p for p in output.iterdir() if p.is_file()):
        print(f"wrote     {path}")
    for text in wrong:
        print(f"the map is wrong: {text}", file=sys.stderr)
    return 1 if wrong else 0
