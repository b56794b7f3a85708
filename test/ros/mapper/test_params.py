"""Parameters: declared from the settings, explained when wrong, set live where that makes sense."""

from dataclasses import fields

import pytest
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

from gp_mapping.ros.mapper import parameters as params
from gp_mapping.ros.mapping_node import MappingNode
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import LIVE_PARAMETERS, NodeSettings


@pytest.fixture
def make_node():
    """A real node with the given overrides."""
    context = Context()
    rclpy.init(context=context)
    nodes = []

    def make(**values):
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        nodes.append(
            Node(
                "mapping",
                context=context,
                parameter_overrides=overrides,
                automatically_declare_parameters_from_overrides=True,
            )
        )
        return nodes[-1]

    yield make
    for node in nodes:
        node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_every_setting_is_a_parameter_with_meaning_range_and_type(make_node):
    node = make_node()
    parameters = params.NodeParameters(node)
    assert parameters.configure() == {kind: kind() for kind in params.SETTINGS}
    assert not parameters.given and not parameters.unknown
    for kind in params.SETTINGS:
        for f in fields(kind):
            assert node.get_parameter(f.name).value == f.default
            descriptor = node.describe_parameter(f.name)
            assert descriptor.description.startswith(f.metadata["doc"])
            assert bool(descriptor.floating_point_range or descriptor.integer_range) == (
                f.metadata["low"] is not None
            )
            assert ("clean up" in descriptor.additional_constraints) == (
                f.name not in LIVE_PARAMETERS
            )
    assert node.describe_parameter("resolution").floating_point_range[0].from_value == 1e-3
    assert "dual_svgp" in node.describe_parameter("model").additional_constraints
    assert "[m]" in node.describe_parameter("resolution").description


def test_values_arrive_and_a_whole_number_serves_as_a_double(make_node):
    node = make_node(resolution=1, max_wait=0.25, publish_rate=5.0, use_sim_time=False)
    parameters = params.NodeParameters(node)
    settings = parameters.configure()
    assert settings[MapSettings].resolution == 1.0 and node.get_parameter("resolution").value == 1.0
    assert settings[IntakeSettings].max_wait == 0.25 and settings[NodeSettings].publish_rate == 5.0
    assert parameters.given == {"resolution", "max_wait", "publish_rate"} and not parameters.unknown


def test_all_wrong_values_are_explained_at_once(make_node):
    parameters = params.NodeParameters(
        make_node(
            resolution="fine",
            max_inducing=-3,
            suggestion_kind="best",
            max_field=1e12,
            map_name="../elsewhere",
            plan_kind="routes",
        )
    )
    with pytest.raises(params.ParameterError) as caught:
        parameters.configure()
    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    assert "plan_kind: planner 'routes' is not one of" in lines[-1] and "route" in lines[-1]
    assert "resolution: 'fine' is str, expected float, for example 0.05" in lines[0] + lines[1]
    assert any("max_inducing: -3" in line and "[1, 5000]" in line for line in lines)
    assert any("suggestion_kind: 'best' is not one of" in line for line in lines)


def test_values_that_need_each_other_are_judged_together(make_node):
    """min_value alone is above max_value's default of 0."""
    good = params.NodeParameters(make_node(sensor="temperature", min_value=10.0, max_value=30.0))
    assert good.configure()[IntakeSettings].max_value == 30.0
    bad = params.NodeParameters(make_node(min_value=10.0, max_value=3.0))
    with pytest.raises(params.ParameterError, match="min_value: 10.0 is above max_value 3.0"):
        bad.configure()


def test_a_wrong_value_is_set_right_and_configured_again(make_node):
    node = make_node(resolution="fine", sensor="temperature")
    parameters = params.NodeParameters(node)
    with pytest.raises(params.ParameterError):
        parameters.configure()
    assert node.set_parameters([Parameter("resolution", value=0.2)])[0].successful
    assert node.set_parameters([Parameter("margin", value=2)])[0].successful
    settings = parameters.configure()[MapSettings]
    assert (settings.resolution, settings.margin, settings.field_unit) == (0.2, 2.0, "°C")
    assert (
        parameters.given == {"resolution", "margin", "sensor"}
        and node.get_parameter("field_unit").value == "°C"
    )
    assert not node.set_parameters([Parameter("resolution", value=0.3)])[0].successful
    parameters.reopen()
    assert (
        node.get_parameter("field_unit").value == "uT"
    )  # what nobody has set goes with the sensor
    changes = [Parameter("resolution", value=0.3), Parameter("sensor", value="magnetic_field")]
    assert all(done.successful for done in node.set_parameters(changes))
    node.set_parameters([Parameter("margin", Parameter.Type.NOT_SET)])  # ros2 param delete
    settings = parameters.configure()[MapSettings]
    assert (settings.resolution, settings.margin, settings.field_unit) == (
        0.3,
        MapSettings().margin,
        "uT",
    )


