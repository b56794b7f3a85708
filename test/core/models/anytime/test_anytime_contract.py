"""The contract of map_contract.py for the anytime family."""

import pytest
from map_contract import MapContract


@pytest.mark.parametrize("model", ["sor", "dtc", "fitc", "fic", "pitc", "pic"])
class TestContract(MapContract):
    pass
