"""What a worker's steps need, loaded once, by the process from which the workers are forked.

Torch, Dask and this package take three seconds of processor to import. Nothing here may begin a
thread: a fork does not take it along.
"""

import gc
import threading

import distributed.nanny
import distributed.protocol.numpy
import distributed.protocol.torch  # noqa: F401
from tqdm import tqdm

import gp_mapping.fleet.drawing
import gp_mapping.fleet.evidence  # noqa: F401

# tqdm's own lock is a semaphore of the system, which a killed worker would leave behind
tqdm.set_lock(threading.RLock())

# a collection in a worker would go through all of this, and copy the pages that it writes to
gc.freeze()
