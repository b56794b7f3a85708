"""A magnetic world of dipoles, a robot that drives through it, a magnetometer with faults."""
