"""What every test may count on: quiet, private DDS, one torch thread, and where the recordings are."""

import os
import tempfile
from pathlib import Path

import pytest
import torch

# Before anything imports rclpy, in this process and the ones it starts. What the caller has set stands.
os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))  # two runs on one machine stay apart
os.environ.setdefault("ROS_LOG_DIR", os.path.join(tempfile.gettempdir(), "gp_mapping_test_log"))
os.environ.setdefault("ROS_PYTHON_CHECK_FIELDS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder of the robot's recordings: K-time.csv, K-loc.csv, K-mag.csv, K = 1…6 (README: where to get them)."""
    named = os.environ.get("GP_MAPPING_DATA")
    base = Path(named) if named else ROOT.parent / "shared" / "data"
    for folder in (base / "magnetic" / "invensense", base / "invensense"):
        if (folder / "1-mag.csv").is_file():
            return folder
    if named:
        pytest.fail(f"GP_MAPPING_DATA is {named}, but neither magnetic/invensense nor invensense in it has 1-mag.csv")
    pytest.skip("the recordings are not here: set GP_MAPPING_DATA to the folder that holds invensense/ (see README.md)")
