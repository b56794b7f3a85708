"""Where the live mapper sends the robot: suggestions, surveys, free-space maps, line following."""
