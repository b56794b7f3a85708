"""The contract of map_contract.py, for every registered model, and for one that somebody else wrote."""

import pytest
from core_data import SETTINGS
from map_contract import MapContract
from own_model import OwnGP

from gp_mapping import MapSettings
from gp_mapping.core.registry import model_names


@pytest.mark.parametrize(
    "model", [m for m in model_names() if m != "curl_free"]
)  # three channels: test_curl_free.py
class TestContract(MapContract):
    pass


@pytest.mark.parametrize("device", ["cpu"])
@pytest.mark.parametrize("model", ["own"])
class TestOwnModel(MapContract):
    def build(self, model, device, **settings):
        return OwnGP(MapSettings(**(SETTINGS | settings)))
