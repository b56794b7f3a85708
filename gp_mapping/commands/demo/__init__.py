"""`gp-mapping demo`."""
