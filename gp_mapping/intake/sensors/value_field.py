"""Where in a message a scalar sensor's number is: "voltage", "wifi.rssi", "gases[name=CO2].ppm"."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["DEFAULT", "Choice", "NotChosenError", "number_at", "steps_of"]

# std_msgs' `data`; also the `value` that stamped scalars of other packages carry
DEFAULT = ("data", "value")
_STEP = re.compile(r"\[(?P<field>[^\]=]*)=(?P<text>[^\]]*)\]|(?P<name>[^.\[\]]+)")


class Choice(NamedTuple):
    """Of an array, the element whose field reads so; of a number, the messages whose field does.

    Attributes:
        field: a field of the elements, or of the message that has the number.
        text: what it reads.
    """

    field: str
    text: str


class NotChosenError(LookupError):
    """A message that is of others than the one that is chosen.

    Args:
        choice: which is chosen.
        others: what the field reads in this message.
    """

    def __init__(self, choice: Choice, others: list[str]):
        super().__init__(f"no {choice.field} {choice.text}")
        self.choice, self.others = choice, others


@lru_cache(maxsize=64)
def steps_of(path: str) -> tuple[str | int | Choice, ...]:
    """A path as names of fields, numbers of an array's elements, and choices."""
    return tuple(
        Choice(step["field"], step["text"])
        if step["name"] is None
        else int(step["name"])
        if step["name"].isdecimal()
        else step["name"]
        for step in _STEP.finditer(path)
    )


def number_at(msg, path: str) -> float | None:
    """The number at a path; None where the message has no such field.

    Args:
        msg: a message.
        path: names of fields, and numbers of elements of arrays, with dots between them. In
            brackets after an array, which element: "gases[name=CO2].ppm"; after a number, which
            messages: "ppm[name=CO2]".

    Raises:
        IndexError: an array is shorter than that.
        NotChosenError: it is of others than the one that is chosen.
        TypeError: what is there is no number.
    """
    found = holder = msg
    for step in steps_of(path):
        if isinstance(step, Choice):
            is_array = hasattr(found, "__len__") and not isinstance(found, str)
            among = list(found) if is_array else [holder]
            if not all(hasattr(each, step.field) for each in among):
                return None
            texts = [str(getattr(each, step.field)) for each in among]
            if step.text not in texts:
                raise NotChosenError(step, texts)
            found = among[texts.index(step.text)] if is_array else found
        elif isinstance(step, int):
            if step >= len(found):
                raise IndexError(f"`{path}`: the array holds {len(found)} numbers")
            found = found[step]
        elif hasattr(found, step):
            found, holder = getattr(found, step), found
        else:
            return None
    if isinstance(found, str):  # float() would read it
        raise TypeError(f"`{path}` is a text, expected a number")
    return float(found)
