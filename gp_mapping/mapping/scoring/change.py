"""Has the field changed? A CUSUM of one-step-ahead scores per patch; weights of gross errors.

Of each cell, z² = r²/((v + σ²) m) against a posterior from an earlier pass. Where nothing changed
z² is about 1; after a change it is large over a whole stretch. The log likelihood ratio of "κ times
the variance" against "as predicted", summed per patch while it is positive, raises an alarm at
_THRESHOLD (Page 1954).

What the map always gets wrong is no change: where the field is rougher than its lengthscale, or the
budget is short, the same patch errs on every visit. So m is what earlier visits of the patch have
shown,

    m = max(1, (n₀ + Σ_i q_i) / (n₀ + n)),   q_i = mean of r²/(v + σ²) over visit i of n, ≤ _LARGEST

and the visit that is going on is not among them: a change does not excuse itself. Cells of one
visit share their error where the sensor's noise is slow (it drifts over seconds), so they are fewer
witnesses than cells: _THRESHOLD is such that one visit of five cells with one and the same error
has to be four standard deviations off. A robot that stands fills cell after cell in one place, and
all of them have one error: a sensor that warms up, a charger next to it. Only the first one counts.

Reference:
    Page 1954, Continuous inspection schemes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, fields

from gp_mapping.mapping.tables import rows_of, table_of

__all__ = ["Change", "ChangeDetector", "log_ratio", "student_weight"]

_KAPPA = 9.0  # a change makes errors three times as large
_MOST = 25.0  # largest z² counted: one cell alone never raises the alarm
_THRESHOLD = 30.0  # nats; at least three cells
_PATCHES = 4096
_PRIOR = 5.0  # n₀, visits
_LARGEST = 25.0  # q of a visit: a change too small for an alarm does not hide the next one
_VISITS = 20.0  # remembered of a patch; beyond it the oldest ones fade
_STANDS = (
    0.02  # sides of a patch, a tenth of a cell; the next cell is nearer to the last one than that
)
_APART = 4.0  # sides of a patch; after so long a way elsewhere the next cell is a new visit


def student_weight(z_square: float, gate: float = 25.0, nu: float = 4.0) -> float:
    """Weight of a sample whose squared standardised residual is z².

        w = 1 for z² ≤ gate, else (ν + 1)/(ν + z²)

    Args:
        z_square: z².
        gate: z² up to which nothing is weakened.
        nu: ν, degrees of freedom of the Student t whose weight it is.
    """
    return 1.0 if z_square <= gate else (nu + 1.0) / (nu + z_square)


def log_ratio(z_square: float) -> float:
    """Log likelihood ratio of the variances κ and 1.

        ½ z² (1 − 1/κ) − ½ log κ,   z² ≤ _MOST

    Args:
        z_square: squared standardised residual.
    """
    return 0.5 * min(z_square, _MOST) * (1.0 - 1.0 / _KAPPA) - 0.5 * math.log(_KAPPA)


@dataclass(frozen=True)
class Change:
    """A place where the field was found changed.

    Attributes:
        x: m.
        y: m.
        stamp: when, s.
        error: mean error there, SI, signed.
        sure: poses that lie off are no explanation.
    """

    x: float
    y: float
    stamp: float
    error: float
    sure: bool = True


@dataclass(slots=True)
class _Patch:
    """What is known of one patch.

    Attributes:
        total: the CUSUM, nats.
        error: Σ of errors while total is positive, SI.
        cells: their number.
        visits: n of earlier visits.
        misfit: Σ q of earlier visits.
        here: cells of this visit.
        squares: Σ of their r²/(v + σ²).
        last: length of the path at the last cell, m.
    """

    total: float = 0.0
    error: float = 0.0
    cells: float = 0.0
    visits: float = 0.0
    misfit: float = 0.0
    here: float = 0.0
    squares: float = 0.0
    last: float = -math.inf

    def leave(self) -> None:
        """End the visit: its errors count among the earlier ones from now on."""
        if self.here:
            # an older visit fades, so that the patch follows the field
            keep = min(1.0, _VISITS / (self.visits + 1.0))
            self.visits = keep * (self.visits + 1.0)
            self.misfit = keep * (self.misfit + min(self.squares / self.here, _LARGEST))
        self.here = self.squares = 0.0

    @property
    def usual(self) -> float:
        """m: by how much squared errors exceed their predicted variance on a usual visit."""
        return max(1.0, (_PRIOR + self.misfit) / (_PRIOR + self.visits))


_NUMBERS = tuple(field.name for field in fields(_Patch))


class ChangeDetector:
    """One CUSUM per square patch of side `size` metres.

    There are at most 4096 patches; the longest unvisited is dropped first.

    Args:
        size: m.
    """

    def __init__(self, size: float):
        self.size = size
        # the last visited patch comes last
        self._patches: OrderedDict[tuple[int, int], _Patch] = OrderedDict()

    def add(
        self, x: list[float], residual: float, variance: float, stamp: float, length: float
    ) -> Change | None:
        """Score a cell; return the change that it reveals, or None.

        Args:
            x: (2,) m.
            residual: r, SI.
            variance: v + σ² as predicted, squared SI.
            stamp: s.
            length: of the path so far, m.
        """
        key = (math.floor(x[0] / self.size), math.floor(x[1] / self.size))
        patch = self._patches.pop(key, None) or _Patch()
        # a shorter path than before: it begins anew
        if length - patch.last > _APART * self.size or length < patch.last:
            patch.leave()

        if length - patch.last < _STANDS * self.size:
            self._patches[key] = patch
            return None
        square = residual * residual / variance

        patch.total += log_ratio(square / patch.usual)
        patch.error, patch.cells = patch.error + residual, patch.cells + 1.0
        patch.here, patch.squares, patch.last = (
            patch.here + 1.0,
            patch.squares + min(square, 1e6),
            length,
        )

        if patch.total <= 0.0:
            patch.total = patch.error = patch.cells = 0.0

        self._patches[key] = patch
        if len(self._patches) > _PATCHES:
            self._patches.popitem(last=False)
        if patch.total < _THRESHOLD:
            return None

        # the sum starts anew; the errors stay in m: what comes again and again is no change
        found = Change(x[0], x[1], stamp, patch.error / patch.cells)
        patch.total = patch.error = patch.cells = 0.0
        return found

    def state_dict(self) -> dict:
        """Return the patches as a table, with the side of one (m)."""
        return {"size": self.size, "tiles": table_of(self._patches, _NUMBERS)}

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken, also of older versions."""
        self.size = float(state["size"])
        # patches of older maps have their CUSUM alone
        self._patches = OrderedDict((key, _Patch(*row)) for key, row in rows_of(state["tiles"]))
