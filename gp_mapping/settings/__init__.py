"""Every number that a person may set, with unit, range and default. No torch, no ROS."""
