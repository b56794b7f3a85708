"""Posteriors of a while ago, which predict what comes now, and the places they had measured."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.core.field_map import FieldMap, Snapshot

__all__ = ["KeptPosterior", "KeptPosteriors"]

_MOST = 4  # half a distance apart


class KeptPosterior(NamedTuple):
    """A posterior as it was.

    Attributes:
        at: length of the path then, m.
        posterior: of the map.
        places: where remembered samples of it were measured, near the robot, (m, D) m; None: not
            known.
    """

    at: float
    posterior: Snapshot
    places: Tensor | None


class KeptPosteriors:
    """The newest posteriors, half a distance of the path apart.

    Args:
        distance: by which a posterior is older than what it predicts, m of the path.
        places: whether places are kept.
    """

    def __init__(self, distance: float, places: bool):
        self._distance, self._places = distance, places
        self._kept: deque[KeptPosterior] = deque(maxlen=_MOST)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, length: float, field: FieldMap, place: Tensor, reach: float) -> None:
        """Keep the posterior of now, where the path has grown by half a distance since the last.

        Args:
            length: of the path, m.
            field: the map.
            place: (1, D) m, the robot; the posterior is needed around it only.
            reach: of a cell, m.
        """
        if self._kept and length - self._kept[-1].at < self._distance / 2:
            return
        # later samples lie at most 1.5 distances and a cell farther along the path
        reach = 1.6 * self._distance + reach
        posterior, places = field.snapshot(place, reach), None
        if self._places:
            near = field.remembered_places()
            if len(near):  # else of a map that remembers none
                far = reach + 2.0 * field.hyperparameters()["lengthscale"]
                places = near[((near - place.to(near)).norm(dim=1) <= far)].cpu()
        self._kept.append(KeptPosterior(length, posterior, places))

    def before(self, length: float) -> Snapshot | None:
        """The newest one that is a distance older than a path of this length, m."""
        old = [kept.posterior for kept in self._kept if length - kept.at >= self._distance]
        return old[-1] if old else None

    @property
    def oldest(self) -> KeptPosterior | None:
        """The oldest one; None: there is none."""
        return self._kept[0] if self._kept else None

    @property
    def posteriors(self) -> list[Snapshot]:
        """All of them, the oldest first."""
        return [kept.posterior for kept in self._kept]

    def leave(self, length: float) -> None:
        """Forget them where the path, of that length (m), has gone on without a new one."""
        if self._kept and length - self._kept[-1].at > self._distance:
            self._kept.clear()

    def state_dict(self) -> list[dict]:
        """For an exact resume.

        Where a model's posteriors are not kept, scores pause for a distance after a resume.
        """
        return [
            {"at": kept.at, "posterior": posterior, "places": kept.places}
            for kept in self._kept
            if (posterior := kept.posterior.state_dict()) is not None
        ]

    def load_state_dict(self, state: list[dict], field: FieldMap) -> None:
        """Continue where state_dict was taken, also of older versions.

        Args:
            state: as of state_dict.
            field: the map, whose posteriors they are.
        """
        for each in state:
            places = each.get("places")  # absent in maps of a version that knew of none
            places = None if places is None else torch.as_tensor(places, dtype=torch.float64)
            posterior = field.load_snapshot(each["posterior"])
            self._kept.append(KeptPosterior(float(each["at"]), posterior, places))
