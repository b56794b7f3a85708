"""Where tests find real recordings: $GP_MAPPING_DATA, else shared/data beside the repository."""

import os
from pathlib import Path

import pytest


def invensense():
    """The folder of the recordings; skips the test, and says why, where there is none."""
    named = os.environ.get("GP_MAPPING_DATA")
    root = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = root / "magnetic" / "invensense"
    if not folder.is_dir():
        pytest.skip(f"no recordings: {folder} is absent; GP_MAPPING_DATA names a folder with magnetic/invensense")
    return folder
