"""Classification as regression with fixed noise (Milios et al. 2018), on the dense WISKI.

Targets, noise and class probabilities are those of the likelihood `dirichlet`
(core/likelihoods/dirichlet.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.dirichlet import Dirichlet
from gp_mapping.offline.dense_wiski import DenseWiski

__all__ = ["DirichletWiski"]


class DirichletWiski:
    """A DenseWiski with fixed noise for each class.

    Each field is about the mean of its targets under labels of all classes alike.

    Args:
        classes: C.
        low: as of DenseWiski.
        high: as of DenseWiski.
        shape: as of DenseWiski.
        epsilon: α_ε.
        samples: of the posterior, in the average of the softmax.
        seed: of these samples.
        settings: of DenseWiski.
    """

    def __init__(
        self,
        classes: int,
        low,
        high,
        shape,
        *,
        epsilon: float = 0.01,
        samples: int = 256,
        seed: int = 0,
        **settings,
    ):
        self.likelihood = Dirichlet(classes, epsilon)
        self.fields = [
            DenseWiski(low, high, shape, fixed_noise=True, **settings) for _ in range(classes)
        ]
        self.draws = torch.randn(
            (samples, classes), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )

    def observe(self, x: Tensor, labels: Tensor, learn: bool = True) -> None:
        """Absorb labelled samples, each field its own targets and variances.

        Args:
            x: places (N, D).
            labels: of classes, 0 … C − 1, (N,).
            learn: as of DenseWiski.observe.
        """
        targets, variance = self.likelihood.targets(labels[:, None].to(torch.float64))
        for k, field in enumerate(self.fields):
            field.observe(x, targets[:, k] - self.likelihood.centre, variance[:, k], learn)

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """E[softmax f] at x (N, D): (N, C)."""
        mean, variance = (
            torch.stack(part, 1) for part in zip(*(field.predict(x) for field in self.fields))
        )
        latent = mean + variance.sqrt() * torch.cat([self.draws, -self.draws])[:, None]
        return torch.softmax(latent, -1).mean(0)
