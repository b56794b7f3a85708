"""fusion_node: the map of several robots on a base station, from their ~/tiles.

A mapper without sensors of its own: it has the same outputs, queries, services and parameters.
"""

from __future__ import annotations

import sys

from gp_mapping.ros.mapping_node import MappingNode
from gp_mapping.ros.mapping_node import main as run

__all__ = ["FusionNode", "main"]


class FusionNode(MappingNode):
    """Merges the maps of the robots in merge_from; ~/save writes their sum."""

    default_name, listens = "fusion", False


def main(arguments: list[str] | None = None) -> int:
    """Console script; exit codes as those of mapping_node."""
    return run(arguments, FusionNode)


if __name__ == "__main__":
    sys.exit(main())
