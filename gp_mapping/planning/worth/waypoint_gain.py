"""What a line through waypoints gains, and how that changes as they are moved.

With W the weights by which measurements X are interpolated from places, B = (W C Wᵀ + N)⁻¹ and
D = B W S Wᵀ B, the gain is G = tr(B W S Wᵀ), and

    ∂G/∂W = 2 (B W S − D W C),    ∂G/∂N_ii = − D_ii,

from which the chain rule leads to the positions of measurements, and to those of the waypoints
between which they lie: one gradient costs no more than a few gains, for any number of waypoints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from gp_mapping.core.linalg import cholesky
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.worth.path_value import PathValue

__all__ = ["WaypointGain"]


class _Gain(NamedTuple):
    """A gain, SI² times the weights' unit, and its gradient (K, 2) by the waypoints."""

    gain: float
    gradient: np.ndarray


class WaypointGain:
    """The gain of measuring along straight pieces between waypoints.

    Args:
        value: of the places.
        travel: has the places.
        step: metres of a piece for each measurement, about. The noise variance of each is that of
            a measurement for each travel.step, so that a metre tells as much whatever the step is.
    """

    def __init__(self, value: PathValue, travel: Travel, step: float):
        self._C, self._S, self._noise = value.C.numpy(), value.S.numpy(), value.noise.numpy()
        self._travel, self._step = travel, step

    def __call__(self, x: np.ndarray) -> _Gain:
        """Return the gain of the line through x (K, 2) m, and its gradient."""
        pieces = np.diff(x, axis=0)
        metres = np.hypot(*pieces.T)
        counts = np.maximum(1, np.ceil(metres / self._step - 1e-9).astype(int))
        piece = np.repeat(np.arange(len(counts)), counts)
        share = (np.arange(len(piece)) - (np.cumsum(counts) - counts)[piece] + 0.5) / counts[piece]
        share = share[:, None]
        places, weights, slopes = self._travel.interpolation_slopes_at(
            (1.0 - share) * x[piece] + share * x[piece + 1]
        )
        # A piece without length measures nothing: the floor keeps its noise finite.
        length = np.maximum(metres, 1e-3 * self._step)
        scale = self._travel.step * counts / length
        noise = self._noise[places[:, 0]] * scale[piece]

        # Of each measurement the covariances of its places with all measurements: (m, k, m).
        C_PX, S_PX = (self._with_all(matrix, places, weights) for matrix in (self._C, self._S))
        K, inner = (torch.from_numpy(_combined(part, weights)) for part in (C_PX, S_PX))
        K.diagonal().add_(torch.from_numpy(noise))
        B = torch.cholesky_inverse(cholesky(K)[0])
        D = (B @ inner @ B).numpy()
        gain = float(torch.tensordot(B, inner))

        by_weights = 2.0 * (S_PX @ B.numpy()[..., None] - C_PX @ D[..., None])[..., 0]
        by_x = np.einsum("ik,ikd->id", by_weights, slopes)
        gradient = np.zeros_like(x)
        np.add.at(gradient, piece, (1.0 - share) * by_x)
        np.add.at(gradient, piece + 1, share * by_x)

        # A longer piece has less noise.
        by_length = np.bincount(piece, D.diagonal() * noise, len(counts)) / length
        ahead = pieces * (by_length * (metres >= length) / length)[:, None]
        gradient[1:] += ahead
        gradient[:-1] -= ahead
        return _Gain(gain, gradient)

    @staticmethod
    def _with_all(matrix: np.ndarray, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return M W^T at the places (m, k) of each measurement: (m, k, m)."""
        return np.ascontiguousarray(_combined(matrix[places], weights).T)[places]


def _combined(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Σ_k w_k R_k for rows (m, k, n) and weights (m, k): (m, n)."""
    return np.matmul(weights[:, None], rows)[:, 0]
