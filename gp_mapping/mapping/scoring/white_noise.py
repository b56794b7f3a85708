"""The white noise of one measurement: by cell mates, and by the cells before and after."""

from __future__ import annotations

from gp_mapping.core.field_map import VECTOR, FieldMap
from gp_mapping.mapping.gathering import Gathering

__all__ = ["white_noise"]

# Of a gradient (kernels/curl_free.py) the component along a way has the correlation ρ + r ρ′, both
# others ρ. Its term in r⁴, which second differences see, is five times that of ρ.
_OF_A_GRADIENT = 7.0 / 3.0


def white_noise(gathered: Gathering, field: FieldMap) -> tuple[float, float]:
    """White variance of one measurement, and what averaging leaves of it in a cell, squared SI.

    Args:
        gathered: where the samples have come in.
        field: the map, whose hyper-parameters tell the field's share in differences of neighbours.
    """
    settings, neighbours = gathered.settings, gathered.neighbours
    if neighbours.is_due and settings.predictive_noise and settings.metric and field.started:
        learned, factor = field.hyperparameters(), 1.0
        if VECTOR in field.capabilities:
            factor = _OF_A_GRADIENT
        signal = factor * learned["signal_stddev"] ** 2
        neighbours.find(settings.kernel, learned["lengthscale"], signal)
    return gathered.response.white_noise(gathered.cells, neighbours)
