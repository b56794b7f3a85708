r"""What a route is worth when a few of its legs are exchanged.

The matrices of the route's measurements are cached. Of the measurements X with K = C_XX + N let
B = K⁻¹ and D = B S_XX B. Leaving out R and measuring at A instead changes the gain by

    − tr(B_RR⁻¹ D_RR)
    + tr((C_AA + N_A − C_AJ Q)⁻¹ (S_AA − Qᵀ S_JA − S_AJ Q + Qᵀ S_JJ Q))

with J = X \ R, Q = K_JJ⁻¹ C_JA and K_JJ⁻¹ = B_JJ − B_JR B_RR⁻¹ B_RJ: exact, without a
factorisation of what stays. When an exchange is made, B and D follow by matrices of the rank of R
and A:

    without R   B − E B_RX,          D − E Zᵀ − Z Eᵀ,   E = B_XR B_RR⁻¹,  Z = D_XR − ½ E D_RR
    with A      B + V M Vᵀ,          D + U Vᵀ + V Uᵀ,   V = [Q; −1],  M the inverse of the bracket,
                                                        U = (B S V + ½ V M Vᵀ S V) M

with B of the first line and S of the new measurements in the last. Rows and columns of R are then
zero, and new measurements take their place: no matrix is copied.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix

from gp_mapping.planning.area.approximate_legs import ApproximateLeg
from gp_mapping.planning.worth.path_value import PathValue

__all__ = ["LegExchange"]


_ROWS = 40_000_000  # bytes of covariances of legs with all places that are kept
# Moves after which all matrices are computed anew: until then rounding errors stay below 10⁻⁹.
_MOVES = 50
_ROOM = 16  # free rows for longer routes, and one more for each so many measurements


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
        self.keys = list(keys)
        parts = [self._of(key, leg) for key, leg in zip(keys, legs)]
        count = sum(len(part.noise) for part in parts)
        rows = count + _ROOM + count // _ROOM
        self._free = np.arange(count, rows)

        ends = np.cumsum([0, *(len(part.noise) for part in parts)])
        self._placed = [
            (key, np.arange(first, end)) for key, first, end in zip(keys, ends, ends[1:])
        ]
        places, weights, noise, C_X, S_X = _together(parts)
        self._places, self._weights, self._C_X, self._S_X = (
            np.concatenate([part, np.zeros((rows - count, part.shape[1]), dtype=part.dtype)])
            for part in (places, weights, C_X, S_X)
        )

        self._interpolate()
        K, inner = (_of_rows(self._W[:count], matrix) for matrix in (C_X, S_X))
        # The diagonal.
        K.flat[:: count + 1] += noise

        B = _inverse(K)
        D = _product(_product(B, inner), B)
        self._B, self._D, self._I = (np.pad(part, (0, rows - count)) for part in (B, D, inner))
        self.gain = float(np.vdot(self._B, self._I))
        self._moves = 0

    def _interpolate(self) -> None:
        """Compute the weights (m, P) by which all measurements are interpolated."""
        count, near = self._places.shape
        self._W = csr_matrix(
            (self._weights.ravel(), self._places.ravel(), np.arange(0, count * near + 1, near)),
            (count, len(self._noise)),
        )

    def move_to(
        self, keys: Sequence[tuple[int, int]], legs: dict[tuple[int, int], ApproximateLeg]
    ) -> None:
        """Go on from another route, as `begin` does, for the cost of the legs that differ.

        Args:
            keys: of all legs of the new route, in order.
            legs: by key, all of them.
        """
        removed, added = self._difference(keys, legs)
        R = self._rows(removed)
        A_count = sum(len(part.noise) for _, part in added)
        changed = len(R) + A_count
        if (
            self._moves >= _MOVES
            or A_count > len(R) + len(self._free)
            or 3 * changed > len(self._B) - len(self._free)
        ):
            self.begin(keys, [legs[key] for key in keys])
            return

        left_out = set(removed)
        self.keys = list(keys)
        self._placed = [part for i, part in enumerate(self._placed) if i not in left_out]
        self._leave_out(R)

        # The legs' measurements take the first free rows.
        rows, self._free = np.split(np.sort(np.concatenate([self._free, R])), [A_count])
        ends = np.cumsum([len(part.noise) for _, part in added])[:-1] if added else []
        self._placed += [
            (key, part) for (key, _), part in zip(added, np.split(rows, ends) if added else [])
        ]
        if A_count:
            self._put_in(rows, _together([part for _, part in added]))
        self.gain = float(np.vdot(self._B, self._I))
        self._moves += 1

    def _leave_out(self, R: np.ndarray) -> None:
        """Leave out the measurements in these rows."""
        if not len(R):
            return
        D_RR = _square(self._D, R)
        E = self._B[:, R] @ np.linalg.inv(_square(self._B, R))
        Z = self._D[:, R] - 0.5 * (E @ D_RR)
        _add_product(self._B, -E, self._B[R])
        _add_product(self._D, np.hstack([-E, -Z]), np.hstack([Z, E]).T)
        for matrix in (self._B, self._D, self._I):
            matrix[R] = 0.0
            matrix[:, R] = 0.0

    def _put_in(self, rows: np.ndarray, leg: _Leg) -> None:
        """Measure along a leg, too; its measurements get these rows, which are free."""
        places, weights, noise, C_A, S_A = leg
        Q = _product(self._B, _of_rows(self._W, C_A))
        K = _combined(C_A.T, places, weights) - _of_rows(self._W, C_A).T @ Q
        K.flat[:: len(K) + 1] += noise
        M = np.linalg.inv(K)

        self._places[rows], self._weights[rows] = places, weights
        self._C_X[rows], self._S_X[rows] = C_A, S_A
        self._interpolate()
        S_XA = _of_rows(self._W, S_A)
        self._I[:, rows], self._I[rows] = S_XA, S_XA.T

        V = Q
        V[rows] = -np.eye(len(rows))
        T = _product(self._I, V)
        VM = V @ M
        U = _product(self._B, T) @ M + 0.5 * (VM @ ((V.T @ T) @ M))
        _add_product(self._B, VM, V.T)
        _add_product(self._D, np.hstack([U, V]), np.hstack([V, U]).T)

    @property
    def remaining_gains(self) -> np.ndarray:
        """Gain (P,) of one more measurement at each place."""
        C_X, S_X = self._C_X, self._S_X
        A = _product(self._B, C_X)
        C = self._C.diagonal() - (C_X * A).sum(0)
        S = self._S.diagonal() - (A * (2.0 * S_X - _product(self._I, A))).sum(0)
        return S / (C + self._noise)

    def change(
        self, keys: Sequence[tuple[int, int]], legs: dict[tuple[int, int], ApproximateLeg]
    ) -> float:
        """Return how much more other legs gain.

        Args:
            keys: of all legs of the new route.
            legs: by key, those that are new at least.
        """
        removed, added = self._difference(keys, legs)
        return self._exchanged(self._rows(removed), [part for _, part in added])

    def _difference(self, keys, legs) -> tuple[list[int], list[tuple[tuple[int, int], _Leg]]]:
        """Return which legs, by number, another route does without, and those that are new in it.

        Legs are compared by key, with multiplicity: a route may use one twice.
        """
        remaining = Counter(keys)
        removed = []
        for i, (key, _) in enumerate(self._placed):
            if remaining[key] > 0:
                remaining[key] -= 1
            else:
                removed.append(i)
        return removed, [
            (key, self._of(key, legs[key]))
            for key, count in remaining.items()
            for _ in range(count)
        ]

    def _rows(self, numbers: list[int]) -> np.ndarray:
        """Return the rows of the measurements of legs, by number."""
        return np.concatenate([np.empty(0, dtype=int), *(self._placed[i][1] for i in numbers)])

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

    def _exchanged(self, R: np.ndarray, added: list[_Leg]) -> float:
        """Return the change of gain without the measurements R and with those of other legs."""
        change = 0.0
        if len(R):
            inner = np.linalg.inv(_square(self._B, R))
            change -= float(np.vdot(inner, _square(self._D, R)))
        added = [leg for leg in added if len(leg.noise)]
        if not added:
            return change

        places, weights, noise, C_A, S_A = _together(added)
        C_AX, S_AX = _of_rows(self._W, C_A).T, _of_rows(self._W, S_A).T

        # Here Q is (a, m), the transpose of the module's.
        Q = _product(C_AX.copy(), self._B)
        if len(R):
            Q -= (Q[:, R] @ inner) @ self._B[R]  # zero at R

        worth = (S_AX - 0.5 * _product(Q, self._I)) @ Q.T
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


def _together(legs: list[_Leg]) -> _Leg:
    """Return legs as one."""
    return legs[0] if len(legs) == 1 else _Leg(*map(np.concatenate, zip(*legs)))


def _square(matrix: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the rows and columns (n,) of a matrix."""
    return matrix.take(index, 0).take(index, 1)


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


def _add_product(matrix: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Add a @ b to a matrix, in place."""
    torch.from_numpy(matrix).addmm_(torch.from_numpy(a), torch.from_numpy(b))


def _of_rows(W: csr_matrix, rows: np.ndarray) -> np.ndarray:
    """Return W Rᵀ for W (m, P) and rows (a, P): (m, a)."""
    return W @ rows.T


def _combined(rows: np.ndarray, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ_k w_k R[i_k] for rows (P, n), places and weights (a, k): (a, n)."""
    return np.matmul(weights[:, None], rows[places])[:, 0]
