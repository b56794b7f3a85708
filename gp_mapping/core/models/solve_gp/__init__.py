"""SOLVE-GP: a second, orthogonal set of inducing inputs."""
