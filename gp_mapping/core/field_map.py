"""The one contract of every map: what a mapper, a renderer, a planner, a file and a report may ask of it.

Nothing else is asked of a map anywhere outside core/models: no attribute that is not here, no type, no model's name.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = [
    "LEARNS",
    "LIKELIHOODS",
    "VECTOR",
    "CalibrationData",
    "FieldMap",
    "Increments",
    "PassBias",
    "Planned",
    "Snapshot",
]

# what a model may be capable of beyond the contract's least
VECTOR = "vector"  # maps the components of one vector, which turn with a late attitude
LIKELIHOODS = (
    "likelihoods"  # takes classes, counts and gross errors, not Gaussian measurements alone
)
LEARNS = "learns"  # learns hyper-parameters while it maps


# x (N, D) m → mean now − mean then (N, C), SI; variance now − variance then (N, C), squared SI; whether they are known
# (N,): what is not known is 0
Increments = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]

# a (N, D) m → covariance with places b that are fixed (N, K), variance at a (N,), mean over channels; squared SI
Covariances = Callable[[Tensor], tuple[Tensor, Tensor]]


class Snapshot(ABC):
    """What a map said at one moment. Later updates of the map do not change it."""

    @abstractmethod
    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict, of that moment."""

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As FieldMap.predict_in_pass, of that moment."""
        return self.predict(x, velocity, heading)

    def biases(self) -> list[PassBias]:
        """As FieldMap.biases, of that moment."""
        return []

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance, of that moment; a snapshot of places nearby need not have it."""
        raise NotImplementedError(f"a {type(self).__name__} has no covariance")

    def covariance_with(self, b: Tensor) -> Covariances:
        """As FieldMap.covariance_with, of that moment."""
        return lambda a: (self.covariance(a, b), self.predict(a).variance.mean(1))

    def state_dict(self) -> dict | None:
        """What FieldMap.load_snapshot makes it from again; None (the default) where it is not worth a file's room."""
        return None


class Planned(Protocol):
    """What a planner asks: variances, covariances, and copies that have measured what they expect."""

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction: ...

    def covariance(self, a: Tensor, b: Tensor) -> Tensor: ...

    def covariance_with(self, b: Tensor) -> Covariances: ...

    def fantasize(self, x: Tensor) -> Planned: ...


@dataclass(frozen=True)
class CalibrationData:
    """Remembered samples, from which time offset, lever arm and what turns with the robot are estimated.

    Values y and standard deviations are in the map's inner unit of `scale` SI, places in metres about any origin.

    x, velocity: (m, D).  heading: (m, 2).  y: (m, C).  extra: (m,) variance beside the model's own noise.
    pass_number: (m,) of each sample, whose unknown constant is in y; NO_PASS where it has none.
    theta: hyper-parameters in use (core.hyper.Theta).  prior: their prior medians.
    prior_stddev: (7,) of Theta.vector().
    learned: whether time offset, lever arm along and lever arm across are learned (3,).
    """

    x: Tensor
    velocity: Tensor
    heading: Tensor
    y: Tensor
    extra: Tensor
    pass_number: Tensor
    theta: object
    prior: object
    prior_stddev: Tensor
    learned: tuple[bool, bool, bool]
    scale: float

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class PassBias:
    """By how much the values of one pass differ from the field: mean, stddev (C,), SI.

    number: as Samples.pass_number.  stddev_apart (C,): of its difference from the mean of all passes, SI; what no pass
    can know, the field's own level, is not in it.
    """

    number: float
    mean: Tensor
    stddev: Tensor
    stddev_apart: Tensor

    @staticmethod
    def of(numbers: Sequence[float], mean: Tensor, covariance: Tensor) -> list[PassBias]:
        """From their joint posterior. mean (P, C), SI; covariance S (P, P), squared SI, the same in every channel.

        cov(b − b̄) = Q S Q,   Q = I − 11ᵀ/P
        """
        rows = covariance - covariance.mean(0)
        apart = (rows - rows.mean(1, keepdim=True)).diagonal()
        stddev, apart = covariance.diagonal().clamp_min(0.0).sqrt(), apart.clamp_min(0.0).sqrt()
        return [
            PassBias(number, b, stddev[i].expand(len(b)), apart[i].expand(len(b)))
            for i, (number, b) in enumerate(zip(numbers, mean))
        ]


