"""Oracles and fits of stored samples, which no node needs."""
