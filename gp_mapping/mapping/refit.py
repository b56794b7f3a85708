"""A session of samples that were mapped before, at hyper-parameters found from all of them at once.

The samples go through a session again, and nothing is learned on the way, so that every
one-step-ahead score, and with them the predictive noise, is of these hyper-parameters. Then the
session learns on, from what its learner knows of all cells together.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.stored import Room
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

__all__ = ["resume_learning", "settings_fixed_at"]

_STARTS = (
    "lengthscale",
    "signal_stddev",
    "noise_stddev",
    "constant_stddev",
    "heading_stddev",
    "bias_stddev",
    "time_offset",
)


def settings_fixed_at(settings: MapSettings, hyperparameters: dict[str, float]) -> MapSettings:
    """The same settings at fixed hyper-parameters.

    Args:
        settings: whose other values stay.
        hyperparameters: by name, SI, as of FieldMap.hyperparameters; nothing is learned from there.
    """
    starts: dict[str, Any] = {
        name: hyperparameters[name] for name in _STARTS if name in hyperparameters
    }
    return replace(
        settings,
        **starts,
        learn_hyperparameters=False,
        learn_noise=False,
        learn_time_offset=False,
        learn_lever_arm=False,
        learn_bias=False,
    )


def resume_learning(
    session: MapSession, streamed: MapSession, learner: HyperLearner, room: Room | None = None
) -> MapSession:
    """Turn a session at fixed hyper-parameters into one that learns on.

    Args:
        session: made with `settings_fixed_at`.
        streamed: the session of the same samples whose settings, starts and priors count from now
            on.
        learner: where learning stands.
        room: as of a new session.
    """
    state, start = session.state_dict(), streamed.state_dict()["start"]

    state |= {
        "settings": asdict(streamed.settings),
        "start": start | {"open": False, "cells": []},
        "map": state["map"] | {"learner": learner.state_dict()},
    }
    return MapSession.from_state_dict(state, room)
