"""The furnished room of the demo, `gp-mapping explore --simulate` and explore.launch.py."""

__all__ = ["HOME", "WALLS", "WAYPOINTS"]

WALLS = "2.9 0 3.0 3.2, 4.2 3.2 5.0 4.0, 0.9 2.6 1.7 3.0"  # x0 y0 x1 y1 of each box in 6 × 5 m, m
HOME = (0.6, 0.6)  # where the robot begins, m
# the robot stands at HOME, and looks along x
WAYPOINTS = f"{HOME[0]} {HOME[1]}, {HOME[0] + 0.4:g} {HOME[1]}"
