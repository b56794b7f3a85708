"""What one-step-ahead predictions reveal of noise, changes and scale."""
