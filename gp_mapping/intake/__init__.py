"""The road from messages to samples: poses at the measurement's own stamp, and every drop counted. No rclpy."""

from gp_mapping.intake.drops import DropCounter, DropReason
from gp_mapping.intake.intake import Intake
from gp_mapping.intake.pose_sync import PoseBuffer
from gp_mapping.intake.settings import IntakeSettings

__all__ = ["DropCounter", "DropReason", "Intake", "IntakeSettings", "PoseBuffer"]
