"""Read settings from a ROS 2 parameter file, and from key=value on a command line."""

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

NODE_NAMES = ("mapping", "mapping_node")  # names of blocks in a file that are for the node
_LARGEST = 1_000_000  # bytes of a parameter file
SETTINGS = (MapSettings, IntakeSettings, NodeSettings)
KNOWN = {f.name: f for kind in SETTINGS for f in fields(kind)}  # name -> dataclass field


@dataclass(frozen=True)
class Parameters:
    """Settings by the part that reads them; what was not given keeps its default.

    Attributes:
        map: of the model and the grid.
        intake: from messages to samples.
        node: of the live node.
        given: names that were given, also those that ROS gives to every node.
    """

    map: MapSettings
    intake: IntakeSettings
    node: NodeSettings
    given: tuple[str, ...]

    @staticmethod
    def build(values: dict) -> Parameters:
        """Build from flat names and values, as a command line or a parameter file gives them.

        Raises:
            ParameterFileError: an unknown name, a wrong type, a value out of range, or values that
                do not go together.
        """
        for name in values:
            # ROS itself gives some parameters to every node: they may stand in a file
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
        return Parameters.from_values(known, tuple(values))

    @staticmethod
    def from_values(values: dict, given: tuple[str, ...] = ()) -> Parameters:
        """Build from known names: check each, put in the sensor's starts, make the parts fit.

        Args:
            values: by name; all in KNOWN.
            given: names to note as given.

        Raises:
            ParameterFileError: with a line for each value that is wrong.
        """
        values = {name: _text(value, KNOWN[name].default) for name, value in values.items()}
        groups = [build_groups(values, {"": kind}) for kind in SETTINGS]
        problems = [text for _, wrong in groups for text in wrong]
        if problems:
            raise ParameterFileError("\n".join(problems))
        maps, intake, node = (settings[""] for settings, _ in groups)

        try:
            # map_frame asks for poses in this frame, unless odometry_frame names another
            if node.map_frame and not intake.odometry_frame:
                intake = replace(intake, odometry_frame=node.map_frame)
            maps = map_settings_for(intake.sensor, maps)
            if node.publish_tiles or node.merge_from:  # maps of different kernels are not summed
                maps = replace(maps, learn_smoothness=False)
            check_model(intake, maps)
        except ValueError as error:
            raise ParameterFileError(one_line(error)) from error
        return Parameters(maps, intake, node, given)


def _number(value, default):
    """Turn a text into the number that it stands for where one is due.

    1e-6 is a number to ROS and to people, but a text to PyYAML, which wants 1.0e-6.
    """
    if isinstance(default, float) and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _text(value, default):
    """Turn a list of names, such as [robot1, robot2], into names separated by commas."""
    is_list_of_names = (
        isinstance(default, str)
        and isinstance(value, list | tuple)
        and all(isinstance(n, str) for n in value)
    )
    return ",".join(value) if is_list_of_names else value


