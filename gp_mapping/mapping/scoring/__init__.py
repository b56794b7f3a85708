"""What one-step-ahead prediction says of noise, changes and scale."""
