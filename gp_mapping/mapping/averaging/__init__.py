"""What the average of raw samples in a cell does not know: white noise, and rounding."""
