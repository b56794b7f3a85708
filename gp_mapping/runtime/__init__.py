"""The live mapper without ROS: one thread owns the session, what it hands out is frozen."""
