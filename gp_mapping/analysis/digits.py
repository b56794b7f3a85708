"""Numbers for people: a field of nanotesla, or of millipascals, is not 0.000 of its unit."""

from __future__ import annotations

__all__ = ["decimals"]


def decimals(value: float, digits: int = 3, sign: str = "") -> str:
    """A number with so many decimals; with two digits where those would show one or none.

    Args:
        value: the number.
        digits: decimals of numbers of usual size.
        sign: '+' to show the sign of positive numbers, too.
    """
    usual = value == 0 or not abs(value) < 10.0 ** (1 - digits)
    return f"{value:{sign}.{digits}f}" if usual else f"{value:{sign}.2g}"
