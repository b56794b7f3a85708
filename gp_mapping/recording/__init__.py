"""Bags in and out, recordings in other formats, and replay through an intake."""
