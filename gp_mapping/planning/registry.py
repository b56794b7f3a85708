"""Planners by name: of this package, registered by another one, or found by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points

from gp_mapping.errors import not_one_of
from gp_mapping.planning.problem import Problem

__all__ = [
    "GROUP",
    "Planner",
    "anytime",
    "find_planner",
    "is_anytime",
    "planner_names",
    "register",
]

GROUP = "gp_mapping.planners"
"""Entry point group: name = "package.module:planner"."""

Planner = Callable[[Problem], Iterator[tuple[int, ...]]]
"""Yields stops (nodes of problem.travel, in order), the best so far, and is asked again \
until it ends.

What it yielded last is the plan. Between two answers at most some ten milliseconds should \
pass: the map waits. One whose first answer comes soon and may be driven while it goes on says \
so by `anytime`.
"""

_known: dict[str, Planner] = {}
_anytime: set[Planner] = set()


def register(name: str, planner: Planner) -> None:
    """Make a planner known under a name.

    Args:
        name: letters, digits and underscores.
        planner: as Planner.

    Raises:
        ValueError: another planner has that name already, or it is not a name.
    """
    if not name.replace("_", "").isalnum():
        raise ValueError(f"planner {name!r}: expected a name of letters, digits and underscores")
    if _known.get(name, planner) is not planner:
        raise ValueError(f"planner {name!r} is registered already")
    _known[name] = planner


def anytime(planner: Planner) -> Planner:
    """Say of a planner that its first answer may be driven: a robot that stands begins with it.

    The planner is then asked anew, from where the robot will be, with that answer for its old
    route. Stops of an answer that is not empty keep to the budget, the way home included.

    Args:
        planner: yields nothing (no stops) until there is such an answer.

    Returns:
        The planner itself.
    """
    _anytime.add(planner)
    return planner


def is_anytime(planner: Planner) -> bool:
    """Return whether the first answer of a planner may be driven while it goes on."""
    return planner in _anytime


def planner_names() -> tuple[str, ...]:
    """Return all names, those of installed packages included."""
    return tuple(sorted(_known.keys() | {point.name for point in entry_points(group=GROUP)}))


def find_planner(name: str) -> Planner:
    """Return the planner of that name.

    Raises:
        ValueError: there is none, with the names that exist, or its package cannot be imported.
    """
    if name in _known:
        return _known[name]

    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                register(name, point.load())
            except (ImportError, AttributeError) as error:
                raise ValueError(
                    f"planner {name!r} of {point.value} cannot be loaded: {error}"
                ) from error
            return _known[name]

    raise ValueError(f"planner {not_one_of(name, planner_names())}")
