"""Many bags as one map: each bag by itself, θ agreed on, sites summed as a tree.

The steps run on this machine or on a Dask cluster.
"""
