"""WISKI with the published posterior as a map: a root of WᵀD⁻¹W of rank r, no iterations.

    A = Σ β w wᵀ = L Lᵀ,   Q = I + LᵀKL,   P = K − K L Q⁻¹ Lᵀ K,   c = Σ w λ
    mean = wᵀP c,   var = wᵀP w

Both are of the interpolated kernel, so that what interpolation drops, k − wᵀK w, is in neither.

w: sixteen weights on the lattice, and the features [1, ĥ, e_p] below them. K: block-diagonal with
the features' prior. L and its pseudo-inverse root follow every sample (lattice/root.py); where the
sums change otherwise (θ, another lattice, merging, forgetting near a place), a pivoted Cholesky of
the sums makes them anew. Sums, memory, learner and transfers are those of every map on a lattice.

A root that lacks what a sample says beyond its range would make P c wrong by any amount, since c
has all of it. So one that has reached its rank is made anew from the sums, which are exact, with
twice the rank, once; a map that outgrows this one too is solved for like the matrix-free form, from
the same sums, by conjugate gradients.

Other differences from the paper: the lattice follows the robot, there are features, and θ is
learned from neighbourhoods in place of one step of the evidence a sample (DenseWiski has that).

Reference:
    Stanton et al. 2021.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.models.wiski.lattice.features import feature_prior, feature_rows, longer
from gp_mapping.core.models.wiski.lattice.root import RootCache
from gp_mapping.core.models.wiski.lattice.sites import OFFSETS, GridSites
from gp_mapping.core.models.wiski.lattice_map import LatticeMap
from gp_mapping.core.models.wiski.local import WiskiLocal
from gp_mapping.core.models.wiski.posterior import WiskiPosterior
from gp_mapping.core.models.wiski.published_posterior import PublishedPosterior
from gp_mapping.core.models.wiski.refresh import Refresh

__all__ = ["PublishedWiski"]

_MOST = 16384  # nodes of the box: the root, its inverse and the posterior hold r numbers for each


class PublishedWiski(LatticeMap):
    """LatticeMap with the posterior of the paper.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI).
        rank: of the root; the largest is WIDEST times that.
        max_nodes: of the box.
        settings: LatticeMap's.

    Attributes:
        root: L and J; None where they have to be made from the sums, or where the map has outgrown
            them.
        held: (n,) flat numbers of the nodes that the root has rows for, after the features' rows.
        slot: (H·W,) place in `held` of each node of the box, −1 where there is none.
        widened: whether the root may have the larger rank.
        outgrown: whether the larger rank does not suffice either.

    Reference:
        Stanton et al. 2021.
    """

    fitting = (*LatticeMap.fitting, "rank")
    WIDEST = 2
    # of the mean where it is solved for, in posterior standard deviations, as Wiski's
    tolerance = 0.05

    def __init__(self, theta: Theta, *, rank: int = 400, max_nodes: int = _MOST, **settings):
        super().__init__(theta, max_nodes=min(max_nodes, _MOST), **settings)
        self.rank = rank
        self.root: RootCache | None = None
        self.widened, self.outgrown = False, False

    def allocate(self, dimension: int, channels: int) -> None:
        """As SparseMap.allocate; the root is made with the first samples."""
        super().allocate(dimension, channels)
        self.root = None

    @property
    def start_f(self) -> Tensor:
        """Where a solve for the features' weights starts: at 0, so that no state depends on it."""
        width = self.grid.width
        return torch.zeros((width, self.grid.channels), dtype=torch.float64, device=self.device)

    # --- the root ---------------------------------------------------------------------------------
    def on_samples_added(self, places: Tensor, covariates: Tensor, beta: Tensor) -> None:
        """As LatticeMap.on_samples_added: a column of the root for each beyond its range."""
        if self.samples == 0 and self.root is None:
            self._make(
                RootCache(self.grid.width, self.grid.width, self.device),
                torch.zeros(0, dtype=torch.long, device=self.device),
            )

        if self.outgrown:
            return
        if self.root is None:  # a root of the sums, which have these samples already
            self._anew()
            return

        self._follow()
        # rows √β [φ, w] of the new samples, on the nodes about them
        first, weights = self.grid.weights(self.grid.units(places))
        nodes, scale = first[:, None] + self.grid.stencil_steps, beta.sqrt()

        # nodes that no sample has touched before get rows of zeros
        fresh = nodes.unique()
        fresh = fresh[self.slot[fresh] < 0]
        if len(fresh):
            self.slot[fresh] = len(self.held) + torch.arange(len(fresh), device=self.device)
            self.held = torch.cat([self.held, fresh])
            for name in ("L", "J"):
                old = getattr(self.root, name)
                setattr(
                    self.root, name, torch.cat([old, old.new_zeros((len(fresh), old.shape[1]))])
                )

        phi, width = feature_rows(covariates), self.grid.width
        for i in range(len(places)):
            row = torch.zeros(width + len(self.held), dtype=torch.float64, device=self.device)
            row[:width] = phi[i] * scale[i]
            row[width + self.slot[nodes[i]]] = weights[i] * scale[i]
            self.root.add(row)
            # the rank does not suffice: the sums have what was dropped
            if self.root.dropped:
                self._anew()
                return

    @property
    def max_columns(self) -> int:
        """The most columns that the root may have now."""
        return self.rank * (self.WIDEST if self.widened else 1)

    def _whole(self) -> tuple[RootCache, Tensor, bool] | None:
        """A root of all that the sums hold.

        Returns:
            The root, the nodes of its rows, and whether it has the larger rank; None where that
            does not suffice either.
        """
        for widened in (False, True)[self.widened :]:
            root, held = root_from_sums(self.grid, self.rank * (self.WIDEST if widened else 1))
            if not root.dropped:
                return root, held, widened
        return None

    def _anew(self) -> None:
        """Make the root from the sums: of the larger rank if needed, none if that is too small."""
        complete = self._whole()
        if complete is None:
            self.root, self.outgrown = None, True
            return
        self.widened = complete[2]
        self._make(*complete[:2])

    def _make(self, root: RootCache, held: Tensor) -> None:
        """Take a root whose rows are the features, then the nodes `held` (n,) of the box."""
        self.root, self.held, self._box = root, held, (self.grid.low, self.grid.shape)
        root.rank = self.max_columns
        self.slot = torch.full((self.grid.nodes,), -1, dtype=torch.long, device=self.device)
        self.slot[held] = torch.arange(len(held), device=self.device)

    def _follow(self) -> None:
        """Renumber the root's nodes where the box has grown, and give new passes rows of 0."""
        (low, shape), grid = self._box, self.grid
        had = len(self.root.L) - len(self.held)
        if had < grid.width:
            for name in ("L", "J"):
                features, nodes = getattr(self.root, name).tensor_split([had])
                setattr(self.root, name, torch.cat([longer(features, grid.width), nodes]))
        if (low, shape) != (grid.low, grid.shape):
            row, column = (
                self.held // shape[1] + low[0] - grid.low[0],
                self.held % shape[1] + low[1] - grid.low[1],
            )
            self._make(self.root, row * grid.shape[1] + column)

    def mark_changed(self, features: bool = True) -> None:
        """As LatticeMap.mark_changed; the root is made anew from the sums."""
        super().mark_changed(features)
        self.root = None

    def bias_changed(self) -> None:
        """As FeatureWeights.bias_changed; the root stays."""
        root = self.root
        super().bias_changed()
        self.root = root  # s_b is in none of the sums, so it is not in their root

    def respace(self, spacing: float, anchor: Tensor | None = None) -> None:
        """As BoundedLattice.respace; the smaller rank may do again."""
        super().respace(spacing, anchor)
        self.widened, self.outgrown = False, False  # another lattice may need less

    def remove_samples(self, gone: Tensor, near: Tensor, radius: float) -> None:
        """As LatticeMap.remove_samples; what remains may fit the smaller rank again."""
        super().remove_samples(gone, near, radius)
        self.widened, self.outgrown = False, False

    def _scale(self, factor: float) -> None:
        """Scale all sums, and the root with them."""
        root = self.root
        super()._scale(factor)
        # `mark_changed` has discarded the root, which follows a factor exactly
        self.root = None if root is None else root.scaled(factor)

    # --- posterior --------------------------------------------------------------------------------
    @property
    @torch.no_grad()
    def posterior(self) -> PublishedPosterior | WiskiPosterior:
        """The posterior of the present sums; nothing is iterated, unless the root was outgrown."""
        self.need_data()
        if self._posterior is None:
            rooted = None if self.outgrown else self._rooted()
            self._posterior = self._solved() if rooted is None else self._direct(*rooted)
        return self._posterior

    def _rooted(self) -> tuple[RootCache, Tensor] | None:
        """The root and the nodes of its rows, or None; asking changes nothing that is saved."""
        if self.root is None:
            rooted = self._whole()
            return None if rooted is None else rooted[:2]
        return self.root, self.held

    def _solved(self) -> WiskiPosterior:
        """The posterior of the same sums by conjugate gradients."""
        refresh = Refresh.start(self)
        refresh.solve.run()
        return refresh.result()[0]

    def _direct(self, root: RootCache, held: Tensor) -> PublishedPosterior:
        """The published posterior from a root.

        Args:
            root: a root of all that the sums hold.
            held: (n,) the nodes of its rows, after the features' rows.
        """
        grid = self.grid
        L, width = root.L, grid.width
        prior = feature_prior(self.theta, len(grid.numbers), self.device)[:, None]

        def times(v: Tensor) -> Tensor:
            """K v of all nodes, the features first: (F + H·W, C) for v (F + n, C)."""
            wide = v.new_zeros((v.shape[1], grid.nodes)).index_copy_(1, held, v[width:].mT)
            wide = self.kernel_grid().apply(wide.view(-1, *grid.shape))
            return torch.cat([prior * v[:width], wide.reshape(v.shape[1], -1).mT])

        # in parts of 32 columns, since K L has a number for each node of the box
        KL = torch.cat([times(part) for part in L.split(32, 1)], 1) if L.shape[1] else L
        rows = torch.cat([torch.arange(width, device=self.device), width + held])
        q = L.mT @ KL[rows]
        factor, self.jitter = cholesky(
            0.5 * (q + q.mT) + torch.eye(len(q), dtype=q.dtype, device=q.device)
        )

        V, KV = solve_lower(factor, L.mT).mT, solve_lower(factor, KL.mT).mT.contiguous()

        # mean = wᵀK p with p = c − V Vᵀ K c, and P w from V, K V
        c = torch.cat([grid.linear, grid.rhs[held]])
        projected = KV[rows].mT @ c

        return PublishedPosterior(
            self.theta,
            self.scaling,
            self.noise_level,
            grid.low,
            grid.shape,
            grid.spacing,
            grid.shift,
            held,
            V,
            KV,
            c - V @ projected,
            times(c) - KV @ projected,
            grid.numbers,
        )

    def snapshot(
        self, near: Tensor | None = None, reach: float = 0.0
    ) -> WiskiLocal | PublishedPosterior | WiskiPosterior:
        """As FieldMap.snapshot: the neighbourhood of `near`, without a factorisation; else all."""
        return self.posterior if near is None else self.local_posterior(near, reach)

    def load_snapshot(self, state: dict) -> WiskiLocal | WiskiPosterior:
        """A snapshot from its `state_dict`: a neighbourhood, or a posterior that was solved for."""
        return (WiskiLocal if "local_x" in state else WiskiPosterior).from_state_dict(
            state, self.device
        )

    def counters(self) -> dict[str, int | float]:
        """Counters, also of the root.

        `root_rank`: columns. `root_outgrown`: 1 where the larger root was made, 2 where the map is
        solved for.
        """
        rank = 0 if self.root is None else self.root.L.shape[1]
        return super().counters() | {
            "root_rank": rank,
            "root_outgrown": 2 if self.outgrown else int(self.widened),
        }

    def notes(self) -> list[str]:
        """Also that the root was outgrown."""
        notes = super().notes()
        if self.outgrown:
            notes.append(
                f"the published form of wiski has more to hold than a root of rank {self.max_columns} can "
                f"({self.WIDEST} times max_inducing): its mean is solved for by conjugate gradients, as "
                "matrix_free does it; write wiski_form: matrix_free, which does it in steps, or raise "
                "max_inducing"
            )
        return notes

    def fantasize(self, x: Tensor) -> PublishedWiski:
        """A copy conditioned on its own mean at x (K, 2)."""
        before, inner, new = self.posterior, self.scaling.inner_x(x), self.duplicate()
        if len(inner):
            self._fantasy(before, new, inner)
        return new

    # --- copies and files -------------------------------------------------------------------------
    def duplicate(self) -> PublishedWiski:
        """An independent copy; L and J of a root are replaced, never written in place."""
        new = super().duplicate()
        if self.root is not None:
            new.root, new.slot = copy.copy(self.root), self.slot.clone()
        return new

    def _saved_parts(self) -> dict:
        """The root of the sums, too, for a file."""
        root = self.root
        if root is not None:
            root = root.state_dict() | {"held": self.held.clone()}
        return super()._saved_parts() | {
            "form": "dense",
            "root": root,
            "widened": self.widened,
            "outgrown": self.outgrown,
        }

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """The root of a file, too; ValueError where the file is of the other form."""
        if state["form"] != "dense":
            raise ValueError(f"the state is of a {state['form']} form, this map of the dense one")
        parts = super()._loaded_parts(state, parts) | {
            "root": None,
            "outgrown": bool(state.get("outgrown", False)),
            "widened": bool(state.get("widened", False)),
        }

        # a root of an older version lacks what was beyond its rank: it is made anew from the sums
        if state["root"] is None or state["root"]["dropped"]:
            return parts

        held, grid = state["root"]["held"].to(self.device, copy=True), parts["sites"]
        left, right = (state["root"][name].shape for name in "LJ")
        known = bool(((held >= 0) & (held < grid.nodes)).all())
        if left != right or left[0] != grid.width + len(held) or not known:
            raise ValueError(
                f"not a state of a {self.name} map: its root is not of the features and nodes of its sums"
            )
        slot = torch.full((grid.nodes,), -1, dtype=torch.long, device=self.device)
        slot[held] = torch.arange(len(held), device=self.device)

        width = self.rank * (self.WIDEST if parts["widened"] else 1)
        root = RootCache.from_state_dict(state["root"], width, self.device)
        return parts | {"root": root, "held": held, "slot": slot, "_box": (grid.low, grid.shape)}


