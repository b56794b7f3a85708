"""What of a test is unlike the drives that made the map, and what explains it."""
