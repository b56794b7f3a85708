"""From a drawing to its messages: what the node does between a finished FieldGrid of 1000 × 1000 cells and the wire.

The callbacks' thread fills each message through a buffer and publishes it; limits are found by the map's thread.
Another process listens, reliable and transient local.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from array import array
from pathlib import Path

import torch

from benchmark.tables import Goal, Table
from benchmark.timing import median

__all__ = ["report"]

_SIDE = 1000
_LISTENER = """
import sys, rclpy
from nav_msgs.msg import OccupancyGrid
from sensor_msgs.msg import PointCloud2
from gp_mapping.ros.wire.qos import LATCHED
rclpy.init()
node = rclpy.create_node('listener')
for kind in (OccupancyGrid, PointCloud2):
    node.create_subscription(kind, kind.__name__, lambda _: None, LATCHED)
try:
    rclpy.spin(node)
except rclpy.executors.ExternalShutdownException:
    pass
"""


def _grid(channels: int):
    """A drawing with a fifth of its cells unknown."""
    from gp_mapping.mapping.drawing.grid import FieldGrid

    chance = torch.Generator().manual_seed(0)

    def values(*shape):
        return 1e-5 * torch.rand(*shape, dtype=torch.float64, generator=chance)

    stddev = values(_SIDE, _SIDE)
    axes = (
        (values(channels, _SIDE, _SIDE), values(channels, _SIDE, _SIDE))
        if channels > 1
        else (None, None)
    )
    return FieldGrid(
        (0.0, 0.0), 0.05, 4e-5 + values(_SIDE, _SIDE), stddev, stddev < 8e-6, 1e-6, 1, *axes
    )


def _times(function, repeats: int) -> list[tuple[float, float]]:
    """Wall time and processor time (of all threads, those of DDS too) of each call in ms, after one not counted."""
    function()
    out = []
    for _ in range(repeats):
        time.sleep(0.02)  # as at a rate: what was published before is on its way
        start, busy = time.perf_counter(), time.process_time()
        function()
        out.append((1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - busy)))
    return out


def _measure(repeats: int) -> dict[str, list[tuple[float, float]]]:
    import rclpy
    from nav_msgs.msg import OccupancyGrid
    from sensor_msgs.msg import PointCloud2
    from std_msgs.msg import Header

    from gp_mapping.ros.wire import outbound
    from gp_mapping.ros.wire.qos import LATCHED

    environment = {
        "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }
    os.environ.update(environment)
    listener = subprocess.Popen(
        [sys.executable, "-c", _LISTENER],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    rclpy.init()
    node, header = rclpy.create_node("publisher"), Header(frame_id="map")
    try:
        grids, clouds = (
            node.create_publisher(kind, kind.__name__, LATCHED)
            for kind in (OccupancyGrid, PointCloud2)
        )
        end = time.monotonic() + 60.0
        while not (grids.get_subscription_count() and clouds.get_subscription_count()):
            if time.monotonic() > end or listener.poll() is not None:
                raise RuntimeError("the listener did not come up")
            time.sleep(0.1)
        scalar, vector = _grid(1), _grid(3)
        room, wide = array("B"), array("B")  # as the node keeps one
        limits = outbound.field_limits(scalar)
        return {
            "limits of mean and stddev (map's thread)": _times(
                lambda: outbound.field_limits(scalar), repeats
            ),
            "OccupancyGrid filled and published": _times(
                lambda: grids.publish(
                    outbound.occupancy_grid(
                        scalar, scalar.mean, limits.mean_low, limits.mean_high, header
                    )
                ),
                repeats,
            ),
            "field cloud, 800 000 points, filled and published": _times(
                lambda: clouds.publish(outbound.field_cloud(scalar, header, room)),
                max(3, repeats // 4),
            ),
            "the same with three components": _times(
                lambda: clouds.publish(outbound.field_cloud(vector, header, wide)),
                max(3, repeats // 4),
            ),
        }
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
        listener.terminate()
        listener.wait(10)


def report(quick: bool) -> tuple[list[Goal], Table]:
    """Run it, and the table and goals of it."""
    print("live: a drawing to the wire", file=sys.stderr, flush=True)
    found = _measure(5 if quick else 60)
    table = Table(
        f"A drawing of {_SIDE} × {_SIDE} cells to the wire, ms",
        [("", ""), ("wall, median", ".2f"), ("least", ".2f"), ("processor, median", ".2f")],
    )
    for name, times in found.items():
        wall, busy = zip(*times)
        table.add(name, median(wall), min(wall), median(busy))
    table.notes = [
        f"One thread on {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; another process "
        "listens to both topics over DDS, reliable and transient local. Processor time is that of all "
        "threads, DDS's among them."
    ]
    wall = [each for each, _ in found["OccupancyGrid filled and published"]]
    return [
        Goal(
            "1000 × 1000 OccupancyGrid: drawing to published, median",
            median(wall),
            high=5.0,
            unit="ms",
        )
    ], table
