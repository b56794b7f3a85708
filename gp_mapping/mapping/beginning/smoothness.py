"""Whether the kernel is looked at again: when the map has several times as many cells.

The first 128 cells are those of a corner, of one lane, of what lies beside it. So at _LOOKS cells
the map is asked for a search among all that it remembers (core/hyper/smoothness.py), a step with
each cell. What it finds clearly likelier, the map takes over, exactly: it does so only while it
remembers every sample. Cells of a robot that stands are one.
"""

from __future__ import annotations

import math

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.hyper.smoothness import KernelSearch
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.start import finds_kernel
from gp_mapping.settings.mapping import MapSettings

__all__ = ["SmoothnessWatch"]

_LOOKS = (256, 512, 1024, 2048)  # cells: with more, one map of them has forgotten some
_NEW = 1.5  # times the cells of the last look, at the end of a drive


class SmoothnessWatch:
    """Counts cells, and looks which kernel they are likeliest under.

    Args:
        settings: of the map.

    Attributes:
        count: cells so far, those of a robot that stands for one.
        search: the look that is under way; None: there is none.
    """

    def __init__(self, settings: MapSettings):
        self._apart = 0.1 * settings.cell_length if settings.cells else -1.0
        self._ahead = _LOOKS if finds_kernel(settings) else ()
        self.count, self._looked = 0, _LOOKS[0] / _NEW
        self._place: list[float] | None = None  # of the last cell that counts
        self.search: KernelSearch | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to look at any more."""
        return not self._ahead and self.search is None

    def stop(self) -> None:
        """Keep the kernel as it is."""
        self._ahead, self.search = (), None

    def add(self, cell: Samples) -> None:
        """Count the rows of a cell that lie elsewhere than the one before."""
        for place in cell.x.tolist():
            if self._place is None or math.dist(place, self._place) > self._apart:
                self.count, self._place = self.count + 1, place

    def look(self, field: FieldMap) -> Theta | None:
        """Do one step where a look is due; θ with another kernel at its end, or None.

        Args:
            field: the map.
        """
        if self.search is None:
            if not self._ahead or self.count < self._ahead[0]:
                return None
            self._begin(field)
            return None
        if not self.search.advance():
            return None
        found, self.search = self.search.clearly, None
        return found

    def _begin(self, field: FieldMap) -> None:
        """Begin to look at all cells so far."""
        self._ahead = tuple(count for count in self._ahead if count > self.count)
        self._looked, self.search = self.count, field.kernel_search()

    def finish(self, field: FieldMap) -> Theta | None:
        """As `look`, to the end, and at what has come since: no more cells may come."""
        found = None
        if self.search is None and self._ahead and self.count >= _NEW * self._looked:
            self._begin(field)
        while self.search is not None and found is None:
            found = self.look(field)
        return found

    # --- resume -----------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "ahead": list(self._ahead),
            "moved": self.count,
            "looked": self._looked,
            "place": self._place and list(self._place),
            "search": self.search and self.search.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self._ahead, self.count = tuple(map(int, state["ahead"])), int(state["moved"])
        self._looked = float(state["looked"])
        self._place = state["place"] and list(map(float, state["place"]))
        self.search = state["search"] and KernelSearch.restored(state["search"])
