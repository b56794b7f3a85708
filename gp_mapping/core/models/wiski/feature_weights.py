"""The weights of the features of a map on a lattice, among them the constants of passes.

Constant, body-fixed field and the constants of passes belong to all of the map, so their mean f and
covariance Σ are kept from the last solve of all of it, or of its aggregates (local.py). The spread
s_b of the passes' constants follows from them: it is in none of the sums, and another s_b changes f
and Σ exactly,

    Σ'⁻¹ = Σ⁻¹ + S'⁻¹ − S⁻¹,   f' = Σ' Σ⁻¹ f

No pass can be integrated out of the sums for good, since the rest of them would no longer be a
stencil. Beyond the bound of passes two therefore share a constant, their mean, with the difference
that is known between them; of all pairs, that whose difference is known best.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.models.wiski.bounded import BoundedLattice
from gp_mapping.core.models.wiski.lattice.features import FEATURES, feature_prior, longer
from gp_mapping.core.models.wiski.local import map_features
from gp_mapping.core.models.wiski.pass_constants import bias_evidence_of

__all__ = ["FeatureWeights"]

_MORE = 1.05  # times as many samples, from which f and Σ are computed anew
_NEWEST = 2.0  # times as much known of the newest pass, from which they are
# times the numbers of a lattice of `max_nodes` that the columns of passes may have, 5 a node each
_COLUMNS = 13


class FeatureWeights(BoundedLattice):
    """The part of a LatticeMap that knows the weights of the features.

    Attributes:
        features: f (3 + P, C), Σ (3 + P, 3 + P), the number of samples that they are from, and the
            precision of the newest pass then; None: to be computed.
        max_biases: passes whose constants are kept apart.
    """

    features: tuple | None
    max_biases: int

    def feature_weights(self) -> tuple[Tensor, Tensor]:
        """f and Σ; a pass that has come since they were computed has the prior's."""
        if self.features is None:
            return map_features(self.theta, self.grid)

        f, covariance = self.features[:2]
        fresh = self.grid.width - len(f)
        if not fresh:
            return f, covariance
        prior = feature_prior(self.theta, fresh, self.device)[FEATURES:]
        return longer(f, self.grid.width), torch.block_diag(covariance, prior.diag())

    def keep_weights(self, f: Tensor, covariance: Tensor, samples: int, sums: Tensor) -> None:
        """Keep f and Σ, and learn s_b from them.

        Args:
            f: (3 + P, C).
            covariance: (3 + P, 3 + P) Σ.
            samples: number of samples that they are from.
            sums: F of these samples.
        """
        self.features = f, covariance, samples, self._newest_precision(sums)
        evidence = bias_evidence_of(self.theta, f, covariance)
        if evidence is None or not self.bias_prior > 0:
            return

        before = feature_prior(self.theta, len(f) - FEATURES, self.device)
        if self.use_bias_evidence(evidence):
            after = feature_prior(self.theta, len(f) - FEATURES, self.device)
            use = (before > 0).nonzero()[:, 0]
            precision = torch.linalg.inv(covariance[use[:, None], use])
            pull = precision @ f[use]
            precision.diagonal().add_(1.0 / after[use] - 1.0 / before[use])
            covariance, f = torch.zeros_like(covariance), torch.zeros_like(f)
            covariance[use[:, None], use] = torch.linalg.inv(precision)
            f[use] = torch.linalg.solve(precision, pull)
            self.features = f, covariance, *self.features[2:]
            self.bias_changed()

    def bias_changed(self) -> None:
        """Called when s_b is another one; f and Σ are of it already."""
        self.mark_changed(features=False)

    @staticmethod
    def _newest_precision(sums: Tensor) -> float:
        """Σ β of the newest pass, from F; 0 where there is none."""
        return float(sums[-1, -1]) if len(sums) > FEATURES else 0.0

    def _learn_features(self) -> None:
        """Compute f and Σ anew where a twentieth more is known, or twice as much of a new pass."""
        if not self.samples:
            return
        if self.features is not None:
            f, _, samples, newest = self.features
            known = self._newest_precision(self.grid.features)
            if (
                len(f) == self.grid.width
                and self.samples <= _MORE * samples
                and known <= _NEWEST * newest
            ):
                return
        self.keep_weights(*map_features(self.theta, self.grid), self.samples, self.grid.features)

    # --- more passes than are kept apart ----------------------------------------------------------
    @property
    def most_passes(self) -> int:
        """Passes that may have columns: two at least, fewer where the lattice is large."""
        return max(2, min(self.max_biases, _COLUMNS * self.max_nodes // max(self.grid.nodes, 1)))

    def close_passes(self) -> None:
        """Let passes beyond the bound share a constant with another one."""
        while len(self.grid.numbers) > self.most_passes:
            f, covariance = self.feature_weights()
            i, j = self._best_known_pair(covariance[FEATURES:, FEATURES:])
            leaving, staying = self.grid.numbers[i], self.grid.numbers[j]
            difference = f[FEATURES + i] - f[FEATURES + j]
            self.grid.share_column(leaving, staying, difference)

            memory = self.memory
            memory.keep_columns()
            for number, half in ((leaving, -0.5 * difference), (staying, 0.5 * difference)):
                which = memory.pass_number == number
                memory.y[which] += half
                memory.lam[which] += memory.beta[which, None] * half
            memory.pass_number[memory.pass_number == leaving] = staying
            self.closed_passes += 1
            self.column_left(FEATURES + i)

    def _best_known_pair(self, covariance: Tensor) -> tuple[int, int]:
        """The two passes, but for the newest, whose constants' difference is known best."""
        variance = covariance.diagonal()
        apart = variance[:, None] + variance - 2.0 * covariance
        apart.fill_diagonal_(torch.inf)
        apart[-1], apart[:, -1] = torch.inf, torch.inf
        j, i = divmod(int(apart.argmin()), len(apart))
        return max(i, j), min(i, j)

    def column_left(self, column: int) -> None:
        """Called when the feature of that number is no more."""
        self.mark_changed()

    def renumber(self, by: float) -> None:
        """Add `by` to every pass's number, also in the sums."""
        super().renumber(by)
        self.grid.renumber(by)
