"""What happens while a node's process loads torch and ROS: signals end it quietly.

A node handles signals from its main() on. Before that, Ctrl-C would raise KeyboardInterrupt
somewhere inside a library that is being loaded, and Python would print a traceback. Nothing has
begun by then, so nothing is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

from gp_mapping.garbage import keep_matrices_apart, pause_while_loading
from gp_mapping.threads import one_thread_each

__all__ = ["NODES", "node_of", "quiet_while_loading"]

NODES = ("mapping_node", "fusion_node", "simulator_node", "explorer_node", "bag_player_node")


def node_of(arguments: list[str]) -> str:
    """The node that a process is to be, by its command line: executable or module of `python -m`.

    '' for other processes.
    """
    for word, following in zip(arguments, [*arguments[1:], ""]):
        if Path(word).name in NODES:
            return Path(word).name
        if word == "-m":
            home, _, name = following.rpartition(".")
            return name if home == "gp_mapping.ros" and name in NODES else ""
        if word == "-c":  # a program given as text
            return ""
    return ""


def quiet_while_loading() -> None:
    """Prepare the process of a node for loading; other processes are left alone.

    SIGINT and SIGTERM end it at once with exit code 0, numpy computes in one thread, nobody looks
    for garbage until the node's own signal handlers are there, and large matrices go back to the
    system when they are freed. Warnings are not shown; where
    Python was told what to do with them (-W, PYTHONWARNINGS), that is done.
    """
    name = node_of(sys.orig_argv)
    if not name or threading.current_thread() is not threading.main_thread():
        return

    one_thread_each()
    keep_matrices_apart()
    pause_while_loading()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")

    def leave(number: int, frame) -> None:
        """Say that the node was stopped, and end the process at once."""
        with suppress(OSError):
            os.write(2, f"{name}: stopped while it was loading\n".encode())
        os._exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
