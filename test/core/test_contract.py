"""The contract of map_contract.py, for every registered model."""

import pytest
from map_contract import MapContract

from gp_mapping.core.registry import model_names


@pytest.mark.parametrize("model", [m for m in model_names() if m != "curl_free"])  # three channels: test_curl_free.py
class TestContract(MapContract):
    pass
