"""The maps themselves: torch only, SI in and out; neither files nor ROS."""
