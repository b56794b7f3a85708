"""`gp-mapping view`."""
