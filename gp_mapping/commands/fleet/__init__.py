"""`--workers` and `--scheduler` of `gp-mapping map`, `check`, `report` and `fit`: each bag by itself, then all as one."""
