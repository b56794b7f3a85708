"""`gp-mapping check`."""
