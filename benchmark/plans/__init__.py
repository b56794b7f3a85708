"""Where to go next, and what planning costs."""
