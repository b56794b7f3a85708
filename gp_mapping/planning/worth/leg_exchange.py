r"""What a route is worth when a few of its legs are exchanged.

The matrices of the route's measurements are cached. Of the measurements X with K = C_XX + N let
B = K⁻¹ and D = B S_XX B. Leaving out R and measuring at A instead changes the gain by

    − tr(B_RR⁻¹ D_RR)
    + tr((C_AA + N_A − C_AJ Q)⁻¹ (S_AA − Qᵀ S_JA − S_AJ Q + Qᵀ S_JJ Q))

with J = X \ R, Q = K_JJ⁻¹ C_JA and K_JJ⁻¹ = B_JJ − B_JR B_RR⁻¹ B_RJ: exact, without a
factorisation of what stays.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.planning.area.approximate_legs import ApproximateLeg
from gp_mapping.planning.worth.path_value import PathValue

__all__ = ["LegExchange"]


_ROWS = 40_000_000  # bytes of covariances of legs with all places that are kept


class LegExchange:
    """A route's legs, each with a key, and the change of gain when some of them are exchanged.

    Args:
        value: of the places between which the legs lie.

    Attributes:
        keys: of the legs, in order.
        gain: Σ_c w_c var(c) that the legs remove.
    """

    def __init__(self, value: PathValue):
        self._C, self._S, self._noise = value.C.numpy(), value.S.numpy(), value.noise.numpy()
        self._known: OrderedDict[tuple[int, int], _Leg] = OrderedDict()
        self._bytes = 0
        self.gain = 0.0

    def begin(self, keys: Sequence[tuple[int, int]], legs: Sequence[ApproximateLeg]) -> None:
        """Start from a route of these legs.

        Args:
            keys: first and last node of each leg, in order of the route.
            legs: the approximate legs themselves, one for each key.
        """
        parts = [self._of(key, leg) for key, leg in zip(keys, legs)]
        self.keys = list(keys)

        lengths = np.array([len(part.noise) for part in parts])
        self._ends = np.cumsum(lengths)
        self._firsts = self._ends - lengths

        places, weights, noise, self._C_X, self._S_X = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("places", "weights", "noise", "C", "S")
        )

        # C and S side by side: one interpolation gives both K and the inner matrix S_XX.
        count = len(noise)
        self._both = np.concatenate([self._C_X, self._S_X]).T.copy()  # (P, 2 m)
        combined = _combined(self._both, places, weights)
        K, self._I = combined[:, :count].copy(), combined[:, count:].copy()
        # The diagonal.
        K.flat[:: count + 1] += noise

        self._B = _inverse(K)
        self._D = _product(_product(self._B, self._I), self._B)
        self.gain = float(np.vdot(self._B, self._I))

    @property
    def remaining_gains(self) -> np.ndarray:
        """Gain (P,) of one more measurement at each place."""
        A = _product(self._B, self._C_X)
        C = self._C.diagonal() - (self._C_X * A).sum(0)
        S = self._S.diagonal() - (A * (2.0 * self._S_X - _product(self._I, A))).sum(0)
        return S / (C + self._noise)

    def change(
        self, keys: Sequence[tuple[int, int]], legs: dict[tuple[int, int], ApproximateLeg]
    ) -> float:
        """Return how much more other legs gain.

        Args:
            keys: of all legs of the new route.
            legs: by key, those that are new at least.
        """
        # Legs are compared by key, with multiplicity: a route may use one twice.
        remaining = Counter(keys)
        removed = []
        for i, key in enumerate(self.keys):
            if remaining[key] > 0:
                remaining[key] -= 1
            else:
                removed.append(np.arange(self._firsts[i], self._ends[i]))

        added = [self._of(key, legs[key]) for key, count in remaining.items() for _ in range(count)]
        return self._exchanged(np.concatenate(removed) if removed else None, added)

    def _of(self, key: tuple[int, int], leg: ApproximateLeg) -> _Leg:
        """Return what a leg measures, from the cache where it is known."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Leg(
                leg.places,
                leg.weights,
                self._noise[leg.places[:, 0]] * leg.scale,
                _combined(self._C, leg.places, leg.weights),
                _combined(self._S, leg.places, leg.weights),
            )
            self._bytes += 2 * known.C.nbytes
            while self._bytes > _ROWS:
                self._bytes -= 2 * self._known.popitem(last=False)[1].C.nbytes
        return known

    def _exchanged(self, R: np.ndarray | None, added: list[_Leg]) -> float:
        """Return the change of gain without the measurements R and with those of other legs."""
        change = 0.0
        if R is not None:
            inner = np.linalg.inv(self._B[R[:, None], R])
            change -= float(np.vdot(inner, self._D[R[:, None], R]))
        added = [leg for leg in added if len(leg.noise)]
        if not added:
            return change

        places, weights, noise, C_A, S_A = (
            added[0] if len(added) == 1 else map(np.concatenate, zip(*added))
        )
        count = len(self._B)
        combined = _combined(self._both, places, weights)
        C_AX, S_AX = combined[:, :count], combined[:, count:]

        # Here Q is (a, m), the transpose of the module's.
        Q = C_AX @ self._B
        if R is not None:
            Q -= (Q[:, R] @ inner) @ self._B[R]  # zero at R

        worth = (S_AX - 0.5 * (Q @ self._I)) @ Q.T
        C = _combined(C_A.T, places, weights) - C_AX @ Q.T
        C.flat[:: len(C) + 1] += noise
        return change + float(
            np.trace(np.linalg.solve(C, _combined(S_A.T, places, weights) - worth - worth.T))
        )


class _Leg(NamedTuple):
    """What a leg of m measurements measures.

    Attributes:
        places: (m, k), as in Visits.
        weights: (m, k), as in Visits.
        noise: (m,) SI², noise variance of each measurement.
        C: (m, P) covariances with all places.
        S: (m, P) the same of S.
    """

    places: np.ndarray
    weights: np.ndarray
    noise: np.ndarray
    C: np.ndarray
    S: np.ndarray


# Matrices of whole routes go through torch: it keeps to the number of threads that a node gives it,
# which the libraries of numpy and scipy do not. Where other programs use the cores, the threads of
# those libraries wait for each other hundreds of times as long as a product takes.


def _inverse(K: np.ndarray) -> np.ndarray:
    """Return the inverse of a symmetric positive definite matrix."""
    if not len(K):
        return K
    factor, failed = torch.linalg.cholesky_ex(torch.from_numpy(K))
    if int(failed):
        raise np.linalg.LinAlgError(
            "the map's covariance of a route's measurements is not positive definite"
        )
    return torch.cholesky_inverse(factor).numpy()


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b."""
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def _combined(rows: np.ndarray, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ_k w_k R[i_k] for rows (P, n), places and weights (a, k): (a, n)."""
    return np.matmul(weights[:, None], rows[places])[:, 0]
