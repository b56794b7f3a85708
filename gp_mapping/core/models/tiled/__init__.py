"""A map of tiles: a model for each square, of which those far away are shelved."""
