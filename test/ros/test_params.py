"""Parameters: declared from the settings, explained when wrong, set live where that makes sense."""

from dataclasses import fields

import pytest
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

from gp_mapping.core.config import MapSettings
from gp_mapping.intake import IntakeSettings
from gp_mapping.ros import params
from gp_mapping.ros.node_settings import NodeSettings


@pytest.fixture
def make_node():
    """A real node with the given overrides."""
    context = Context()
    rclpy.init(context=context)
    nodes = []

    def make(**values):
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        nodes.append(Node("mapping", context=context, parameter_overrides=overrides,
                          automatically_declare_parameters_from_overrides=True))
        return nodes[-1]

    yield make
    for node in nodes:
        node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_every_setting_is_a_parameter_with_meaning_range_and_type(make_node):
    node = make_node()
    settings, given, warnings = params.declare_settings(node)
    assert settings == {kind: kind() for kind in params.SETTINGS} and not given and not warnings
    for kind in params.SETTINGS:
        for f in fields(kind):
            assert node.get_parameter(f.name).value == f.default
            descriptor = node.describe_parameter(f.name)
            assert descriptor.description.startswith(f.metadata["doc"])
            assert bool(descriptor.floating_point_range or descriptor.integer_range) == (f.metadata["low"] is not None)
    assert node.describe_parameter("resolution").floating_point_range[0].from_value == 1e-3
    assert "dual_svgp" in node.describe_parameter("model").additional_constraints
    assert "[m]" in node.describe_parameter("resolution").description


def test_values_arrive_and_a_whole_number_serves_as_a_double(make_node):
    node = make_node(resolution=1, max_wait=0.25, publish_rate=5.0, use_sim_time=False)
    settings, given, warnings = params.declare_settings(node)
    assert settings[MapSettings].resolution == 1.0 and node.get_parameter("resolution").value == 1.0
    assert settings[IntakeSettings].max_wait == 0.25 and settings[NodeSettings].publish_rate == 5.0
    assert given == {"resolution", "max_wait", "publish_rate"} and not warnings


def test_all_wrong_values_are_explained_at_once(make_node):
    node = make_node(resolution="fine", max_inducing=-3, suggestion_kind="best", max_field=1e12)
    with pytest.raises(params.ParameterError) as caught:
        params.declare_settings(node)
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert "resolution: 'fine' is str, expected float, for example 0.05" in lines[0] + lines[1]
    assert any("max_inducing: -3" in line and "[1, 5000]" in line for line in lines)
    assert any("suggestion_kind: 'best' is not one of 'variance', 'integrated_variance'" in line for line in lines)


def test_unknown_names_are_reported_with_the_nearest(make_node):
    _, _, warnings = params.declare_settings(make_node(resolutoin=0.1, zzz=1))
    assert any("'resolutoin' is not known" in text and "'resolution'" in text for text in warnings)
    assert any("'zzz'" in text and "config/mapping.yaml" in text for text in warnings)


def test_live_changes_are_checked_and_the_rest_is_read_only(make_node):
    node = make_node()
    settings = params.declare_settings(node)[0][NodeSettings]
    result, after = params.on_set(settings, [Parameter("publish_rate", value=2.0)])
    assert result.successful and after.publish_rate == 2.0
    result, after = params.on_set(settings, [Parameter("suggestion_kind", value="best")])
    assert not result.successful and "'best' is not one of" in result.reason and after is settings
    assert "read-only" in node.set_parameters([Parameter("resolution", value=0.1)])[0].reason
    assert not node.set_parameters([Parameter("publish_rate", value=-1.0)])[0].successful
    assert not node.set_parameters([Parameter("publish_rate", value="fast")])[0].successful


def test_a_file_that_reaches_nobody_is_noticed(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("mapper:\n  ros__parameters:\n    resolution: 0.1\n")
    arguments = ["node", "--ros-args", "--params-file", str(path)]
    assert "'/**:'" in params.unmatched_files(arguments, "/robot/mapping", found_any=False)[0]
    assert params.unmatched_files(arguments, "/robot/mapping", found_any=True) == []
    assert "cannot be read" in params.unmatched_files([*arguments[:3], str(tmp_path / "none")], "/mapping", False)[0]


def test_a_named_map_frame_is_required_of_the_odometry():
    assert params.with_map_frame(IntakeSettings(), NodeSettings()).odometry_frame == ""
    assert params.with_map_frame(IntakeSettings(), NodeSettings(map_frame="map")).odometry_frame == "map"
    said = IntakeSettings(odometry_frame="odom")
    assert params.with_map_frame(said, NodeSettings(map_frame="map")).odometry_frame == "odom"
