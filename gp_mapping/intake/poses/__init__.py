"""Poses in order: read, kept, found, interpolated; the tree of transforms."""
