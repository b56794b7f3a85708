"""Sums on a lattice, and what is solved from them."""
