"""The map of the first few cells alone, made anew with each of them.

It begins with all cells that are not far from their median, so none of them decides by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Samples, UpdateReport
from gp_mapping.errors import MapFullError
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.feeding import absorb_batch, forget_elapsed

__all__ = ["FirstMap", "map_first_cells"]


@dataclass
class FirstMap:
    """A map of the first cells, and what it made of them.

    Attributes:
        map: it.
        start: with the starts that the cells show, where the settings leave one open.
        found: whether they leave one open.
        taken: the parts that the map took.
        refused: single cells that it refused, each with the reason.
        report: of the last part; None where it took none.
    """

    map: FieldMap
    start: Start
    found: bool
    taken: list[Samples] = field(default_factory=list)
    refused: list[tuple[Samples, Exception]] = field(default_factory=list)
    report: UpdateReport | None = None

    def absorb(self, parts: list[Samples], forgetting_time: float) -> None:
        """Let the map take in the cells, part by part; between two it forgets for their ages.

        Args:
            parts: the cells, in order of time.
            forgetting_time: s; 0: nothing is forgotten.
        """
        stamp = None
        for part in parts:
            stamp = forget_elapsed(self.map, forgetting_time, stamp, part)
            for each, report in absorb_batch(self.map, part, lambda *why: self.refused.append(why)):
                self.taken.append(each)
                self.report = report

    @property
    def was_full(self) -> bool:
        """Whether it refused a cell because it was full."""
        return any(isinstance(error, MapFullError) for _, error in self.refused)


def map_first_cells(
    first: Samples,
    start: Start,
    before: FieldMap,
    blank: dict,
    new_map: Callable,
    more_to_come: bool,
) -> FirstMap | None:
    """Make the map of the first cells alone.

    Args:
        first: all of them that are not far from their median.
        start: of the map before; it stays as it is.
        before: the map of one cell less. Where the settings leave nothing open and nothing is
            forgotten, the new map is this same object.
        blank: the state of an empty map.
        new_map: makes an empty map of settings and the centre (C,), SI, or None.
        more_to_come: whether other first cells follow.

    Returns:
        The new map; None where it refuses some and more are to come: then the map before stays as
        it was, for too few are there to tell which of them is wild.
    """
    settings, start = start.settings, copy.copy(start)
    found, state = start.set_first_cells(first), None

    # with forgetting each cell enters with its age; the centre is still the median of all
    parts = [first]
    if settings.forgetting_time > 0 and first.stamp is not None:
        parts = [first[i] for i in range(len(first))]
        made = new_map(start.resolved, first.y.median(0).values if settings.metric else None)
    elif found:
        made = new_map(start.resolved, start.centre)
    else:
        made, state = before, before.state_dict()
        made.load_state_dict(blank)

    new, kept = FirstMap(made, start, found), False
    try:
        new.absorb(parts, settings.forgetting_time)
        kept = not new.refused or new.was_full or not more_to_come
    finally:
        # what a question gets now is the map before, never half of a new one
        if state is not None and not kept:
            before.load_state_dict(state)
    if not kept:
        return None
    if new.refused:
        start.keep_taken(new.taken)
    return new
