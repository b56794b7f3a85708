"""What a process no longer needs: garbage of Python, and free pages of the C library.

While a process loads torch and ROS no garbage is searched for: of what is loaded next to nothing
becomes any, and to look for it takes an eighth of the time of loading. Each later search of
everything would halt all threads of the process for a tenth of a second.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os

__all__ = [
    "give_back_pages",
    "keep_matrices_apart",
    "leave_out_what_is_loaded",
    "pause_while_loading",
]

_paused = False
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's mallopt
_APART = 1_000_000  # bytes: a matrix of 400 inducing inputs has more


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


def keep_matrices_apart() -> None:
    """Have the C library map large blocks each by itself, so that they go back when they are freed.

    glibc puts blocks of ever larger sizes, up to 32 MB, into the heap of their thread once one of
    that size was freed, and there small things that stay lie between them. That is for a process
    that runs all day: new pages take some hundredths of the time. A threshold that the user's
    environment names is left alone.
    """
    named = "MALLOC_MMAP_THRESHOLD_" in os.environ or "mmap_threshold" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None and not named:
        choose(_MMAP_THRESHOLD, _APART)


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
