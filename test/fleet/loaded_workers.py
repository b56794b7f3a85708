"""Workers that begin with torch in memory: forked from a process that has done nothing but load it."""

from contextlib import contextmanager

from benchmark import warm


@contextmanager
def loaded_workers():
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed.nanny", *warm.LOADED])
        yield
