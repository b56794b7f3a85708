"""The contract of map_contract.py, for the default model, the exact GP, and one that somebody else wrote.

The other models' contracts are in their folders, so that each has its own beside its other tests.
"""

from pathlib import Path

import pytest
from core_data import SETTINGS
from map_contract import MapContract
from own_model import OwnGP

from gp_mapping import MapSettings
from gp_mapping.core.registry import model_names

HERE = ("dual_svgp", "exact")


@pytest.mark.parametrize("model", HERE)
class TestContract(MapContract):
    pass


@pytest.mark.parametrize("device", ["cpu"])
@pytest.mark.parametrize("model", ["own"])
class TestOwnModel(MapContract):
    def build(self, model, device, **settings):
        return OwnGP(MapSettings(**(SETTINGS | settings)))


def test_every_registered_model_has_its_contract():
    elsewhere = [
        path.read_text()
        for path in (Path(__file__).parents[1] / "models").rglob("test_*contract.py")
        if "MapContract" in path.read_text()
    ]
    for model in set(model_names()) - set(HERE):
        assert any(f'"{model}"' in text for text in elsewhere), model