class FieldMap(ABC):
    """An online probabilistic map of a scalar (or C-channel) field. All values are SI; x is (N, D) in metres.

    A model of your own defines the abstract methods; the others have defaults that are right for a map that answers
    of now, at once, and with Gaussian noise. docs/extending.md has one of sixty lines.

    capabilities: which of VECTOR, LIKELIHOODS and LEARNS it has.
    epoch: grows when the whole map may have changed, not only near new samples.
    """

    capabilities: frozenset[str] = frozenset()
    epoch: int = 0

    # --- what a model must do -------------------------------------------------------------------------------------
    @property
    @abstractmethod
    def centre(self) -> Tensor | None:
        """Prior mean of each channel, (C,) SI; None before the first sample."""

    @abstractmethod
    def update(self, batch: Samples) -> UpdateReport:
        """Absorb each sample once; bounded time and memory.

        Args:
            batch: samples, (N, D) metres and (N, C) SI.

        Returns:
            What was used, and how much the map holds.

        Raises:
            ValueError: the batch does not fit; the map stays as it was.
            MapFullError: nor does any other.
        """

    @abstractmethod
    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """Mean and latent variance at x; with a velocity, of what the robot measures there.

        Args:
            x: (N, D) metres.
            velocity: (N, D) m/s of the robot.
            heading: (N, 2) unit vectors; the direction of travel if None.

        Returns:
            mean, variance (N, C) and noise_variance (C,), SI.

        Raises:
            RuntimeError: the map has seen no sample yet. So for all that asks what the map knows.
        """

    @abstractmethod
    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance of the latent field between two sets of places.

        Args:
            a: (N, D) metres.
            b: (K, D) metres.

        Returns:
            (N, K), squared SI.
        """

    def covariance_with(self, b: Tensor) -> Covariances:
        """As `covariance` for many a and the same b: what b alone asks for is computed once.

        The map must not change while the answer is used.

        Args:
            b: (K, D) metres.

        Returns:
            A function of a (N, D) metres: their covariance (N, K), and the latent variance at a (N,), mean over
            channels, squared SI.
        """
        return lambda a: (self.covariance(a, b), self.predict(a).variance.mean(1))

    @abstractmethod
    def fantasize(self, x: Tensor) -> FieldMap:
        """A copy conditioned on its own mean at x (K, D) metres: the mean stays, the variance shrinks."""

    @abstractmethod
    def forget(self, factor: float) -> None:
        """Scale what the data said: every noise variance grows by 1/factor.

        Args:
            factor: in (0, 1].

        Raises:
            ValueError: it is not.
        """

    @abstractmethod
    def merge(self, other: FieldMap) -> None:
        """Add what another robot or session learned.

        Args:
            other: a map of the same model, unit and channels; it is not changed.

        Raises:
            ValueError: that cannot be; both maps are as they were.
        """

    @abstractmethod
    def hyperparameters(self) -> dict[str, float]:
        """lengthscale (m), signal_stddev, noise_stddev, constant_stddev (SI), and what else the model has."""

    @abstractmethod
    def state_dict(self) -> dict:
        """Everything needed for exact resume: tensors, numbers, strings and nested dicts of them."""

    @abstractmethod
    def load_state_dict(self, state: dict) -> None:
        """Continue exactly where state_dict was taken; ValueError, and the map as it was, where it does not fit."""

    # --- what follows, or is little of most maps ------------------------------------------------------------------
    @property
    def started(self) -> bool:
        """Whether the map has seen a sample."""
        return self.centre is not None

    @property
    def channels(self) -> int:
        """C; 0 before the first sample."""
        return 0 if self.centre is None else len(self.centre)

    def refine(self, budget_s: float = math.inf) -> bool:
        """Anytime work (hyper-parameters); at most about budget_s seconds. True: there is more to do."""
        return False

    def in_slices(self, on: bool) -> None:  # noqa: B027 a map need not
        """Whether work that takes much longer than an update may be spread over the updates to come.

        The map is then what it would be, only some updates later. Off: what is under way is finished. By default
        nothing is spread.
        """

    @property
    def learning_steps(self) -> int | None:
        """Steps that hyper-parameters have taken; None where none are learned."""
        return None

    def slimmed(self, state: dict) -> dict:
        """A state of such a map, or of a part of it, in fewer bytes; load_state_dict takes it, to rounding the same."""
        return state

    def unreadable(self) -> list[str]:
        """What of it lies elsewhere and cannot be read, in sentences."""
        return []

    def learned(self) -> Learned | None:
        """θ, and how well it is known; None where a map has no such thing to agree on."""
        return None

    def agree_on(self, theta) -> bool:
        """Go over to a team's θ (core.hyper.theta.Theta); False, and the map as it was, where that cannot be."""
        return False

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what was known near some places; by default nothing: a map that cannot do it keeps what it knew.

        Args:
            x: (K, D) metres.
            radius: metres.
            newest: as many of the newest samples stay.

        Returns:
            How many samples went.
        """
        return 0

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """Go over to the frame X' = turn X + shift, (2, 2) and (2,) m; ValueError where that cannot be done exactly."""
        raise ValueError(
            f"a {type(self).__name__} cannot be moved; map the recording with poses of the other frame"
        )

    def prior(self) -> Prediction:
        """What the map says far from every sample: mean, variance (1, C), noise_variance (C,)."""
        centre, told = self._known_centre(), self.hyperparameters()
        variance = torch.full_like(
            centre, told["signal_stddev"] ** 2 + told["constant_stddev"] ** 2
        )
        return Prediction(centre[None], variance[None], self.noise_variance())

    def predict_now(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As predict, of every sample so far and without waiting: of a map whose predictions may be a little behind."""
        return self.predict(x, velocity, heading)

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As predict_now, of the field and the unknown constant of a pass together: what is measured in that pass.

        By default no pass has a constant.

        Args:
            x: (N, D) metres.
            number: of the pass, as Samples.pass_number; one that the map has not seen has a constant of its prior.
            velocity: (N, D) m/s of the robot.
            heading: (N, 2) unit vectors; the direction of travel if None.
        """
        return self.predict_now(x, velocity, heading)

    def bias_variance(self) -> Tensor:
        """Variance of the constant that a pass to come adds to all of its measurements: (C,), squared SI."""
        return torch.zeros_like(self._known_centre())

    def biases(self) -> list[PassBias]:
        """What is known of the constants of passes, oldest first; none where passes have none."""
        return []

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> Snapshot:
        """What the map says now, kept. near (N, D) m: it will be asked within `reach` (m) of these places only."""
        self.need_data()
        return _Copy(copy.deepcopy(self))

    def load_snapshot(self, state: dict) -> Snapshot:
        """A snapshot of this map again, from its state_dict."""
        raise ValueError(f"snapshots of a {type(self).__name__} cannot be loaded")

    def drawable(self, budget_s: float) -> tuple[Snapshot | FieldMap, float, int]:
        """What to draw now, of how many samples it is (all: infinity), and the map's epoch then.

        The newest answer that costs no more than about budget_s (s) to have ready; by default the map itself.
        """
        return self, math.inf, self.epoch

    def moment(self) -> object | None:
        """What the map says now, for `since`; equal to another moment only where the map said the same then.

        None (the default) of a map that does not tell what has changed.
        """
        return None

    def since(self, moment: object) -> Increments | None:
        """What has changed since a moment, by less work than a prediction; None (the default): ask for a prediction."""
        return None

    def for_planning(self) -> Planned:
        """Who answers predict's variance, covariance and fantasize soonest; its mean may be a little behind."""
        return self

    def explained(self, x: Tensor) -> Tensor | None:
        """What was measured, as features b(x) (R, N), SI: covariance(a, b) = prior_covariance(a, b) − b_aᵀ b_b.

        Its prior depends on a − b alone. None (the default) for a model without such a form; with it the value of a
        measurement at every cell of a grid is a matter of convolutions.
        """
        return None

    def prior_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance before anything was measured, of a model that has `explained`: (N, K), squared SI."""
        raise NotImplementedError(
            f"a {type(self).__name__} has no `explained`, so its prior is not asked for"
        )

    def changed_since(
        self, epoch: int
    ) -> list[tuple[tuple[float, float], tuple[float, float]]] | None:
        """Boxes, lower and upper corner in m, that hold all that has changed otherwise than near new samples.

        None: that may be everywhere.
        """
        return [] if epoch == self.epoch else None

    def noise_variance(self) -> Tensor:
        """Noise variance of one new measurement, of each channel: (C,), squared SI."""
        return torch.full_like(self._known_centre(), self.hyperparameters()["noise_stddev"] ** 2)

    def observed(self, p: Prediction) -> Prediction:
        """Of a prediction of the latent field, what people ask for: probability, rate, class; by default the field."""
        return p

    def observable(self, x: Tensor) -> Prediction:
        """`observed` of the prediction at x (N, D)."""
        return self.observed(self.predict(x))

    def outcome(self, y: Tensor) -> Tensor:
        """Measurements (N, C) in the unit of `observed`: labels as 0 and 1, counts; by default as they are."""
        return y

    def log_predictive(self, batch: Samples) -> Tensor:
        """log p(y* | data) of new samples, (N,): log ∫ p(y*|f) q(f) df; by default with Gaussian noise."""
        p = self.predict(batch.x)
        y, variance = batch.y.to(p.mean), p.variance
        variance = variance + (
            p.noise_variance
            if batch.noise_variance is None
            else batch.noise_variance.to(p.mean)[:, None]
        )
        return -0.5 * ((2 * math.pi * variance).log() + (y - p.mean).square() / variance).sum(1)

    def body_field(self) -> tuple[Tensor, Tensor] | None:
        """What turns with the robot, forward, left, up: mean and standard deviation (3,), SI; None where not known."""
        return None

    def inducing_inputs(self) -> Tensor:
        """Where inducing inputs lie: (M, D) metres; none by default."""
        return self._no_places()

    def remembered_places(self) -> Tensor:
        """Where remembered samples were measured: (m, D) metres; none by default."""
        return self._no_places()

    def calibration_data(self) -> CalibrationData | None:
        """Remembered samples for a calibration of the robot; None where the map remembers none of that kind."""
        return None

    def counters(self) -> dict[str, int | float]:
        """Plain numbers for diagnostics: `jitter` that linalg had to add, and what a bound of the model left out."""
        return {"jitter": 0.0}

    def notes(self) -> list[str]:
        """What a person should know of the map, in sentences: what of it is lost, or kept where it should not be."""
        return []

    def need_data(self) -> None:
        """RuntimeError while the map has seen nothing."""
        if not self.started:
            raise RuntimeError("the map has seen no sample yet; call update() first")

    def _known_centre(self) -> Tensor:
        self.need_data()
        if self.centre is None:
            raise RuntimeError(
                f"a {type(self).__name__} has samples and no centre; set `centre` with the first"
            )
        return self.centre

    def _no_places(self) -> Tensor:
        return torch.empty((0, 2), dtype=torch.float64)


class _Copy(Snapshot):
    """A copy of a whole map: always right, and not cheap."""

    def __init__(self, field: FieldMap):
        self.field = field

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        return self.field.predict(x, velocity, heading)

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        return self.field.predict_in_pass(x, number, velocity, heading)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        return self.field.covariance(a, b)

    def covariance_with(self, b: Tensor) -> Covariances:
        return self.field.covariance_with(b)
