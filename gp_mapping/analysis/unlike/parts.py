"""What of a test is unlike the drives that made the map: iron, poses, and places that have changed.

A robot that carries a magnet today, or whose wheels slip on one floor, makes errors that no setting
of the map explains. Of a piece of a test with errors e = measured − predicted, the model is

    e = k + c cos h + s sin h − ∇m(x)ᵀ d + ε,     ε ~ N(0, C)

with a constant k, a field (c, s) that turns with the heading h and is not in the map's, and a
displacement d of the poses (m) against the map's mean m: to first order, so d is small against a
lengthscale. Of a vector the part that turns is R(h) b. C is the map's own covariance of these
predictions with the noise, times the factor, at least 1, by which the errors exceed it; so an
error that the map expects between its lanes is blamed on neither. Gross errors, which no field and
no poses make, are left out (lone.py). Whether it is d, or the field has
changed in some place, is told by the evidence of both (piece_evidence.py); the covariance of a
change that was found is in C, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import solve_triangular
from scipy.stats import chi2
from torch import Tensor

from gp_mapping.analysis.digits import decimals
from gp_mapping.analysis.expected import error_covariance
from gp_mapping.analysis.metrics import as_mapped, velocities
from gp_mapping.analysis.unlike.lone import lone_errors
from gp_mapping.analysis.unlike.piece_evidence import Errors, explain
from gp_mapping.core.types import Samples

__all__ = ["CHANGED", "DISPLACED", "TURNING", "Unlike", "unlike_parts", "unlike_text"]

TURNING, DISPLACED, CHANGED = "turning", "displaced", "changed"

_LONG = 5.0  # lengthscales of way in a piece
_PIECES = 24  # most
_ROWS = 250  # measurements of a piece, evenly chosen: their covariance is one small matrix
_FEWEST = 30  # measurements that a piece needs
_STEP = 0.1  # lengthscales, of differences for the gradient
_CHANCE = 1e-4  # that anything of a test without fault is named
_NAMED = 5  # places of changes
_WORTH = 0.1  # fraction of a piece's mean square error that it explains, at least


class Unlike(NamedTuple):
    """What of a test is unlike the map.

    Attributes:
        what: TURNING (a field that turns with the robot, SI), DISPLACED (m) or CHANGED (a field
            that is another in some place, SI).
        pass_number: of the test, from 0.
        begin: stamp, s.
        end: stamp, s.
        along: component along x: of the displacement; of the field when the robot heads there; of
            a change all of it, signed.
        across: component along y.
        stddev: of the amplitude.
        gain: fraction of the piece's mean square error that it explains.
        place: where the field has changed most, m; None of the others.
    """

    what: str
    pass_number: int
    begin: float
    end: float
    along: float
    across: float
    stddev: float
    gain: float
    place: tuple[float, float] | None = None

    @property
    def size(self) -> float:
        """Amplitude, SI."""
        return math.hypot(self.along, self.across)

    @property
    def direction(self) -> float:
        """Of the map, degrees."""
        return math.degrees(math.atan2(self.across, self.along))


def unlike_text(parts: list[Unlike], sensor: str, unit: str, scale: float) -> str:
    """Say what is unlike the map, and what to do about it.

    Args:
        parts: of one kind, at least one, the worst first.
        sensor: its name.
        unit: display unit.
        scale: one display unit in SI.
    """
    part, more = parts[0], f" (and {len(parts) - 1} more)" if len(parts) > 1 else ""
    if part.what == TURNING:
        size, stddev = (decimals(v / scale, 2) for v in (part.size, part.stddev))
        return (
            f"keep iron on the robot as it is: {size} ± {stddev} {unit} turns with the robot in pass "
            f"{part.pass_number + 1} of the test{more} and not in the map, as of a load, a tool or a magnetised "
            f"part that is not there in all passes; calibrate the {sensor} for each, or map such passes apart"
        )
    if part.place is not None:
        places = ", ".join(
            "({:.1f}, {:.1f}) m by {} ± {} {}".format(
                *each.place,
                decimals(each.along / scale, 2, "+"),
                decimals(each.stddev / scale, 2),
                unit,
            )
            for each in parts[:_NAMED]
            if each.place is not None
        )
        more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
        return (
            f"look at {places}{more}: the field has changed about there between the map and the test, which no poses "
            "that lie off the map explain as well; map these places again"
        )
    return (
        f"look at the poses: from stamp {part.begin:.1f} to {part.end:.1f} of the test they lie {part.size:.2f} ± "
        f"{part.stddev:.2f} m off the map, towards {round(part.direction)}°{more}: wheels that slip, an odometry "
        "that drifts, or a localiser that leaps; record a localiser's pose"
    )


class _Estimate(NamedTuple):
    """What one piece tells of one kind.

    Attributes:
        span: stamps of its first and last measurement, s.
        value: (2,).
        variance: (2, 2).
        error: (N,) without what the other kinds explain.
        columns: (N, 2), by which `value` explains some of it.
    """

    span: tuple[float, float]
    value: np.ndarray
    variance: np.ndarray
    error: np.ndarray
    columns: np.ndarray


def unlike_parts(session, passes: list[Samples]) -> list[Unlike]:
    """Return what of a test is unlike the map, the largest gain first.

    What turns with the robot is the same for a whole pass; a displacement is of a piece. In a pass
    in which the field has changed a displacement that a change explains nearly as well is none.

    Args:
        session: the map.
        passes: of the test, each in order of time.
    """
    told = [(number, *_estimates(session, piece)) for number, piece in _pieces(session, passes)]
    changes = [c._replace(pass_number=number) for number, _, c, _ in told if c is not None]
    changed = {part.pass_number for part in changes}
    found: dict[tuple, list[_Estimate]] = {}
    for i, (number, estimates, _, surely) in enumerate(told):
        if number in changed and not surely:
            estimates.pop(DISPLACED, None)
        for what, estimate in estimates.items():
            found.setdefault((what, number, i if what == DISPLACED else -1), []).append(estimate)

    out = [_judged(*key[:2], estimates, _CHANCE / len(found)) for key, estimates in found.items()]
    parts = [*(part for part in out if part is not None), *changes]
    return sorted(parts, key=lambda part: -part.gain)


def _judged(what: str, number: int, estimates: list[_Estimate], chance: float) -> Unlike | None:
    """Return what some pieces of a pass tell together; None where it may be chance, or is little.

    Where pieces differ by more than their uncertainty, the mean is as unsure as they differ.
    """
    precisions = [np.linalg.inv(e.variance) for e in estimates]
    variance = np.linalg.inv(sum(precisions))
    value = variance @ sum(p @ e.value for p, e in zip(precisions, estimates))

    apart = sum(
        float((e.value - value) @ p @ (e.value - value)) for p, e in zip(precisions, estimates)
    )
    if len(estimates) > 1:
        variance = variance * max(1.0, apart / (2.0 * (len(estimates) - 1)))

    before = sum(float(e.error @ e.error) for e in estimates)
    after = sum(float(np.square(e.error - e.columns @ value).sum()) for e in estimates)
    gain = 1.0 - after / max(before, 1e-300)
    if gain < _WORTH or chi2.sf(float(value @ np.linalg.solve(variance, value)), 2) > chance:
        return None
    stddev = math.sqrt(float(value @ variance @ value)) / float(np.linalg.norm(value))
    return Unlike(
        what, number, estimates[0].span[0], estimates[-1].span[1], *map(float, value), stddev, gain
    )


def _pieces(session, passes: list[Samples]) -> list[tuple[int, Samples]]:
    """Return the passes cut into pieces of some lengthscales, with the numbers of their passes."""
    lengthscale = session.map.hyperparameters()["lengthscale"]
    long = [(i, as_mapped(session, samples)) for i, samples in enumerate(passes)]
    long = [(i, samples) for i, samples in long if len(samples) >= _FEWEST]
    ways = [np.r_[0.0, np.cumsum(_steps(samples))] for _, samples in long]

    length = max(_LONG * lengthscale, sum(way[-1] for way in ways) / _PIECES)
    out = []
    for (number, samples), way in zip(long, ways):
        count = max(1, int(way[-1] / length))
        which = np.minimum((way / max(way[-1], 1e-9) * count).astype(int), count - 1)
        parts = [samples[np.flatnonzero(which == k)] for k in range(count)]
        out += [(number, part) for part in parts if len(part) >= _FEWEST]
    return out[:_PIECES]


def _steps(samples: Samples) -> np.ndarray:
    """Way from each measurement to the next, (n − 1,) m."""
    return np.linalg.norm(np.diff(samples.x.numpy(), axis=0), axis=1)


def _estimates(session, piece: Samples) -> tuple[dict[str, _Estimate], Unlike | None, bool]:
    """Return what a piece tells of each kind, where the field has changed, and a certainty.

    That is whether poses lie off the map, a change being no explanation.

    Nothing where it cannot tell kinds apart; a displacement only where it is the explanation.
    """
    stamp = piece.stamp.numpy()
    velocity = torch.from_numpy(velocities(stamp - stamp[0], piece.x.numpy()))
    rows = np.unique(np.linspace(0, len(piece) - 1, min(_ROWS, len(piece))).astype(int))
    piece, velocity = _without_gross(session, piece[rows], velocity[rows])

    def error_at(places: np.ndarray) -> np.ndarray:
        """Return the errors of the piece at places (N, 2), (N, C)."""
        mean = session.predict(torch.from_numpy(places), velocity, piece.heading).mean
        return (piece.y - mean.cpu()).numpy()

    def at(places: np.ndarray) -> Errors:
        """Return what the map makes of the piece at places."""
        x = torch.from_numpy(places)
        covariance = error_covariance(session, x).numpy()
        return Errors(error_at(places), covariance, _gradient(session, x))

    lengthscale = session.map.hyperparameters()["lengthscale"]
    x = piece.x.numpy()
    error, covariance, gradient = at(x)
    columns = _columns(error, piece.heading, gradient)
    always = np.concatenate([columns[name] for name in columns if name != DISPLACED], 2)
    explained = explain(at, error_at, always, x, lengthscale)
    if not explained.displaced:
        del columns[DISPLACED]
    change = explained.change if explained.changed else None
    covariance = covariance if change is None else covariance + change

    # whitened, channel by channel: they share one covariance
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:  # by rounding; the piece tells nothing then
        return {}, None, False

    def whitened(part: np.ndarray) -> np.ndarray:
        """Return (n, C, k) with errors of unit variance, as (n C, k)."""
        flat = part.reshape(len(part), -1)
        return _stacked(solve_triangular(factor, flat, lower=True).reshape(part.shape))

    target = whitened(error[:, :, None])[:, 0]
    # a way of one direction tells a field that turns from no constant, one of no gradient no place
    for left_out in ((), (TURNING,), (DISPLACED,)):
        names = [name for name in columns if name not in left_out]
        design = np.concatenate([whitened(columns[name]) for name in names], 1)
        if np.linalg.matrix_rank(design) == design.shape[1]:
            break
    else:
        return {}, None, False

    estimate, *_ = np.linalg.lstsq(design, target, rcond=None)
    left = target - design @ estimate
    excess = max(1.0, float(left @ left) / max(1, len(target) - len(estimate)))
    spread = excess * np.linalg.inv(design.T @ design)

    plain = np.concatenate([_stacked(columns[name]) for name in names], 1)
    remains = _stacked(error[:, :, None])[:, 0] - plain @ estimate
    span = float(stamp[0]), float(stamp[-1])
    out, first = {}, error.shape[1]  # the constants come first
    for name in names[1:]:
        own = slice(first, first + 2)
        first = own.stop
        out[name] = _Estimate(
            span,
            estimate[own],
            spread[own, own],
            remains + plain[:, own] @ estimate[own],
            plain[:, own],
        )
    if change is None:
        return out, None, explained.surely
    unexplained = remains.reshape(error.shape[1], -1).T
    where = _changed(unexplained, change, np.linalg.inv(covariance), x, span)
    return out, where, explained.surely


def _without_gross(session, piece: Samples, velocity: Tensor) -> tuple[Samples, Tensor]:
    """Return a piece and its velocities (N, 2) m/s without what are gross errors."""
    error = (piece.y - session.predict(piece.x, velocity, piece.heading).mean.cpu()).numpy()
    covariance = error_covariance(session, piece.x).numpy()
    lengthscale = session.map.hyperparameters()["lengthscale"]
    kept = np.flatnonzero(~lone_errors(error, covariance, piece.x.numpy(), lengthscale))
    return piece[kept], velocity[kept]


def _changed(
    error: np.ndarray, change: np.ndarray, precision: np.ndarray, x: np.ndarray, span
) -> Unlike | None:
    """Return where and by how much the field has changed most; None where that explains little.

    Args:
        error: without what else explains it, (n, C).
        change: covariance of the change, (n, n).
        precision: of the errors with it, (n, n).
        x: places, (n, 2) m.
        span: stamps of the first and last measurement, s.
    """
    mean = change @ precision @ error
    gain = 1.0 - float(np.square(error - mean).sum()) / max(float(np.square(error).sum()), 1e-300)
    if gain < _WORTH:
        return None
    row, channel = np.unravel_index(np.abs(mean).argmax(), mean.shape)
    variance = change[row, row] - change[row] @ precision @ change[row]
    place = (float(x[row, 0]), float(x[row, 1]))
    amount = float(mean[row, channel])
    return Unlike(CHANGED, 0, *span, amount, 0.0, math.sqrt(max(variance, 0.0)), gain, place)


def _columns(
    error: np.ndarray, heading: Tensor | None, gradient: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the design of each part, (n, C, unknowns)."""
    n, channels = error.shape
    out = {"constant": np.broadcast_to(np.eye(channels), (n, channels, channels)).copy()}
    if heading is not None:
        cos, sin = heading.numpy().T
        turning = np.zeros((n, channels, 2))
        if channels == 1:
            turning[:, 0] = np.stack([cos, sin], 1)
        else:
            turning[:, :2] = np.stack([np.stack([cos, -sin], 1), np.stack([sin, cos], 1)], 1)
        out[TURNING] = turning
    return out | {DISPLACED: -gradient}


def _stacked(part: np.ndarray) -> np.ndarray:
    """Return (n, C, k) as (n C, k), channel after channel."""
    return np.moveaxis(part, 1, 0).reshape(-1, part.shape[2])


def _gradient(session, x: Tensor) -> np.ndarray:
    """Return the gradient of the map's mean at x (n, 2), (n, C, 2) SI/m."""
    step = _STEP * session.map.hyperparameters()["lengthscale"]
    out = []
    for axis in range(2):
        shift = torch.zeros(2, dtype=x.dtype)
        shift[axis] = step
        ahead, behind = (session.predict(x + sign * shift).mean.cpu() for sign in (1.0, -1.0))
        out.append(((ahead - behind) / (2.0 * step)).numpy())
    return np.stack(out, 2)
