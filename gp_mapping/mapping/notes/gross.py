"""Whether gross errors are so many that they may be the field, in a sentence.

What goes on around a measurement tells whether it is one, so of numbers of two kinds the rarer kind
is left out, and the map is sure of the other.
"""

from __future__ import annotations

__all__ = ["bursts_note", "gross_errors_note"]

# a sensor that errs so often is none; a map of one that errs half as often is as good as without
_SHARE, _ENOUGH = 0.1, 100


def gross_errors_note(
    gross: int, used: int, newest: tuple[float, float] | None, scale: float, unit: str
) -> list[str]:
    """Say that the gross errors are many.

    Args:
        gross: measurements that were left out as gross errors.
        used: all measurements that were used, these among them.
        newest: of these the newest: value (SI) and stamp (s); None: not known.
        scale: one display unit in SI.
        unit: its name.
    """
    if gross < max(_ENOUGH, _SHARE * used):
        return []
    newest = (
        "not known" if newest is None else f"{newest[0] / scale:.4g} {unit}, stamp {newest[1]:.1f}"
    )
    return [
        f"{gross} of {used} measurements ({100.0 * gross / used:.0f} %) are left out as gross errors, since they lie "
        f"far from those around them (the newest: {newest}): no sensor errs so often. Do its numbers mean the field "
        "only at times (a probe that is lifted while the robot drives, a mark for no reading)? min_value and max_value "
        "leave out those that do not; where all of them are the field, robust: false keeps them"
    ]


def bursts_note(count: int, newest: float) -> list[str]:
    """Say that samples far from those around them were too many to be gross errors.

    Args:
        count: measurements that came while they were.
        newest: stamp of the newest of these, s.
    """
    if count < _ENOUGH:
        return []
    return [
        f"{count} measurements (the newest at stamp {newest:.1f}) came where too many lie far from those "
        "around them to be gross errors: gusts, a noise that comes in bursts, sources that are narrow for this "
        "sensor. All of them are in the map, which tells their mean; where they are errors, min_value and "
        "max_value leave them out"
    ]
