"""How the sensor sits on the robot and is calibrated: a map that goes on, goes on with that.

A second day's bag that is mapped without the first day's parameter file would come as raw values,
or from another place on the robot, into a map of calibrated ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gp_mapping.errors import named
from gp_mapping.intake.frames import FrameVote
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["SETUP", "as_saved", "common_setup", "sensor_notes", "setup_notes", "setup_of"]

SETUP = "sensor_setup"  # in `about` of a session

# what is given together: of a group of which one is given now, none is taken from the saved map
_GROUPS = (
    ("rotate_field",),
    ("stamp_offset",),
    (
        "mounting",
        "sensor_offset_x",
        "sensor_offset_y",
        "sensor_offset_z",
        "sensor_roll",
        "sensor_pitch",
        "sensor_yaw",
    ),
    (
        *(f"hard_iron_{axis}" for axis in "xyz"),
        *(f"soft_iron_{row}{column}" for row in "xyz" for column in "xyz"),
    ),
)
# of a recording's clocks, and no other way of measuring: each may have its own
_FREE = frozenset({"stamp_offset"})


def setup_of(settings: IntakeSettings) -> dict:
    """What of the setup is not the default, by name; plain values."""
    fields = type(settings).__dataclass_fields__
    values = {name: getattr(settings, name) for group in _GROUPS for name in group}
    return {name: value for name, value in values.items() if value != fields[name].default}


def as_saved(
    settings: IntakeSettings, given: Iterable[str], about: dict
) -> tuple[IntakeSettings, dict]:
    """Settings with the setup of a saved map where none is given now.

    Args:
        settings: as given.
        given: names that were given.
        about: of the saved map's session.

    Returns:
        The settings, and what of them was taken from the saved map.
    """
    saved, named = about.get(SETUP), set(given)
    if not isinstance(saved, dict):
        return settings, {}
    taken = {
        name: saved[name]
        for group in _GROUPS
        if not named.intersection(group)
        for name in group
        if name in saved
    }
    return replace(settings, **taken), taken


def setup_notes(settings: IntakeSettings, about: dict) -> list[str]:
    """What a saved map was measured with otherwise than these settings say, in a sentence.

    Args:
        settings: with which the sensor is read from now on.
        about: of the saved map's session.
    """
    saved, own = about.get(SETUP), setup_of(settings)
    if not isinstance(saved, dict):
        return []  # absent in maps of a version that did not save it

    fields = type(settings).__dataclass_fields__
    changed = [name for name in {**saved, **own} if saved.get(name) != own.get(name)]
    changed = [name for name in changed if name not in _FREE]
    differing = ", ".join(
        f"{name} {saved.get(name, fields[name].default)} (now {getattr(settings, name)})"
        for name in changed
        if name in fields
    )
    return (
        [
            f"this map was measured with {differing}: what comes now is measured otherwise; set them as they were, "
            "or, where the sensor was calibrated or mounted anew since, begin a new map"
        ]
        if differing
        else []
    )


def sensor_notes(before: str, now: FrameVote) -> list[str]:
    """That a map goes on with a sensor in another frame, in a sentence.

    Args:
        before: the frame in which the saved map was measured; '': it is not known.
        now: the frame of what comes.
    """
    if not (before and now.known and now.frame) or before == now.frame:
        return []
    return [
        f"this map was measured by a sensor in frame {named(before)}, and what comes now is from "
        f"{named(now.frame)}: where that is another sensor, or sits elsewhere on the robot, begin a new map"
    ]


def common_setup(abouts: list[dict]) -> dict | None:
    """The setup that all maps of a sum have, by `about` of their sessions; None: they differ."""
    first, *others = (_without_free(about.get(SETUP)) for about in abouts)
    return first if all(other == first for other in others) else None


def _without_free(setup: object) -> dict | None:
    """A setup without what each recording may have of its own; None where there is none."""
    if not isinstance(setup, dict):
        return None
    return {name: value for name, value in setup.items() if name not in _FREE}
