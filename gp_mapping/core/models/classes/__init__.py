"""Classes: a field of Gaussian measurements for each of them."""
