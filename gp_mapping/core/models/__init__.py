"""The models; nobody outside names a class of them, `create_map` makes them."""
