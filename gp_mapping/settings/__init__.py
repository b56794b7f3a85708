"""All settings, with unit, range and default; needs neither torch nor ROS."""
