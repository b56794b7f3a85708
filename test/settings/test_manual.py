"""config/mapping.yaml and the settings say the same, to people and to both parsers."""

from dataclasses import fields

import rclpy
import yaml
from rclpy.context import Context
from rclpy.node import Node
from ros_helpers import ROOT

from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.manual import manual
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import LIVE_PARAMETERS, NodeSettings

FILE = ROOT / "config" / "mapping.yaml"
KINDS = (MapSettings, IntakeSettings, NodeSettings)


def test_file_is_what_the_settings_say():
    assert FILE.read_text(encoding="utf-8") == manual(), (
        "run: python -m gp_mapping.settings.manual > config/mapping.yaml"
    )


def test_every_parameter_is_there_once_with_its_default_and_type():
    values = yaml.safe_load(FILE.read_text(encoding="utf-8"))["/**"]["ros__parameters"]
    defaults = {f.name: f.default for kind in KINDS for f in fields(kind)}
    assert len(defaults) == sum(len(fields(kind)) for kind in KINDS), "two settings share a name"
    assert values == defaults
    assert {k: type(v) for k, v in values.items()} == {k: type(v) for k, v in defaults.items()}
    assert defaults.keys() >= LIVE_PARAMETERS


def test_ros_reads_the_same_values():
    """rcl has a YAML parser of its own, with other ideas of what is a number."""
    context = Context()
    rclpy.init(args=["--ros-args", "--params-file", str(FILE)], context=context)
    node = Node(
        "mapping",
        namespace="robot",
        context=context,
        automatically_declare_parameters_from_overrides=True,
    )
    try:
        parsed = node.get_parameters_by_prefix("")
        for kind in KINDS:
            for f in fields(kind):
                assert (type(parsed[f.name].value), parsed[f.name].value) == (
                    type(f.default),
                    f.default,
                ), f.name
    finally:
        node.destroy_node()
        rclpy.try_shutdown(context=context)
