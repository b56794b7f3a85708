"""The contract of map_contract.py, for every registered model."""

import pytest
from map_contract import MapContract

from gp_mapping.core.registry import model_names


@pytest.mark.parametrize("model", model_names())
class TestContract(MapContract):
    pass
