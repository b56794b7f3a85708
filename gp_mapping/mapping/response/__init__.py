"""Sensors that follow the field slowly: how slowly, and what they would settle at."""