def test_what_keeps_its_value_is_not_declared_anew(make_node):
    """Each declaration is a message to whoever listens; types and ranges are the new ones all the same."""
    node = make_node(lengthscale=1, max_inducing=50)
    parameters, declared = params.NodeParameters(node), []
    node.add_post_set_parameters_callback(lambda given: declared.extend(p.name for p in given))
    parameters.configure()
    assert "lengthscale" in declared and "max_inducing" not in declared and len(declared) < 20
    assert node.get_parameter("lengthscale").value == 1.0
    for name, value in (("publish_rate", "fast"), ("publish_rate", -1.0), ("max_inducing", 60)):
        assert not node.set_parameters([Parameter(name, value=value)])[0].successful

    declared.clear()
    parameters.reopen()
    assert len(declared) < 20
    assert node.set_parameters([Parameter("resolution", value="fine")])[0].successful


def test_unknown_names_are_reported_with_the_nearest(make_node):
    warnings = params.NodeParameters(make_node(resolutoin=0.1, zzz=1)).unknown
    assert any("'resolutoin' is not known" in text and "'resolution'" in text for text in warnings)
    assert any("'zzz'" in text and "config/mapping.yaml" in text for text in warnings)


def test_live_changes_are_checked_and_the_rest_needs_a_clean_up(make_node):
    node, before = make_node(), []
    parameters = params.NodeParameters(node, before.append)
    settings = parameters.configure()[NodeSettings]
    result, after = params.on_set(settings, [Parameter("publish_rate", value=2.0)])
    assert result.successful and after.publish_rate == 2.0
    result, after = params.on_set(settings, [Parameter("suggestion_kind", value="best")])
    assert not result.successful and "'best' is not one of" in result.reason and after is settings
    result, after = params.on_set(settings, [Parameter("plan_kind", value="routes")])
    assert not result.successful and "'routes' is not one of" in result.reason and after is settings
    result, _ = params.on_set(settings, [Parameter("plan_kind", value="x" * 100_000)])
    assert not result.successful and len(result.reason) < 500
    result, after = params.on_set(settings, [Parameter("plan_kind", value="lanes")])
    assert result.successful and after.plan_kind == "lanes"
    reason = node.set_parameters([Parameter("resolution", value=0.1)])[0].reason
    assert "resolution belongs to the map" in reason and "configure again" in reason
    for name, value in (
        ("publish_rate", -1.0),
        ("publish_rate", "fast"),
        ("map_name", "/etc"),
        ("map_name", "a/../b"),
        ("map_name", ".."),
        ("map_name", ".hidden"),
        ("save_directory", "/"),
    ):
        assert not node.set_parameters([Parameter(name, value=value)])[0].successful, (name, value)
    assert not before and parameters.live == settings
    assert node.set_parameters([Parameter("map_name", value="hall/ground_floor.2")])[0].successful
    assert parameters.live.map_name == "hall/ground_floor.2" and before == [settings]


