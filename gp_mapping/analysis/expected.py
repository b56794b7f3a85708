"""What a map itself expects of its errors on a test: how alike they are, and their mean.

Errors of neighbouring predictions are alike where the map does not know the field: a test on ground
that was never driven is few independent witnesses, however many measurements it has. So are those
of one pass of a sensor whose constant differs from pass to pass. Let C be the covariance of two of
its N errors, of the field as the posterior tells it, and of the constant b of a pass to come:

    C = Cov[f, f′] + Var[b] (in one pass) + noise (of itself),     R the correlation

    mean error ē   variance V = mean of C over all pairs
    coverage       N / (1 + (N − 1) mean of R² over pairs)  independent errors tell as much of it,
                   since |e| < zσ is a matter of e², and squares of normals are correlated by R²
    along the way  of e − ē, mean of (C − V) / √((C_aa − V)(C_bb − V)) over pairs (a, b)
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from gp_mapping.analysis.metrics import as_mapped
from gp_mapping.analysis.residuals import slots_of
from gp_mapping.core.types import Samples

__all__ = ["LAG", "error_covariance", "expected_errors"]

LAG = 0.5  # s, between errors whose correlation is reported
_ROWS = 400  # measurements of the test, evenly chosen: their covariance is one small matrix
_HALF = 0.5  # of the field's own standard deviation: where more is left the map hardly knows it


def expected_errors(session, passes: list[Samples]) -> dict[str, float]:
    """Return what the map expects of its errors on a test.

    Args:
        session: the map.
        passes: the measurements of the test.

    Returns:
        bias_stddev, of the mean error in display units; witnesses, the number of independent errors
        that tell as much of the coverage; unknown_share, the fraction of measurements where more
        than half of the field's own standard deviation is left; autocorrelation, of errors `LAG`
        apart about their mean.
    """
    passes = [as_mapped(session, samples) for samples in passes if len(samples)]
    n = sum(map(len, passes))
    step = max(1, math.ceil(n / _ROWS))

    x = torch.cat([samples.x for samples in passes])[::step]
    of = torch.repeat_interleave(torch.tensor([len(samples) for samples in passes]))[::step]
    latent, noise = _variances(session, x)
    constant = _constant_variance(session)
    shared = _shared(session, x, latent) + constant * (of[:, None] == of)

    signal = session.map.hyperparameters()["signal_stddev"]
    left = torch.full_like(latent, (_HALF * signal) ** 2)

    # pairs of two measurements; but for the constant of their pass, the noise of each is its own
    total = latent + noise
    apart = ~torch.eye(len(x), dtype=torch.bool)
    pairs = max(1, len(x) * (len(x) - 1))
    mean = float(shared[apart].sum()) / pairs
    alike = float((shared.square() / (total[:, None] * total))[apart].sum()) / pairs
    variance = (float(total.mean()) + (n - 1) * max(0.0, mean)) / n

    return {
        "bias_stddev": variance**0.5 / session.settings.field_scale,
        "witnesses": n / (1.0 + (n - 1) * alike),
        "unknown_share": float((latent > torch.maximum(noise, left)).double().mean()),
        "autocorrelation": _along(session, passes, step, variance),
    }


def error_covariance(session, x: Tensor) -> Tensor:
    """Return the covariance (K, K), squared SI, that the map expects of errors at x (K, D).

    Without the unknown constant of their pass: all of them share that.
    """
    latent, noise = _variances(session, x)
    own = (noise - _constant_variance(session)).clamp(min=1e-9 * noise)
    return _shared(session, x, latent).diagonal_scatter(latent + own)


def _constant_variance(session) -> float:
    """Return the variance of the constant of a pass to come, squared SI; noise has it, too."""
    return float(session.map.bias_variance().mean())


def _shared(session, x: Tensor, latent: Tensor) -> Tensor:
    """Return the covariance (K, K) of the field at x, of which the variances are `latent` (K,)."""
    return _correlation(session, x, x) * (latent.sqrt()[:, None] * latent.sqrt())


def _variances(session, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return variances (K,), squared SI: of the field at x (K, D), and of the noise there."""
    prediction = session.predict(x)
    latent = prediction.variance.mean(1).cpu()
    return latent, (prediction.measurement_variance.mean(1).cpu() - latent).clamp_min(0.0)


def _correlation(session, a: Tensor, b: Tensor) -> Tensor:
    """Return the posterior correlation (N, K) of the field at a (N, D) and at b (K, D)."""
    covariance = session.map.covariance(a, b).cpu()
    own = [session.map.predict(x).variance.mean(1).cpu().clamp_min(1e-300) for x in (a, b)]
    return (covariance / (own[0][:, None] * own[1]).sqrt()).clamp(-1.0, 1.0)


def _along(session, passes: list[Samples], step: int, common: float) -> float:
    """Return the correlation of errors LAG apart along the way, of errors averaged over slots.

    It is that about the mean error of the test, of which the variance is `common`, squared SI.
    """
    here, there, counts = [], [], []
    for samples in passes:
        stamp = samples.stamp.numpy()
        rows = np.arange(0, len(stamp), step)
        later = np.searchsorted(stamp, stamp[rows] + LAG)
        near = (later < len(stamp)) & (
            stamp[np.minimum(later, len(stamp) - 1)] < stamp[rows] + 2 * LAG
        )
        here.append(samples.x[rows[near]])
        there.append(samples.x[later[near]])
        slots = len(np.unique(slots_of(stamp)))
        counts.append(np.full(int(near.sum()), len(stamp) / slots))

    a, b, count = torch.cat(here), torch.cat(there), torch.from_numpy(np.concatenate(counts))
    if not len(a):
        return 0.0
    (before, noise), (after, _) = _variances(session, a), _variances(session, b)
    constant = _constant_variance(session)
    own = (noise - constant).clamp(min=1e-9 * noise) / count

    # what all errors share, the mean takes away
    shared = _correlation(session, a, b).diagonal() * (before * after).sqrt() + constant - common
    first, second = ((field + constant + own - common).clamp_min(own) for field in (before, after))
    return float((shared / (first * second).sqrt()).clamp(-1.0, 1.0).mean())
