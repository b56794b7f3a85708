"""The oracles and data of the core's tests, on the import path of this folder; and its devices."""

import sys
from pathlib import Path

CORE = Path(__file__).resolve().parents[1] / "core"
sys.path[:0] = [str(CORE), str(CORE / "models" / "anytime")]
