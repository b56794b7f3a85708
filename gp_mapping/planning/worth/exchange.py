"""What a route is worth when a few of its legs are exchanged: the matrices of its measurements are kept.

Of the measurements X with K = C_XX + N let B = K⁻¹ and D = B S_XX B. Leaving out R and measuring at A instead,

    loss   tr(B_RR⁻¹ D_RR)
    gain   tr((C_AA + N_A − C_AJ Q)⁻¹ (S_AA − Qᵀ S_JA − S_AJ Q + Qᵀ S_JJ Q)),   J = X \\ R,   Q = K_JJ⁻¹ C_JA

with K_JJ⁻¹ = B_JJ − B_JR B_RR⁻¹ B_RJ: exact, without a factorisation of what stays.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.planning.area.glances import Glance
from gp_mapping.planning.worth.path_value import PathValue

__all__ = ["Exchange"]


_ROWS = 40_000_000  # bytes of covariances of legs with all places that are kept


class Exchange:
    """A route's legs, each with a key, and what exchanging some of them changes.

    gain: Σ_c w_c var(c) that they take off.  left: (P,), the gain of one more measurement at each place.
    """

    def __init__(self, value: PathValue):
        self._C, self._S, self._noise = value.C.numpy(), value.S.numpy(), value.noise.numpy()
        self._known: OrderedDict[tuple[int, int], _Leg] = OrderedDict()
        self._bytes = 0
        self.gain = 0.0

    def begin(self, keys: Sequence[tuple[int, int]], legs: Sequence[Glance]) -> None:
        """From now on of these legs."""
        parts = [self._of(key, leg) for key, leg in zip(keys, legs)]
        self.keys = list(keys)
        lengths = np.array([len(part.noise) for part in parts])
        self._ends = np.cumsum(lengths)
        self._firsts = self._ends - lengths
        places, weights, noise, self._C_X, self._S_X = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("places", "weights", "noise", "C", "S")
        )
        m = len(noise)
        self._both = np.concatenate([self._C_X, self._S_X]).T.copy()  # (P, 2 m)
        both = _combined(self._both, places, weights)
        K, self._I = both[:, :m].copy(), both[:, m:].copy()
        K.flat[:: m + 1] += noise
        self._B = _inverse(K)
        self._D = _product(_product(self._B, self._I), self._B)
        self.gain = float(np.vdot(self._B, self._I))

    @property
    def left(self) -> np.ndarray:
        """Gain (P,) of one more measurement at each place."""
        A = _product(self._B, self._C_X)
        C = self._C.diagonal() - (self._C_X * A).sum(0)
        S = self._S.diagonal() - (A * (2.0 * self._S_X - _product(self._I, A))).sum(0)
        return S / (C + self._noise)

    def change(self, keys: Sequence[tuple[int, int]], legs: dict[tuple[int, int], Glance]) -> float:
        """How much more is gained by other legs, told by the keys of all; those that are new are in legs."""
        there = Counter(keys)
        gone = []
        for i, key in enumerate(self.keys):
            if there[key] > 0:
                there[key] -= 1
            else:
                gone.append(np.arange(self._firsts[i], self._ends[i]))
        come = [self._of(key, legs[key]) for key, count in there.items() for _ in range(count)]
        return self._exchanged(np.concatenate(gone) if gone else None, come)

    def _of(self, key: tuple[int, int], leg: Glance) -> _Leg:
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

    def _exchanged(self, R: np.ndarray | None, come: list[_Leg]) -> float:
        more = 0.0
        if R is not None:
            inner = np.linalg.inv(self._B[R[:, None], R])
            more -= float(np.vdot(inner, self._D[R[:, None], R]))
        come = [leg for leg in come if len(leg.noise)]
        if not come:
            return more

        places, weights, noise, C_A, S_A = (
            come[0] if len(come) == 1 else map(np.concatenate, zip(*come))
        )
        m = len(self._B)
        both = _combined(self._both, places, weights)
        C_AX, S_AX = both[:, :m], both[:, m:]
        Q = C_AX @ self._B  # (a, m)
        if R is not None:
            Q -= (Q[:, R] @ inner) @ self._B[R]  # nothing is left of it at R
        worth = (S_AX - 0.5 * (Q @ self._I)) @ Q.T
        C = _combined(C_A.T, places, weights) - C_AX @ Q.T
        C.flat[:: len(C) + 1] += noise
        return more + float(
            np.trace(np.linalg.solve(C, _combined(S_A.T, places, weights) - worth - worth.T))
        )


class _Leg(NamedTuple):
    """What a leg measures: (m, k), (m, k), (m,), and covariances C, S (m, P) with all places."""

    places: np.ndarray
    weights: np.ndarray
    noise: np.ndarray
    C: np.ndarray
    S: np.ndarray


# Of whole routes, by torch: it keeps to the threads that a node gives it, which numpy's and scipy's libraries do not.
# Where others use the cores, theirs wait for each other hundreds of times as long as a product takes.


def _inverse(K: np.ndarray) -> np.ndarray:
    """Of a symmetric positive definite matrix."""
    if not len(K):
        return K
    factor, failed = torch.linalg.cholesky_ex(torch.from_numpy(K))
    if int(failed):
        raise np.linalg.LinAlgError(
            "the map's covariance of a route's measurements is not positive definite"
        )
    return torch.cholesky_inverse(factor).numpy()


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def _combined(rows: np.ndarray, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ_k w_k R[i_k] for rows (P, n), places and weights (a, k): (a, n)."""
    return np.matmul(weights[:, None], rows[places])[:, 0]
