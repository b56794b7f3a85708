"""What a whole path is worth, exactly: the variance that measuring along it takes off the survey area.

With places P, cells c of weight w, C = cov(P, P) and S = Σ_c w_c cov(P, c) cov(c, P) the cells are needed no more:

    gain of measuring at X          G(X) = tr((C_XX + N)⁻¹ S_XX)
    in the order driven             g = diag(L⁻¹ S_XX L⁻ᵀ),  L Lᵀ = C_XX + N,  Σ g = G
    afterwards                      C − C_PX A,   S − S_PX A − Aᵀ S_XP + Aᵀ S_XX A,   A = (C_XX + N)⁻¹ C_XP

Between places the field is interpolated from the nearest ones (Visits): a winding way that is taken for a row of places
beside it would seem to measure slopes that it does not. All of it holds for a Gaussian likelihood at fixed
hyper-parameters: variances do not depend on what is measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import Planned

__all__ = ["PathValue", "Visits"]

_CELLS = 4096  # cells whose covariances with all places are held at once
_NUMBERS = 4_000_000  # of a batch of paths, held at once


@dataclass(frozen=True)
class Visits:
    """Measurements between places: what is measured is Σ_k w_k f(p_k).

    places: (m, k).  weights: (m, k).  scale: (m,), what the noise variance of each is multiplied by, where one stands
    for more of the way than another; None: 1 each.
    """

    places: Tensor
    weights: Tensor
    scale: Tensor | None = None

    @staticmethod
    def at(path) -> Visits:
        """Of places (m,); Visits stay what they are."""
        if isinstance(path, Visits):
            return path
        places = torch.as_tensor(path, dtype=torch.long).reshape(-1, 1)
        return Visits(places, torch.ones(places.shape, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.places)

    def where(self, chosen: Tensor) -> Visits:
        """Those of them that chosen (m,) bool says."""
        return Visits(
            self.places[chosen],
            self.weights[chosen],
            None if self.scale is None else self.scale[chosen],
        )


@dataclass(frozen=True)
class PathValue:
    """Posterior covariance of the places, and what knowing them is worth.

    C: (P, P) SI².  S: (P, P) SI⁴ times the weights' unit.  noise: (P,) SI², variance of one measurement at each place.
    total: Σ_c w_c var(c), what is left to be known; SI² times the weights' unit.  mass: Σ_c w_c.
    """

    C: Tensor
    S: Tensor
    noise: Tensor
    total: float
    mass: float = 1.0

    @staticmethod
    @torch.no_grad()
    def of(field: Planned, places, cells, weights=None, noise_variance=None) -> PathValue:
        """From what a map says now.

        Args:
            field: any map (of one that is solved for in the background, what its for_planning() gives).
            places: (P, 2) m.
            cells: (G, 2) m, where the field is to become known.
            weights: (G,), 1 each where None; areas in m² make an integral.
            noise_variance: SI², of one measurement (a number or (P,)); None takes the map's own.

        Raises:
            ValueError: weights that do not fit the cells or are negative, a variance that is not positive, a
                covariance that is not finite.
        """
        return deque(
            PathValue.steps(field, places, cells, weights, noise_variance, _CELLS), maxlen=1
        )[0]

    @staticmethod
    def steps(
        field: Planned, places, cells, weights=None, noise_variance=None, chunk: int = 128
    ) -> Iterator[PathValue | None]:
        """The same in slices of `chunk` cells: yields None between them and the value at the end.

        The map must not change meanwhile: give a snapshot of it.
        """
        places, cells = (torch.as_tensor(x, dtype=torch.float64) for x in (places, cells))
        weights = (
            cells.new_ones(len(cells))
            if weights is None
            else torch.as_tensor(weights, dtype=torch.float64)
        )
        if weights.shape != cells.shape[:1]:
            raise ValueError(
                f"weights {tuple(weights.shape)} and cells {tuple(cells.shape)}: expected one per cell"
            )
        if len(weights) and not float(weights.min()) >= 0:
            raise ValueError(f"a weight is {float(weights.min())}, expected 0 or more")

        with_places = field.covariance_with(places)
        C = with_places(places)[0].cpu().double()
        S = torch.zeros_like(C)
        total = 0.0
        yield None
        for part, w in zip(cells.split(chunk), weights.split(chunk)):
            cross, variance = (told.cpu().double() for told in with_places(part))  # (g, P), (g,)
            S.addmm_(cross.mT, cross * w[:, None])
            total += float(w @ variance)
            yield None
        noise = (
            field.predict(places[:1]).noise_variance.mean()
            if noise_variance is None
            else noise_variance
        )
        noise = torch.as_tensor(noise, dtype=torch.float64).cpu().expand(len(places))
        if len(noise) and not float(noise.min()) > 0:
            raise ValueError(
                f"noise_variance is {float(noise.min())}, expected a positive variance in squared SI "
                "units"
            )
        if not (torch.isfinite(C).all() and torch.isfinite(S).all()):
            raise ValueError("the map's covariance between places is not finite")
        yield PathValue(0.5 * (C + C.mT), 0.5 * (S + S.mT), noise, total, float(weights.sum()))

    def __len__(self) -> int:
        return len(self.noise)

    def at(self, path) -> Tensor:
        """Gain (K,) of one measurement at each of the places (K,) alone."""
        path = torch.as_tensor(path, dtype=torch.long)
        return self.S.diagonal()[path] / (self.C.diagonal()[path] + self.noise[path])

    @torch.no_grad()
    def left(self, path) -> Tensor:
        """Gain (P,) of one more measurement at each place after those of a path: `after(path).at(all)`, for less."""
        path = Visits.at(path)
        C, S = self.C.diagonal(), self.S.diagonal()
        if len(path):
            cross, worth, inner, L = self._of(path)
            A = torch.cholesky_solve(cross, L)
            C = C - (cross * A).sum(0)
            S = S - (A * (2.0 * worth - inner @ A)).sum(0)
        return S / (C + self.noise)

    @torch.no_grad()
    def gains(self, paths: Sequence) -> list[Tensor]:
        """What each measurement adds to those before it.

        Args:
            paths: of each path the places (m,), or Visits where measurements lie between places. A place may come
                more than once. Paths of like length are valued together.

        Returns:
            Of each path (m,), SI² times the weights' unit.
        """
        paths = [Visits.at(path) for path in paths]
        out: list[Tensor] = [self.noise.new_empty(0)] * len(paths)
        order = sorted(
            (i for i in range(len(paths)) if len(paths[i])), key=lambda i: -len(paths[i])
        )
        while order:
            longest = len(paths[order[0]])
            most = max(
                1, _NUMBERS // (longest * max(len(self), longest * paths[order[0]].places.shape[1]))
            )
            batch = [
                i
                for i in order[:most]
                if 4 * len(paths[i]) >= 3 * longest
                and paths[i].places.shape == (len(paths[i]), paths[order[0]].places.shape[1])
            ]
            order = [i for i in order if i not in set(batch)]
            for i, gains in zip(batch, self._together([paths[i] for i in batch], longest)):
                out[i] = gains[: len(paths[i])]
        return out

    def _together(self, paths: list[Visits], longest: int) -> Tensor:
        """(B, longest); what a path lacks in length are measurements of nothing, worth nothing."""
        near = paths[0].places.shape[1]
        index = torch.zeros((len(paths), longest, near), dtype=torch.long)
        weight = torch.zeros((len(paths), longest, near), dtype=torch.float64)
        noise = self.noise[:1].repeat(len(paths), longest)
        for b, path in enumerate(paths):
            index[b, : len(path)], weight[b, : len(path)] = path.places, path.weights
            noise[b, : len(path)] = self.noise_of(path)
        K, S = (_between(m, index, weight) for m in (self.C, self.S))
        K.diagonal(dim1=1, dim2=2).add_(noise)
        L = torch.linalg.cholesky(K)
        T = torch.linalg.solve_triangular(
            L, torch.eye(longest, dtype=K.dtype).expand_as(L), upper=False
        )
        return (T @ S).mul_(T).sum(2)

    @torch.no_grad()
    def after(self, path) -> PathValue:
        """The same after measuring at the places (m,) of a path, or along Visits."""
        path = Visits.at(path)
        if not len(path):
            return self
        cross, worth, inner, L = self._of(path)
        A = torch.cholesky_solve(cross, L)
        gained = float(torch.cholesky_solve(inner, L).diagonal().sum())
        both = A.mT @ (worth - 0.5 * inner @ A)
        C = torch.addmm(self.C, cross.mT, A, alpha=-1.0)
        return replace(self, C=C, S=self.S.sub(both).sub_(both.mT), total=self.total - gained)

    def _of(self, path: Visits) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """C_XP, S_XP (m, P), S_XX (m, m) and the Cholesky factor of C_XX + N of a path's measurements X."""
        cross, worth = (_rows(m, path.places, path.weights) for m in (self.C, self.S))
        index, weight = path.places[None], path.weights[None]
        K, inner = (_columns(m[None], index, weight)[0] for m in (cross, worth))
        return cross, worth, inner, torch.linalg.cholesky(K + torch.diag(self.noise_of(path)))

    def noise_of(self, path: Visits) -> Tensor:
        """(m,) SI², variance of each measurement."""
        noise = self.noise[path.places[:, 0]]
        return noise if path.scale is None else noise * path.scale


def _rows(matrix: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Σ_k w_k M[i_k] for index, weight (N, k): (N, P)."""
    return torch.nn.functional.embedding_bag(index, matrix, per_sample_weights=weight, mode="sum")


def _columns(rows: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Σ_k w_k R[:, i_k] for rows (B, m, P), index and weight (B, m, k): (B, m, m)."""
    out = None
    for i, w in zip(index.unbind(2), weight.unbind(2)):
        part = rows.gather(2, i[:, None].expand(-1, rows.shape[1], -1))
        out = (
            part.mul_(w[:, None]) if out is None else out.addcmul_(part, w[:, None].expand_as(part))
        )
    return out


def _between(matrix: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """W M Wᵀ for index, weight (B, m, k): (B, m, m)."""
    batch, m, near = index.shape
    rows = _rows(matrix, index.reshape(-1, near), weight.reshape(-1, near))
    return _columns(rows.reshape(batch, m, -1), index, weight)
