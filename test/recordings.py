"""Where tests find real recordings: $GP_MAPPING_DATA, else shared/data beside the repository."""

import os
from pathlib import Path

import pytest


def invensense() -> Path:
    """Folder of K-time.csv, K-loc.csv, K-mag.csv (README: where to get them); skips, and says why, where there is none.

    Fails where GP_MAPPING_DATA names a folder without them: a wrong name must not pass for an absent one.
    """
    named = os.environ.get("GP_MAPPING_DATA")
    base = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    for folder in (base / "magnetic" / "invensense", base / "invensense"):
        if (folder / "1-mag.csv").is_file():
            return folder
    if named:
        pytest.fail(
            f"GP_MAPPING_DATA is {named}, but neither magnetic/invensense nor invensense in it has 1-mag.csv"
        )
    pytest.skip(
        "the recordings are not here: GP_MAPPING_DATA names the folder that holds invensense/ (see README.md)"
    )
