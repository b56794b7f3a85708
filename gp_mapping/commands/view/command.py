"""`gp-mapping view`: the live map in a browser, for people without RViz."""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.util
import re
import signal
import sys
import threading

from gp_mapping.commands.processes import check_domain, domain_of_environment
from gp_mapping.commands.view.server import LOOPBACK, ViewServer
from gp_mapping.errors import UsageError

__all__ = ["run"]


def _node_name(namespace: str, node: str) -> str:
    """Return the full name of the mapper's node; UsageError where it is no name in ROS."""
    name = f"/{namespace.strip('/')}/{node.strip('/')}".replace("//", "/")
    if not re.fullmatch(r"(/[A-Za-z_]\w*)+", name, re.ASCII):
        raise UsageError(
            f"--namespace {namespace!r} --node {node!r}: {name} is not a name of a ROS node"
        )
    return name


def _server(args: argparse.Namespace, feed) -> ViewServer:
    """Open the server; UsageError where the address or the port cannot be had."""
    try:
        return ViewServer(args.address, args.port, feed)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        # taken, or not allowed: another port helps; else the address is at fault
        hint = (
            "another port: --port 0"
            if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
            else "expected an address of this machine, as 127.0.0.1"
        )
        raise UsageError(
            f"{args.address} port {args.port}: cannot be served ({reason}); {hint}"
        ) from error


class _Stop(Exception):
    """Raised at SIGINT or SIGTERM, the usual end of this command."""


def _stop(number, frame):
    """Handle a signal by raising _Stop."""
    raise _Stop


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C; returns the exit code.

    Raises:
        UsageError: ROS is not installed, or an address, port, domain or name cannot be used.
    """
    if importlib.util.find_spec("rclpy") is None:
        raise UsageError(
            "a live map needs rclpy and ROS 2 messages; install requirements/ros.txt, or source a ROS 2 "
            "installation. A saved map: gp-mapping report"
        )
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port {args.port}: expected 0 to 65535")
    check_domain(args.domain_id)
    domain = domain_of_environment() if args.domain_id is None else args.domain_id

    name = _node_name(args.namespace, args.node)

    # not above: --help works without rclpy
    from gp_mapping.ros.clients.view_feed import LiveFeed, is_topic

    if args.odometry_topic and not is_topic(args.odometry_topic, name):
        raise UsageError(
            f"--odometry-topic {args.odometry_topic!r} is not a name of a ROS topic; expected one "
            "as /robot1/odom"
        )

    feed = LiveFeed(name, args.odometry_topic, domain)
    previous = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}

    server = None
    try:
        server = _server(args, feed)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _greet(name, args.address, server.server_address[1])
        while True:
            feed.spin(1.0)
    except _Stop:
        return 0
    finally:
        # first the handlers: a second Ctrl-C ends a shutdown that hangs
        for number, old in previous.items():
            signal.signal(number, old)
        if server is not None:
            server.shutdown()
            server.server_close()
        feed.close()


def _greet(name: str, address: str, port: int) -> None:
    """Print where the page is, and a warning where other machines can see it."""
    if address not in LOOPBACK:
        print(
            f"warning: everybody who reaches {address} port {port} can see the map and where the robot is; there is "
            f"no password and no encryption. Safer: leave --address, and on the other machine\n"
            f"  ssh -N -L {port}:127.0.0.1:{port} USER@ROBOT",
            file=sys.stderr,
        )

    # an address that means "all" cannot be opened in a browser
    shown = (
        "127.0.0.1"
        if address in ("0.0.0.0", "::")
        else f"[{address}]"
        if ":" in address
        else address
    )
    print(f"http://{shown}:{port}/ shows {name}; Ctrl-C ends", flush=True)
