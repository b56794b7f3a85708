"""Live probabilistic maps of fields that a robot measures only where it is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gp_mapping.core.config import MapSettings
    from gp_mapping.core.field_map import FieldMap
    from gp_mapping.core.registry import create_map
    from gp_mapping.core.types import Prediction, Samples, UpdateReport

__version__ = "0.1.0"
__all__ = ["FieldMap", "MapSettings", "Prediction", "Samples", "UpdateReport", "create_map"]

_HOME = {"FieldMap": "field_map", "MapSettings": "config", "Prediction": "types", "Samples": "types",
         "UpdateReport": "types", "create_map": "registry"}


def __getattr__(name: str):
    """The public names, imported when they are asked for: torch takes seconds, and `gp-mapping --help` needs none."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.core.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
