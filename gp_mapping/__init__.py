"""Live probabilistic maps of fields that a robot measures only where it is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gp_mapping.core.field_map import FieldMap
    from gp_mapping.core.registry import create_map
    from gp_mapping.core.types import Prediction, Samples, UpdateReport
    from gp_mapping.settings.mapping import MapSettings
    from gp_mapping.settings.parts import register_kernel, register_likelihood, register_model
    from gp_mapping.settings.sensors import register_sensor

__version__ = "0.1.0"
__all__ = [
    "FieldMap",
    "MapSettings",
    "Prediction",
    "Samples",
    "UpdateReport",
    "create_map",
    "register_kernel",
    "register_likelihood",
    "register_model",
    "register_sensor",
]

_HOME = {
    "FieldMap": "core.field_map",
    "MapSettings": "settings.mapping",
    "Prediction": "core.types",
    "Samples": "core.types",
    "UpdateReport": "core.types",
    "create_map": "core.registry",
    "register_kernel": "settings.parts",
    "register_likelihood": "settings.parts",
    "register_model": "settings.parts",
    "register_sensor": "settings.sensors",
}


def __getattr__(name: str):
    """Import a public name when it is first used.

    Importing torch takes seconds, and `gp-mapping --help` does not need it.
    """
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
