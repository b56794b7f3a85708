"""Is the uncertainty honest: known faults, other sensors, what is learned and from what."""
