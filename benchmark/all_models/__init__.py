"""Every model and the baselines in one table, and each live."""
