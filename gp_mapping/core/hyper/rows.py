"""Hyper-parameters of a vector field: Fisher scoring on rows, each a place and a component."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import tensor_on
from gp_mapping.core.hyper.evidence import pass_membership
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import sensor_place
from gp_mapping.core.hyper.vector_theta import VectorTheta
from gp_mapping.core.kernels.curl_free import COMPONENTS
from gp_mapping.core.kernels.extents import ends, matter, mean_of_ends

__all__ = ["RowLearner", "field_covariance"]

_STEP = 1e-4  # of a central difference: error 1e-8 of a derivative


def field_covariance(
    theta: VectorTheta,
    vector: Tensor,
    x: Tensor,
    velocity: Tensor,
    heading: Tensor,
    extent: Tensor | None = None,
) -> Tensor:
    """C of the field at rows, without constant, robot and noise: (n, n).

    Args:
        theta: the kernel's form.
        vector: as of VectorTheta.vector (9,).
        x: rows (n, D + 1).
        velocity: (n, D + 1).
        heading: (n, 2).
        extent: of the places that each row averages, along its velocity (n,), m; None: 0.
    """
    here = theta.with_vector(vector)
    places = sensor_place(x, velocity, heading, *vector[4:7].tolist())
    return _covariance_of_averages(here.kernel(), here.lengthscale, places, velocity, extent)


def _covariance_of_averages(
    kernel, length: float, places: Tensor, velocity: Tensor, extent: Tensor | None
) -> Tensor:
    """Covariance by a kernel of lengthscale `length`, m, of averages about places: (n, n)."""
    if not matter(extent, length):
        return kernel(places, places)
    places = ends(places, velocity, extent)
    return mean_of_ends(kernel(places, places))


class RowLearner(HyperLearner):
    """HyperLearner of a VectorTheta: nine numbers, and neighbourhoods of rows.

    The two additional numbers have priors of scale 1 (log vertical²) and 1.5 (artanh γ). `vertical`
    is learned where s_p² is, γ where s² is and the potential is harmonic.

    Args:
        theta: as of HyperLearner.
        prior: as of HyperLearner.
        free: (7,) which entries of Theta.vector are learned; the two others follow s_p² and s².
        others: as of HyperLearner.
    """

    NEIGHBOURS = 240  # rows: eighty places
    BLOCKS = False  # a block of rows costs three times its places
    LEAST = 120
    LONGEST = (*HyperLearner.LONGEST, 0.2, 0.2)

    def __init__(
        self, theta: VectorTheta, prior: VectorTheta, free=(True,) * 5 + (False, False), **others
    ):
        learn = bool(free[1])  # γ is learned with s²
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
        """As HyperLearner.neighbourhood, by the places of the rows."""
        return super().neighbourhood(x[:, :-1], order, generator)

    def score(self, vector: Tensor, data: dict, near: Tensor) -> tuple[Tensor, Tensor]:
        """As HyperLearner.score, (9,) and (9, 9).

            ∂_k = ½ tr[(C⁻¹ − ααᵀ) ∂_kC],   F_kl = ½ tr[C⁻¹ ∂_kC C⁻¹ ∂_lC]

        ∂C of ℓ and of places is a central difference.
        """
        x, velocity, heading, y, extra = (
            data[name][near] for name in ("x", "velocity", "heading", "y", "extra")
        )

        here = self.theta.with_vector(vector)
        row_noise, features = here.row_noise(x[:, -1]), here.feature_rows(x, heading)
        extent = data["extent"][near] if "extent" in data else None
        rows = x, velocity, heading, extent
        field = field_covariance(self.theta, vector, *rows)
        covariance = field + features.mT @ features + torch.diag(row_noise + extra)
        if here.bias_stddev > 0 and data.get("pass_number") is not None:
            together = pass_membership(data["pass_number"][near], here.bias_correlation)
            covariance = covariance + here.bias_stddev**2 * (together @ together.mT)

        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        alpha, size = inverse @ y, len(vector)

        # the product C⁻¹∂C of each free parameter, and αᵀ∂C α
        gradient, products = torch.zeros(size, dtype=torch.float64, device=x.device), {}
        for k in range(size):
            if not self.free[k]:
                continue

            # 2: s_p², 7: vertical², which is in the noise of the third component alone
            if k in (2, 7):
                change = row_noise if k == 2 else row_noise * (x[:, -1].round() == 2)
                products[k], pulled = inverse * change, (alpha.square() * change[:, None]).sum()
            elif k == 3:
                heading_rows = features[-COMPONENTS:]
                products[k], pulled = (
                    (inverse @ heading_rows.mT) @ heading_rows,
                    (heading_rows @ alpha).square().sum(),
                )
            else:
                if k == 8:  # C is linear in γ
                    shifted = replace(here, coherence=here.coherence - 1.0).kernel()
                    places = sensor_place(x, velocity, heading, *vector[4:7].tolist())
                    before = _covariance_of_averages(
                        shifted, here.lengthscale, places, velocity, extent
                    )
                    change = (1.0 - here.coherence**2) * (field - before)
                else:
                    change = field if k == 1 else self._slope(vector, k, rows)
                products[k], pulled = inverse @ change, (alpha * (change @ alpha)).sum()

            gradient[k] = 0.5 * (products[k].diagonal().sum() - pulled)

        information = torch.zeros((size, size), dtype=torch.float64, device=x.device)
        chosen, parts = list(products), torch.stack(list(products.values()))
        # the traces of all pairs of products at once
        pairs = 0.5 * parts.reshape(len(chosen), -1) @ parts.mT.reshape(len(chosen), -1).mT
        where = tensor_on(x.device, chosen, torch.long)
        information[where[:, None], where] = pairs
        return gradient, information

    def _slope(self, vector: Tensor, k: int, rows: tuple) -> Tensor:
        """∂_kC of the field at rows, as of `field_covariance`, by a central difference: (n, n)."""
        beside = []
        for sign in (1.0, -1.0):
            shifted = vector.clone()
            shifted[k] += sign * _STEP
            beside.append(field_covariance(self.theta, shifted, *rows))
        return (beside[0] - beside[1]) / (2 * _STEP)
