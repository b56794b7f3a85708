"""Dirichlet classification: a map of Gaussian targets for each class (Milios et al. 2018).

The noise of a label differs between the classes, so each has sums, a solve and a variance of its
own: the exact posterior of the targets, to the approximation of the maps that hold them. Each
learns its own hyper-parameters, as in Stanton et al. 2021, except those of the robot.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from gp_mapping.core.field_map import LEARNS, LIKELIHOODS, FieldMap, Planned, Snapshot
from gp_mapping.core.likelihoods.dirichlet import Dirichlet
from gp_mapping.core.models.classes.snapshot import ClassSnapshot, joined
from gp_mapping.core.scaled_map import ScaledMap
from gp_mapping.core.transaction import transaction
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = ["ClassMap"]

_FORMAT = 1  # of the state


class ClassMap(FieldMap):
    """A map of classes, made of one map of one channel for each of them.

    `predict` is of the latent fields, `observable` of the class probabilities. A covariance is the
    mean over classes, as a planner's variance is.

    Args:
        likelihood: makes targets of labels.
        make: makes an empty map of a class, whose own noise variance is `likelihood.least_noise`
            and whose centre is `likelihood.centre`.

    Attributes:
        fields: of class 0, 1, …
    """

    def __init__(self, likelihood: Dirichlet, make: Callable[[], ScaledMap]):
        self.likelihood = likelihood
        self.fields = [make() for _ in range(likelihood.classes)]

    def note_changes(self) -> None:
        """The epoch grows with that of each class."""
        self.epoch = sum(field.epoch for field in self.fields)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Keep the changes of all classes' maps in the block, or none."""
        with ExitStack() as stack:
            for field in self.fields:
                stack.enter_context(transaction(field))
            yield
            for field in self.fields:  # before the first of them is released
                field.check()
        self.note_changes()

    # --- data in ----------------------------------------------------------------------------------
    def update(self, batch: Samples) -> UpdateReport:
        """Absorb labels 0 … C − 1, or shares of the classes, or none of the batch.

        Of the measurements' own noise and the poses' uncertainty nothing is used.

        Raises:
            ValueError: the batch does not fit, or a value is no class.
            MapFullError: a class's map is full.
            NumericalError: the batch would spoil the map. In each case the map is as it was.
        """
        if not len(batch):
            return self.fields[0].update(batch)
        targets, variance = self.likelihood.targets(batch.y)
        plain = {"noise_variance": None, "position_variance": None, "count": None}

        with self._together():
            reports = [
                field.update(
                    replace(
                        batch,
                        y=targets[:, c : c + 1],
                        # in addition to the map's own, so that it is known what a new label tells
                        sensor_variance=(variance[:, c] - self.likelihood.least_noise).clamp_min(
                            0.0
                        ),
                        **plain,
                    )
                )
                for c, field in enumerate(self.fields)
            ]

        return replace(
            reports[0],
            used=min(r.used for r in reports),
            jitter=max(r.jitter for r in reports),
            everywhere=any(r.everywhere for r in reports),
        )

    def refine(self, budget_s: float = math.inf) -> bool:
        """Do pending work of all classes; whether there is more."""
        end = perf_counter() + budget_s
        more = [field.refine(max(end - perf_counter(), 0.0)) for field in self.fields]
        self.note_changes()
        return any(more)

    def forget(self, factor: float) -> None:
        """As FieldMap.forget, every class."""
        with self._together():
            for field in self.fields:
                field.forget(factor)

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """As FieldMap.forget_near, every class; the most that one has removed."""
        with self._together():
            return max(field.forget_near(x, radius, newest) for field in self.fields)

    def merge(self, other: FieldMap) -> None:
        """Add the labels of another map.

        Raises:
            ValueError: the maps do not fit; both are as they were.
        """
        if not isinstance(other, ClassMap):
            raise ValueError(f"cannot merge a {type(other).__name__} into a map of classes")
        if other.likelihood.label != self.likelihood.label:
            raise ValueError(
                f"maps that differ in likelihood cannot be merged: {self.likelihood.label} here, "
                f"{other.likelihood.label} there"
            )
        with self._together():
            for own, its in zip(self.fields, other.fields):
                own.merge(its)

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """As FieldMap.move, every class."""
        with self._together():
            for field in self.fields:
                field.move(turn, shift)

    # --- the map out ------------------------------------------------------------------------------
    @property
    def centre(self) -> Tensor | None:
        """As FieldMap.centre: of each class."""
        if not self.fields[0].started:
            return None
        return torch.cat([field.scaling.centre for field in self.fields])

    @property
    def capabilities(self) -> frozenset[str]:
        """Other likelihoods, and LEARNS where its classes learn."""
        return frozenset({LIKELIHOODS}) | (self.fields[0].capabilities & {LEARNS})

    @property
    def learning_steps(self) -> int | None:
        """Steps of all classes together; None where none learns."""
        steps = [field.learning_steps for field in self.fields]
        return None if None in steps else sum(s for s in steps if s is not None)

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict: a channel for each class."""
        return joined([field.predict(x, velocity, heading) for field in self.fields])

    def predict_now(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict, from all samples."""
        return joined([field.predict_now(x, velocity, heading) for field in self.fields])

    def prior(self) -> Prediction:
        """As FieldMap.prior: a channel for each class."""
        return joined([field.prior() for field in self.fields])

    def noise_variance(self) -> Tensor:
        """As FieldMap.noise_variance: of each class."""
        return torch.cat([field.noise_variance() for field in self.fields])

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance: mean over classes."""
        self.need_data()
        return self.snapshot().covariance(a, b)

    def fantasize(self, x: Tensor) -> ClassMap:
        """As FieldMap.fantasize, every class."""
        self.need_data()
        return self._with_fields([field.fantasize(x) for field in self.fields])

    def _with_fields(self, fields: list[Any]) -> ClassMap:
        """A map like this one of other fields."""
        new = copy.copy(self)
        new.fields = fields
        new.note_changes()
        return new

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> ClassSnapshot:
        """As FieldMap.snapshot, every class."""
        self.need_data()
        return ClassSnapshot([field.snapshot(near, reach) for field in self.fields])

    def load_snapshot(self, state: dict) -> Snapshot:
        """As FieldMap.load_snapshot."""
        parts = [state["classes"][str(c)] for c in range(len(self.fields))]
        return ClassSnapshot([f.load_snapshot(part) for f, part in zip(self.fields, parts)])

    def drawable(self, budget_s: float) -> tuple[ClassSnapshot, float, int]:
        """The newest predictions of each class; the count is of the class that lags most."""
        self.need_data()
        parts = [field.drawable(budget_s / len(self.fields)) for field in self.fields]
        sources, counts, epochs = zip(*parts)
        return ClassSnapshot(list(sources)), min(counts), sum(epochs)

    def for_planning(self) -> Planned:
        """As FieldMap.for_planning, every class."""
        self.need_data()
        return ClassSnapshot([field.for_planning() for field in self.fields])

    def observed(self, p: Prediction) -> Prediction:
        """Mean and variance of the class probabilities: the softmax over the latent posterior."""
        mean, variance = self.likelihood.observable(p.mean, p.variance)
        return Prediction(mean, variance, torch.zeros_like(p.noise_variance))

    def outcome(self, y: Tensor) -> Tensor:
        """One-hot rows (N, C), or shares as they are."""
        return self.likelihood.encode(y)

    def log_predictive(self, batch: Samples) -> Tensor:
        """Log probability of the measured classes, (N,)."""
        p = self.predict(batch.x)
        y = self.likelihood.encode(batch.y).to(p.mean)
        noise = torch.zeros_like(p.mean[:, 0])  # in the targets, not in the probabilities
        return self.likelihood.log_predictive(y, p.mean, p.variance, noise)

    # --- numbers ----------------------------------------------------------------------------------
    def hyperparameters(self) -> dict[str, float]:
        """Hyper-parameters of the classes: the shortest lengthscale, the largest of all others."""
        each = [field.hyperparameters() for field in self.fields]
        largest = {name: max(values[name] for values in each) for name in each[0]}
        return largest | {"lengthscale": min(values["lengthscale"] for values in each)}

    def remembered_places(self) -> Tensor:
        """Places that class 0 remembers: each class draws its memory by its own weights."""
        return self.fields[0].remembered_places()

    def remembered_motion(self) -> tuple[Tensor, Tensor]:
        """As FieldMap.remembered_motion, of class 0."""
        return self.fields[0].remembered_motion()

    def counters(self) -> dict[str, int | float]:
        """Counters, of the class where each is largest."""
        each = [field.counters() for field in self.fields]
        return {name: max(counts[name] for counts in each) for name in each[0]}

    def notes(self) -> list[str]:
        """As FieldMap.notes; what several classes say stands once."""
        return list(dict.fromkeys(note for field in self.fields for note in field.notes()))

    # --- files ------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """As FieldMap.state_dict: a state for each class."""
        return {
            "model": self.fields[0].name,
            "class_format": _FORMAT,
            "likelihood": self.likelihood.label,
            "classes": {str(c): field.state_dict() for c, field in enumerate(self.fields)},
        }

    def load_state_dict(self, state: dict) -> None:
        """As FieldMap.load_state_dict: all classes, or none.

        Raises:
            ValueError: the state is of another model, likelihood or format, or a class is missing.
        """
        if state.get("model") != self.fields[0].name:
            raise ValueError(
                f"the state is of model {state.get('model')!r}, this map is {self.fields[0].name!r}"
            )
        if state.get("likelihood") != self.likelihood.label:
            raise ValueError(
                f"the state has likelihood {state.get('likelihood')}, this map {self.likelihood.label}"
            )
        if state.get("class_format") != _FORMAT:
            raise ValueError(
                f"the map of classes was saved in format {state.get('class_format')}, this version "
                f"reads {_FORMAT}; map the recording again, or open it with the version that saved it"
            )

        loaded = copy.deepcopy(self.fields)  # whole or not at all
        for c, field in enumerate(loaded):
            try:
                part = state["classes"][str(c)]
            except (KeyError, TypeError) as error:
                raise ValueError(
                    f"not a state of a map of classes: class {c} is missing"
                ) from error
            field.load_state_dict(part)
        self.fields = loaded
        self.note_changes()
