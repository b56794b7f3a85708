"""The way that a robot drives: its plan, what lies ahead or is in the way, and what was driven."""
