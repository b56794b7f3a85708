"""Starts from the data: what a map takes for lengthscale, signal and noise where the settings say 0.

A map begins with its first cell, on little more than that cell's value. With each of the first nine cells
(first_values.py), and with 16, 32, 64 and 128, its starts are found anew from all of them, and the map is made again
from the same cells, beside the one that answers (again.py): afterwards it is the map that would have been, had the
starts been known beforehand. The first cells are kept for that, and no more than those.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import torch

from gp_mapping.core.hyper.first_guess import first_guess
from gp_mapping.core.types import Samples
from gp_mapping.mapping.labels import shares_above
from gp_mapping.settings.mapping import AUTOMATIC, MapSettings, within_ranges

__all__ = ["Start"]

_LAST = (
    128  # cells; their lanes tell the lengthscale to a factor of two, and learning does the rest
)
_FIRST = 4
_ROUGH = 32  # cells up to which the starts before were rough
_CONSTANT = (
    3.0  # signal standard deviations by which the mean may lie from the first values' median
)


class Start:
    """The first cells, and the settings that they make of the given ones.

    settings: as given.  resolved: with a number for each start that was automatic.  centre: (C,) SI, or None.  found:
    such settings and centre of a map that is being made again, which are these when it is there.
    """

    def __init__(self, settings: MapSettings):
        self.settings, self.resolved = settings, settings
        self.centre: list[float] | None = None
        self.found: tuple[MapSettings, list[float] | None] = settings, None
        self.cells: list[Samples] = []
        self._count, self._next = 0, 1
        self._open = any(getattr(settings, name) == 0.0 for name in AUTOMATIC)

    def open_with(self, first: Samples) -> bool:
        """The first cells, as one batch, in place of what was added; False where the settings leave nothing open."""
        if not self._open:
            return False
        self.cells, self._count = [first], len(first)
        self._guess()
        self.resolved, self.centre = self.found
        while self._next <= self._count:
            self._next = max(_FIRST, 2 * self._next)
        return True

    def add(self, batch: Samples) -> bool:
        """One more batch of cells before the map takes it; True: a map is to be made anew of `cells`, as `found`."""
        if not self._open:
            return False
        self.cells.append(batch)
        self._count += len(batch)
        if self._count < self._next or self._next > _LAST:
            return False

        self._guess()
        while self._next <= self._count:
            self._next = max(_FIRST, 2 * self._next)
        return True

    def keep(self, taken: list[Samples]) -> None:
        """Of the newest batch the map took these parts; what it refused is not offered again."""
        if self._open:
            self.cells[-1:] = taken

    def close(self) -> None:
        """What the starts are now they remain: the map is more than its first cells."""
        self._open, self.cells = False, []

    @property
    def rough(self) -> bool:
        """Whether the starts before these were little more than a guess: what a map said with them means nothing."""
        return self._count <= _ROUGH

    def done(self, taken: list[Samples]) -> None:
        """The map is made again of the cells, and took these; past the last start nothing of them is kept."""
        self.resolved, self.centre = self.found
        self.cells = taken
        if self._next > _LAST:
            self._open, self.cells = False, []

    def _guess(self) -> None:
        s = self.settings
        guess = first_guess(*_values(self.cells, s), s.kernel, s.field_scale)
        found, centre = {"lengthscale": guess.lengthscale}, None
        if s.metric:
            centre = guess.centre
            signal = s.signal_stddev or guess.signal
            found |= {
                "signal_stddev": guess.signal,
                "noise_stddev": guess.noise,
                "constant_stddev": _CONSTANT * signal,
            }
        chosen = {name: value for name, value in found.items() if getattr(s, name) == 0.0}
        self.found = replace(s, **within_ranges(chosen)), centre

    def state_dict(self) -> dict:
        return {
            "resolved": {name: getattr(self.resolved, name) for name in AUTOMATIC},
            "centre": self.centre,
            "found": {name: getattr(self.found[0], name) for name in AUTOMATIC},
            "found_centre": self.found[1],
            "count": self._count,
            "next": self._next,
            "open": self._open,
            "cells": [{f.name: getattr(c, f.name) for f in fields(c)} for c in self.cells],
        }

    def load_state_dict(self, state: dict) -> None:
        self.resolved = MapSettings(**asdict(self.settings) | state["resolved"])
        self.found = self.resolved, state["centre"]
        if "found" in state:  # else of a version that made the map again at once
            self.found = (
                MapSettings(**asdict(self.settings) | state["found"]),
                state["found_centre"],
            )
        self.centre, self._count, self._next = (
            state["centre"],
            int(state["count"]),
            int(state["next"]),
        )
        self._open, self.cells = bool(state["open"]), [Samples(**c) for c in state["cells"]]


def _values(cells: list[Samples], settings: MapSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """Places (N, D) m, and what lies there as the latent field would have it: (N, C).

    Of classes, whether it is the commonest one.
    """
    together = Samples.concatenate(cells, common=True)
    x, y = together.x, together.y
    if settings.likelihood == "poisson":
        return x, (y.clamp_min(0.0) + 0.5).log()
    if settings.labels:
        x, share = shares_above(together, settings.threshold)
        return x, 2.0 * share - 1.0
    if settings.likelihood == "softmax":
        return x, 2.0 * (y == y.mode(0).values).double() - 1.0
    return x, y
