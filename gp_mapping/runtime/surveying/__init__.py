"""Where the live mapper says to go: suggestions, a survey in slices, maps of free space, the driver that follows."""
