"""The contract of map_contract.py for the default model."""

import pytest
from map_contract import MapContract


@pytest.mark.parametrize("model", ["dual_svgp"])
class TestContract(MapContract):
    pass
