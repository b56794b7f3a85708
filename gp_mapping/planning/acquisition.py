"""What a measurement at a place is worth, from the posterior alone: no measured value is needed."""

from __future__ import annotations

from torch import Tensor

from gp_mapping.core.field_map import Planned

__all__ = ["ACQUISITIONS", "integrated_variance_reduction", "maximum_variance"]

ACQUISITIONS = ("variance", "integrated_variance")

_CHUNK = 512  # candidates at a time, (targets, chunk): time and memory alone


def maximum_variance(field: Planned, candidates: Tensor) -> Tensor:
    """Return the latent variance at candidates, the mean over channels.

    Args:
        field: the map.
        candidates: (K, D) m.

    Returns:
        (K,) SI².
    """
    return field.predict(candidates).variance.mean(1).cpu().double()


def integrated_variance_reduction(
    field: Planned,
    candidates: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    noise_variance: float | None = None,
) -> Tensor:
    """Return by how much one measurement at a candidate lowers the variance over all targets.

        Δ(x) = Σ_g w_g cov(g, x)² / (var(x) + σ²)

    Exact for a Gaussian likelihood and fixed hyper-parameters. The cost is K G covariances, held
    G × 512 at a time.

    Args:
        field: the map.
        candidates: (K, D) metres.
        targets: (G, D) metres.
        weights: (G,), None is one each; areas in m² make an integral.
        noise_variance: σ², SI²; None takes the prediction's, which fantasies condition with.

    Returns:
        (K,): SI² times the unit of the weights.

    Raises:
        ValueError: weights do not fit the targets, or σ² is not positive.

    Reference:
        Cohn, Neural network exploration using optimal experiment design, 1996.
    """
    if noise_variance is not None and not noise_variance > 0:
        raise ValueError(
            f"noise_variance is {noise_variance}, expected a positive variance in squared SI units"
        )
    if weights is not None and weights.shape != targets.shape[:1]:
        raise ValueError(
            f"weights {tuple(weights.shape)} and targets {tuple(targets.shape)}: expected one per target"
        )

    out = candidates.new_empty(len(candidates))
    for start in range(0, len(candidates), _CHUNK):
        part = candidates[start : start + _CHUNK]
        squares = field.covariance(targets, part).cpu().double().square()  # (G, chunk)
        total = squares.sum(0) if weights is None else weights @ squares

        prediction = field.predict(part)
        noise = prediction.noise_variance if noise_variance is None else noise_variance
        # Of several channels the mean.
        out[start : start + _CHUNK] = total / (prediction.variance + noise).mean(1).cpu().double()
    return out
