"""The contract of map_contract.py for sums on a lattice."""

import pytest
from map_contract import MapContract


@pytest.mark.parametrize("model", ["wiski"])
class TestContract(MapContract):
    pass
