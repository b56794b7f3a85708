"""`gp-mapping report`."""
