"""Poses: read, kept in order, found by stamp, interpolated; and the tree of transforms."""
