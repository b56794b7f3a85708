"""Oracles, and fits of stored samples; no node needs them."""
