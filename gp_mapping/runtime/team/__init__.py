"""Robots that make one map: totals out, totals of others in, their sum."""
