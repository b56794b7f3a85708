"""Live probabilistic maps of fields that a robot measures only where it is."""

from gp_mapping.core.config import MapSettings
from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.registry import create_map
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__version__ = "0.1.0"
__all__ = ["FieldMap", "MapSettings", "Prediction", "Samples", "UpdateReport", "create_map"]
