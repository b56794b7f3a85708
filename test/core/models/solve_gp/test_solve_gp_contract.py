"""The contract of map_contract.py with inputs that only the mean has."""

import pytest
from map_contract import MapContract


@pytest.mark.parametrize("model", ["solve_gp"])
class TestContract(MapContract):
    pass
