"""Whether all drives of a map are in one frame."""
