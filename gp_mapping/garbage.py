"""What a process no longer needs: garbage of Python, and free pages of the C library.

While a process loads torch and ROS no garbage is searched for: of what is loaded next to nothing
becomes any, and to look for it takes an eighth of the time of loading. Each later search of
everything would halt all threads of the process for a tenth of a second.
"""

from __future__ import annotations

import atexit
import ctypes
import gc

__all__ = ["give_back_pages", "leave_out_what_is_loaded", "pause_while_loading"]

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


def give_back_pages() -> None:
    """Give memory pages without living objects back to the system.

    Where the C library keeps them (glibc): matrices that come and go between small things that stay
    leave holes in the heap of their thread. Without this a node grows by ten megabytes a minute
    until the holes are as large as a few of the largest steps together, and by some each kilometre.
    It takes milliseconds, in which other threads can go on until they need memory themselves.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
