"""Build checked settings from names and values, for the nodes and the command line alike."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from gp_mapping.settings.fields import check_settings

__all__ = ["FOREIGN", "build_groups", "is_foreign", "nearest", "wrong_value"]

# parameters that every ROS node has
FOREIGN = (
    "use_sim_time",
    "start_type_description_service",
    "qos_overrides",
)


def is_foreign(name: str) -> bool:
    """Return whether a parameter is one that ROS gives to every node."""
    return name.split(".")[0] in FOREIGN


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to `name`; '' where none is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), "")


def wrong_value(kind: type, name: str, value) -> str:
    """Return what is wrong with one value by itself; '' where nothing is.

    Args:
        kind: settings class.
        name: of the setting.
        value: its type, range and choice are checked, whatever the others are.
    """
    # set past __post_init__, which would also check what values mean together
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
    """Build the settings of each group, and say what is wrong.

    All values of a class count together, in whatever order they came: one may be right only with
    another.

    Args:
        values: by flat name, each with the prefix of its group; other names are ignored.
        groups: prefix -> settings class.

    Returns:
        Settings by prefix, without those of a class in which something is wrong, and a sentence for
        each wrong value.
    """
    settings, problems = {}, []
    for prefix, kind in groups.items():
        group_values = {
            f.name: values[prefix + f.name] for f in fields(kind) if prefix + f.name in values
        }
        wrong = {
            name: text
            for name, value in group_values.items()
            if (text := wrong_value(kind, name, value))
        }
        problems += [f"{prefix}{text}" for text in wrong.values()]

        try:
            built = kind(
                **{name: value for name, value in group_values.items() if name not in wrong}
            )
        except ValueError as error:
            # values that are right one by one and do not go together; where the message names one
            # that was left out as wrong, that may be the whole reason
            if not any(name in str(error) for name in wrong):
                problems.append(f"{prefix}{error}")
            continue
        if not wrong:
            settings[prefix] = built
    return settings, problems
