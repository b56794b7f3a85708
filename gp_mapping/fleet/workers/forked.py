"""Workers forked from a process in which everything is loaded, instead of started from nothing.

A worker that takes a killed one's place is then at work after 0.05 s of processor, not after 3 s;
with a death every few seconds on a busy machine those 3 s would be all that it ever does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver

__all__ = ["can_fork", "start_loaded"]

_LOADED = "gp_mapping.fleet.workers.loaded"
# Bytes of the path of the temporary folder: the name of a socket has 107, 32 of them for what
# multiprocessing puts behind the folder.
_LONGEST = 70


def can_fork() -> bool:
    """Whether workers can be forked here.

    Not on other systems: their libraries may not survive a fork (macOS), or there is none
    (Windows). And not where the path of the temporary folder is too long for the socket at which
    forks are ordered.
    """
    folder = os.fsencode(tempfile.gettempdir())
    return sys.platform == "linux" and len(folder) <= _LONGEST


def start_loaded(environment: Mapping[str, str]) -> None:
    """Start the process from which workers are forked, where it does not run yet.

    Dask has to be set to the method "forkserver" before.

    Args:
        environment: variables that the libraries read as they are loaded.
    """
    from distributed.utils import get_mp_context

    # the first call of this sets what Dask itself would have loaded
    get_mp_context().set_forkserver_preload([_LOADED])
    with _set(environment):
        forkserver.ensure_running()


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """Have these environment variables meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
