"""ROS parameters made from the settings classes: declared with descriptors, checked, explained."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import yaml
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult

from gp_mapping.errors import ParameterFileError, named, one_line
from gp_mapping.planning.registry import find_planner
from gp_mapping.ros.mapper.descriptors import ParameterError, describe, describe_openly
from gp_mapping.settings.build import KNOWN, SETTINGS, Parameters
from gp_mapping.settings.groups import is_foreign, nearest
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import LIVE_PARAMETERS, NodeSettings

__all__ = [
    "SETTINGS",
    "NodeParameters",
    "ParameterError",
    "on_set",
    "unmatched_files",
    "with_open_types",
]


def with_open_types(parameters: list[tuple]) -> list[tuple]:
    """Parameters as Node.declare_parameters takes them; those without a value may have any type.

    An empty list in a parameter file has no type, and rclpy would end the node's construction.
    """
    return [
        (name, None, ParameterDescriptor(dynamic_typing=True))
        if more and more[0] is None
        else (name, *more)
        for name, *more in parameters
    ]


class NodeParameters:
    """The parameters of a node made with automatically_declare_parameters_from_overrides=True.

    Until `configure` they are open: any value may be set. `configure` checks them all and declares
    them with type and range; from then on only those in LIVE_PARAMETERS may be set. `reopen` takes
    that back (lifecycle clean-up).

    Args:
        node: The node, made as said above.
        on_change: Called after a live change, with the NodeSettings before it.

    Attributes:
        given: Names of parameters set explicitly, in a file, on the command line or by service.
        live: The NodeSettings as they are now.
    """

    def __init__(self, node, on_change=lambda before: None):
        self._node, self._on_change = node, on_change
        self.given = {name for name in node.get_parameters_by_prefix("") if name in KNOWN}
        self.live, self._changing = NodeSettings(), NodeSettings()
        self._configured, self._declaring = False, False
        self._declare({name: self._value(name) for name in KNOWN}, describe_openly)

        # ROS asks _check before a change and calls _apply after it
        node.add_on_set_parameters_callback(self._check)
        node.add_post_set_parameters_callback(self._apply)

    @property
    def unknown(self) -> list[str]:
        """Warnings about parameter names that are not known, each with the nearest known name."""
        names = self._node.get_parameters_by_prefix("")
        return [_unknown(name) for name in names if name not in KNOWN and not is_foreign(name)]

    def peek(self, name: str):
        """The value of a parameter as it is now, whether or not it has been checked."""
        return self._value(name)

    def configure(self) -> dict[type, object]:
        """Check all parameters, declare them with type and range, and build the settings.

        Returns:
            The settings by their class: MapSettings, IntakeSettings, NodeSettings.

        Raises:
            ParameterError: With a line for each wrong value: what was given, what is expected, and
                what to write.
        """
        values = {name: self._value(name) for name in self.given}
        simulated = self._node.get_parameter_or("use_sim_time").value
        if simulated is not None and not isinstance(simulated, bool):  # ROS goes on without it
            raise ParameterError(
                f"parameter use_sim_time: {named(simulated)} is {type(simulated).__name__}, expected "
                "bool, for example true"
            )
        wrong = [f"plan_kind: {text}" for text in _no_planner(values)]
        try:
            built = Parameters.from_values(values)
        except ParameterFileError as error:
            wrong = str(error).splitlines() + wrong
        if wrong:
            raise ParameterError("\n".join(f"parameter {line}" for line in wrong))

        settings = {MapSettings: built.map, IntakeSettings: built.intake, NodeSettings: built.node}

        self._declare(
            {f.name: getattr(settings[kind], f.name) for kind in SETTINGS for f in fields(kind)},
            lambda f: describe(f, managed=True),
        )

        self.live = self._changing = settings[NodeSettings]
        self._configured = True
        return settings

    def reopen(self) -> None:
        """Allow any value again; parameters that were never set go back to their defaults."""
        self._configured = False
        self._declare(
            {
                name: self._value(name) if name in self.given else f.default
                for name, f in KNOWN.items()
            },
            describe_openly,
        )

    def _value(self, name: str):
        """The current value; the default where none was set or the parameter was deleted."""
        value = (
            self._node.get_parameter(name).value
            if self._node.has_parameter(name)
            else KNOWN[name].default
        )
        if value is None:
            # of a list without names ROS does not know the type, and gives no value
            return [] if name in self.given else KNOWN[name].default
        return value

    def _declare(self, values: dict[str, object], descriptor) -> None:
        """Declare parameters anew with these values; descriptor: function of a settings field."""
        self._declaring = True  # the callbacks of a change are passed over meanwhile
        try:
            for name, value in values.items():
                described = descriptor(KNOWN[name])
                if self._describe(name, value, described):
                    continue

                # a declared parameter keeps its type
                if self._node.has_parameter(name):
                    self._node.undeclare_parameter(name)
                self._node.declare_parameter(name, value, described, ignore_override=True)
        finally:
            self._declaring = False

    def _describe(self, name: str, value, descriptor: ParameterDescriptor) -> bool:
        """Give a parameter that has this value already its descriptor; returns whether it has.

        Each declaration is a message on /parameter_events, and all of them take a node longer than
        anything else that it does when it is configured.
        """
        if not self._node.has_parameter(name):
            return False

        now = self._node.get_parameter(name)
        # lists: of an empty one ROS does not know the type. 1 and true are equal to 1.0
        if isinstance(value, list) or type(now.value) is not type(value) or now.value != value:
            return False

        descriptor.type = now.type_.value
        self._node.set_descriptor(name, descriptor)
        return True

    def _check(self, parameters) -> SetParametersResult:
        """Whether ROS may set these parameters; keeps the settings that would result for _apply."""
        if self._declaring or not self._configured:
            return SetParametersResult(successful=True)

        fixed = [p.name for p in parameters if p.name in KNOWN and p.name not in LIVE_PARAMETERS]
        if fixed:
            return SetParametersResult(
                successful=False,
                reason=(
                    f"{fixed[0]} belongs to the map that is being built: deactivate and clean up the node "
                    "(save the map before), set it, and configure again"
                ),
            )

        result, self._changing = on_set(self.live, parameters)
        return result

    def _apply(self, parameters) -> None:
        """Take over parameters that ROS has set."""
        if self._declaring:
            return

        self.given |= {p.name for p in parameters if p.name in KNOWN}
        if self._configured:
            before, self.live = self.live, self._changing
            self._on_change(before)


def _no_planner(values: dict[str, object]) -> list[str]:
    """Why there is no planner of the name in plan_kind; nothing where there is one."""
    kind = values.get("plan_kind")
    try:
        if isinstance(kind, str):
            find_planner(kind)
    except ValueError as error:
        return [one_line(error, 300)]
    return []


def _unknown(name: str) -> str:
    """The warning about an unknown name."""
    near = nearest(name, KNOWN)
    hint = f"did you mean {near!r}?" if near else "see config/mapping.yaml for all names"
    return f"parameter {name!r} is not known and has no effect; {hint}"


def unmatched_files(arguments: list[str], node_name: str) -> list[str]:
    """Warnings for parameter files of which ROS silently ignores something.

    That is a file without a section for this node, and a value that another one replaces.

    Args:
        arguments: The ROS arguments of the process.
        node_name: The fully qualified name of the node.
    """
    out = []
    for flag, path in pairwise(arguments):
        if flag != "--params-file":
            continue

        try:
            content = yaml.compose(Path(path).read_text(encoding="utf-8"), yaml.SafeLoader)
            sections = list(_sections(content))
        except (OSError, ValueError, yaml.YAMLError) as error:
            out.append(f"parameter file {path} cannot be read: {error}")
            continue

        ours = [section for section in sections if _reaches(section[0], node_name)]
        if sections and not ours:
            names = dict.fromkeys(name for name, _ in sections)
            shown = ", ".join(one_line(name, 100) for name in [*names][:10])
            out.append(
                f"parameter file {path} has the sections {shown}; none of them reaches the node {node_name}; "
                "write '/**:' in their place"
            )
        out += [f"parameter file {path}: {text}" for text in _replaced(ours)]
    return out


def _replaced(sections: list[tuple[str, list]]) -> list[str]:
    """Warnings for values that a later one of the same file replaces.

    A section without wildcards may say otherwise than one with them before it: that is their use.

    Args:
        sections: Those that reach the node, each with the (name, value, line) of its parameters.
    """
    out: list[str] = []
    given: dict[str, tuple[str, object, int]] = {}
    for section, parameters in sections:
        for name, value, line in parameters:
            before = given.get(name)
            given[name] = section, value, line
            if before is None or before[1] == value:
                continue
            if before[0] == section or before[0].count("*") <= section.count("*"):
                out.append(
                    f"{one_line(name, 100)} is {one_line(before[1], 100)} in line {before[2]} and "
                    f"{one_line(value, 100)} in line {line}; the later one counts, remove the other"
                )
    return out


def _sections(content, prefix: str = ""):
    """Sections of a parameter file in their order: (node name, parameters).

    Names may have wildcards: /**, /mapping, /robot/mapping. A name may come several times, which
    the usual ways to read YAML do not show.

    Args:
        content: The file, or an inner part of it, as a node of YAML.
        prefix: Names of the outer sections, each after a slash.
    """
    for key, inner in content.value if isinstance(content, yaml.MappingNode) else ():
        if key.value == "ros__parameters":
            yield prefix or "/", list(_values(inner))
        elif isinstance(inner, yaml.MappingNode):
            yield from _sections(inner, f"{prefix}/{str(key.value).strip('/')}")


def _values(content, prefix: str = ""):
    """(name, value as text, line) of the parameters of a section; inner ones by a.b, as in ROS."""
    for key, inner in content.value if isinstance(content, yaml.MappingNode) else ():
        name = f"{prefix}{key.value}"
        if isinstance(inner, yaml.MappingNode):
            yield from _values(inner, f"{name}.")
        else:
            items = inner.value if isinstance(inner, yaml.SequenceNode) else None
            value = inner.value if items is None else str([item.value for item in items])
            yield name, value, key.start_mark.line + 1


def _reaches(section: str, node_name: str) -> bool:
    """Whether a section name matches a node, as in rcl: * is one part of a name, ** any number."""
    parts = [
        "(/[^/]+)*" if part == "**" else "/" + re.escape(part).replace("\\*", "[^/]*")
        for part in section.strip("/").split("/")
    ]
    return re.fullmatch("".join(parts), node_name) is not None


def on_set(settings: NodeSettings, parameters) -> tuple[SetParametersResult, NodeSettings]:
    """Validate a live change.

    Args:
        settings: As they are now.
        parameters: rclpy parameters that somebody sets; those that are not live are not looked at.

    Returns:
        The result for ROS, and the settings afterwards: unchanged where the change is refused, with
        the text of the ValueError as its reason.
    """
    changes = {p.name: p.value for p in parameters if p.name in LIVE_PARAMETERS}
    try:
        after = replace(settings, **changes)
        for text in _no_planner(changes):
            raise ValueError(f"plan_kind: {text}")
        return SetParametersResult(successful=True), after
    except ValueError as error:
        return SetParametersResult(successful=False, reason=str(error)), settings
