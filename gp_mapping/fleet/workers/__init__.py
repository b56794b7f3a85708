"""The worker processes of a fleet: here or elsewhere, and how many died over a step."""
