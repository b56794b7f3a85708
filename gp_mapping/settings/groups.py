"""Names and values from outside -> checked settings classes: the one builder of nodes and command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from gp_mapping.settings.fields import check_settings

__all__ = ["FOREIGN", "build_groups", "is_foreign", "nearest", "wrong_value"]

FOREIGN = (
    "use_sim_time",
    "start_type_description_service",
    "qos_overrides",
)  # every ROS node has them


def is_foreign(name: str) -> bool:
    """Whether a parameter is one that ROS gives to every node."""
    return name.split(".")[0] in FOREIGN


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that somebody who wrote `name` may have meant; '' where none is like it."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), "")


def wrong_value(kind: type, name: str, value) -> str:
    """What is wrong with the type, range or choice of one value, whatever the others are; '' where nothing is."""
    probe = kind()
    object.__setattr__(probe, name, value)
    try:
        check_settings(probe)
    except ValueError as error:
        return str(error)
    return ""


def build_groups(
    values: Mapping[str, object], groups: Mapping[str, type]
) -> tuple[dict[str, Any], list[str]]:
    """The settings of each group, and what is wrong.

    All values of a class count together, in whatever order they came: one may be right only with another.

    Args:
        values: flat names, each with the prefix of its group, and values; other names are passed over.
        groups: prefix -> settings class.

    Returns:
        Settings by prefix (without those of a class in which something is wrong), and a sentence for each wrong value.
    """
    settings, problems = {}, []
    for prefix, kind in groups.items():
        mine = {f.name: values[prefix + f.name] for f in fields(kind) if prefix + f.name in values}
        wrong = {
            name: text for name, value in mine.items() if (text := wrong_value(kind, name, value))
        }
        problems += [f"{prefix}{text}" for text in wrong.values()]
        try:
            made = kind(**{name: value for name, value in mine.items() if name not in wrong})
        except ValueError as error:  # values that are right one by one and do not go together
            if not any(
                name in str(error) for name in wrong
            ):  # else what is missing may be what it does not go with
                problems.append(f"{prefix}{error}")
            continue
        if not wrong:
            settings[prefix] = made
    return settings, problems
