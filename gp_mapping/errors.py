"""Errors that others catch by name. A UserError is one line for a person and says what to do."""

__all__ = ["MapFullError", "NumericalError", "ParameterFileError", "UsageError", "UserError"]


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
