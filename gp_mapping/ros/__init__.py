"""The live node: the only place that imports rclpy and messages."""

from gp_mapping.ros.loading import quiet_while_loading

quiet_while_loading()  # whichever node this process is to be, this package is imported before it
