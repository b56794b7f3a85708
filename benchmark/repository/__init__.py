"""The code itself, and whether its tests notice faults."""
