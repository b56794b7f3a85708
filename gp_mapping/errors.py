"""Errors that others catch by name. A UserError speaks to a person: one line that says what to do."""

from __future__ import annotations

__all__ = [
    "MapFullError",
    "NumericalError",
    "ParameterFileError",
    "UsageError",
    "UserError",
    "named",
    "one_line",
]

_NAME = 100  # characters of a name from outside: a topic, a frame, a file
_LONGEST = (
    2000  # characters of a message; names inside it may come from a file that somebody else wrote
)


class UserError(ValueError):
    """What a person asked for cannot be done; the text is one line: what came, what was expected, what to write."""


class UsageError(UserError):
    """A command, an argument or a file that cannot be used as asked."""


class ParameterFileError(UserError):
    """A parameter file or setting that is wrong."""


class MapFullError(ValueError):
    """A batch that a map with a bound cannot take any more; the map stays as it is and goes on predicting."""


class NumericalError(RuntimeError):
    """A factorisation failed in spite of jitter: the matrix holds NaN or is not positive definite at all."""


def one_line(error: object, longest: int = _LONGEST) -> str:
    """The text of an error without line breaks and control characters, cut in the middle where it is too long."""
    said, half = str(error), longest // 2
    if len(said) > 4 * longest:  # of megabytes from outside only the ends are looked at
        return (
            f"{_printable(said[: 2 * longest])[:half]} … {_printable(said[-2 * longest :])[-half:]}"
        )
    text = _printable(said) or type(error).__name__
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def named(name: object) -> str:
    """A name from outside as it may stand in a sentence: in quotes, on one line, cut in the middle where it is long."""
    return repr(one_line(name, _NAME) if str(name) else "")
