"""The contract of map_contract.py, for the default model, the exact GP, and one that somebody else wrote.

The other models' contracts are in their folders, so that each has its own beside its other tests.
"""

from pathlib import Path

import pytest
import torch
from core_data import SETTINGS
from map_contract import MapContract
from own_model import OwnGP

from gp_mapping import MapSettings
from gp_mapping.core.registry import model_names

HERE = ("dual_svgp", "exact")
IN_FLOAT32 = ("dual_svgp", "pic")  # without a card: others share their code
if torch.cuda.is_available():
    IN_FLOAT32 += ("sor", "dtc", "fitc", "fic", "pitc", "solve_gp")


@pytest.mark.parametrize("model", HERE)
class TestContract(MapContract):
    pass


@pytest.mark.parametrize("model", IN_FLOAT32)
class TestInFloat32(MapContract):
    """Variances are differences of numbers as large as the prior's, of which float32 has seven digits."""

    rounding = 1e4

    def build(self, model, device, **settings):
        return super().build(model, device, dtype="float32", **settings)


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
