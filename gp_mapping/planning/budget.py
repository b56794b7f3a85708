"""What a survey may cost, and where it has to end."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget:
    """Metres and seconds that are left, and the place that must be within them at any time.

    metres, seconds: infinite where they are not limited.  speed: m/s and turn_rate: rad/s, of which seconds are made.
    home: (x, y) m where the robot ends; None: anywhere. It stays within reach at every point of a plan.
    """

    metres: float = math.inf
    seconds: float = math.inf
    speed: float = 0.3
    turn_rate: float = 1.0
    home: tuple[float, float] | None = None

    def __post_init__(self):
        if not (self.metres >= 0 and self.seconds >= 0):
            raise ValueError(
                f"a budget of {self.metres} m and {self.seconds} s: expected 0 or more of each"
            )
        if not (self.speed > 0 and self.turn_rate > 0 and math.isfinite(self.speed)):
            raise ValueError(
                f"speed {self.speed} m/s and turn_rate {self.turn_rate} rad/s: expected above 0"
            )
        if self.home is not None and not all(map(math.isfinite, self.home)):
            raise ValueError(f"home is {self.home}, expected finite metres")

    @property
    def limited(self) -> bool:
        """Whether there is an end to it."""
        return math.isfinite(self.metres) or math.isfinite(self.seconds)

    def time(self, metres: float, turned: float) -> float:
        """Seconds that driving so many metres with so many radians of turns takes."""
        return metres / self.speed + turned / self.turn_rate

    def allows(self, metres: float, seconds: float) -> bool:
        """Whether so much is within it (a hair more is forgiven, for sums in another order)."""
        return metres <= self.metres + 1e-9 and seconds <= self.seconds + 1e-9

    def share(self, metres, seconds):
        """How much of it is spent by then, 0 to 1: of metres or of seconds, whichever ends it first."""
        spent = metres / self.metres if self.metres > 0 else metres * math.inf
        timed = seconds / self.seconds if self.seconds > 0 else seconds * math.inf
        return spent if self.metres / self.speed <= self.seconds else timed

    def less(self, metres: float, seconds: float) -> Budget:
        """What is left after spending so much."""
        return Budget(
            max(0.0, self.metres - metres),
            max(0.0, self.seconds - seconds),
            self.speed,
            self.turn_rate,
            self.home,
        )
