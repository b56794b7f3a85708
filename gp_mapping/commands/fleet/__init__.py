"""`--workers` and `--scheduler` of `gp-mapping map`, `check`, `report` and `fit`.

Each bag is read by itself, then all of them make one map.
"""
