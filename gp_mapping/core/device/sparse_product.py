"""Products of a sparse matrix with vectors: by scipy on a processor, by torch on a card.

torch's own product on a processor needs MKL, which not every build of it has. This is the one place
of the core where numbers are handed to another library; they are not copied.
"""

from __future__ import annotations

import warnings

import torch
from scipy.sparse import csr_array
from torch import Tensor

from gp_mapping.core.device.transfers import is_synchronous

__all__ = ["SparseMatrix"]


class SparseMatrix:
    """A matrix A (N, K) of which most entries are 0, held row by row.

    Args:
        ends: (N + 1,) where rows end among the values, after a 0.
        columns: (n,) of the values.
        values: (n,) of all rows, one after the other.
        shape: N and K.
    """

    def __init__(self, ends: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]):
        ends, columns = ends.int(), columns.int()
        if is_synchronous(values.device):
            parts = tuple(part.numpy() for part in (values, columns, ends))
            self._matrix = csr_array(parts, shape=shape)
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse (CSR tensor support|invariant checks)")
            self._matrix = torch.sparse_csr_tensor(
                ends, columns, values, shape, check_invariants=False
            )

    def __matmul__(self, vector: Tensor) -> Tensor:
        """A v (N,) for a vector v (K,)."""
        if torch.is_tensor(self._matrix):
            return self._matrix @ vector
        return torch.as_tensor(self._matrix @ vector.numpy())
