"""Python's search for garbage while a process loads torch and ROS, and once they are loaded.

Of what is loaded next to nothing becomes garbage. To look for it takes an eighth of the time of
loading, and each later search of everything would halt all threads of the process for a tenth of a
second.
"""

from __future__ import annotations

import atexit
import gc

__all__ = ["leave_out_what_is_loaded", "pause_while_loading"]

_paused = False


def pause_while_loading() -> None:
    """Search for no garbage until `leave_out_what_is_loaded`: for a process that is ours alone.

    At the process' end nothing is searched either: to take a loaded torch apart takes half a
    second.
    """
    global _paused
    _paused = gc.isenabled()
    gc.disable()
    atexit.register(gc.freeze)


def leave_out_what_is_loaded() -> None:
    """Search for garbage again, among what is made from now on; does nothing without a pause."""
    global _paused
    if _paused:
        _paused = False
        gc.freeze()
        gc.enable()
