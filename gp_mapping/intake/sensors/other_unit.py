"""Whether a magnetic field beyond the sensor's range reads like one in another unit than tesla.

The earth's field is 25 to 65 µT, and near steel a few times that or a part of it. A drive whose
numbers are all of one size, and that size is the earth's in gauss, was recorded in gauss.
"""

from __future__ import annotations

import math

__all__ = ["OtherUnit"]

_EARTH = 45e-6  # T
_UNITS = {3: "millitesla", 4: "gauss", 6: "microtesla", 7: "milligauss", 9: "nanotesla"}
_NEAR = 0.5  # decades from the earth's field
_SPREAD = 30.0  # largest over smallest: more is no field in any unit
_ENOUGH = 10  # measurements; a spike is no unit


class OtherUnit:
    """Watches the norms of measurements that are beyond the range."""

    def __init__(self) -> None:
        self._count, self._low, self._high = 0, math.inf, 0.0

    def add(self, norm: float) -> None:
        """Take in a measurement that is beyond the range, in the unit of its message."""
        self._count += 1
        self._low, self._high = min(self._low, norm), max(self._high, norm)

    def notes(self, limit: float) -> list[str]:
        """What to say of them, in sentences.

        Args:
            limit: max_field, T.
        """
        if self._count < _ENOUGH or self._high > _SPREAD * self._low:
            return []
        # in decades, since the product of the two may overflow
        size = 0.5 * (math.log10(self._low) + math.log10(self._high)) - math.log10(_EARTH)
        power = min(_UNITS, key=lambda decades: abs(decades - size))
        if abs(power - size) > _NEAR:
            return []

        return [
            f"measurements of {self._low:.3g} … {self._high:.3g} are beyond max_field ({limit:g} T) and read like "
            f"{_UNITS[power]}: mend the driver, ROS asks for tesla; a recording that is so throughout is mapped with "
            f"max_field: {0.01 * 10.0**power:.0f}.0 and soft_iron_xx, soft_iron_yy and soft_iron_zz: 1.0e-{power}"
        ]
