"""Stamps of a stream: which are stray, which come late, where a pass ends."""
