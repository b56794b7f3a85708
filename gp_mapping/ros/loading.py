"""The seconds in which a node's process loads torch and ROS: a signal ends it, and no library speaks to the user.

A node handles signals from its main() on. Before that Ctrl-C would raise KeyboardInterrupt somewhere inside a library
that is being loaded, and Python would print where. Nothing has begun then, and nothing is lost.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

from gp_mapping.threads import one_thread_each

__all__ = ["NODES", "node_of", "quiet_while_loading"]

NODES = ("mapping_node", "fusion_node", "simulator_node", "explorer_node", "bag_player_node")


def node_of(arguments: list[str]) -> str:
    """The node that a process is to be, by its command line: its executable, or `python -m` its module; else ""."""
    for word, following in zip(arguments, [*arguments[1:], ""]):
        if Path(word).name in NODES:
            return Path(word).name
        if word == "-m":
            home, _, name = following.rpartition(".")
            return name if home == "gp_mapping.ros" and name in NODES else ""
        if word == "-c":
            return ""
    return ""


def quiet_while_loading() -> None:
    """In the process of a node: SIGINT and SIGTERM end it at once with exit code 0, warnings are not shown, and numpy
    computes in one thread.

    Where Python was told what to do with warnings (-W, PYTHONWARNINGS), that is done. Other processes are left alone.
    """
    name = node_of(sys.orig_argv)
    if not name or threading.current_thread() is not threading.main_thread():
        return
    one_thread_each()
    atexit.register(gc.freeze)  # to take a loaded torch apart at the end would take half a second
    if not sys.warnoptions:
        warnings.simplefilter("ignore")

    def leave(number: int, frame) -> None:
        with suppress(OSError):
            os.write(2, f"{name}: stopped while it was loading\n".encode())
        os._exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
