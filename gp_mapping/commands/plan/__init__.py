"""`gp-mapping plan`: the next drive on a saved map, planned as a node plans it."""
