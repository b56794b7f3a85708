"""Whether the poses of measurements move as those of a robot do, in sentences where they do not."""

from __future__ import annotations

import math

import numpy as np

from gp_mapping.core.types import Samples

__all__ = ["Motion"]

_STANDS = 0.05  # m; a robot that stays within has not moved: poses tremble
_PATIENCE = 10.0  # s after which a robot that has never moved is spoken of
_STEP = 0.5  # s, over which a speed is taken: over less, poses that tremble are fast
_FASTEST = 60.0  # m/s; what maps moves slower
_OFTEN = 3  # speeds beyond; a single glitch of a localiser is no unit


class Motion:
    """Watches the places and stamps of samples, in the order in which they are handed out.

    Attributes:
        fastest: largest speed, m/s.
    """

    def __init__(self) -> None:
        self._low, self._high = np.full(2, np.inf), np.full(2, -np.inf)
        self._first = self._newest = math.nan  # stamps, s
        self._then: tuple[float, np.ndarray] | None = None  # stamp and place of the last step
        self._fast = 0
        self.fastest = 0.0

    def watch(self, samples: Samples) -> None:
        """Take in where samples were taken, and when."""
        if samples.stamp is None or not len(samples):
            return
        x, stamps = samples.x[:, :2].cpu().numpy(), samples.stamp.cpu().numpy()
        self._low, self._high = np.minimum(self._low, x.min(0)), np.maximum(self._high, x.max(0))
        # a recording that begins anew has come earlier than it began
        self._first = min(stamps[0], self._first) if self._first == self._first else stamps[0]
        self._newest = max(stamps[-1], self._newest) if self._newest == self._newest else stamps[-1]

        at = 0
        while at < len(stamps):
            stamp = float(stamps[at])
            if self._then is not None and stamp >= self._then[0] + _STEP:
                self._note(math.dist(x[at], self._then[1]) / (stamp - self._then[0]))
                self._then = stamp, x[at]
            elif self._then is None or stamp < self._then[0]:
                self._then = stamp, x[at]
            # at least one: of a very large stamp the next half second is no number of its own
            at += max(1, int(np.searchsorted(stamps[at:], self._then[0] + _STEP)))

    def _note(self, speed: float) -> None:
        """Take in a speed, m/s."""
        self._fast += speed > _FASTEST
        self.fastest = max(self.fastest, speed)

    def notes(self, max_speed: float) -> list[str]:
        """What a person should look at, in sentences.

        Args:
            max_speed: as in IntakeSettings.
        """
        seconds = self._newest - self._first
        if seconds >= _PATIENCE and float((self._high - self._low).max()) <= _STANDS:
            return [
                f"the robot has not moved since the first measurement, {seconds:.0f} s ago: its poses stay within "
                f"{_STANDS:g} m, and a map comes of driving; where it drives, does what makes the poses (wheel "
                "encoders, a localiser) work?"
            ]
        if self._fast >= _OFTEN:
            hint = "" if max_speed > 0.0 else " Poses that leap can be dropped by max_speed"
            return [
                f"poses move at {self.fastest:.3g} m/s: are they metres, and of one robot?{hint}"
            ]
        return []
