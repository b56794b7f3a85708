"""The live mapper without ROS: one thread owns the session, and all that it hands out is frozen."""
