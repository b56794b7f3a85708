"""Sparse maps: basis, sites, memory, posterior."""
