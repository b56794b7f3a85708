"""One map and what surrounds it: cells of raw samples, scores, drawings, and how a map begins."""
