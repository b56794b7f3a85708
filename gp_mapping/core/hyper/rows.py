"""Hyper-parameters of a vector field: Fisher scoring on rows, each a place and a component."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import sensor_place
from gp_mapping.core.hyper.vector_theta import VectorTheta
from gp_mapping.core.kernels.curl_free import COMPONENTS

__all__ = ["RowLearner", "field_covariance"]

_STEP = 1e-4  # of a central difference: error 1e-8 of a derivative


def field_covariance(
    theta: VectorTheta, vector: Tensor, x: Tensor, velocity: Tensor, heading: Tensor
) -> Tensor:
    """C of the field at rows x (n, D + 1), without constant, robot and noise. vector (9,): VectorTheta.vector()."""
    places = sensor_place(x, velocity, heading, *vector[4:7].tolist())
    return theta.with_vector(vector).kernel()(places, places)


class RowLearner(HyperLearner):
    """HyperLearner of a VectorTheta: nine numbers, and neighbourhoods of rows.

    prior, prior_sd: of log vertical² 1 ± 1 in the logarithm, of artanh γ 0 ± 1.5.  learn_ratio: both are learned.
    """

    NEIGHBOURS = 240  # rows: eighty places
    BLOCKS = False  # a block of rows costs three times its places
    LEAST = 120
    LONGEST = (*HyperLearner.LONGEST, 0.2, 0.2)

    def __init__(
        self, theta: VectorTheta, prior: VectorTheta, free=(True,) * 5 + (False, False), **others
    ):
        learn = bool(free[1])  # with s²
        harmonic = learn and theta.potential == "harmonic"
        super().__init__(
            theta,
            prior,
            prior_sd=(1.0, 2.0, 3.0, 1.0, 0.2, 0.05, 0.05, 1.0, 1.5),
            free=(*free, bool(free[2]), harmonic),
            **others,
        )

    def neighbourhood(
        self, x: Tensor, order: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, int]:
        return super().neighbourhood(x[:, :-1], order, generator)

    def score(self, vector: Tensor, data: dict, near: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (9,) of −log evidence, Fisher information (9, 9); ∂C of ℓ and places by central differences.

        ∂_k = ½ tr[(C⁻¹ − ααᵀ) ∂_kC],  F_kl = ½ tr[C⁻¹ ∂_kC C⁻¹ ∂_lC]
        """
        x, velocity, heading, y, extra = (
            data[name][near] for name in ("x", "velocity", "heading", "y", "extra")
        )
        here = self.theta.with_vector(vector)
        own, features = here.row_noise(x[:, -1]), here.feature_rows(x, heading)
        field = field_covariance(self.theta, vector, x, velocity, heading)
        covariance = field + features.mT @ features + torch.diag(own + extra)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        alpha, size = inverse @ y, len(vector)
        gradient, products = torch.zeros(size, dtype=torch.float64, device=x.device), {}
        for k in range(size):
            if not self.free[k]:
                continue
            if k in (2, 7):
                some = own if k == 2 else own * (x[:, -1].round() == 2)
                products[k], pulled = inverse * some, (alpha.square() * some[:, None]).sum()
            elif k == 3:
                turned = features[-COMPONENTS:]
                products[k], pulled = (
                    (inverse @ turned.mT) @ turned,
                    (turned @ alpha).square().sum(),
                )
            else:
                if k == 8:  # C is linear in γ
                    there = replace(here, coherence=here.coherence - 1.0).kernel()
                    places = sensor_place(x, velocity, heading, *vector[4:7].tolist())
                    change = (1.0 - here.coherence**2) * (field - there(places, places))
                else:
                    change = field if k == 1 else self._slope(vector, k, x, velocity, heading)
                products[k], pulled = inverse @ change, (alpha * (change @ alpha)).sum()
            gradient[k] = 0.5 * (products[k].diagonal().sum() - pulled / y.shape[1])
        information = torch.zeros((size, size), dtype=torch.float64, device=x.device)
        chosen, parts = list(products), torch.stack(list(products.values()))
        pairs = (
            0.5 * parts.reshape(len(chosen), -1) @ parts.mT.reshape(len(chosen), -1).mT
        )  # tr of all products
        information[torch.tensor(chosen)[:, None], torch.tensor(chosen)] = pairs
        return gradient, information

    def _slope(
        self, vector: Tensor, k: int, x: Tensor, velocity: Tensor, heading: Tensor
    ) -> Tensor:
        """∂_kC of the field by a central difference: (n, n)."""
        ends = []
        for sign in (1.0, -1.0):
            there = vector.clone()
            there[k] += sign * _STEP
            ends.append(field_covariance(self.theta, there, x, velocity, heading))
        return (ends[0] - ends[1]) / (2 * _STEP)
