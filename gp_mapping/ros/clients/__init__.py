"""Listeners to a running node, for the command line."""
