"""DDS domains of tests that name their own: no two of one run meet, whichever processes share it (pytest-xdist)."""

import os
import zlib

_FIRST, _LAST = 21, 90
_SLOTS = {
    "simulator": 0,
    "player": 1,
    "demo": 2,
    "explore": 3,
    "autosave": 6,
    "resilience": 7,
}  # explore takes three


def domain_of(name: str) -> int:
    """The domain of a file of tests; another run on this machine has most likely another one."""
    count = _LAST + 1 - _FIRST
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % workers
    run = zlib.crc32(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())).encode())
    return _FIRST + (count // workers * worker + _SLOTS[name] + run) % count
