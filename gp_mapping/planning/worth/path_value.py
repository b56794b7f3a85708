"""What a whole path is worth, exactly: the variance that its measurements take off the area.

With places P, cells c of weight w, C = cov(P, P) and S = Σ_c w_c cov(P, c) cov(c, P), the cells
themselves are not needed any more:

    gain of measuring at X          G(X) = tr((C_XX + N)⁻¹ S_XX)
    in the order driven             g = diag(L⁻¹ S_XX L⁻ᵀ),  L Lᵀ = C_XX + N,  Σ g = G
    afterwards                      C − C_PX A,   S − S_PX A − Aᵀ S_XP + Aᵀ S_XX A
    with                            A = (C_XX + N)⁻¹ C_XP

Between places the field is interpolated from the nearest ones (Visits): a winding way, approximated
by a row of places next to it, would seem to measure slopes that it does not. All of it holds for a
Gaussian likelihood at fixed hyper-parameters: variances do not depend on what is measured.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.field_map import Planned
from gp_mapping.core.linalg import cholesky

__all__ = ["PathValue", "Visits", "columns_at", "rows_at"]

_BLOCK = 256  # places of a block of C or S: time and memory alone
_CELLS = 4096  # cells whose covariances are held at once: time and memory alone
_NUMBERS = 300_000  # of paths computed together, in a core's cache: time and memory alone


@dataclass(frozen=True)
class Visits:
    """Measurements between places, each of Σ_k w_k f(p_k).

    Attributes:
        places: (m, k) indices of the places p_k.
        weights: (m, k) w_k.
        scale: (m,) factor on the noise variance of each, where one stands for more of the way than
            another; None: 1 each.
    """

    places: Tensor
    weights: Tensor
    scale: Tensor | None = None

    @staticmethod
    def from_path(path) -> Visits:
        """Return measurements at places (m,); Visits are returned as they are."""
        if isinstance(path, Visits):
            return path
        places = torch.as_tensor(path, dtype=torch.long).reshape(-1, 1)
        return Visits(places, torch.ones(places.shape, dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.places)

    def select(self, chosen: Tensor) -> Visits:
        """Return the measurements that chosen (m,) bool selects."""
        return Visits(
            self.places[chosen],
            self.weights[chosen],
            None if self.scale is None else self.scale[chosen],
        )


@dataclass(frozen=True)
class PathValue:
    """Posterior covariance of the places, and what knowing them is worth.

    Attributes:
        C: (P, P) SI².
        S: (P, P) SI⁴ times the weights' unit.
        noise: (P,) SI², variance of one measurement at each place.
        total: Σ_c w_c var(c), what is left to be known; SI² times the weights' unit.
        mass: Σ_c w_c.
    """

    C: Tensor
    S: Tensor
    noise: Tensor
    total: float
    mass: float = 1.0

    @staticmethod
    @torch.no_grad()
    def from_map(field: Planned, places, cells, weights=None, noise_variance=None) -> PathValue:
        """Return the value under the current map.

        Args:
            field: any map (of one that is solved for in the background, its for_planning()).
            places: (P, 2) m.
            cells: (G, 2) m, where the field is to become known.
            weights: (G,), 1 each where None; areas in m² make an integral.
            noise_variance: SI², of one measurement (a number or (P,)); None takes the map's own.

        Raises:
            ValueError: weights that do not fit the cells or are negative, a variance that is not
                positive, a covariance that is not finite.
        """
        return deque(
            PathValue.steps(field, places, cells, weights, noise_variance, _CELLS), maxlen=1
        )[0]

    @staticmethod
    def steps(
        field: Planned, places, cells, weights=None, noise_variance=None, chunk: int = 128
    ) -> Iterator[PathValue | None]:
        """Compute the value in slices of cells: yield None between them, then the value.

        The map must not change meanwhile: pass a snapshot of it.

        Args:
            field: as in `from_map`, like all that follow but the last.
            places: (P, 2) m.
            cells: (G, 2) m.
            weights: (G,), or None.
            noise_variance: SI², or None.
            chunk: cells of a slice.

        Raises:
            ValueError: as in `from_map`.
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
        C = places.new_empty((len(places), len(places)))
        for rows, part in zip(C.split(_BLOCK), places.split(_BLOCK)):
            rows.copy_(with_places(part)[0])
            yield None
        S = torch.zeros_like(C)
        total = 0.0
        for part, w in zip(cells.split(chunk), weights.split(chunk)):
            # Shapes (g, P) and (g,).
            cross, variance = (part_of_map.cpu().double() for part_of_map in with_places(part))
            weighted = cross * w[:, None]
            # Of the symmetric product the blocks from the diagonal down.
            for first in range(0, len(S), _BLOCK):
                block = slice(first, first + _BLOCK)
                S[first:, block].addmm_(cross[:, first:].mT, weighted[:, block])
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

        _fill_above(S)
        yield None
        C = 0.5 * (C + C.mT)  # rounding is averaged away
        if not (math.isfinite(float(C.sum())) and math.isfinite(float(S.sum()))):
            raise ValueError("the map's covariance between places is not finite")
        yield PathValue(C, S, noise, total, float(weights.sum()))

    def __len__(self) -> int:
        return len(self.noise)

    def gains_at(self, path) -> Tensor:
        """Return the gain (K,) of one measurement at each of the places (K,) alone."""
        path = torch.as_tensor(path, dtype=torch.long)
        return self.S.diagonal()[path] / (self.C.diagonal()[path] + self.noise[path])

    @torch.no_grad()
    def remaining_gains(self, path) -> Tensor:
        """Return the gain (P,) of one more measurement at each place after those of a path.

        Equal to `after_measuring(path).gains_at(places)` of all places, but cheaper.
        """
        path = Visits.from_path(path)
        C, S = self.C.diagonal(), self.S.diagonal()
        if len(path):
            cross, worth, inner, L = self._of(path)
            A = torch.cholesky_solve(cross, L)
            C = C - (cross * A).sum(0)
            # The diagonal of S after the path, as in the module's equation.
            S = S - (A * (2.0 * worth - inner @ A)).sum(0)
        return S / (C + self.noise)

    @torch.no_grad()
    def gains(self, paths: Sequence) -> list[Tensor]:
        """Return what each measurement adds to those before it.

        Args:
            paths: of each path the places (m,), or Visits where measurements lie between places. A
                place may come more than once. Paths of similar length are valued together.

        Returns:
            Of each path (m,), SI² times the weights' unit.
        """
        paths = [Visits.from_path(path) for path in paths]
        out: list[Tensor] = [self.noise.new_empty(0)] * len(paths)

        # Longest first: a batch is padded to its first path, by a third at most.
        order = sorted(
            (i for i in range(len(paths)) if len(paths[i])), key=lambda i: -len(paths[i])
        )

        while order:
            longest = len(paths[order[0]])
            # As many paths at once as the memory for their matrices allows.
            batch_size = max(
                1, _NUMBERS // (longest * max(len(self), longest * paths[order[0]].places.shape[1]))
            )
            batch = [
                i
                for i in order[:batch_size]
                if 4 * len(paths[i]) >= 3 * longest
                and paths[i].places.shape == (len(paths[i]), paths[order[0]].places.shape[1])
            ]

            order = [i for i in order if i not in set(batch)]
            for i, gains in zip(batch, self._together([paths[i] for i in batch], longest)):
                out[i] = gains[: len(paths[i])]
        return out

    def _together(self, paths: list[Visits], longest: int) -> Tensor:
        """Return the gains (B, longest) of paths of similar length.

        Shorter paths are filled up with measurements of weight 0, which gain nothing.
        """
        near = paths[0].places.shape[1]
        index = torch.zeros((len(paths), longest, near), dtype=torch.long)
        weight = torch.zeros((len(paths), longest, near), dtype=torch.float64)
        noise = self.noise[:1].repeat(len(paths), longest)
        for b, path in enumerate(paths):
            index[b, : len(path)], weight[b, : len(path)] = path.places, path.weights
            noise[b, : len(path)] = self.noise_of(path)

        K, S = (_between(m, index, weight) for m in (self.C, self.S))
        # Filled-up measurements have K = noise alone: the factor stays regular.
        K.diagonal(dim1=1, dim2=2).add_(noise)

        L, failed = torch.linalg.cholesky_ex(K)
        for b in failed.nonzero().flatten().tolist():
            L[b] = cholesky(K[b])[0]
        T = torch.linalg.solve_triangular(
            L, torch.eye(longest, dtype=K.dtype).expand_as(L), upper=False
        )
        # L⁻¹ S by substitution: half of what the product of both matrices costs.
        return torch.linalg.solve_triangular(L, S, upper=False).mul_(T).sum(2)

    @torch.no_grad()
    def after_measuring(self, path) -> PathValue:
        """Return the value after measuring at the places (m,) of a path, or along Visits."""
        path = Visits.from_path(path)
        if not len(path):
            return self
        cross, worth, inner, L = self._of(path)
        A = torch.cholesky_solve(cross, L)

        gained = float(torch.cholesky_solve(inner, L).diagonal().sum())
        both = A.mT @ (worth - 0.5 * inner @ A)

        C = torch.addmm(self.C, cross.mT, A, alpha=-1.0)
        return replace(self, C=C, S=self.S.sub(both).sub_(both.mT), total=self.total - gained)

    def _of(self, path: Visits) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return C_XP, S_XP (m, P), S_XX (m, m) and the Cholesky factor of C_XX + N."""
        cross, worth = (rows_at(m, path.places, path.weights) for m in (self.C, self.S))
        K, inner = (columns_at(m, path.places, path.weights) for m in (cross, worth))
        return cross, worth, inner, cholesky(K + torch.diag(self.noise_of(path)))[0]

    def noise_of(self, path: Visits) -> Tensor:
        """Return the noise variance (m,) SI² of each measurement."""
        noise = self.noise[path.places[:, 0]]
        return noise if path.scale is None else noise * path.scale


def _fill_above(matrix: Tensor) -> None:
    """Make a square matrix symmetric, in place, by what stands on and below its diagonal."""
    for first in range(0, len(matrix), _BLOCK):
        block, below = slice(first, first + _BLOCK), slice(first + _BLOCK, None)
        matrix[block, below] = matrix[below, block].mT
        corner = matrix[block, block]
        corner.copy_(corner.tril() + corner.tril(-1).mT)


def rows_at(matrix: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Return Σ_k w_k M[i_k]: (N, P).

    Args:
        matrix: (P, P), M.
        index: (N, k) int, i_k of each row.
        weight: (N, k), w_k of each row.
    """
    return torch.nn.functional.embedding_bag(index, matrix, per_sample_weights=weight, mode="sum")


def columns_at(rows: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Return Σ_k w_k R[:, i_k]: (m, N).

    Args:
        rows: (m, P), R.
        index: (N, k) int, i_k of each column.
        weight: (N, k), w_k of each column.
    """
    return rows_at(rows.mT.contiguous(), index, weight).mT


def _columns(rows: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Return Σ_k w_k R[:, i_k] for rows (B, m, P), index and weight (B, m, k): (B, m, m)."""
    out = None
    for i, w in zip(index.unbind(2), weight.unbind(2)):
        part = rows.gather(2, i[:, None].expand(-1, rows.shape[1], -1))
        out = (
            part.mul_(w[:, None]) if out is None else out.addcmul_(part, w[:, None].expand_as(part))
        )
    return out


def _between(matrix: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Return W M Wᵀ for index, weight (B, m, k): (B, m, m)."""
    batch, m, near = index.shape
    rows = rows_at(matrix, index.reshape(-1, near), weight.reshape(-1, near))
    return _columns(rows.reshape(batch, m, -1), index, weight)
