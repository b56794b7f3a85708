"""A word to who calls a map from Python with values in another unit than its settings are in.

A session finds the starts of a map from its first cells; a map that is made by itself has those of
its settings, which are a magnetic field's in tesla. Of values in microtesla, or of about 1, it
would be sure to a millionth of its errors.
"""

from __future__ import annotations

import warnings

from torch import Tensor

__all__ = ["FIRST", "warn_of_other_unit"]

_CREDIBLE = 30.0  # prior standard deviations by which half of a batch may lie from the centre
FIRST = 100  # so many samples are looked at


def warn_of_other_unit(y: Tensor, theta, scale: float) -> None:
    """Warn where most of a batch lies where the prior says that no field can be.

    Args:
        y: values about the centre (N, C), inner units.
        theta: hyper-parameters of the map (core.hyper.Theta).
        scale: SI per inner unit.
    """
    prior = (theta.signal_stddev**2 + theta.constant_stddev**2 + theta.noise_stddev**2) ** 0.5
    if float(y.abs().amax(1).median()) > _CREDIBLE * prior:
        warnings.warn(
            f"values lie more than {_CREDIBLE:.0f} times the prior's standard deviation, "
            f"{prior * scale:.2g}, from the first ones: the map will be far too sure of itself. Are they "
            "in another unit than the settings? Set signal_stddev and noise_stddev in the unit of the "
            "values, and field_scale to about the size of their variation",
            stacklevel=2,
        )
