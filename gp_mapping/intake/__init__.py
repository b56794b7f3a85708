"""The road from messages to samples: poses at the measurement's own stamp, and every drop counted. No rclpy."""

from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.inputs import Input, inputs_of
from gp_mapping.intake.intake import Intake
from gp_mapping.intake.pose_sync import PoseBuffer
from gp_mapping.intake.sensors import SENSOR_TYPES, check_model, map_settings_for
from gp_mapping.intake.settings import IntakeSettings
from gp_mapping.intake.tf_tree import Missing, TfTree
from gp_mapping.intake.transforms import Transform

__all__ = ["SENSOR_TYPES", "DropCounter", "DropReason", "Input", "Intake", "IntakeSettings", "Missing", "PoseBuffer",
           "TfTree", "Transform", "check_model", "inputs_of", "map_settings_for"]
