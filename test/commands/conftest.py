"""What several tests of commands read."""

import pytest
from small_drive import lanes, write_drive


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "drive"
    write_drive(path, lanes(count=2))
    return path
