"""`gp-mapping play BAG`: run bag_player_node with options, and return its exit code."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys

from gp_mapping.commands.processes import python_path, ros_arguments
from gp_mapping.errors import UsageError
from gp_mapping.recording.bag import bag_topics

__all__ = ["run"]

_MOST = 1000.0  # largest --rate (a factor) and --wait (s)
_CLOCK = "/clock"  # which the player itself publishes


def _check_renamed(remap: list[str], topics: list[str]) -> None:
    """Raise UsageError where --remap renames a topic that is not played: rcl would say nothing.

    Args:
        remap: each OLD:=NEW. Rules of rcl for other things than one topic (__ns, ~, *) are let by.
        topics: those of the bag.
    """
    for rule in remap:
        old = rule.partition(":=")[0].strip()
        played = f"/{old.lstrip('/')}" in (*topics, _CLOCK)
        if not played and re.fullmatch(r"/?(?!__)\w+(/\w+)*", old):
            raise UsageError(
                f"--remap {rule}: the bag has no topic {old}; it has {', '.join(topics)}"
            )


def run(args: argparse.Namespace) -> int:
    """Play in a child process, which Ctrl-C ends in order; returns its exit code.

    Raises:
        UsageError: ROS is not installed, or an option cannot be used.
        BagError: the bag cannot be read.
    """
    if importlib.util.find_spec("rclpy") is None:
        raise UsageError(
            "playing needs rclpy and ROS 2 messages; install requirements/ros.txt, or source a ROS 2 "
            "installation"
        )

    wrong = [r for r in args.remap if not all(part.strip() for part in r.partition(":="))]
    if wrong:
        raise UsageError(
            f"--remap {wrong[0]}: expected OLD:=NEW, for example /mag:=/magnetic_field"
        )

    for name, value, low in (("--rate", args.rate, 1e-3), ("--wait", args.wait, 0.0)):
        if not low <= value <= _MOST:
            raise UsageError(f"{name} {value}: expected {low:g} to {_MOST:g}")
    if args.wait_for and not args.wait:
        raise UsageError("--wait-for says for whom to wait; write how long, too: --wait 30")
    # a bag that cannot be read is wrong input, before anything is started
    _check_renamed(args.remap, list(bag_topics(args.bag)))

    arguments = ros_arguments(
        path=str(args.bag),
        rate=args.rate,
        loop=args.loop,
        publish_clock=not args.no_clock,
        topics=",".join(args.topics),
        wait_for_subscribers=args.wait,
        wait_for=",".join(args.wait_for),
    )
    arguments += [word for r in args.remap for word in ("-r", r)]

    child = subprocess.Popen(
        [sys.executable, "-m", "gp_mapping.ros.bag_player_node", *arguments],
        env={**os.environ, "PYTHONPATH": python_path()},
    )

    def pass_on(number, _frame):
        """Pass a signal on to the player, which may get Ctrl-C from the terminal as well."""
        child.send_signal(number)

    previous = {
        number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)
    }

    try:
        code = child.wait()
        return code if code >= 0 else 128 - code  # ended by signal n (code −n): 128 + n, as a shell
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
