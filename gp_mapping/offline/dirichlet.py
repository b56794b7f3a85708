"""Classification as regression with fixed noise (Milios et al. 2018), on the dense WISKI.

There is one latent field for each class. A label gives each class α = α_ε, and its own class α_ε +
1. A Gamma(α) is matched by a log-normal with σ̃² = log(1 + 1/α) and target log α − ½ σ̃². Class
probabilities are the softmax of the latent fields, averaged over the posterior.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.offline.dense_wiski import DenseWiski

__all__ = ["DirichletWiski", "dirichlet_targets"]


def dirichlet_targets(labels: Tensor, classes: int, epsilon: float = 0.01) -> tuple[Tensor, Tensor]:
    """Targets log α − ½σ̃² and noise variances σ̃² = log(1 + 1/α), each (N, classes).

    Args:
        labels: (N,) in 0 … classes − 1.
        classes: their number.
        epsilon: α_ε.

    Raises:
        ValueError: a label is none of the classes.
    """
    labels = labels.long()
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(
            f"labels lie in {int(labels.min())} … {int(labels.max())}, expected 0 … {classes - 1}"
        )

    alpha = torch.full((len(labels), classes), epsilon, dtype=torch.float64)
    alpha[torch.arange(len(labels)), labels] += 1.0
    variance = torch.log1p(1.0 / alpha)
    return alpha.log() - 0.5 * variance, variance


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
        self.classes, self.epsilon = classes, epsilon
        self.fields = [
            DenseWiski(low, high, shape, fixed_noise=True, **settings) for _ in range(classes)
        ]
        # prior mean of a class without labels nearby: the average of its targets under labels of
        # all classes alike
        even, _ = dirichlet_targets(torch.arange(classes), classes, epsilon)
        self.centre = float(even[:, 0].mean())

        self.draws = torch.randn(
            (samples, classes), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )

    def observe(self, x: Tensor, labels: Tensor, learn: bool = True) -> None:
        """Absorb x (N, D) and labels (N,)."""
        targets, variance = dirichlet_targets(labels, self.classes, self.epsilon)
        for k, field in enumerate(self.fields):
            field.observe(x, targets[:, k] - self.centre, variance[:, k], learn)

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """E[softmax f] at x (N, D): (N, C)."""
        mean, variance = (
            torch.stack(part, 1) for part in zip(*(field.predict(x) for field in self.fields))
        )
        latent = mean + variance.sqrt() * torch.cat([self.draws, -self.draws])[:, None]
        return torch.softmax(latent, -1).mean(0)
