"""Errors that speak to a person: one line that says what came, what was expected, and what to write."""

from __future__ import annotations

__all__ = ["UserError", "one_line"]

_LONGEST = 2000  # characters of a message; names inside it may come from a file that somebody else wrote


class UserError(ValueError):
    """Something outside the program is wrong: a file, an argument, a setting. Its text needs no traceback."""


def one_line(error: object, longest: int = _LONGEST) -> str:
    """The text of an error without line breaks and control characters, cut in the middle where it is too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {text[-half:]}"
