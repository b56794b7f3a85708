"""Processes, playback and launch."""
