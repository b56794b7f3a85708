import pytest
import yaml

from gp_mapping.errors import ParameterFileError
from gp_mapping.settings.build import Parameters, parse_assignment, read_parameter_file


def read(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    return read_parameter_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "/**:\n  ros__parameters:\n    lengthscale: 0.4\n",
        "mapping:\n  ros__parameters:\n    lengthscale: 0.4\n",
        "/robot/mapping:\n  ros__parameters:\n    lengthscale: 0.4\n",
        "robot:\n  mapping_node:\n    ros__parameters:\n      lengthscale: 0.4\n",
        "anything:\n  ros__parameters:\n    lengthscale: 0.4\n",
        "simulator:\n  ros__parameters:\n    lengthscale: 9.0\n"
        "/**/mapping:\n  ros__parameters:\n    lengthscale: 0.4\n",
    ],
)
def test_the_blocks_that_a_ros_node_reads(tmp_path, text):
    assert read(tmp_path, text) == {"lengthscale": 0.4}


def test_a_later_block_wins_and_names_are_flattened(tmp_path):
    text = (
        "/**:\n  ros__parameters:\n    seed: 1\n    qos_overrides: {a: {b: 1}}\n"
        "mapping:\n  ros__parameters: {seed: 2}\n"
    )
    assert read(tmp_path, text) == {"seed": 2, "qos_overrides.a.b": 1}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "no parameters"),
        ("lengthscale: 0.4", "no parameters; expected '/\\*\\*:'"),
        ("a: [", "not a YAML file"),
        ("a:\n  ros__parameters: {}\nb:\n  ros__parameters: {}\n", "the file has /a, /b"),
        ("/**:\n  ros__parameters: 3\n", "expected names and values"),
        (
            "/**:\n  ros__parameters:\n    seed: 1\n    cells: true\n    seed: 2\n",
            "'seed' stands in line 3 and again in line 5; write it once",
        ),
        (
            "/**: {ros__parameters: {seed: 1, seed: 1}}",
            "'seed' stands in line 1 and again in line 1",
        ),
        (
            "/**:\n  ros__parameters: {seed: 1}\n/**:\n  ros__parameters: {cells: true}\n",
            r"'/\*\*' stands in line 1 and again in line 3",
        ),
    ],
)
def test_files_that_hold_nothing_for_the_node(tmp_path, text, expected):
    with pytest.raises(ParameterFileError, match=expected):
        read(tmp_path, text)


def test_a_number_with_colons_is_a_text_as_to_ros(tmp_path):
    text = "/**:\n  ros__parameters: {lengthscale: 1:30, resolution: 1:30.5, seed: 7, noise_stddev: .5}\n"
    wanted = {"lengthscale": "1:30", "resolution": "1:30.5", "seed": 7, "noise_stddev": 0.5}
    assert read(tmp_path, text) == wanted
    assert yaml.safe_load("1:30") == 90, "others read YAML as before"


@pytest.mark.parametrize("number", ["0100", "-0100", "+01_0"])
def test_a_number_that_yaml_reads_as_octal_is_refused(tmp_path, number):
    """max_inducing: 0100 was 64 without a word."""
    octal = yaml.safe_load(number)
    with pytest.raises(
        ParameterFileError, match=f"begins with 0, so YAML reads it as octal, {octal}"
    ):
        read(tmp_path, f"/**:\n  ros__parameters: {{max_inducing: {number}}}\n")
    text = (
        "/**:\n  ros__parameters: {seed: 0, max_inducing: 0x40, map_frame: '007', max_wait: 0.5}\n"
    )
    wanted = {"seed": 0, "max_inducing": 64, "map_frame": "007", "max_wait": 0.5}
    assert read(tmp_path, text) == wanted


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ParameterFileError, match="no such parameter file"):
        read_parameter_file(tmp_path / "absent.yaml")
    with pytest.raises(ParameterFileError, match="cannot be read"):
        read_parameter_file(tmp_path)


def test_each_part_gets_its_own():
    parameters = Parameters.build(
        {
            "lengthscale": 2,
            "signal_stddev": "1e-6",
            "max_wait": 3.0,
            "publish_rate": 5.0,
            "use_sim_time": True,
            "qos_overrides./x.depth": 3,
        }
    )
    assert parameters.map.lengthscale == 2.0 and parameters.map.signal_stddev == 1e-6
    assert parameters.intake.max_wait == 3.0


def test_the_frame_of_the_node_is_asked_of_the_odometry():
    assert Parameters.build({"map_frame": "map"}).intake.odometry_frame == "map"
    assert (
        Parameters.build({"map_frame": "map", "odometry_frame": "odom"}).intake.odometry_frame
        == "odom"
    )


@pytest.mark.parametrize(
    "values, expected",
    [
        ({"lenghtscale": 1.0}, "unknown parameter lenghtscale; did you mean lengthscale?"),
        ({"zzzz": 1.0}, "unknown parameter zzzz; expected one of .*cell_length"),
        ({"lengthscale": -1.0}, r"lengthscale: -1.0 m is outside"),
        ({"lengthscale": "long"}, "lengthscale: 'long' is str, expected float"),
        ({"seed": 1.5}, "seed: 1.5 is float, expected int"),
        ({"cells": 1}, "cells: 1 is int, expected bool"),
        ({"model": "magic"}, "model: 'magic' is not one of"),
        ({"max_wait": float("nan")}, "max_wait: nan is not finite"),
        ({"publish_rate": -1.0}, "publish_rate: -1.0 Hz is outside"),
    ],
)
def test_wrong_values_are_named(values, expected):
    with pytest.raises(ParameterFileError, match=expected):
        Parameters.build(values)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("seed=3", ("seed", 3)),
        ("cells=false", ("cells", False)),
        ("field_unit=nT", ("field_unit", "nT")),
        ("odometry_frame=", ("odometry_frame", "")),
        # of a text, what is none to YAML: soil moisture in % was refused as "not YAML"
        ("field_unit=%", ("field_unit", "%")),
        ("field_unit=1", ("field_unit", "1")),
        ("field_unit='1'", ("field_unit", "1")),
        ("value_field = a: b", ("value_field", "a: b")),
        ("merge_from=[robot1, robot2]", ("merge_from", ["robot1", "robot2"])),
    ],
)
def test_assignments(text, expected):
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["seed", "=3", "seed=[1"])
def test_assignments_that_are_none(text):
    with pytest.raises(ParameterFileError, match=r"expected key=value|not YAML"):
        parse_assignment(text)
