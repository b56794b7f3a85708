"""Robots that make one map: each sends its totals, receives those of others, and sums them."""