def root_from_sums(grid: GridSites, rank: int) -> tuple[RootCache, Tensor]:
    """A root of the sums by pivoted Cholesky, in O(m r²).

    Args:
        grid: the sums, on m nodes.
        rank: the most columns.

    Returns:
        The root, whose `dropped` is 0 where it has everything, and the nodes of its rows.
    """
    m, width = grid.nodes, grid.shape[1]
    diagonal = torch.cat([grid.stencil[:, 0], grid.features.diagonal()]).clamp_min(0.0)
    floor, root = 1e-13 * float(diagonal.max()), RootCache(m + grid.width, rank, grid.device)

    ahead = torch.tensor([i * width + j for i, j in OFFSETS], device=grid.device)
    columns = torch.zeros(
        (m + grid.width, min(rank, m + grid.width)), dtype=torch.float64, device=grid.device
    )

    count, remaining = 0, diagonal.clone()
    while count < columns.shape[1] and float(remaining.max()) > floor:
        pivot = int(remaining.argmax())

        # column of A at the pivot: a feature's from the border, a node's from both halves of its
        # stencil
        column = torch.zeros_like(diagonal)
        if pivot >= m:
            column[:m], column[m:] = grid.border[:, pivot - m], grid.features[pivot - m]
        else:
            after, before = pivot + ahead, pivot - ahead[1:]
            inside = after < m
            column[after[inside]] = grid.stencil[pivot][inside]
            entry, inside = torch.arange(1, len(OFFSETS), device=grid.device), before >= 0
            column[before[inside]] = grid.stencil[before[inside], entry[inside]]
            column[m:] = grid.border[pivot]

        # less what earlier columns explain, as in any Cholesky factorisation
        column = (column - columns[:, :count] @ columns[pivot, :count]) / remaining[pivot].sqrt()
        columns[:, count], count = column, count + 1
        remaining = (remaining - column.square()).clamp_min(0.0)
        remaining[pivot] = 0.0

    held = (diagonal[:m] > 0).nonzero()[:, 0]
    root.L = torch.cat([columns[m:, :count], columns[held, :count]])
    # what remains below the floor is rounding
    root.dropped = float(remaining.sum()) if float(remaining.max()) > floor else 0.0
    root.J = root.L
    if count:
        root.recondition()
    return root, held
