"""Starts from the data: lengthscale, signal and noise where the settings have 0.

A map begins with its first cell, on little more than that cell's value. With each of the first nine
cells (first_values.py), and with 16, 32, 64 and 128, its starts are found anew from all of them,
and the map is made again from the same cells, next to the one that answers (restarted.py):
afterwards it is the map that would have been, had the starts been known beforehand. The first cells
are kept for that, and no more than those.

With 64 and with 128 cells the kernel is found as well, by how smooth the field is along the path.

Cells of a robot that stands tell nothing of the lengthscale, nor of how the field varies: eight of
them count as one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace

import torch

from gp_mapping.core.hyper.first_guess import first_guess, likeliest_kernel
from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.wild import UNLIKELY, first_weights, in_runs, weakened
from gp_mapping.mapping.labels import fractions_above
from gp_mapping.settings.mapping import AUTOMATIC, MapSettings, within_ranges
from gp_mapping.settings.parts import MODELS, VECTOR

__all__ = ["ROUGH", "Start", "finds_kernel"]

_LAST = 128  # cells; their lanes show the lengthscale to a factor of two, then learning goes on
_FIRST = 4  # cells, in the doubling from there to _LAST
ROUGH = 32  # cells up to which the starts before were rough
_STANDING = 8  # cells at one place that count as one, so that standing for long is bounded, too
_LOOKS = 5  # at cells that are wild, each with the weights of the look before
_CONSTANT = 3.0  # signal stddevs by which the mean may lie from the first values' median


class Start:
    """The first cells, and the settings that they make of the given ones.

    Attributes:
        settings: as given.
        resolved: with a number for each start that was automatic.
        centre: (C,) SI, or None.
        found: settings and centre of a map that is being made again; they become `resolved` and
            `centre` once it is there.
        cells: the first cells, batch by batch; empty once no start is open.
        weakened: number of them that all others contradict (wild.py), at the last look.
    """

    def __init__(self, settings: MapSettings):
        self.settings, self.resolved = settings, settings
        self.centre: list[float] | None = None
        self.found: tuple[MapSettings, list[float] | None] = settings, None
        self.cells: list[Samples] = []
        self._moved, self._total, self._next = 0, 0, 1
        self._place: list[float] | None = None  # of the last cell that counts in _moved
        self.weakened = 0
        self._open = any(getattr(settings, name) == 0.0 for name in AUTOMATIC)

    def use_kernel(self, name: str) -> None:
        """Keep that the map was given another kernel (of KERNELS); no other is found any more."""
        if name != self.resolved.kernel:
            self.resolved = replace(self.resolved, kernel=name)
            self.found = replace(self.found[0], kernel=name), self.found[1]
            self.close()

    def set_first_cells(self, first: Samples) -> bool:
        """Set the first cells, as one batch, in place of what was added.

        Returns:
            False where the settings leave nothing open.
        """
        if not self._open:
            return False

        self.cells, self._moved, self._total, self._place = [first], 0, 0, None
        self._add_places(first)
        self._guess()
        self._find_kernel(None)
        self.resolved, self.centre = self.found
        # the next count of cells at which starts are found anew
        while self._next <= self._count:
            self._next = max(_FIRST, 2 * self._next)
        return True

    def add(self, batch: Samples) -> bool:
        """Add one more batch of cells before the map takes it.

        Returns:
            True where a map is to be made anew of `cells`, with the settings of `found`.
        """
        if not self._open:
            return False

        self.cells.append(batch)
        self._add_places(batch)
        if self._count < self._next or self._next > _LAST:
            return False

        self._guess()
        self._find_kernel(self._weaken_wild())
        while self._next <= self._count:
            self._next = max(_FIRST, 2 * self._next)
        return True

    def _weaken_wild(self) -> torch.Tensor | None:
        """Weaken cells that all others contradict, and find the starts without these.

        Returns:
            Which of the rows (N,) are not weakened; None: all.
        """
        s = self.settings
        if not (s.robust and s.metric and s.cells):
            return None
        x, y = _values(self.cells, s)
        weights = first_weights(x, y, self.found[0])
        if bool((weights == 1.0).all()):
            self.weakened = 0
            return None

        weights = self._unmasked(x, y, weights)
        agree = torch.zeros_like(weights, dtype=torch.bool)
        for _ in range(2):
            self._guess(weights == 1.0)
            for _ in range(_LOOKS):
                weights = first_weights(x, y, self.found[0], weights)
                weights = torch.where(agree, 1.0, weights)
            # a wild cell has made its neighbours wild at the first of these looks, not at the last
            agree |= in_runs(weights < 1.0)
            weights = torch.where(agree, 1.0, weights)
            if bool((weights == 1.0).all()):
                self._guess()
                break
        self.weakened = int((weights < 1.0).sum())
        self.cells = weakened(self.cells, weights, self.found[0].noise_stddev)
        return weights == 1.0

    def _unmasked(self, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weights by starts that no suspect cell has a part in: (N,).

        Several wild cells hide behind the noise that all of them together make. So starts are
        found without the suspect ones, and suspects are looked for again, until no more are found.

        Args:
            x: places (N, D), m.
            y: values (N, C), SI.
            weights: by starts from all cells (N,).
        """
        for _ in range(_LOOKS):
            suspect = weights < 1.0
            self._guess(~suspect)
            for _ in range(_LOOKS):
                weights = first_weights(x, y, self.found[0], weights, UNLIKELY)
            weights = torch.where(in_runs(weights < 1.0), 1.0, weights)
            if not bool(((weights < 1.0) & ~suspect).any()):
                break
        return weights

    @property
    def _count(self) -> int:
        """Number of cells so far, those of a robot that stands counted for less."""
        return max(self._moved, self._total // _STANDING)

    def _add_places(self, batch: Samples) -> None:
        """Count the cells of a batch, and those that lie elsewhere than the one before."""
        self._total += len(batch)
        if not self.settings.cells:
            self._moved += len(batch)
            return
        for place in batch.x.tolist():
            apart = 0.1 * self.settings.cell_length
            if self._place is None or math.dist(place, self._place) > apart:
                self._moved, self._place = self._moved + 1, place

    def keep_taken(self, taken: list[Samples], new: int = 1) -> None:
        """Keep only what the map took in place of the newest batches; it is not offered others.

        Args:
            taken: by the map; of the newest batches, or of earlier ones that had waited.
            new: how many batches were added for it.
        """
        if self._open:
            self.cells[len(self.cells) - new :] = taken

    def close(self) -> None:
        """Keep the starts as they are: the map is more than its first cells."""
        self._open, self.cells = False, []

    @property
    def was_guess(self) -> bool:
        """Whether the starts before were a guess, so that predictions with them mean nothing."""
        return self._count <= ROUGH

    def adopt_found(self, taken: list[Samples]) -> None:
        """Take over `found`: the map is made again, and took these cells.

        Past the last start none of them is kept.
        """
        self.resolved, self.centre = self.found
        self.cells = taken
        if self._next > _LAST:
            self._open, self.cells = False, []

    def _guess(self, which: torch.Tensor | None = None) -> None:
        """Find starts from all cells so far, for the settings that are 0.

        Args:
            which: of the rows (N,) count; None: all.
        """
        s = self.settings
        x, y = _values(self.cells, s)
        x, y = (x, y) if which is None else (x[which], y[which])

        guess = first_guess(x, y, s.kernel, s.field_scale)

        guessed, centre = {"lengthscale": guess.lengthscale}, None
        # of classes and counts f has no unit: their spread and centre are the settings'
        if s.metric:
            centre = guess.centre
            signal = s.signal_stddev or guess.signal
            guessed |= {
                "signal_stddev": guess.signal,
                "noise_stddev": guess.noise,
                "constant_stddev": _CONSTANT * signal,
            }

        automatic = {name: value for name, value in guessed.items() if getattr(s, name) == 0.0}
        # a start that the settings give stays as it is
        self.found = replace(s, **within_ranges(automatic)), centre

    def _find_kernel(self, which: torch.Tensor | None) -> None:
        """Find how smooth the field is: wild cells have no part in it, and are judged before.

        Args:
            which: of the rows (N,) count; None: all.
        """
        s, (found, centre) = self.settings, self.found
        if self._count <= ROUGH or not finds_kernel(s):  # of fewer it is hardly told
            return
        x, y = _values(self.cells, s)
        x, y = (x, y) if which is None else (x[which], y[which])
        kernel = likeliest_kernel(x, y, found.lengthscale)
        if kernel != s.kernel:
            length = first_guess(x, y, kernel, s.field_scale).lengthscale
            self.found = (
                replace(found, kernel=kernel, **within_ranges({"lengthscale": length})),
                centre,
            )

    def state_dict(self) -> dict:
        """Return the starts found so far, and the first cells where more are to be found."""
        return {
            "resolved": {name: getattr(self.resolved, name) for name in (*AUTOMATIC, "kernel")},
            "centre": self.centre,
            "found": {name: getattr(self.found[0], name) for name in (*AUTOMATIC, "kernel")},
            "found_centre": self.found[1],
            "count": self._moved,
            "total": self._total,
            "place": self._place and list(self._place),
            "next": self._next,
            "open": self._open,
            "weakened": self.weakened,
            "cells": [{f.name: getattr(c, f.name) for f in fields(c)} for c in self.cells],
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken, with these settings."""
        self.resolved = MapSettings(**asdict(self.settings) | state["resolved"])

        self.found = self.resolved, state["centre"]
        # absent in maps of a version that made the map again at once
        if "found" in state:
            self.found = (
                MapSettings(**asdict(self.settings) | state["found"]),
                state["found_centre"],
            )

        self.centre, self._moved, self._next = (
            state["centre"],
            int(state["count"]),
            int(state["next"]),
        )
        # absent in maps of a version that counted all cells alike
        self._total = int(state.get("total", self._moved))
        # absent in maps of a version that took wild cells for the field
        self.weakened = int(state.get("weakened", 0))
        place = state.get("place")
        self._place = None if place is None else list(map(float, place))

        self._open, self.cells = bool(state["open"]), [Samples(**c) for c in state["cells"]]


def finds_kernel(settings: MapSettings) -> bool:
    """Whether the kernel is found from the first cells, as the other starts are."""
    s = settings
    is_open = s.learn_smoothness and s.learn_hyperparameters and s.lengthscale == 0.0
    is_plain = s.kernel == "matern52" and s.long_share == 0.0 and not MODELS.has(s.model, VECTOR)
    return is_open and is_plain and s.metric and not s.censored


def _values(cells: list[Samples], settings: MapSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """Places (N, D) m, and what lies there as the latent field would have it: (N, C).

    Of classes, whether it is the commonest one.
    """
    together = Samples.concatenate(cells, common=True)
    x, y = together.x, together.y
    if settings.likelihood == "poisson":
        return x, (y.clamp_min(0.0) + 0.5).log()
    if settings.labels:
        x, share = fractions_above(together, settings.threshold)
        return x, 2.0 * share - 1.0
    if settings.of_classes:
        return x, 2.0 * (y == y.mode(0).values).double() - 1.0
    return x, y
