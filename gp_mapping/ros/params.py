"""ROS parameters made from the settings dataclasses: declared with descriptors, checked, explained."""

from __future__ import annotations

import difflib
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import yaml
from rcl_interfaces.msg import SetParametersResult

from gp_mapping.core.config import MapSettings
from gp_mapping.intake import IntakeSettings, map_settings_for
from gp_mapping.ros.descriptors import ParameterError, describe
from gp_mapping.ros.node_settings import LIVE_PARAMETERS, NodeSettings

__all__ = ["SETTINGS", "ParameterError", "declare_settings", "describe", "on_set", "unmatched_files",
           "with_map_frame"]

SETTINGS = (MapSettings, IntakeSettings, NodeSettings)
FOREIGN = ("use_sim_time", "start_type_description_service", "qos_overrides")


def declare_settings(node) -> tuple[dict[type, object], set[str], list[str]]:
    """Declare every field of SETTINGS on a node made with automatically_declare_parameters_from_overrides=True.

    Returns the settings by class, the names that were given explicitly, and warnings about names that nobody knows.
    Raises ParameterError with one line for every wrong value: what came, what was expected, what to write.
    """
    given = {name: p.value for name, p in node.get_parameters_by_prefix("").items()}
    known = {f.name: f for kind in SETTINGS for f in fields(kind)}
    settings, problems = {}, []
    for kind in SETTINGS:
        out = kind()
        for name in [f.name for f in fields(kind) if f.name in given]:
            try:
                out = replace(out, **{name: given[name]})
            except ValueError as error:
                problems.append(f"parameter {error}")
        settings[kind] = out
    if problems:
        raise ParameterError("\n".join(problems))
    settings[MapSettings] = map_settings_for(settings[IntakeSettings].sensor, settings[MapSettings])
    for kind in SETTINGS:
        for f in fields(kind):
            if f.name in given:
                node.undeclare_parameter(f.name)  # it was declared from the file without type, range or meaning
            node.declare_parameter(f.name, getattr(settings[kind], f.name), describe(f), ignore_override=True)
    unknown = [name for name in given if name not in known and not name.startswith(FOREIGN)]
    return settings, set(given) & set(known), [_unknown(name, known) for name in unknown]


def _unknown(name: str, known) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "see config/mapping.yaml for all names"
    return f"parameter {name!r} is not known and has no effect; {hint}"


def unmatched_files(arguments: list[str], node_name: str, found_any: bool) -> list[str]:
    """Warnings for parameter files whose sections do not reach this node, which ROS ignores without a word.

    arguments: the process's ROS arguments.  node_name: fully qualified.  found_any: some parameter did arrive.
    """
    out = []
    for flag, path in pairwise(arguments):
        if flag != "--params-file" or found_any:
            continue
        try:
            sections = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            out.append(f"parameter file {path} cannot be read: {error}")
            continue
        if isinstance(sections, dict) and sections:
            out.append(f"parameter file {path} has the sections {', '.join(map(str, sections))}; none of them reaches "
                       f"the node {node_name}; write '/**:' in their place")
    return out


def on_set(settings: NodeSettings, parameters) -> tuple[SetParametersResult, NodeSettings]:
    """Validate a live change: the result for ROS and the settings afterwards (unchanged where it is refused)."""
    changes = {p.name: p.value for p in parameters if p.name in LIVE_PARAMETERS}
    try:
        return SetParametersResult(successful=True), replace(settings, **changes)
    except ValueError as error:
        return SetParametersResult(successful=False, reason=str(error)), settings


def with_map_frame(intake: IntakeSettings, node: NodeSettings) -> IntakeSettings:
    """A named map_frame is required of the odometry, unless odometry_frame names another one as equal to it."""
    if node.map_frame and not intake.odometry_frame:
        return replace(intake, odometry_frame=node.map_frame)
    return intake
