"""A magnetic world made of dipoles, a robot that drives through it, and a magnetometer with faults."""
