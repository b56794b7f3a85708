"""Bags in and out, other formats, and replay."""
