"""WISKI: structured kernel interpolation on a lattice."""
