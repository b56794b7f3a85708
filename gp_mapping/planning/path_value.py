"""What a whole path is worth, exactly: the variance that measuring along it takes off the survey area.

With places P, cells c of weight w, C = cov(P, P) and S = Σ_c w_c cov(P, c) cov(c, P) the cells are needed no more:

    gain of measuring at X          G(X) = tr((C_XX + N)⁻¹ S_XX)
    in the order driven             g = diag(L⁻¹ S_XX L⁻ᵀ),  L Lᵀ = C_XX + N,  Σ g = G
    afterwards                      C − C_PX A,   S − S_PX A − Aᵀ S_XP + Aᵀ S_XX A,   A = (C_XX + N)⁻¹ C_XP

All of it holds for a Gaussian likelihood at fixed hyper-parameters: variances do not depend on what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap

__all__ = ["PathValue"]

_CELLS = 4096  # cells whose covariances with all places are held at once
_NUMBERS = 4_000_000  # of a batch of paths, held at once


@dataclass(frozen=True)
class PathValue:
    """Posterior covariance of the places, and what knowing them is worth.

    C: (P, P) SI².  S: (P, P) SI⁴ times the weights' unit.  noise: (P,) SI², variance of one measurement at each place.
    total: Σ_c w_c var(c), what is left to be known; SI² times the weights' unit.
    """

    C: Tensor
    S: Tensor
    noise: Tensor
    total: float

    @staticmethod
    @torch.no_grad()
    def of(field: FieldMap, places, cells, weights=None, noise_variance=None) -> PathValue:
        """From what a map says now.

        Args:
            field: any map; the more it has learned the less is left.
            places: (P, 2) m.
            cells: (G, 2) m, where the field is to become known.
            weights: (G,), 1 each where None; areas in m² make an integral.
            noise_variance: SI², of one measurement (a number or (P,)); None takes the map's own.

        Raises:
            ValueError: weights that do not fit the cells or are negative, a variance that is not positive, a
                covariance that is not finite.
        """
        places, cells = (torch.as_tensor(x, dtype=torch.float64) for x in (places, cells))
        weights = cells.new_ones(len(cells)) if weights is None else torch.as_tensor(weights, dtype=torch.float64)
        if weights.shape != cells.shape[:1]:
            raise ValueError(f"weights {tuple(weights.shape)} and cells {tuple(cells.shape)}: expected one per cell")
        if len(weights) and not float(weights.min()) >= 0:
            raise ValueError(f"a weight is {float(weights.min())}, expected 0 or more")

        C = field.covariance(places, places).cpu().double()
        S = torch.zeros_like(C)
        total = 0.0
        for part, w in zip(cells.split(_CELLS), weights.split(_CELLS)):
            cross = field.covariance(part, places).cpu().double()  # (g, P)
            S.addmm_(cross.mT, cross * w[:, None])
            total += float(w @ field.predict(part).variance.mean(1).cpu().double())
        noise = field.predict(places[:1]).noise_variance.mean() if noise_variance is None else noise_variance
        noise = torch.as_tensor(noise, dtype=torch.float64).cpu().expand(len(places))
        if len(noise) and not float(noise.min()) > 0:
            raise ValueError(f"noise_variance is {float(noise.min())}, expected a positive variance in squared SI units")
        if not (torch.isfinite(C).all() and torch.isfinite(S).all()):
            raise ValueError("the map's covariance between places is not finite")
        return PathValue(0.5 * (C + C.mT), 0.5 * (S + S.mT), noise, total)

    def __len__(self) -> int:
        return len(self.noise)

    def at(self, path) -> Tensor:
        """Gain (K,) of one measurement at each of the places (K,) alone."""
        path = torch.as_tensor(path, dtype=torch.long)
        return self.S.diagonal()[path] / (self.C.diagonal()[path] + self.noise[path])

    @torch.no_grad()
    def gains(self, paths: Sequence) -> list[Tensor]:
        """What each measurement adds to those before it: of each path (m,) of places, (m,).

        Paths of like length are valued together. A place may come more than once.
        """
        paths = [torch.as_tensor(path, dtype=torch.long) for path in paths]
        out: list[Tensor] = [self.noise.new_empty(0)] * len(paths)
        order = sorted((i for i in range(len(paths)) if len(paths[i])), key=lambda i: -len(paths[i]))
        while order:
            longest = len(paths[order[0]])
            batch = [i for i in order[: max(1, _NUMBERS // longest**2)] if 4 * len(paths[i]) >= 3 * longest]
            order = order[len(batch):]
            index = torch.nn.utils.rnn.pad_sequence([paths[i] for i in batch], batch_first=True, padding_value=-1)
            for i, gains in zip(batch, self._padded(index)):
                out[i] = gains[: len(paths[i])]
        return out

    def _padded(self, index: Tensor) -> Tensor:
        """The same for (B, m) places; −1 is none, and worth nothing."""
        none, index = index < 0, index.clamp_min(0)
        flat = (index[:, :, None] * len(self) + index[:, None, :]).reshape(len(index), -1)
        shape = (*index.shape, index.shape[1])
        K, S = (m.reshape(-1).take(flat).reshape(shape) for m in (self.C, self.S))
        if bool(none.any()):
            gone = none[:, :, None] | none[:, None, :]
            K.masked_fill_(gone, 0.0)
            S.masked_fill_(gone, 0.0)
        K.diagonal(dim1=1, dim2=2).add_(torch.where(none, 1.0, self.noise[index]))
        L = torch.linalg.cholesky(K)
        T = torch.linalg.solve_triangular(L, torch.eye(shape[1], dtype=K.dtype).expand_as(L), upper=False)
        return (T @ S).mul_(T).sum(2)

    @torch.no_grad()
    def after(self, path) -> PathValue:
        """The same after measuring at the places (m,) of a path."""
        path = torch.as_tensor(path, dtype=torch.long)
        if not len(path):
            return self
        K = self.C[path][:, path] + torch.diag(self.noise[path])
        L = torch.linalg.cholesky(K)
        cross, worth = self.C[path], self.S[path]  # (m, P)
        A = torch.cholesky_solve(cross, L)
        inner = worth[:, path]  # (m, m)
        gained = float(torch.cholesky_solve(inner, L).diagonal().sum())
        both = A.mT @ (worth - 0.5 * inner @ A)
        return replace(self, C=self.C - cross.mT @ A, S=self.S - both - both.mT, total=self.total - gained)
