"""From messages to samples: a pose at each measurement's own stamp, and every drop counted."""

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
