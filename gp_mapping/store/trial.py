"""Tries a saved map before it is handed out, whatever the file says of itself.

Checksums say that a file is as it was written, not that its contents fit together. A map that is
taken over and fails at the next measurement costs a survey, so each is used once, on a copy, before
it is handed out.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.types import Samples
from gp_mapping.errors import UserError, one_line
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.archive import CheckpointError
from gp_mapping.store.scratch.tile_room import TileRoom

__all__ = ["errors_about", "tried_session"]

_TRIED = 20  # places along the path where a copy of the map predicts and learns
_AT_HAND = 40  # points at the end of the path whose tiles were at hand when the map was saved
_DEPTH = 100  # nested dicts and lists; a map has about six


def tried_session(state: dict, path, folder: Path | None = None, **overrides) -> MapSession:
    """The session in a checkpoint's state, with some settings changed.

    Args:
        state: what load_checkpoint returned.
        path: where it came from, for the text of an error.
        folder: for tiles that are not in memory; None: the system's temporary folder.
        overrides: settings by name that replace the saved ones.

    Returns:
        A session that goes on exactly where the saved one was.

    Raises:
        CheckpointError: the content does not fit together, or the settings do not fit.
    """
    try:
        with np.errstate(all="ignore"):  # what overflows in the trial is found by its result
            _try(state, overrides)
        return MapSession.from_state_dict(state, TileRoom(folder), **overrides)
    except Exception as error:  # any part of a wrong state may make its first user fail, in any way
        text = one_line(error, 300)
        if type(error) is not ValueError:
            text = f"its content does not fit together ({type(error).__name__}: {text}); use an older one"
        raise CheckpointError(f"{Path(path)}: {text}") from error


@contextmanager
def errors_about(path) -> Iterator[None]:
    """Turn what a map raises at its first uses into an error about the file that it came from.

    The trial on opening is short: some wrong contents show only when a map learns on. Put nothing
    into it but uses of the map: which other step failed, an exception does not say.

    Args:
        path: of the file.

    Raises:
        CheckpointError: anything but a UserError or an OSError was raised; these two pass.
    """
    try:
        yield
    except (UserError, OSError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{Path(path)}: the map in it cannot be used ({type(error).__name__}: "
            f"{one_line(error, 300)}); use an older one (--debug shows where it fails)"
        ) from error


def _try(state: dict, overrides: dict) -> None:
    """Use a copy of the map as the program will: report, predict, learn.

    Any exception means that the map cannot be used.

    Args:
        state: of the checkpoint.
        overrides: settings by name that replace the saved ones.
    """
    _check_finite(state.get("map"), "map")
    settings = MapSettings(**(state["settings"] | overrides))
    _check_kinds(state, _template(settings, int(state["channels"] or 1)), "state")
    # a copy: learning must not change the state that is handed out
    trial = MapSession.from_state_dict(copy.deepcopy(state), **overrides)

    json.dumps(trial.report(), allow_nan=False)
    trial.flush()  # a map may hold nothing but its first cell, still open

    path = trial.path
    if not len(path) or not trial.cell_count:
        return

    # only tiles that are in memory: the others are read when they are needed
    if trial.report().get("tiles", 1) > 1:
        path = path[-_AT_HAND:]

    x = path[:: max(1, len(path) // _TRIED)][:_TRIED].clone()
    prediction = trial.predict(x)
    _check_prediction(prediction)
    if not trial.scores.predicts_finite(x):
        raise ValueError(
            "what the map keeps of its earlier states predicts values that are not finite; use an older "
            "checkpoint"
        )

    # samples that follow the last one, at places where the map has been, with plausible values
    last = 0.0 if state["last_stamp"] is None else float(state["last_stamp"])
    stamp = last + 0.02 * torch.arange(1, len(x) + 1, dtype=torch.float64)
    # a class or a count of 0 is a measurement of any such map
    y = (
        prediction.mean.cpu()
        if trial.settings.metric
        else torch.zeros(len(x), int(state["channels"]), dtype=torch.float64)
    )

    trial.ingest(Samples(x, y, stamp=stamp))
    trial.flush()

    _check_prediction(trial.predict(x))
    json.dumps(trial.report(), allow_nan=False)


def _template(settings: MapSettings, channels: int) -> dict:
    """The state of a young session of these settings: it shows what kind of value is where."""
    young = MapSession(settings)
    x = torch.zeros(3, 2, dtype=torch.float64)
    # ten cells apart, so that each sample closes the cell before it
    x[:, 0] = 10.0 * settings.cell_length * torch.arange(3)

    young.ingest(
        Samples(x, torch.zeros(3, channels, dtype=torch.float64), stamp=torch.arange(3.0).double())
    )

    return young.state_dict()


def _check_kinds(value, like, where: str) -> None:
    """Raise a ValueError where a value is of another kind than in the template.

    Values that the template lacks are not checked.

    Args:
        value: of the state.
        like: of the template.
        where: path of the value in the state, for the error.
    """
    # None: a part that is not there yet, in either of the two
    if value is None or like is None:
        return
    if isinstance(like, Tensor):
        if not isinstance(value, Tensor) or value.dtype != like.dtype or value.dim() != like.dim():
            raise ValueError(f"{where} is {_named(value)}, expected {_named(like)}")
    elif isinstance(like, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is {_named(value)}, expected a dict")
        for key in like.keys() & value.keys():
            _check_kinds(value[key], like[key], f"{where}.{key}")
    elif isinstance(like, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} is {_named(value)}, expected a list")
        # a template's list may be shorter: its last item stands for the others
        for i, item in enumerate(value if like else []):
            _check_kinds(item, like[min(i, len(like) - 1)], f"{where}[{i}]")
    elif isinstance(like, bool) or isinstance(like, str):
        if type(value) is not type(like):
            raise ValueError(f"{where} is {_named(value)}, expected {_named(like)}")
    elif (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(like, int) and not isinstance(value, int))
    ):
        raise ValueError(f"{where} is {_named(value)}, expected a number as {like!r}")


def _named(value) -> str:
    """The kind of a value in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    return f"a {type(value).__name__}"


def _check_finite(value, where: str, depth: int = 0) -> None:
    """Raise a ValueError where a number of the map's own state is NaN or infinite.

    Args:
        value: of the state.
        where: path of the value in the state, for the error.
        depth: of the value.
    """
    if depth > _DEPTH:
        raise ValueError(f"{where} is nested deeper than any map")
    if isinstance(value, Tensor):
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise ValueError(f"{where} holds values that are not finite; use an older checkpoint")
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _check_finite(item, f"{where}.{key}", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}; use an older checkpoint")


def _check_prediction(prediction) -> None:
    """Raise a ValueError where the map predicts nothing usable at a place on its own path."""
    good = (
        torch.isfinite(prediction.mean).all()
        and torch.isfinite(prediction.variance).all()
        and (prediction.variance >= 0).all()
    )

    if not good:
        raise ValueError(
            "the map predicts values that are not finite along its own path; use an older checkpoint"
        )
