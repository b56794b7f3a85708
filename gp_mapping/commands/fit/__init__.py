"""`gp-mapping fit`: hyper-parameters from all cells of recordings at once, and the map at them."""
