"""How good a map is where the robot has been, compared with a simulation's truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

__all__ = ["MapScore", "near_path", "score_map"]


@dataclass(frozen=True)
class MapScore:
    """Errors of a map, SI.

    Attributes:
        points: cells that were compared.
        rmse: root mean square error.
        bias: mean error.
        coverage: fraction of the cells within mean ± 1.96 stddev.
        field_stddev: of the truth over the same cells; a map that predicts the mean everywhere has
            this RMSE.
        mean_stddev: mean of the predicted standard deviations.
        nlpd: −log N(truth; mean, stddev²), the mean over cells, in nats for values in SI; infinite
            where a stddev is 0.
    """

    points: int
    rmse: float
    bias: float
    coverage: float
    field_stddev: float
    mean_stddev: float
    nlpd: float = float("nan")


def near_path(xy, path, within: float) -> np.ndarray:
    """Which points lie within some distance of a path: (N,) bool.

    Args:
        xy: (N, 2) m.
        path: (K, 2) m.
        within: m.
    """
    if len(path) == 0:
        return np.zeros(len(xy), dtype=bool)
    return cKDTree(np.asarray(path)).query(np.asarray(xy), distance_upper_bound=within)[0] <= within


def score_map(mean, stddev, truth) -> MapScore:
    """Compare a map of the latent field with the truth.

    Args:
        mean: (N,) SI.
        stddev: (N,) SI.
        truth: (N,) SI.

    Raises:
        ValueError: lengths differ, or there is nothing to compare.
    """
    mean, stddev, truth = (np.asarray(a, dtype=np.float64).ravel() for a in (mean, stddev, truth))
    if not len(truth) or not len(mean) == len(stddev) == len(truth):
        raise ValueError(
            f"got {len(mean)} means, {len(stddev)} stddevs and {len(truth)} true values; expected the "
            "same number of each, and at least one"
        )

    error = mean - truth
    # a stddev of 0 gives no finite density; the answer is set below
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = 0.5 * np.square(error / stddev) + np.log(stddev) + 0.5 * np.log(2.0 * np.pi)
    nlpd = float(surprise.mean()) if (stddev > 0.0).all() else float("inf")

    return MapScore(
        len(truth),
        float(np.sqrt(np.mean(error**2))),
        float(error.mean()),
        float(np.mean(np.abs(error) <= 1.96 * stddev)),
        float(truth.std()),
        float(stddev.mean()),
        nlpd,
    )
