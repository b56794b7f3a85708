"""Notices that one topic tells of several things: access points, gases, sensors that share it."""

from __future__ import annotations

from itertools import pairwise

from gp_mapping.errors import named
from gp_mapping.intake.sensors.value_field import Choice, NotChosenError, steps_of

__all__ = ["Sources"]

_FEW = 24  # messages before anything is said of messages that take turns
_MOST = 64  # texts of a field that are kept; more are no names of sources
_SHOWN = 8  # names in a sentence


class Sources:
    """Whose numbers are taken from the messages of one topic.

    A number at a place of an array is of several where the element there is named otherwise now and
    then, and what stood there stands elsewhere in the array: access points in the order of their
    strength. A number of a message is of several where a text beside it changes with most messages
    and comes back.

    Args:
        paths: where the number is looked for, as of `value_field`.
    """

    def __init__(self, paths: tuple[str, ...]):
        # what is chosen by a text is of one source
        self._paths = tuple(p for p in paths if not any(isinstance(s, Choice) for s in steps_of(p)))
        self._fields: dict[type, tuple[str, ...]] = {}  # of each type, those that hold texts
        self._turns: dict[str, _Turns] = {}
        self._places: dict[str, _Place] = {}
        self._chosen, self._others = 0, dict[str, None]()
        self._choice: Choice | None = None

    def see(self, msg) -> None:
        """Look at a message of which a number was taken."""
        self._chosen += 1
        for path in self._paths:
            if self._look(msg, path):
                return

    def missed(self, error: NotChosenError) -> None:
        """Look at a message without what `value_field` chooses."""
        self._choice = error.choice
        if not self._chosen:
            self._others.update(dict.fromkeys(error.others[: _MOST - len(self._others)]))

    @property
    def notes(self) -> list[str]:
        """What a person should know of it, in sentences."""
        if self._choice is not None and not self._chosen:
            there = _listed(list(self._others)) if self._others else "an empty array"
            return [
                f"no message so far has {self._choice.field} {named(self._choice.text)}, which value_field "
                f"chooses; what came has {there}"
            ]

        for place in self._places.values():
            if place.is_several:
                return [
                    f"value_field {place.path} takes what stands there in the array, which is of one "
                    f"{place.field} now and of another then ({_listed(list(place.here))}), and the map mixes "
                    f"them; value_field: {place.better} takes one of them"
                ]
        for field, turns in self._turns.items():
            if turns.is_several:
                path = f"{turns.path}[{field}={turns.first}]"
                return [
                    f"what the sensor tells is of several {field} in turn ({_listed(list(turns.counts))}), and "
                    f"the map mixes them; value_field: {path} takes one of them"
                ]
        return []

    def _look(self, msg, path: str) -> bool:
        """Whether the message has this path, of which the texts are noted."""
        found, steps = msg, steps_of(path)
        for at, step in enumerate(steps):
            if isinstance(step, int):
                after = ".".join(map(str, steps[at + 1 :]))
                for field in self._texts_of(found[step]) if after else ():
                    before = ".".join(map(str, steps[:at]))
                    place = self._places.setdefault(field, _Place(path, field, before, after))
                    place.see([getattr(each, field) for each in found], step)
                found = found[step]
            elif not hasattr(found, str(step)):
                return False
            else:
                if at == len(steps) - 1 and not any(isinstance(s, int) for s in steps):
                    for field in self._texts_of(found):
                        turns = self._turns.setdefault(field, _Turns(path))
                        turns.see(getattr(found, field))
                found = getattr(found, str(step))
        return True

    def _texts_of(self, holder) -> tuple[str, ...]:
        """Names of the fields of a message that hold a text."""
        kind = type(holder)
        if kind not in self._fields:
            names = getattr(kind, "__dataclass_fields__", None)
            if names is None and hasattr(kind, "get_fields_and_field_types"):
                names = kind.get_fields_and_field_types()
            self._fields[kind] = tuple(
                name for name in names or () if isinstance(getattr(holder, name, None), str)
            )
        return self._fields[kind]


class _Turns:
    """Texts of one field, message by message.

    Args:
        path: of the number beside it.
    """

    def __init__(self, path: str):
        self.path, self.first = path, ""
        self.counts: dict[str, None] = {}
        self._last, self._n, self._changes = "", 0, 0

    def see(self, text: str) -> None:
        """Note the text of the next message."""
        self.first = self.first or text
        if len(self.counts) <= _MOST:
            self.counts[text] = None
        self._changes += self._n > 0 and text != self._last
        self._last, self._n = text, self._n + 1

    @property
    def is_several(self) -> bool:
        """Whether most messages have another text than the one before, out of few."""
        return (
            self._n >= _FEW
            and 2 * self._changes > self._n
            and 4 * len(self.counts) <= self._n
            and len(self.counts) <= _MOST
        )


class _Place:
    """Texts of one field of an array's elements, at the place that is taken and elsewhere.

    Args:
        path: of the number.
        field: of the elements.
        before: path of the array.
        after: path of the number within an element.
    """

    def __init__(self, path: str, field: str, before: str, after: str):
        self.path, self.field, self._before, self._after = path, field, before, after
        self.here: dict[str, None] = {}
        self._elsewhere: set[str] = set()
        self._names = True  # no two elements of one array read alike

    @property
    def better(self) -> str:
        """A path that takes the element that was there first."""
        return f"{self._before}[{self.field}={next(iter(self.here))}].{self._after}"

    @property
    def is_several(self) -> bool:
        """Whether elements have changed places."""
        return self._names and len(self.here) > 1 and not self._elsewhere.isdisjoint(self.here)

    def see(self, texts: list[str], at: int) -> None:
        """Note the texts of the next message.

        Args:
            texts: of all elements.
            at: number of the element that is taken.
        """
        self._names = self._names and all(a != b for a, b in pairwise(sorted(texts)))
        if len(self.here) < _MOST:
            self.here[texts[at]] = None
        if len(self._elsewhere) < _MOST:
            self._elsewhere.update(texts[:at] + texts[at + 1 :])


def _listed(texts: list[str]) -> str:
    """The first few, in a sentence."""
    return ", ".join(map(named, texts[:_SHOWN])) + (", …" if len(texts) > _SHOWN else "")
