"""What a survey may cost, and where it has to end."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget:
    """Metres and seconds that are left, and the home that must stay within them at any time.

    Attributes:
        metres: m; infinite where they are not limited.
        seconds: s; infinite where they are not limited.
        speed: m/s, from which seconds are computed.
        turn_rate: rad/s, from which seconds are computed.
        home: (x, y) m where the robot ends, within reach at every point of a plan; None: anywhere.
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
        """Whether metres or seconds are limited."""
        return math.isfinite(self.metres) or math.isfinite(self.seconds)

    def time(self, metres: float, turned: float) -> float:
        """Return the time that a drive takes, s.

            metres / speed + turned / turn_rate

        Args:
            metres: length of the drive, m.
            turned: sum of its turns, rad.
        """
        return metres / self.speed + turned / self.turn_rate

    def allows(self, metres: float, seconds: float) -> bool:
        """Return whether a cost is within it; 10⁻⁹ more is forgiven, for sums in another order.

        Args:
            metres: m.
            seconds: s.
        """
        return metres <= self.metres + 1e-9 and seconds <= self.seconds + 1e-9

    def fraction_spent(self, metres, seconds):
        """Return the fraction of it that is spent, 0 to 1.

        Of metres or of seconds, whichever ends the budget first.

        Args:
            metres: driven, a number or an array.
            seconds: passed, of the same shape.
        """
        distance_fraction = metres / self.metres if self.metres > 0 else metres * math.inf
        time_fraction = seconds / self.seconds if self.seconds > 0 else seconds * math.inf
        return distance_fraction if self.metres / self.speed <= self.seconds else time_fraction

    def minus(self, metres: float, seconds: float) -> Budget:
        """Return what is left after spending that much, never less than 0.

        Args:
            metres: m.
            seconds: s.
        """
        return Budget(
            max(0.0, self.metres - metres),
            max(0.0, self.seconds - seconds),
            self.speed,
            self.turn_rate,
            self.home,
        )
