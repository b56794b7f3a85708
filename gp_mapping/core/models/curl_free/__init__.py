"""A vector field as the gradient of one potential."""
