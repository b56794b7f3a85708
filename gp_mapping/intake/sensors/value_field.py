"""Where in a message a scalar sensor's number is: "voltage", "wifi.rssi", "readings.0.value"."""

from __future__ import annotations

__all__ = ["DEFAULT", "number_at", "steps_of"]

# std_msgs' `data`; also the `value` that stamped scalars of other packages carry
DEFAULT = ("data", "value")


def steps_of(path: str) -> list[str | int]:
    """A path as names of fields and, of arrays, numbers of elements."""
    return [int(step) if step.isdecimal() else step for step in path.split(".")]


def number_at(msg, path: str) -> float | None:
    """The number at a path; None where the message has no such field.

    Args:
        msg: a message.
        path: names of fields, and numbers of elements of arrays, with dots between them.

    Raises:
        IndexError: an array is shorter than that.
        TypeError: what is there is no number.
    """
    found = msg
    for step in steps_of(path):
        if isinstance(step, int):
            if step >= len(found):
                raise IndexError(f"`{path}`: the array holds {len(found)} numbers")
            found = found[step]
        elif hasattr(found, step):
            found = getattr(found, step)
        else:
            return None
    if isinstance(found, str):  # float() would read it
        raise TypeError(f"`{path}` is a text, expected a number")
    return float(found)
