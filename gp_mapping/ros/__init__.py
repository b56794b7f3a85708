"""The live node: the only place that imports rclpy and messages."""