def test_a_file_that_reaches_nobody_is_noticed(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("mapper:\n  ros__parameters:\n    resolution: 0.1\n")
    arguments = ["node", "--ros-args", "--params-file", str(path)]
    assert "'/**:'" in params.unmatched_files(arguments, "/robot/mapping")[0]
    assert (
        "cannot be read"
        in params.unmatched_files([*arguments[:3], str(tmp_path / "none")], "/mapping")[0]
    )


def test_a_named_map_frame_is_required_of_the_odometry():
    def odometry_frame(**values):
        return Parameters.build(values).intake.odometry_frame

    assert odometry_frame() == ""
    assert odometry_frame(map_frame="map") == "map"
    assert odometry_frame(map_frame="map", odometry_frame="odom") == "odom"


def test_a_file_is_warned_of_only_where_none_of_its_sections_is_this_node(tmp_path):
    """Empty sections, wildcards, a launch's own second file: each file by itself."""

    def warned(content: str, node: str = "/robot/mapping") -> bool:
        path = tmp_path / "file.yaml"
        path.write_text(content)
        return bool(params.unmatched_files(["--ros-args", "--params-file", str(path)], node))

    for fits in (
        "/**: {ros__parameters: {}}",
        "/**/mapping: {ros__parameters: {a: 1}}",
        "{}",
        "",
        "/robot/mapping: {ros__parameters: {}}",
        "robot: {mapping: {ros__parameters: {}}}",
        "/*/mapping: {ros__parameters: {a: 1}}",
        "other: {ros__parameters: {}}\n/**: {ros__parameters: {}}",
    ):
        assert not warned(fits), fits
    for misses in (
        "mapper: {ros__parameters: {a: 1}}",
        "/mapping: {ros__parameters: {a: 1}}",
        "/*: {ros__parameters: {a: 1}}",
        "/robot/*/mapping: {ros__parameters: {}}",
    ):
        assert warned(misses), misses
    assert not warned("mapping: {ros__parameters: {}}", "/mapping")


def test_a_value_that_another_one_in_its_file_replaces_is_said(tmp_path):
    """rcl takes the last one silently, and readers of YAML show only that."""

    def said(content: str) -> list[str]:
        path = tmp_path / "file.yaml"
        path.write_text(content)
        return params.unmatched_files(["--ros-args", "--params-file", str(path)], "/mapping")

    def section(name: str, *lines: str) -> str:
        return "\n    ".join([f"{name}:\n  ros__parameters:", *lines]) + "\n"

    found = said(section("mapping", "a: 1", "b: 1") + section("mapping", "a: 2"))
    assert len(found) == 1 and "a is 1 in line 3 and 2 in line 7; the later one counts" in found[0]
    for wrong in (
        section("mapping", "a: 1", "a: 2"),
        section("mapping", "a: 1") + section("/**", "a: 2"),  # as defaults, they come first
        section("mapping", "a: [1, 2]") + section("/mapping", "a: [2, 1]"),
        section("mapping", "plan: {a: 1}", "plan.a: 2"),
    ):
        assert len(said(wrong)) == 1, wrong
    for right in (
        section("/**", "a: 1") + section("mapping", "a: 2"),
        section("mapping", "a: 1") + section("mapping", "b: 2"),
        section("mapping", "a: 1") + section("/**", "a: 1"),
        section("mapping", "a: 1") + section("explorer", "a: 2"),
    ):
        assert not said(right), right


def test_an_empty_list_in_a_parameter_file_is_no_names_and_no_number(tmp_path):
    """ROS knows no type of it, and rclpy ended such a node with a sentence about static types."""
    path = tmp_path / "params.yaml"
    path.write_text("/**: {ros__parameters: {merge_from: [], other_plans: [], max_inducing: []}}")
    context = Context()
    rclpy.init(args=["--ros-args", "--params-file", str(path)], context=context)
    node = MappingNode(context=context)
    try:
        with pytest.raises(params.ParameterError, match=r"max_inducing: .* expected int") as caught:
            node.parameters.configure()
        assert len(str(caught.value).splitlines()) == 1
        assert node.set_parameters([Parameter("max_inducing", value=50)])[0].successful
        settings = node.parameters.configure()[NodeSettings]
        assert (settings.merge_from, settings.other_plans) == ("", "")
    finally:
        node.destroy_node()
        rclpy.try_shutdown(context=context)


def test_a_word_for_use_sim_time_is_refused(make_node):
    """rclpy says it once and goes on by the wall clock, by which no recording is mapped."""
    parameters = params.NodeParameters(make_node(use_sim_time="true"))
    with pytest.raises(params.ParameterError, match="use_sim_time: 'true' is str, expected bool"):
        parameters.configure()


def test_texts_of_any_length_are_refused_in_a_sentence():
    """A name of 100 000 characters was taken, and each autosave failed with it; refusals repeated all of it."""
    for name in ("map_name", "plan_home", "plan_objective", "suggestion_kind", "merge_transforms"):
        with pytest.raises(ValueError, match=f"{name}: ") as error:
            NodeSettings(**{name: "x" * 100_000})
        assert len(str(error.value)) < 500
    NodeSettings(map_name="hall/" + "x" * 195)
