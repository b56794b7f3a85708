"""From messages to samples: a pose at each measurement's own stamp, and every drop counted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gp_mapping.intake.drops import DropCounter, DropReason
    from gp_mapping.intake.pairing import Intake
    from gp_mapping.intake.poses.buffer import PoseBuffer
    from gp_mapping.intake.poses.tf_tree import Missing, TfTree
    from gp_mapping.intake.poses.transforms import Transform
    from gp_mapping.intake.topics import Input, inputs_of

__all__ = [
    "DropCounter",
    "DropReason",
    "Input",
    "Intake",
    "Missing",
    "PoseBuffer",
    "TfTree",
    "Transform",
    "inputs_of",
]

_HOME = {
    "DropCounter": "drops",
    "DropReason": "drops",
    "Input": "topics",
    "Intake": "pairing",
    "Missing": "poses.tf_tree",
    "PoseBuffer": "poses.buffer",
    "TfTree": "poses.tf_tree",
    "Transform": "poses.transforms",
    "inputs_of": "topics",
}


def __getattr__(name: str):
    """Import a public name when it is first used.

    Nodes that pair nothing use names of topics and reasons, and need neither torch nor SciPy.
    """
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
