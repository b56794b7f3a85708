"""Numbers that a sensor tells again and again, which are no new measurements."""
