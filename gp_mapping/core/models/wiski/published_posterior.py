"""The published posterior of WISKI on a box of a lattice, from a root: nothing is iterated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.wiski.lattice.features import FEATURES, feature_prior, features_at
from gp_mapping.core.models.wiski.lattice.interpolation import stencil_nodes
from gp_mapping.core.models.wiski.pass_constants import PassConstants
from gp_mapping.core.scaling import Scaling

__all__ = ["PublishedPosterior"]

_CHUNK = 512  # places at a time: time and memory alone


@dataclass(frozen=True)
class PublishedPosterior(PassConstants):
    """The published posterior: mean = wᵀK p, var = wᵀK w − |wᵀK V|².

    Attributes:
        theta: hyper-parameters in inner units.
        scaling: of places and values.
        noise_variance: of a measurement.
        low: first node of the box.
        shape: (H, W) nodes of the box.
        spacing: of the lattice, m.
        shift: (2,) of local coordinates on the lattice, in spacings.
        held: (n,) flat numbers of the nodes that samples touch.
        V: (F + n, r) L chol(Q)⁻ᵀ, the rows of the F = 3 + P features first.
        KV: (F + H·W, r) K V.
        p: (F + n, C) representer weights.
        Kp: (F + H·W, C) K p.
        numbers: of the P passes.
    """

    theta: Theta
    scaling: Scaling
    noise_variance: float
    low: tuple[int, int]
    shape: tuple[int, int]
    spacing: float
    shift: Tensor
    held: Tensor
    V: Tensor
    KV: Tensor
    p: Tensor
    Kp: Tensor
    numbers: tuple[float, ...] = ()

    @property
    def _features(self) -> int:
        """Number F of features."""
        return FEATURES + len(self.numbers)

    def feature_moments(self) -> tuple[Tensor, Tensor]:
        """As PassConstants.feature_moments."""
        rows, prior = (
            self.KV[: self._features],
            feature_prior(self.theta, len(self.numbers), self.KV.device),
        )
        return self.Kp[: self._features], torch.diag(prior) - rows @ rows.mT

    def _rows(
        self, x: Tensor, heading: Tensor | None, number: float | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """K V and K p at places, with the interpolation.

        Args:
            x: (N, 2) standardised places.
            heading: (N, 2) ĥ; None leaves the robot out.
            number: of the pass whose constant is included; None: of none.

        Returns:
            wᵀK [V p] (N, r + C), weights (N, 16), φ (N, F).
        """
        phi = features_at(self.theta, x, heading, self.numbers, number)
        corner, weights = stencil_nodes(x / self.spacing + self.shift)
        steps = torch.arange(16, device=x.device)
        number = torch.stack(
            [corner[:, :1] + steps // 4, corner[:, 1:] + steps % 4], -1
        )  # (N, 16, 2)
        low, size = (torch.tensor(v, device=x.device) for v in (self.low, self.shape))
        inside = ((number >= low) & (number < low + size)).all(2).all(1)

        both = torch.cat([self.KV, self.Kp], 1)
        flat = ((number - low)[..., 0] * self.shape[1] + (number - low)[..., 1]).clamp(
            0, len(both) - 1 - self._features
        )
        out = torch.einsum("na,nar->nr", weights, both[self._features + flat])

        nodes = torch.stack([self.held // self.shape[1], self.held % self.shape[1]], 1) + low
        nodes, far = (nodes.double() - self.shift) * self.spacing, (~inside).nonzero()[:, 0]
        # nodes beyond the box: K between them and the held nodes, directly
        for i in far.split(64) if len(far) else ():
            places = (number[i].reshape(-1, 2).double() - self.shift) * self.spacing
            values = (
                self.theta.kernel()(places, nodes)
                @ torch.cat([self.V, self.p], 1)[self._features :]
            )
            out[i] = torch.einsum("na,nar->nr", weights[i], values.view(len(i), 16, out.shape[1]))

        return out + phi @ both[: self._features], weights, phi

    def _lattice_prior(self, weights: Tensor) -> Tensor:
        """Prior variance wᵀK w of the interpolated field at one place each: (N,)."""
        # K is stationary: one block of sixteen nodes serves all places
        steps = torch.arange(16, device=weights.device)
        block = torch.stack([steps // 4, steps % 4], 1).double() * self.spacing
        return ((weights @ self.theta.kernel()(block, block)) * weights).sum(1)

    def _lattice_covariance(self, a: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
        """Prior covariance wᵀK v of the interpolated field between all places: (N, K).

        Args:
            a: (N, 2) standardised places.
            w: (N, 16) their weights.
            b: (K, 2) standardised places.
            v: (K, 16) their weights.
        """
        steps = torch.arange(16, device=a.device)
        block = torch.stack([steps // 4, steps % 4], 1)
        nodes = [
            ((x / self.spacing + self.shift).floor()[:, None] - 1 + block).reshape(-1, 2)
            * self.spacing
            for x in (a, b)
        ]

        out = a.new_empty((len(a), len(b)))
        for i in range(0, len(a), 32):
            k = self.theta.kernel()(nodes[0][16 * i : 16 * (i + 32)], nodes[1]).view(
                -1, 16, len(b), 16
            )
            out[i : i + 32] = torch.einsum("na,nakc,kc->nk", w[i : i + 32], k, v)
        return out

    def mean(self, x: Tensor, heading: Tensor | None = None) -> Tensor:
        """Mean (N, C) at standardised places; differentiable in x.

        Args:
            x: (N, 2), standardised.
            heading: ĥ (N, 2); with it the body-fixed field is included.
        """
        return self._rows(x, heading)[0][:, self.V.shape[1] :]

    @torch.no_grad()
    def predict_inner(
        self, x: Tensor, heading: Tensor | None = None, number: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """As PassConstants.predict_inner: wᵀK p, and the prior variance − |wᵀK V|²."""
        prior_f = feature_prior(self.theta, len(self.numbers), x.device)
        rank, means, variances = (
            self.V.shape[1],
            [x.new_empty((0, self.p.shape[1]))],
            [x.new_empty(0)],
        )

        for i in range(0, len(x), _CHUNK):
            part = slice(i, i + _CHUNK)
            rows, weights, phi = self._rows(
                x[part], None if heading is None else heading[part], number
            )
            prior = self._lattice_prior(weights) + (phi.square() * prior_f).sum(1)

            means.append(rows[:, rank:])
            variances.append((prior - rows[:, :rank].square().sum(1)).clamp_min(0.0))

        return torch.cat(means), torch.cat(variances)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance: wᵀP w'."""
        a, b = self.scaling.inner_x(a), self.scaling.inner_x(b)
        if not len(a) or not len(b):
            return a.new_zeros((len(a), len(b)))
        (rows_a, w, phi), (rows_b, v, psi) = self._rows(a, None), self._rows(b, None)

        rank = self.V.shape[1]
        prior = (
            self._lattice_covariance(a, w, b, v)
            + (phi * feature_prior(self.theta, len(self.numbers), a.device)) @ psi.mT
        )
        joint = prior - rows_a[:, :rank] @ rows_b[:, :rank].mT
        return joint * self.scaling.scale**2
