"""Where to measure next: acquisition functions over a map, the cells a robot may enter, and batches of suggestions."""

from gp_mapping.planning.acquisition import ACQUISITIONS, integrated_variance_reduction, maximum_variance
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.suggest import Suggestion, Suggestions, suggest

__all__ = ["ACQUISITIONS", "FreeSpace", "Suggestion", "Suggestions", "integrated_variance_reduction",
           "maximum_variance", "suggest"]
