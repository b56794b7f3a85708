"""Settings from outside: the ROS 2 parameter file that the node reads, and key=value from a command line."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

from gp_mapping.errors import ParameterFileError, one_line
from gp_mapping.settings.groups import build_groups, is_foreign, nearest
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings
from gp_mapping.settings.sensors import check_model, map_settings_for

__all__ = [
    "KNOWN",
    "SETTINGS",
    "Parameters",
    "model_file",
    "parse_assignment",
    "read_parameter_file",
]

NODE_NAMES = ("mapping", "mapping_node")
_LARGEST = 1_000_000  # bytes of a parameter file
SETTINGS = (MapSettings, IntakeSettings, NodeSettings)
KNOWN = {f.name: f for kind in SETTINGS for f in fields(kind)}


@dataclass(frozen=True)
class Parameters:
    """Settings by the part that reads them; what was not given keeps its default."""

    map: MapSettings
    intake: IntakeSettings
    node: NodeSettings
    given: tuple[str, ...]

    @staticmethod
    def build(values: dict) -> Parameters:
        """From flat names and values, as a command line or a parameter file gives them.

        Raises:
            ParameterFileError: an unknown name, a wrong type, a value out of range, values that do not go together.
        """
        for name in values:
            if name not in KNOWN and not is_foreign(name):
                near = nearest(name, KNOWN)
                hint = (
                    f"; did you mean {near}?"
                    if near
                    else f"; expected one of {', '.join(sorted(KNOWN))}"
                )
                raise ParameterFileError(f"unknown parameter {name}{hint}")
        known = {
            name: _number(value, KNOWN[name].default)
            for name, value in values.items()
            if name in KNOWN
        }
        return Parameters.of(known, tuple(values))

    @staticmethod
    def of(values: dict, given: tuple[str, ...] = ()) -> Parameters:
        """From known names: each checked, the sensor's starts in place, the parts made to fit each other.

        Raises:
            ParameterFileError: with a line for each thing that is wrong.
        """
        values = {name: _text(value, KNOWN[name].default) for name, value in values.items()}
        groups = [build_groups(values, {"": kind}) for kind in SETTINGS]
        problems = [text for _, wrong in groups for text in wrong]
        if problems:
            raise ParameterFileError("\n".join(problems))
        maps, intake, node = (settings[""] for settings, _ in groups)

        try:
            if (
                node.map_frame and not intake.odometry_frame
            ):  # map_frame asks for this frame, unless another is named
                intake = replace(intake, odometry_frame=node.map_frame)
            maps = map_settings_for(intake.sensor, maps)
            check_model(intake, maps)
        except ValueError as error:
            raise ParameterFileError(one_line(error)) from error
        return Parameters(maps, intake, node, given)


def _number(value, default):
    """1e-6 is a number to ROS and to people, but a text to PyYAML, which wants 1.0e-6."""
    if isinstance(default, float) and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _text(value, default):
    """A list of names, as [robot1, robot2], is a text of names separated by commas."""
    named = (
        isinstance(default, str)
        and isinstance(value, list | tuple)
        and all(isinstance(n, str) for n in value)
    )
    return ",".join(value) if named else value


def parse_assignment(text: str) -> tuple[str, object]:
    """key=value, the value read as YAML (true, 3, 0.5, word)."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ParameterFileError(f"{text!r}: expected key=value, for example lengthscale=0.5")
    try:
        return name.strip(), _yaml(value) if value.strip() else ""
    except ParameterFileError as error:
        raise ParameterFileError(
            f"{one_line(text, 200)!r}: the value is not YAML ({error})"
        ) from error


class _Loader(yaml.SafeLoader):
    """Plain values only. ROS itself takes no aliases, by which a few lines can stand for billions of parameters."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(
                "an alias (*name), which ROS 2 parameter files do not have; write the value itself"
            )
        return super().compose_node(parent, index)


def _yaml(text: str):
    """What a YAML text says; ParameterFileError with the parser's words for whatever it stumbles over."""
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise ParameterFileError("nested too deeply") from error
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        OverflowError,
    ) as error:  # a date 2001-99-99 is a bare ValueError
        raise ParameterFileError(one_line(error, 300)) from error


def model_file(name: str) -> Path:
    """The parameter file of a model, config/models/<name>.yaml, of the source tree or of an installation.

    Raises ParameterFileError where there is no such model, or its file was not installed.
    """
    tried = []
    for folder in Path(__file__).resolve().parents:
        for part in ("config/models", "share/gp_mapping/config/models"):
            if (folder / part).is_dir():
                tried.append(folder / part)
                if (folder / part / f"{name}.yaml").is_file():
                    return folder / part / f"{name}.yaml"
    there = sorted(path.stem for path in tried[0].glob("*.yaml")) if tried else []
    raise ParameterFileError(
        f"there is no parameter file for a model {name!r}; "
        + (
            f"expected one of {', '.join(there)}"
            if there
            else "config/models was not installed with the package"
        )
    )


def read_parameter_file(path) -> dict:
    """Flat name -> value from the blocks of a ROS 2 parameter file that are for the mapping node.

    A block `name: ros__parameters:` counts where the last part of name is mapping, mapping_node, * or **; a file with a
    single block counts whatever its name. Later blocks win. ParameterFileError where there is none.
    """
    path = Path(path)
    text = _text_of(path)
    try:
        blocks = dict(_blocks(_yaml(text), ""))
    except ParameterFileError as error:
        raise ParameterFileError(f"{path}: not a YAML file ({error})") from error
    if not blocks:
        raise ParameterFileError(
            f"{path}: no parameters; expected '/**:' and below it 'ros__parameters:'"
        )
    mine = {
        name: b for name, b in blocks.items() if name.split("/")[-1] in (*NODE_NAMES, "*", "**")
    }
    if not mine and len(blocks) == 1:
        mine = blocks
    if not mine:
        raise ParameterFileError(
            f"{path}: no parameters for the node 'mapping'; the file has {', '.join(blocks)}"
        )
    values: dict = {}
    for name, block in mine.items():
        if not isinstance(block, dict):
            raise ParameterFileError(
                f"{path}: ros__parameters of {name} is {block!r}, expected names and values"
            )
        values.update(_flat(block, ""))
    return values


def _text_of(path: Path) -> str:
    """The text of a parameter file; ParameterFileError where it is no file, too large, or no text."""
    try:
        if path.exists() and not (
            path.is_file() or path.is_dir()
        ):  # a pipe is waited for, a device never ends
            raise ParameterFileError(f"{path}: cannot be read, it is not a regular file")
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise ParameterFileError(
                f"{path}: {path.stat().st_size} bytes, expected a parameter file of at most "
                f"{_LARGEST}"
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ParameterFileError(f"{path}: no such parameter file") from None
    except OSError as error:
        raise ParameterFileError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ParameterFileError(f"{path}: not a YAML file ({one_line(error, 300)})") from error


def _blocks(content, name: str):
    """(full node name, parameters); namespaces may be nested."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "ros__parameters":
                yield name or "/**", value
            else:
                yield from _blocks(value, f"{name}/{str(key).lstrip('/')}")


def _flat(block: dict, prefix: str):
    for key, value in block.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
