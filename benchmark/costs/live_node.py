"""The live node as a robot has it: processes of their own over DDS, in real time, with everything that RViz listens to.

A robot in a room of magnetic dipoles, 100 Hz field and 50 Hz odometry; the map is about 128 × 128 cells, drawn at
10 Hz; θ is learned and inducing inputs come until there are 400.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmark.tables import Goal, Table
from gp_mapping.commands.processes import NodeProcess, ros_arguments
from gp_mapping.sim.world import WorldSettings

__all__ = ["measure", "report"]

ROOM = WorldSettings(width=5.0, depth=5.0, dipole_spacing=0.4, sensor_height=0.15)
FIELD_RATE, ODOMETRY_RATE, SPEED, SPACING = 100.0, 50.0, 1.0, 0.3
DRAWINGS = 10.0  # a second
_TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> dict[str, float]:
    """Processor time of a process by the kind of thread: 'callbacks' (the first), 'dds', 'map' (all others). Linux."""
    out = {"callbacks": 0.0, "map": 0.0, "dds": 0.0}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, rest = (task / "stat").read_text().split(" (", 1)[1].rsplit(") ", 1)
        except OSError:
            continue  # it has ended meanwhile
        kind = "callbacks" if task.name == str(pid) else "dds" if name.startswith("dds") else "map"
        out[kind] += sum(map(int, rest.split()[11:13])) / _TICK
    return out


def measure(seconds: float, survey: bool = False) -> dict[str, float]:
    """Drive for so many seconds (real time) and watch; numbers by name. RuntimeError where a process fails.

    survey: the node plans all the while where to go next, whether or not the robot goes there.
    """
    from nav_msgs.msg import OccupancyGrid
    from nav_msgs.msg import Path as PathMessage

    from gp_mapping.ros.clients.map_watcher import MapWatcher
    from gp_mapping.ros.wire.qos import LATCHED

    domain = 1 + os.getpid() % 100
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    quiet = {
        "ROS_DOMAIN_ID": str(domain),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        quiet["ROS_LOG_DIR"] = folder
        mapper = stack.enter_context(
            NodeProcess(
                "mapper",
                "gp_mapping.ros.mapping_node",
                ros_arguments(publish_rate=DRAWINGS, resolution=0.05),
                Path(folder) / "mapper.log",
                quiet,
            )
        )
        watcher = MapWatcher(domain)
        stack.callback(watcher.close)
        means: list = []
        for topic in ("mean", "stddev"):
            watcher.node.create_subscription(
                OccupancyGrid,
                f"mapping/{topic}",
                means.append if topic == "mean" else lambda _: None,
                LATCHED,
            )
        simulator = stack.enter_context(
            NodeProcess(
                "simulator",
                "gp_mapping.ros.simulator_node",
                ros_arguments(
                    wait_for_subscribers=60.0,
                    sim__duration=seconds,
                    sim__field_rate=FIELD_RATE,
                    sim__odometry_rate=ODOMETRY_RATE,
                    sim__spacing=SPACING,
                    robot__max_speed=SPEED,
                    world__width=ROOM.width,
                    world__depth=ROOM.depth,
                    world__dipole_spacing=ROOM.dipole_spacing,
                    world__sensor_height=ROOM.sensor_height,
                ),
                Path(folder) / "simulator.log",
                quiet,
            )
        )
        _until(watcher, lambda: means, 60.0, (mapper, simulator))
        plans: list = []
        if survey:
            watcher.node.create_subscription(PathMessage, "mapping/plan", plans.append, LATCHED)
            watcher.start_survey(30.0)
        begin, busy, seen, worst, midway = (
            time.monotonic(),
            processor_seconds(mapper.pid),
            len(means),
            0.0,
            None,
        )
        marks = [(begin, sum(busy.values()))]
        while watcher.values("simulator: drive").get("state") != "done" and simulator.code is None:
            _until(watcher, None, 0.2, (mapper, simulator))
            worst = max(worst, float(watcher.values("mapping: timing").get("latency p99_ms", 0.0)))
            now = time.monotonic()
            marks.append((now, sum(processor_seconds(mapper.pid).values())))
            if midway is None and now - begin > 0.5 * seconds:
                midway = now, processor_seconds(mapper.pid), len(means)
        end, spent, drawn = time.monotonic(), processor_seconds(mapper.pid), len(means)
        midway = midway or (begin, busy, seen)  # of a drive that was over before
        _until(watcher, None, 2.5, (mapper, simulator))
        info = means[-1].info
        minute = next(mark for mark in marks if end - mark[0] <= 60.0)
        return _numbers(watcher, begin, end, busy, spent, midway) | {
            "last minute": (sum(spent.values()) - minute[1]) / (end - minute[0]),
            "maps": (drawn - seen) / (end - begin),
            "maps later": (drawn - midway[2]) / (end - midway[0]),
            "cells": info.width * info.height,
            "worst": worst,
            "plans": len(plans),
        }


def _until(watcher, condition, timeout: float, processes) -> None:
    """Serve callbacks until condition() (None: for the whole time-out); RuntimeError in vain, or for a dead process."""
    deadline = time.monotonic() + timeout
    while condition is None or not condition():
        if time.monotonic() > deadline:
            if condition is None:
                return
            raise RuntimeError(
                f"no map within {timeout:g} s:\n" + "\n".join(p.last_lines() for p in processes)
            )
        for process in processes:
            if process.code:
                raise RuntimeError(
                    f"the {process.name} ended with {process.code}:\n{process.last_lines()}"
                )
        watcher.spin(0.05)


def _numbers(watcher, begin, end, busy, spent, midway) -> dict[str, float]:
    """Shares of a core by kind of thread, and what the diagnostics say."""
    told = watcher.values("mapping: input")
    field = {
        k: float(v) for k, v in told.items() if v.replace(".", "", 1).isdigit()
    }  # beside sentences
    map_, timing = watcher.values("mapping: map"), watcher.values("mapping: timing")
    sent = float(watcher.values("simulator: drive")["sent_magnetic_field"])
    out = {kind: (spent[kind] - busy[kind]) / (end - begin) for kind in spent}
    later = sum(spent.values()) - sum(midway[1].values())
    update = {f"update {name}": float(timing[f"update {name}_ms"]) for name in ("p99", "max")}
    return (
        out
        | update
        | {
            "sent": sent,
            "lost": sent - field["magnetic_field received"],
            "dropped": sum(n for name, n in field.items() if name.startswith("dropped")),
            "waiting": sent - float(map_["samples"]),
            "inducing": float(map_["inducing"]),
            "cells closed": float(map_["cells"]) / (end - begin),
            "all": sum(out.values()),
            "later": later / (end - midway[0]),
            "seconds": end - begin,
            "p50": float(timing["latency p50_ms"]),
            "p99": float(timing["latency p99_ms"]),
        }
        | {
            name: float(timing.get(f"{name} p50_ms", 0.0))
            for name in ("update", "render", "suggest", "plan")
        }
    )


def report(quick: bool) -> tuple[list[Goal], Table]:
    """Run it, and the table and goals of it."""
    print("live: the node over DDS", file=sys.stderr, flush=True)
    load = os.getloadavg()[0]
    m = measure(15.0 if quick else 170.0)
    table = Table(
        f"The live node: {FIELD_RATE:g} Hz field, {ODOMETRY_RATE:g} Hz odometry, a map at {DRAWINGS:g} Hz, "
        "over DDS, all topics listened to",
        [("", ""), ("", "")],
    )
    for name, text in (
        (
            "measurements sent, lost, dropped",
            f"{m['sent']:.0f}, {m['lost']:.0f}, {m['dropped']:.0f}",
        ),
        (
            "seconds, cells of the map, M",
            f"{m['seconds']:.0f}, {m['cells']:.0f}, {m['inducing']:.0f}",
        ),
        (
            "fraction of a core: all, second half, last minute",
            f"{m['all']:.3f}, {m['later']:.3f}, {m['last minute']:.3f}",
        ),
        (
            "of it: map thread, callbacks, DDS",
            f"{m['map']:.3f}, {m['callbacks']:.3f}, {m['dds']:.3f}",
        ),
        (
            "maps a second: all, second half; cells of samples closed a second",
            f"{m['maps']:.1f}, {m['maps later']:.1f}; {m['cells closed']:.1f}",
        ),
        (
            "arrival to map, ms: p50, p99 of the last 1000, worst p99",
            f"{m['p50']:.0f}, {m['p99']:.0f}, {m['worst']:.0f}",
        ),
        (
            "median ms of an update, a drawing, suggestions",
            f"{m['update']:.1f}, {m['render']:.1f}, {m['suggest']:.0f}",
        ),
    ):
        table.add(name, text)
    table.notes = [
        f"Processes of their own on {os.cpu_count()} cores, load average {load:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after; the processor time is that of mapping_node alone. A measurement "
        "waits for the pose after it and for the map thread, which looks every 50 ms. A map is drawn when "
        "there is something new: with each cell that is closed, or while stale points are left."
    ]
    return [
        Goal("live node: measurements lost or dropped", m["lost"] + m["dropped"], high=0.0),
        Goal("live node: fraction of a core on average", m["all"], high=0.3),
        Goal("live node: fraction of a core in the last minute", m["last minute"], high=0.3),
        Goal("live node: maps a second", m["maps"], low=0.9 * min(DRAWINGS, m["cells closed"])),
    ], table