def parse_assignment(text: str) -> tuple[str, object]:
    """Parse key=value.

    Returns:
        The name, and the value as YAML reads it (true, 3, 0.5, word); of a setting that is a text,
        what is no text to YAML (%, 1) as it is written.

    Raises:
        ParameterFileError: there is no `=` or no name, or the value is not YAML.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise ParameterFileError(f"{text!r}: expected key=value, for example lengthscale=0.5")
    is_text = name in KNOWN and isinstance(KNOWN[name].default, str)
    try:
        read = _yaml(value) if value else ""
        # a list is one of names
        return name, value if is_text and not isinstance(read, str | list) else read
    except ParameterFileError as error:
        if is_text:
            return name, value
        raise ParameterFileError(
            f"{one_line(text, 200)!r}: the value is not YAML ({error})"
        ) from error


class _Loader(yaml.SafeLoader):
    """Load plain values, without aliases, of keys that stand once.

    ROS itself takes no aliases, and with them a few lines can stand for billions of parameters. Of
    a key that stands twice YAML keeps the last value, so a second block of one node would replace
    the first one, of which ROS takes both. And 1:30 is a text, as to ROS, and not 90. A whole
    number that begins with 0 is octal to both, which nobody means: it is refused.
    """

    def compose_node(self, parent, index):
        """Compose the node, unless it is an alias.

        Args:
            parent: as of yaml.SafeLoader.
            index: as of yaml.SafeLoader.

        Raises:
            YAMLError: it is an alias.
        """
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(
                "an alias (*name), which ROS 2 parameter files do not have; write the value itself"
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        """Construct a mapping.

        Args:
            node: as of yaml.SafeLoader.
            deep: as of yaml.SafeLoader.

        Raises:
            YAMLError: a key stands twice in it.
        """
        seen: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise yaml.YAMLError(
                    f"{one_line(name, 100)!r} stands in line {seen[name]} and again in line {line}; write it once"
                )
            seen[name] = line
        return super().construct_mapping(node, deep)


def _plain_int(loader: yaml.SafeLoader, node) -> int:
    """Read a whole number as people do.

    Args:
        loader: that has come to it.
        node: of the number.

    Raises:
        YAMLError: it is octal to YAML.
    """
    number, digits = yaml.SafeLoader.construct_yaml_int(loader, node), node.value.lstrip("+-")
    if digits.startswith("0") and len(digits) > 1 and digits.replace("_", "").isdigit():
        raise yaml.YAMLError(
            f"{node.value} begins with 0, so YAML reads it as octal, {number}; write {digits.lstrip('0_') or 0}, or "
            f"'{node.value}' for a text"
        )
    return number


def _sexagesimal_as_text(loader: type[yaml.SafeLoader]) -> None:
    """Let numbers with colons be texts.

    Args:
        loader: which is changed; the class that it is of stays as it is.
    """
    for tag, parse in (
        ("tag:yaml.org,2002:int", _plain_int),
        ("tag:yaml.org,2002:float", yaml.SafeLoader.construct_yaml_float),
    ):
        loader.add_constructor(
            tag,
            lambda self, node, parse=parse: node.value if ":" in node.value else parse(self, node),
        )


_sexagesimal_as_text(_Loader)


def _yaml(text: str):
    """Parse a YAML text; raises ParameterFileError, with the parser's words, where it cannot."""
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise ParameterFileError("nested too deeply") from error
    # not YAMLError alone: a date such as 2001-99-99 raises a bare ValueError
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        OverflowError,
    ) as error:
        raise ParameterFileError(one_line(error, 300)) from error


def model_file(name: str) -> Path:
    """Return the parameter file of a model, config/models/<name>.yaml.

    It is looked for in the source tree and in an installation.

    Raises:
        ParameterFileError: there is no such model, or its file was not installed.
    """
    folders = []
    # upwards from here: the root of the source tree, or the prefix of an installation
    for folder in Path(__file__).resolve().parents:
        for part in ("config/models", "share/gp_mapping/config/models"):
            if (folder / part).is_dir():
                folders.append(folder / part)
                if (folder / part / f"{name}.yaml").is_file():
                    return folder / part / f"{name}.yaml"

    available = sorted(path.stem for path in folders[0].glob("*.yaml")) if folders else []
    raise ParameterFileError(
        f"there is no parameter file for a model {name!r}; "
        + (
            f"expected one of {', '.join(available)}"
            if available
            else "config/models was not installed with the package"
        )
    )


def read_parameter_file(path) -> dict:
    """Read the parameters of the mapping node from a ROS 2 parameter file.

    A block `name: ros__parameters:` counts where the last part of name is mapping, mapping_node, *
    or **; a file with a single block counts whatever its name. Later blocks win.

    Returns:
        Value by flat name; groups are joined by dots.

    Raises:
        ParameterFileError: the file cannot be read, is not YAML, or has no block for the node.
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

    own_blocks = {
        name: block
        for name, block in blocks.items()
        if name.split("/")[-1] in (*NODE_NAMES, "*", "**")
    }
    if not own_blocks and len(blocks) == 1:
        own_blocks = blocks
    if not own_blocks:
        raise ParameterFileError(
            f"{path}: no parameters for the node 'mapping'; the file has {', '.join(blocks)}"
        )

    values: dict = {}
    for name, block in own_blocks.items():
        if not isinstance(block, dict):
            raise ParameterFileError(
                f"{path}: ros__parameters of {name} is {block!r}, expected names and values"
            )
        values.update(_flat(block, ""))
    return values


def _text_of(path: Path) -> str:
    """Return the text of a file; raises ParameterFileError where it is none, or too large."""
    try:
        # a pipe would be waited for, and a device never ends; a folder gives its own OSError below
        if path.exists() and not (path.is_file() or path.is_dir()):
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
    """Yield (full node name, parameters) of each block; namespaces may be nested."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "ros__parameters":
                yield name or "/**", value
            else:
                yield from _blocks(value, f"{name}/{str(key).lstrip('/')}")


def _flat(block: dict, prefix: str):
    """Yield (name, value), the names of groups joined by dots."""
    for key, value in block.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
