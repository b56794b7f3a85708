"""The family's textbook formulas, dense, in NumPy, written without the core. Microtesla, metres.

Quiñonero-Candela and Rasmussen 2005 (eqs. 16–28): SoR, DTC, FITC, PITC, (FIC); Snelson and Ghahramani 2007: PIC.
"""

import numpy as np
from core_data import covariance

THETA = {"name": "matern52", "length": 0.5, "signal": 10.0}


def low_rank(a, b, z, constant=20.0, theta=THETA):
    """Q(a, b) = K_au K_uu⁻¹ K_ub, u = [w, g(z)]; the constant w is known to u, so K − Q is of g alone."""
    solved = np.linalg.solve(covariance(z, z, **theta), covariance(z, b, **theta))
    return covariance(a, z, **theta) @ solved + constant**2


def labels(x, side):
    """Tiles of x (n, D) about the origin, as text."""
    return np.array([f"{i:.0f},{j:.0f}" for i, j in np.floor(x / side + 0.5)])


def gamma(name, x, noise, z, block, theta=THETA):
    """Γ (n, n): what is left of K − Q in the training covariance, and the noise."""
    k, q = covariance(x, x, **theta), low_rank(x, x, z, 0.0, theta)
    if name in ("sor", "dtc"):
        residual = np.zeros_like(k)
    elif name in ("fitc", "fic"):
        residual = np.diag(np.diag(k - q))
    else:
        residual = np.where(block[:, None] == block[None], k - q, 0.0)
    return residual + np.diag(noise)


def anytime(name, x, y, noise, z, xs, block=None, block_of_xs=None, constant=20.0, theta=THETA):
    """Mean (K, C) and covariance (K, K). block (n,), block_of_xs (K,): labels; "none" shares a residual with nobody."""
    cross, prior = low_rank(x, xs, z, constant, theta), low_rank(xs, xs, z, constant, theta)
    own = covariance(xs, xs, **theta) - low_rank(xs, xs, z, 0.0, theta)
    if name == "pic":
        cross = cross + np.where(
            block[:, None] == block_of_xs[None],
            covariance(x, xs, **theta) - low_rank(x, xs, z, 0.0, theta),
            0.0,
        )
        own = np.where(block_of_xs[:, None] == block_of_xs[None], own, 0.0)
    elif name == "fic":
        own = np.diag(np.diag(own))
    if name != "sor":
        prior = prior + own
    training = low_rank(x, x, z, constant, theta) + gamma(name, x, noise, z, block, theta)
    solved = np.linalg.solve(training, np.hstack([y, cross]))
    channels = y.shape[1]
    return cross.T @ solved[:, :channels], prior - cross.T @ solved[:, channels:]
