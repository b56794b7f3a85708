"""What one map can show of several channels: a vector's norm, or the most likely class."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from gp_mapping.mapping.drawing.vector import axis_names, norm

__all__ = ["ShownChannels", "layer_names", "show"]


class ShownChannels(NamedTuple):
    """What a grid shows of a map's channels.

    Attributes:
        mean: (…), of the field, the norm or the most likely class.
        stddev: (…), of the same.
        mean_each: (C, …) of each channel; None where there is one.
        stddev_each: (C, …) of each channel; None where there is one.
        classes: (…) the most likely class; None where there are none.
    """

    mean: Tensor
    stddev: Tensor
    mean_each: Tensor | None = None
    stddev_each: Tensor | None = None
    classes: Tensor | None = None


def show(mean: Tensor, variance: Tensor, classes: bool = False, excess=0.0) -> ShownChannels:
    """Reduce channels to what one map can show.

    Args:
        mean: (C, …), in the unit.
        variance: (C, …), its square.
        classes: whether channels are classes; then the largest one counts.
        excess: (…), of the norm's variance (vector.norm).
    """
    stddev = variance.clamp_min(0.0).sqrt_()
    if classes:
        most_likely = mean.argmax(0)
        largest, deviation = (values.gather(0, most_likely[None])[0] for values in (mean, stddev))
        return ShownChannels(largest, deviation, mean, stddev, most_likely)

    if len(mean) == 1:
        return ShownChannels(mean[0], stddev[0])
    return ShownChannels(*norm(mean, variance, excess), mean, stddev)


def layer_names(channels: int, classes: bool = False) -> tuple[str, ...]:
    """Name the layers of the channels.

    Args:
        channels: C, numbers in a measurement.
        classes: whether channels are classes.

    Returns:
        x y z of a vector, 0 … C − 1 of classes, () of one channel.
    """
    return tuple(map(str, range(channels))) if classes else axis_names(channels)
