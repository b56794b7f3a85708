"""Sensors that drift or warm up while the robot drives: how fast, and that the map follows it."""
