"""What a sensor of a limited range can tell of a field that goes beyond it."""

from __future__ import annotations

from torch import Tensor

from gp_mapping.core.types import Prediction
from gp_mapping.settings.mapping import MapSettings

__all__ = ["tells_noise", "told_mean"]


def told_mean(prediction: Prediction, settings: MapSettings) -> Tensor:
    """Return means (N, C) as the sensor can tell them: at most at an end of its range, SI.

    Args:
        prediction: of the field.
        settings: with the range.
    """
    mean = prediction.mean.cpu()
    return mean.clamp(*settings.limits) if settings.censored else mean


def tells_noise(y: Tensor, prediction: Prediction, settings: MapSettings) -> Tensor:
    """Return of which samples, (n,) bool, the error tells the noise: far from a range's end.

    Near an end the errors to one side alone are seen.

    Args:
        y: measurements (n, C), SI.
        prediction: of them.
        settings: with the range.
    """
    low, high = settings.limits
    reach = 2.0 * (prediction.variance + prediction.noise_variance).cpu().sqrt()
    mean = prediction.mean.cpu()
    return ((y > low) & (y < high) & (mean - reach > low) & (mean + reach < high)).all(1)
