"""The public recordings, where the user keeps them: $GP_MAPPING_DATA, else shared/data beside the repository."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.recording.magnetic_csv import RecordingError, read_trial

__all__ = ["RecordingsAbsent", "recordings_folder", "trial"]


class RecordingsAbsent(RuntimeError):
    """The recordings are not on this machine; the text says where they were looked for and how to get them."""


def recordings_folder() -> Path:
    """The folder with 1-mag.csv, ….  RecordingsAbsent where there is none."""
    named = os.environ.get("GP_MAPPING_DATA")
    base = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    for folder in (base / "magnetic" / "invensense", base / "invensense"):
        if (folder / "1-mag.csv").is_file():
            return folder
    raise RecordingsAbsent(
        f"no recordings in {base if named else 'shared/data beside the repository'}: clone "
        "https://github.com/AaltoML/magnetic-data and set GP_MAPPING_DATA to its folder data, "
        "which holds invensense/"
    )


@lru_cache(maxsize=16)
def trial(number: int, most: int | None = None) -> Samples:
    """Trial as raw samples: x (N, 2) m, y = |B| (N, 1) T, stamps in s; the first `most` of them."""
    try:
        t = read_trial(recordings_folder(), str(number))
    except RecordingError as error:
        raise RecordingsAbsent(str(error)) from error
    return Samples(
        t.position[:most, :2], np.linalg.norm(t.field[:most], axis=1), stamp=t.time[:most]
    )
