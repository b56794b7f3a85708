"""ROS parameters made from the settings dataclasses: declared with descriptors, checked, explained."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import yaml
from rcl_interfaces.msg import SetParametersResult

from gp_mapping.errors import ParameterFileError, one_line
from gp_mapping.ros.mapper.descriptors import ParameterError, describe, describe_openly
from gp_mapping.settings.build import KNOWN, SETTINGS, Parameters
from gp_mapping.settings.groups import is_foreign, nearest
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import LIVE_PARAMETERS, NodeSettings

__all__ = ["SETTINGS", "NodeParameters", "ParameterError", "on_set", "unmatched_files"]


class NodeParameters:
    """The parameters of a node made with automatically_declare_parameters_from_overrides=True.

    Until `configure` they are open: any value may be set. configure checks them all and declares them with type and
    range; from then on only those in LIVE_PARAMETERS may be set. `reopen` takes that back (lifecycle clean-up).
    given: names that somebody has set, in a file, on the command line or by service.  live: NodeSettings now.
    on_change: called with the settings before, after a live change.
    """

    def __init__(self, node, on_change=lambda before: None):
        self._node, self._on_change = node, on_change
        self.given = {name for name in node.get_parameters_by_prefix("") if name in KNOWN}
        self.live, self._changing = NodeSettings(), NodeSettings()
        self._configured, self._declaring = False, False
        self._declare({name: self._value(name) for name in KNOWN}, describe_openly)
        node.add_on_set_parameters_callback(self._check)
        node.add_post_set_parameters_callback(self._apply)

    @property
    def unknown(self) -> list[str]:
        """Warnings about names that nobody knows, with the nearest known one."""
        names = self._node.get_parameters_by_prefix("")
        return [_unknown(name) for name in names if name not in KNOWN and not is_foreign(name)]

    def peek(self, name: str):
        """A value as it stands now, checked or not."""
        return self._value(name)

    def configure(self) -> dict[type, object]:
        """Settings by class. ParameterError with a line for each wrong value: what came, was expected, to write."""
        values = {name: self._value(name) for name in self.given}
        try:
            built = Parameters.of(values)
        except ParameterFileError as error:
            raise ParameterError(
                "\n".join(f"parameter {line}" for line in str(error).splitlines())
            ) from error
        settings = {MapSettings: built.map, IntakeSettings: built.intake, NodeSettings: built.node}
        self._declare(
            {f.name: getattr(settings[kind], f.name) for kind in SETTINGS for f in fields(kind)},
            lambda f: describe(f, managed=True),
        )
        self.live = self._changing = settings[NodeSettings]
        self._configured = True
        return settings

    def reopen(self) -> None:
        """Take any value again; what nobody has set goes back to its default."""
        self._configured = False
        self._declare(
            {
                name: self._value(name) if name in self.given else f.default
                for name, f in KNOWN.items()
            },
            describe_openly,
        )

    def _value(self, name: str):
        """As it stands; the default where nobody has set it, or somebody has deleted it."""
        value = (
            self._node.get_parameter(name).value
            if self._node.has_parameter(name)
            else KNOWN[name].default
        )
        return value if name in self.given or value is not None else KNOWN[name].default

    def _declare(self, values: dict[str, object], descriptor) -> None:
        self._declaring = True
        try:
            for name, value in values.items():
                if self._node.has_parameter(name):
                    self._node.undeclare_parameter(name)
                self._node.declare_parameter(
                    name, value, descriptor(KNOWN[name]), ignore_override=True
                )
        finally:
            self._declaring = False

    def _check(self, parameters) -> SetParametersResult:
        if self._declaring or not self._configured:
            return SetParametersResult(successful=True)
        fixed = [p.name for p in parameters if p.name in KNOWN and p.name not in LIVE_PARAMETERS]
        if fixed:
            return SetParametersResult(
                successful=False,
                reason=(
                    f"{fixed[0]} belongs to the map that is being built: deactivate and clean up the node (save the map "
                    "before), set it, and configure again"
                ),
            )
        result, self._changing = on_set(self.live, parameters)
        return result

    def _apply(self, parameters) -> None:
        if self._declaring:
            return
        self.given |= {p.name for p in parameters if p.name in KNOWN}
        if self._configured:
            before, self.live = self.live, self._changing
            self._on_change(before)


def _unknown(name: str) -> str:
    near = nearest(name, KNOWN)
    hint = f"did you mean {near!r}?" if near else "see config/mapping.yaml for all names"
    return f"parameter {name!r} is not known and has no effect; {hint}"


def unmatched_files(arguments: list[str], node_name: str) -> list[str]:
    """Warnings for parameter files none of whose sections reaches this node, which ROS ignores without a word.

    arguments: the process's ROS arguments.  node_name: fully qualified.
    """
    out = []
    for flag, path in pairwise(arguments):
        if flag != "--params-file":
            continue
        try:
            sections = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            out.append(f"parameter file {path} cannot be read: {error}")
            continue
        names = list(_section_names(sections))
        if names and not any(_reaches(name, node_name) for name in names):
            shown = ", ".join(one_line(name, 100) for name in names[:10])
            out.append(
                f"parameter file {path} has the sections {shown}; none of them reaches the node {node_name}; "
                "write '/**:' in their place"
            )
    return out


def _section_names(content, prefix: str = ""):
    """Names of nodes, with wildcards, that a parameter file has parameters for: /**, /mapping, /robot/mapping."""
    for name, inner in content.items() if isinstance(content, dict) else ():
        if name == "ros__parameters":
            yield prefix or "/"
        elif isinstance(inner, dict):
            yield from _section_names(inner, f"{prefix}/{str(name).strip('/')}")


def _reaches(section: str, node_name: str) -> bool:
    """As rcl matches them: * is one part of a name, ** any number of them."""
    parts = [
        "(/[^/]+)*" if part == "**" else "/" + re.escape(part).replace("\\*", "[^/]*")
        for part in section.strip("/").split("/")
    ]
    return re.fullmatch("".join(parts), node_name) is not None


def on_set(settings: NodeSettings, parameters) -> tuple[SetParametersResult, NodeSettings]:
    """Validate a live change: the result for ROS and the settings afterwards (unchanged where it is refused)."""
    changes = {p.name: p.value for p in parameters if p.name in LIVE_PARAMETERS}
    try:
        return SetParametersResult(successful=True), replace(settings, **changes)
    except ValueError as error:
        return SetParametersResult(successful=False, reason=str(error)), settings
