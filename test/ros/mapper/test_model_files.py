"""config/models: a file for every model; the node takes each without a warning and maps with it."""

from dataclasses import fields

import pytest
import yaml
from ros_helpers import ROOT, spin

from gp_mapping.core.registry import model_names
from gp_mapping.errors import ParameterFileError
from gp_mapping.ros.mapper.descriptors import ParameterError
from gp_mapping.settings.build import Parameters, read_parameter_file
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings

FOLDER = ROOT / "config" / "models"
SMALL = {"max_inducing": 30}  # the size of a file's model is not what is tested


def test_every_model_has_a_file():
    assert set(model_names()) <= {path.stem for path in FOLDER.glob("*.yaml")}


@pytest.mark.parametrize("name", model_names())
def test_a_file_has_what_differs_and_says_why(name):
    path = FOLDER / f"{name}.yaml"
    text, values = path.read_text(encoding="utf-8"), read_parameter_file(path)
    assert (
        values["model"] == name
        and text.startswith(f"# model {name}")
        and list(yaml.safe_load(text)) == ["/**"]
    )
    Parameters.build(values)
    defaults = {
        f.name: f.default
        for kind in (MapSettings, IntakeSettings, NodeSettings)
        for f in fields(kind)
    }
    named = set(values) - {"model"}
    same = [
        key
        for key in named
        if values[key] == defaults[key] and not key.startswith(("max_", "tile_", "grid_"))
    ]
    assert not same, f"{path.name}: {same} is the default anyway"
    assert text.count("#") > len(named), f"{path.name} does not say why"


def test_a_model_that_cannot_map_what_comes_says_so(node_of):
    for values, words in (
        ({"model": "curl_free"}, "write field_component: xyz"),
        ({"model": "wiski", "likelihood": "poisson"}, "write model: dual_svgp or solve_gp"),
        ({"likelihood": "bernoulli", "field_component": "xyz"}, "write norm, x, y or z"),
    ):
        node, _ = node_of(**values, started=False)
        with pytest.raises(ParameterError, match=words):
            node.configure()
        with pytest.raises(ParameterFileError, match=words):
            Parameters.build(values)


@pytest.mark.parametrize("name", model_names())
def test_the_node_takes_it(node_of, name):
    values = read_parameter_file(FOLDER / f"{name}.yaml")
    node, peer = node_of(**(values | SMALL), namespace=f"/{name}")
    spin(node, peer, 0.05)
    assert node.active and not node.parameter_warnings
    for key, value in (values | SMALL).items():
        assert node.get_parameter(key).value == value
