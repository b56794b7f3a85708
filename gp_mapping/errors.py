"""Errors that other modules catch by name, and texts of errors on one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "MapFullError",
    "NumericalError",
    "ParameterFileError",
    "UsageError",
    "UserError",
    "named",
    "not_one_of",
    "one_line",
]

_NAME = 100  # characters of a name from outside: a topic, a frame, a file
_LONGEST = 2000  # characters of a message; names in it may come from a file of foreign origin


class UserError(ValueError):
    """A request of a person cannot be fulfilled.

    The text is one line: what was given, what was expected, what to write.
    """


class UsageError(UserError):
    """A command, an argument or a file that cannot be used as asked."""


class ParameterFileError(UserError):
    """A parameter file or setting that is wrong."""


class MapFullError(ValueError):
    """A batch that a bounded map has no room for; the map stays as it is and goes on predicting."""


class NumericalError(RuntimeError):
    """A computation failed: a matrix does not factor despite jitter, or a number is not finite."""


def one_line(error: object, longest: int = _LONGEST) -> str:
    """The text of an error on one line, without control characters, cut in the middle if too long.

    Args:
        error: the error; any object with a text.
        longest: characters.
    """
    message, half = str(error), longest // 2
    if len(message) > 4 * longest:  # only the ends of megabytes from outside are made printable
        return (
            f"{_printable(message[: 2 * longest])[:half]} … "
            f"{_printable(message[-2 * longest :])[-half:]}"
        )

    text = _printable(message) or type(error).__name__
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"


def _printable(text: str) -> str:
    """The text on one line, with escapes for characters that cannot be printed."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def named(name: object) -> str:
    """A name from outside for use in a sentence: quoted, on one line, cut in the middle if long."""
    return repr(one_line(name, _NAME) if str(name) else "")


def not_one_of(name: object, known: Iterable[str]) -> str:
    """What is wrong with a name that is none of those known, and which one may be meant.

    Args:
        name: as it was given.
        known: the names that there are.

    Returns:
        A part of a sentence, which follows the name of what was to be chosen.
    """
    names = list(known)
    near = difflib.get_close_matches(str(name)[:_NAME], names, 1)
    shown = named(name) if isinstance(name, str) else repr(name)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{shown} is not one of {', '.join(map(repr, names))}{hint}"
