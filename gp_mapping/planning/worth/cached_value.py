"""A PathValue that is kept from decision to decision.

Between two decisions a robot measures a few metres. What that does to the covariances of the places
is known without asking the map about the area again. What else may have happened to the map (other
hyper-parameters, something forgotten) shows in the variances of the places, which are compared each
time; where they disagree the value is made anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.worth.path_value import PathValue, Visits

__all__ = ["CachedPathValue"]

# Tolerance: fraction of a measurement's standard deviation at a place, and of the sum of variances.
_AGREE = 0.05
# Fraction of the places that must agree: along the way a map knows more than places can represent.
_PLACES = 0.8
_CELL = 0.1  # m of the way that one measurement of the map stands for
_DECISIONS = 8  # after that many it is made anew in any case


class CachedPathValue:
    """Keeps a PathValue up to date, in slices.

    Attributes:
        made: how often it was made anew.
        kept: how often conditioning on what was driven was enough.
    """

    def __init__(self):
        self.made = self.kept = 0
        self._value: PathValue | None = None
        self._travel: Travel | None = None
        self._key: tuple = ()
        self._cells = self._weights = None
        self._decisions = 0

    def forget(self) -> None:
        """Drop the value: it is of a map that exists no more."""
        self._value = None

    def steps(
        self,
        field,
        travel: Travel,
        cells: Tensor,
        weights: Tensor,
        noise_variance: float,
        driven,
        variance: Tensor,
    ) -> Iterator[PathValue | None]:
        """Yield None between slices and the value at the end.

        Args:
            field: the map, which does not change meanwhile.
            travel: of the places.
            cells: (G, 2) m, as in PathValue.from_map.
            weights: (G,), as in PathValue.from_map.
            noise_variance: SI², of one measurement.
            driven: (K, 2) m, the way since the last call; None where it is not known.
            variance: (P,) SI², the map's variance of the places now.
        """
        held = self._conditioned(travel, cells, weights, noise_variance, driven)
        yield None

        if held is not None and self._agrees(held, variance):
            self.kept, self._decisions = self.kept + 1, self._decisions + 1
        else:
            for held in PathValue.steps(field, travel.xy, cells, weights, noise_variance):
                if held is None:
                    yield None
            self.made, self._decisions = self.made + 1, 0

        self._value, self._travel = held, travel
        self._cells, self._weights = cells, weights
        yield held

    def _conditioned(
        self, travel: Travel, cells: Tensor, weights: Tensor, noise_variance: float, driven
    ) -> PathValue | None:
        """Return the held value after driving on.

        None where it is of another area or noise, too old, or the way driven is unknown.
        """
        held = self._value
        if (
            held is None
            or travel is not self._travel
            or driven is None
            or self._decisions >= _DECISIONS
        ):
            return None

        if cells is not self._cells or not torch.equal(weights, self._weights):
            return None
        if not 0.8 < noise_variance / float(held.noise[0]) < 1.25:
            return None

        driven = np.asarray(driven, dtype=np.float64).reshape(-1, 2)
        if len(driven) < 2:
            return held

        leg = travel.leg_along(driven)
        # One measurement for each _CELL of the way. Where the leg's points are sparser, or do not
        # divide it evenly, each stands for as much of the way as it has.
        each_metre = (len(leg.points) - 1) / max(leg.metres, 1e-9)
        every = max(1, math.floor(_CELL * each_metre))
        x = leg.points[every::every]
        places, weights = travel.interpolation_at(x)
        scale = torch.full((len(x),), _CELL * each_metre / every, dtype=torch.float64)

        # Outside the places the interpolation says nothing.
        near = torch.from_numpy(np.hypot(*(travel.xy[places[:, 0]] - x).T) <= travel.spacing)
        visits = Visits(torch.from_numpy(places), torch.from_numpy(weights), scale)
        return held.after_measuring(visits.select(near))

    @staticmethod
    def _agrees(held: PathValue, variance: Tensor) -> bool:
        """Return whether its variances of the places (P,) are close to the map's."""
        predicted = held.C.diagonal().clamp_min(0.0)
        difference = (predicted.sqrt() - variance.clamp_min(0.0).sqrt()).abs()

        near = float((difference <= _AGREE * (variance + held.noise).sqrt()).double().mean())
        return near >= _PLACES and abs(float(predicted.sum() / variance.sum()) - 1.0) <= _AGREE
