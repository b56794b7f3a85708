"""What a worker's steps need, loaded once, by the process from which the workers are forked.

Torch, Dask and this package take three seconds of processor to import. Nothing here may begin a
thread: a fork does not take it along.
"""

import gc

import distributed.nanny
import distributed.protocol.numpy
import distributed.protocol.torch  # noqa: F401

import gp_mapping.fleet.drawing
import gp_mapping.fleet.evidence  # noqa: F401

# a collection in a worker would go through all of this, and copy the pages that it writes to
gc.freeze()
