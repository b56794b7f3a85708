"""Which part of another package has raised an exception, for sentences about it."""

from __future__ import annotations

from collections.abc import Iterator

from gp_mapping.errors import named, one_line
from gp_mapping.settings.parts import KERNELS, LIKELIHOODS, MODELS, Parts
from gp_mapping.settings.sensors import SENSOR_TYPES

__all__ = ["blame", "raised"]

_LONGEST = 200  # characters of what was raised


def blame(error: BaseException) -> str:
    """The part of another package in whose code an exception arose, or "" where it is our own.

    Args:
        error: with its traceback.

    Returns:
        As "model 'own', own_model.py line 12, in update".
    """
    frames, step = [], error.__traceback__
    while step is not None:
        frame = step.tb_frame
        frames.append((frame.f_globals.get("__name__", ""), step.tb_lineno, frame.f_code))
        step = step.tb_next

    foreign = dict(_modules())
    # the innermost line of theirs, which may have called ours
    for module, line, code in reversed(frames):
        if module in foreign:
            file = code.co_filename.rpartition("/")[2]
            return f"{foreign[module]}, {one_line(file, 60)} line {line}, in {code.co_name}"
    return ""


def _modules() -> Iterator[tuple[str, str]]:
    """Modules of parts that are not of this package, and what the parts are."""
    registries: tuple[Parts, ...] = (SENSOR_TYPES, LIKELIHOODS, KERNELS, MODELS)
    for registry in registries:
        for name, make in registry.foreign():
            module = getattr(make, "__module__", "") or ""
            if module and module.partition(".")[0] != "gp_mapping":
                yield module, f"{registry.kind} {named(name)}"


def raised(error: BaseException) -> str:
    """An exception in a few words, as "KeyError: 'x'"."""
    return f"{type(error).__name__}: {one_line(error, _LONGEST)}"
