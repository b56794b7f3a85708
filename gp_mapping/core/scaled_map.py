"""Base of the models: SI outside, standardised inside, and checks before anything changes."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, replace

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.core.field_map import LEARNS, CalibrationData, FieldMap, PassBias
from gp_mapping.core.hyper.adopting import Adopting, learn
from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.bias import BiasSpread
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Gaussian, Likelihood
from gp_mapping.core.scaled import Scaled
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.standardised import Standardised, check_magnitudes, excess_variance
from gp_mapping.core.transaction import Revertible, transaction
from gp_mapping.core.types import Prediction, Samples, UpdateReport
from gp_mapping.core.unit_check import FIRST, warn_of_other_unit
from gp_mapping.errors import NumericalError
from gp_mapping.gradients import unrecorded
from gp_mapping.settings.parts import KERNELS

__all__ = [
    "ScaledMap",
    "check_alike",
    "check_factor",
]


_PACKAGE = __name__.partition(".")[0]
_BIAS_EVERY = 20  # samples after which the spread of the passes' constants is estimated again
_SAME = 0.05  # change of log s_b up to which nothing is computed anew
_FORMAT = 4  # of a map's state; it grows when older states cannot be continued exactly
# attributes whose names in files differ, so that earlier files can be read
_FILED_AS = {
    "unremembered_empty": "rest_empty",
    "unremembered_model_noise": "rest_own_noise",
    "work_budget": "credit",
}


class ScaledMap(Scaled, Adopting, Revertible, FieldMap):
    """Base of the models: updates that succeed or change nothing, learning, merging, saving.

    A subclass defines what it does with data:

    absorb          take a batch in inner units (Standardised)
    report          what the map holds, as an UpdateReport
    posterior       the current one, which is used in SI
    learning_data   the samples to learn from, where it learns
    adopt           reparametrise the map to other hyper-parameters, where it learns
    _union          add another map's data
    _saved_parts, _loaded_parts     what it adds to a state

    It has `theta`, `learner` (or None), `generator`, `jitter`, and `noise_level`, the noise
    variance σ² of one new measurement in inner units.

    Attributes:
        name: of the model.
        likelihood: p(y | f).
        learner: of the hyper-parameters; None: nothing is learned.
        jitter: what linalg had to add.
        fitting: attributes that must be equal in a saved map and in this one to load it.
        counted: attributes that are saved and loaded.
        newest_pass: largest number of a pass so far.
        untold_epoch: after the last change of everything that `since` does not tell.
        bias_prior: prior median of s_b, inner units; 0: it is not learned.
        bias_spread: estimate of s_b, where it is learned.
    """

    name: str
    likelihood: Likelihood = Gaussian()
    learner: HyperLearner | None = None
    jitter: float = 0.0
    fitting: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    newest_pass: float = NO_PASS
    untold_epoch: int = 0
    bias_prior: float = 0.0
    bias_spread: BiasSpread | None = None
    _posterior = None  # the current one, once it has been computed since the last change

    def update(self, batch: Samples) -> UpdateReport:
        """Absorb each sample once, or none of the batch: the map is then as it was, bit for bit.

        Args:
            batch: samples, SI.

        Raises:
            ValueError: the batch does not fit the map.
            NumericalError: it would spoil the map.
        """
        if not len(batch):
            return self.report(0)
        with unrecorded(outside=self.is_builtin), transaction(self):
            return self._absorb_samples(batch)

    @property
    def is_builtin(self) -> bool:
        """Whether model, kernel and likelihood are of this package: none enables gradients."""
        kinds = type(self), type(self.likelihood)
        ours = all(kind.__module__.startswith(f"{_PACKAGE}.") for kind in kinds)
        return ours and KERNELS.is_builtin(self.theta.kernel_name)

    def _absorb_samples(self, batch: Samples) -> UpdateReport:
        """Check and standardise a batch, and absorb it."""
        if self.scaling is None:
            self.scaling = self._scaling_for(batch)

        scaling = self.scaling
        if batch.x.shape[1:] != scaling.origin.shape or batch.y.shape[1:] != scaling.centre.shape:
            raise ValueError(
                f"samples are {batch.x.shape[1]}-D with {batch.y.shape[1]} channels, the map is "
                f"{len(self.scaling.origin)}-D with {len(self.scaling.centre)}"
            )
        self.theta.need_dimensions(batch.x.shape[1])

        # numbers that decide something are read here, before they are on a card
        is_here = is_synchronous(batch.x.device)
        scaling = self.scaling.here if is_here else self.scaling
        inner = Standardised.from_samples(batch, scaling)
        check_magnitudes(inner)
        # who gives the centre has seen values, as a session has
        if self.samples < FIRST and self.likelihood.metric and self.given_centre is None:
            warn_of_other_unit(inner.y, self.theta, self.scale)

        # pass numbers matter only where passes have a constant
        if self.theta.bias_stddev <= 0:
            inner = replace(inner, pass_number=torch.full_like(inner.noise, NO_PASS))
        else:
            self.newest_pass = max(self.newest_pass, float(inner.pass_number.max()))
        return self.absorb(inner.on_device(self.device))

    def refine(self, budget_s: float = math.inf) -> bool:
        """Do pending hyper-parameter steps, about 4 ms each, and adopt their result.

        Args:
            budget_s: seconds that it may take, about.

        Returns:
            Whether more steps are pending.
        """
        if self.learner is None or self.scaling is None or self.learner.pending < 1.0:
            return False
        with unrecorded(outside=self.is_builtin):
            return learn(self, self.learner, self._step, self._adopt_learned, budget_s)

    def _step(self) -> None:
        """Take one step of the learner."""
        self.learner.step(self.learning_data(), self.generator)

    def _adopt_learned(self) -> None:
        """Adopt the learner's θ where it has left the map's, whole or not at all.

        Where that fails it is tried again later; the learner goes on meanwhile.
        """
        theta = self.learner.theta
        if not (self.learner.should_adopt(self.theta) and self.promises(theta)):
            return
        try:
            with transaction(self):
                if self.adopt_in_slices(theta):
                    self._adopted()
        except (NumericalError, torch.linalg.LinAlgError):
            self.not_adopted(theta)

    @property
    def joint_posterior(self):
        """The posterior with all covariances between what the map knows: what evidence is made of.

        A model whose `posterior` leaves out some of them overrides this.
        """
        return self.posterior

    def learn_bias(self, fresh: int) -> None:
        """Estimate s_b, the spread of the passes' constants, once in _BIAS_EVERY samples.

        Args:
            fresh: number of samples that have just been absorbed.
        """
        if self.samples // _BIAS_EVERY != (self.samples - fresh) // _BIAS_EVERY:
            self.estimate_bias()

    def estimate_bias(self) -> None:
        """Estimate s_b, where the map learns it."""
        if self.bias_prior <= 0 or self.theta.bias_stddev <= 0:
            return

        evidence = self.joint_posterior.bias_evidence()
        if evidence is not None and self.use_bias_evidence(evidence):
            self.mark_changed()

    def use_bias_evidence(self, evidence: PassEvidence) -> bool:
        """Take s_b from the evidence; whether it is another one."""
        self.bias_spread = spread = evidence.spread(self.bias_prior, segments=True)
        if (
            abs(math.log(spread.stddev / self.theta.bias_stddev)) <= _SAME
            and spread.correlation == self.theta.bias_correlation
        ):
            return False

        # s_b and ρ are in none of the sums, so nothing has to be reparametrised
        found = {"bias_stddev": spread.stddev, "bias_correlation": spread.correlation}
        self.theta = replace(self.theta, **found)
        if self.learner is not None:
            self.learner.theta = replace(self.learner.theta, **found)
        return True

    def learning_data(self) -> dict[str, Tensor]:
        """Columns of the remembered samples, as HyperLearner.step uses them.

        They are x, velocity, heading, y, extra and order.

        Raises:
            TypeError: the model learns none.
        """
        raise TypeError(f"a {type(self).__name__} learns no hyper-parameters")

    def adopt(self, theta: Theta) -> bool:
        """Reparametrise the map to θ; False, and the map is as it was, where that is impossible.

        Raises:
            TypeError: the model has those that it was made with.
        """
        raise TypeError(f"a {type(self).__name__} has the hyper-parameters that it was made with")

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """Shift the map, by its origin; a model that can be turned overrides this.

        Args:
            turn: rotation (2, 2); here the identity.
            shift: (2,) metres.

        Raises:
            ValueError: the map would have to be turned.
        """
        if not torch.equal(turn, torch.eye(2, dtype=torch.float64)):
            raise ValueError(
                f"a map of model {self.name} can be shifted, not turned; map the recording with poses of "
                "the other frame"
            )
        if self.scaling is not None:
            origin = self.scaling.origin.clone()
            if len(origin) < 2:
                raise ValueError("a map of places with one coordinate cannot be moved in the plane")
            origin[:2] += shift.to(origin)
            self.scaling = replace(self.scaling, origin=origin)
            self.mark_changed()

    def learned(self) -> Learned | None:
        """Hyper-parameters and their uncertainty; certain where nothing is learned."""
        if self.learner is None:
            return Learned(
                self.theta, torch.zeros((len(self.theta.vector()),) * 2, dtype=torch.float64)
            )
        return self.learner.summary()

    def agree_on(self, theta) -> bool:
        """As FieldMap.agree_on, but for the time offset and lever arm, which stay this robot's."""
        own = self.theta
        robot = {
            name: getattr(own, name)
            for name in ("time_offset", "lever_arm_along", "lever_arm_across")
        }
        target = replace(theta, **robot)
        return target == own or self.adopt(target)

    def adopt_in_slices(self, theta: Theta) -> bool:
        """As `adopt`, or only its first slice where the map does long work in slices.

        Args:
            theta: hyper-parameters to adopt.

        Returns:
            Whether the map is at θ now.
        """
        if not self.adopt(theta):
            return self.not_adopted(theta)
        self.failed = None
        return True

    def _adopted(self) -> None:
        """Called after the learner's θ has been adopted."""

    # --- merging and files -------------------------
    @torch.no_grad()
    def merge(self, other: ScaledMap) -> None:
        """Add another map's data.

        The result equals a map of both maps' samples while both remember all of theirs.

        Args:
            other: a map of the same model, kernel, unit and channels; its origin, centre and θ may
                differ.

        Raises:
            ValueError: the maps do not fit, or there is no room.
            NumericalError: numbers of the sum are not finite.
            Exception: whatever else; in every case both maps are as they were.
        """
        self.merge_renumbered(other, math.floor(self.newest_pass) + 1.0)

    @torch.no_grad()
    def merge_same_robot(self, other: ScaledMap) -> None:
        """As `merge`, for a map of the same robot: a pass number means the same pass in both."""
        self.merge_renumbered(other, 0.0)

    def merge_renumbered(self, other: ScaledMap, renumber: float) -> None:
        """As `merge`, with the other map's passes renumbered.

        Args:
            other: as of `merge`.
            renumber: added to the numbers of its passes; 0: a number means the same pass in both.

        Raises:
            ValueError: the maps cannot be merged; both are as they were.
        """
        if type(other) is not type(self):
            raise ValueError(f"cannot merge a {type(other).__name__} into a {type(self).__name__}")
        if other.scaling is None:
            return
        check_alike(self, other)

        scaling = self.scaling or other.scaling
        offset, delta = (
            other.scaling.origin - scaling.origin,
            (other.scaling.centre - scaling.centre) / self.scale,
        )
        with unrecorded(outside=self.is_builtin), transaction(self):
            self._union(other, scaling, offset, delta, renumber)
            self.newest_pass = max(self.newest_pass, other.newest_pass + renumber)
            # of other passes: how much the constants differ, neither map could know alone
            if renumber:
                self.estimate_bias()

    def _union(
        self, other: ScaledMap, scaling: Scaling, offset: Tensor, delta: Tensor, renumber: float
    ) -> None:
        """Add a map for which `check_alike` has passed.

        Args:
            other: the map; it is not changed.
            scaling: of this map afterwards.
            offset: of the other map's places, (D,) metres.
            delta: of its values, (C,) inner units.
            renumber: what is added to the numbers of its passes.

        Raises:
            ValueError: that cannot be; nothing has changed.
        """
        raise ValueError(f"a {type(self).__name__} cannot be merged")

    def state_dict(self) -> dict:
        """State for an exact resume: tensors, numbers, strings."""
        state = {
            "model": self.name,
            "format": _FORMAT,
            "theta": asdict(self.theta),
            "scale": self.scale,
            "likelihood": self.likelihood.label,
            "generator": self.generator.get_state(),
            "learner": None if self.learner is None else self.learner.state_dict(),
            "newest_pass": self.newest_pass,
            "bias_spread": None if self.bias_spread is None else asdict(self.bias_spread),
        }
        state |= {
            _FILED_AS.get(name, name): getattr(self, name)
            for name in (*self.fitting, *self.counted)
        }
        if self.scaling is not None:
            state |= self.scaling.state_dict()
        return state | self.saved_failure() | self._saved_parts()

    def load_state_dict(self, state: dict) -> None:
        """Continue where `state_dict` was taken.

        Raises:
            ValueError: the state does not fit; the map is as it was.
        """
        try:
            parts = self._loaded_learned(state) | {
                name: state[_FILED_AS.get(name, name)] for name in self.counted
            }
            parts |= {
                "scaling": Scaling.from_state_dict(state, self.device)
                if "origin" in state
                else None
            }
            parts["failed"] = self.restored_failure(state)
            parts |= self._loaded_parts(state, parts)
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise ValueError(
                f"not a state of a {self.name} map: {type(error).__name__}: {error}"
            ) from error

        # only now, when everything has been read without an error
        scaling, epoch = parts.pop("scaling"), self.epoch + 1
        self.__dict__.update(parts | {"epoch": epoch, "untold_epoch": epoch, "_posterior": None})
        self.scaling = scaling  # the likelihood may follow it

    def _saved_parts(self) -> dict:
        """What a model adds to a state."""
        return {}

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """Attributes from what a model has added to a state; `parts` are loaded already."""
        return {}

    def _loaded_learned(self, state: dict) -> dict:
        """Attributes θ, generator and learner from a state.

        Raises:
            ValueError: the state is of another model, format, likelihood, unit or setting.
        """
        if state["model"] != self.name:
            raise ValueError(f"the state is of model {state['model']!r}, this map is {self.name!r}")
        if state.get("format") != _FORMAT:
            saved = state.get("format", "of 0.1.0")
            age = "a newer" if isinstance(saved, int) and saved > _FORMAT else "an older"
            raise ValueError(
                f"the map was saved by {age} version (format {saved}, this one reads {_FORMAT}); map "
                "the recording again, or open it with the version that saved it"
            )
        if state.get("likelihood", self.likelihood.label) != self.likelihood.label:
            raise ValueError(
                f"the state has likelihood {state['likelihood']}, this map {self.likelihood.label}"
            )
        for name in ("scale", *self.fitting):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"{name} is {state[name]} in the state and {getattr(self, name)} in this map; leave the "
                    "setting as it was, or begin a new map"
                )

        theta, generator = type(self.theta)(**state["theta"]), torch.Generator()
        generator.set_state(state["generator"])
        learner = copy.deepcopy(self.learner)
        if learner is not None and state["learner"] is not None:
            learner.load_state_dict(state["learner"])
            # the learner does not learn s_b and ρ, so its state does not have them
            learner.theta = learner.theta.with_biases_of(theta)

        return {
            "theta": theta,
            "generator": generator,
            "learner": learner,
            "newest_pass": float(state["newest_pass"]),
            "bias_spread": None
            if state["bias_spread"] is None
            else BiasSpread(**state["bias_spread"]),
        }

    # --- what all models have ---------------------------------------------------------------------
    def discard_posterior(self) -> None:
        """Discard the posterior, since the data have changed."""
        self._posterior = None

    def mark_changed(self) -> None:
        """Note that all of the map may have changed, not only near new samples."""
        self.mark_told_change()
        self.untold_epoch = self.epoch

    def mark_told_change(self) -> None:
        """As `mark_changed`, of a change that `since` may tell."""
        self.discard_posterior()
        self.epoch += 1

    @property
    def centre(self) -> Tensor | None:
        """As FieldMap.centre."""
        return None if self.scaling is None else self.scaling.centre.clone()  # whoever asks owns it

    @property
    def capabilities(self) -> frozenset[str]:
        """LEARNS, where it has a learner."""
        return frozenset() if self.learner is None else frozenset({LEARNS})

    @property
    def learning_steps(self) -> int | None:
        """As FieldMap.learning_steps."""
        return None if self.learner is None else self.learner.steps

    def noise_variance(self) -> Tensor:
        """Noise variance of one new measurement, of each channel: (C,), squared SI."""
        self.need_data()
        return torch.full_like(self.scaling.centre, self.noise_level) * self.scale**2

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As FieldMap.predict_in_pass."""
        return self.posterior.predict_in_pass(x, number, velocity, heading)

    def biases(self) -> list[PassBias]:
        """As FieldMap.biases."""
        return [] if self.empty else self.posterior.biases()

    def bias_variance(self) -> Tensor:
        """Variance of a future pass's constant, (C,), squared SI."""
        self.need_data()
        spread = self.bias_spread
        variance = self.theta.bias_stddev**2 if spread is None else spread.future_pass_variance
        return torch.full_like(self.scaling.centre, variance * self.scale**2)

    def counters(self) -> dict[str, int | float]:
        """Counts: `jitter` that linalg added, `learning_rejected` steps that did not factor."""
        return {
            "jitter": float(self.jitter),
            "learning_rejected": 0 if self.learner is None else self.learner.rejected,
        }

    def _outer_places(self, x: Tensor | None) -> Tensor:
        """Inner places (M, D) in metres of the map's frame; no places for None."""
        return self._no_places() if x is None else x + self.scaling.origin

    def _calibration_data(self, columns) -> CalibrationData:
        """Calibration data from columns x, velocity, heading, y, noise, extra, and the others."""
        learner = self.learner or HyperLearner(self.theta, self.theta)
        learned = (False,) * 3 if self.learner is None else tuple(learner.free[4:7])
        extra = excess_variance(columns["noise"], columns["extra"], self.theta)
        return CalibrationData(
            columns["x"],
            columns["velocity"],
            columns["heading"],
            columns["y"],
            extra,
            columns["pass_number"],
            self.theta,
            learner.prior,
            learner.prior_sd,
            learned,
            self.scale,
            columns["extent"],
        )


def check_factor(factor: float) -> None:
    """Check a forgetting factor.

    Raises:
        ValueError: it is outside (0, 1].
    """
    if not 0.0 < factor <= 1.0:
        raise ValueError(f"a forgetting factor lies in (0, 1], not {factor}")


def check_alike(one: ScaledMap, other: ScaledMap) -> None:
    """Check that two maps can be merged.

    Raises:
        ValueError: they differ in unit, kernel, features, likelihood, dimensions or channels.
    """
    pairs = {
        "field_scale": (one.scale, other.scale),
        "kernel": (one.theta.shape, other.theta.shape),
        "constant": (one.theta.constant_stddev > 0, other.theta.constant_stddev > 0),
        "likelihood": (one.likelihood.label, other.likelihood.label),
    }
    if one.scaling is not None and other.scaling is not None:
        pairs |= {
            "dimensions": (len(one.scaling.origin), len(other.scaling.origin)),
            "channels": (len(one.scaling.centre), len(other.scaling.centre)),
        }

    for name, (mine, its) in pairs.items():
        if mine != its:
            raise ValueError(
                f"maps that differ in {name} cannot be merged: {mine} here, {its} there"
            )
