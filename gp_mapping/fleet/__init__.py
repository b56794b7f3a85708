"""Many bags as one map: each bag by itself, θ agreed on, sites summed as a tree, on this machine or a Dask cluster."""
