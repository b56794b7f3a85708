"""FieldMap, the interface that every map implements.

A mapper, a renderer, a planner, a file and a report use a map through this interface alone. Outside
core/models no code uses an attribute that is not here, checks a map's type, or asks for a model's
name.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gp_mapping.core.hyper.agreed import Learned
from gp_mapping.core.hyper.smoothness import KernelSearch
from gp_mapping.core.snapshot import Covariances, Increments, Planned, Snapshot, Unchanged
from gp_mapping.core.types import CalibrationData, PassBias, Prediction, Samples, UpdateReport

__all__ = [
    "LEARNS",
    "LIKELIHOODS",
    "VECTOR",
    "CalibrationData",
    "Covariances",
    "FieldMap",
    "Increments",
    "PassBias",
    "Planned",
    "Snapshot",
    "Unchanged",
]

# Capabilities that a model may have in addition to the interface's minimum:
# it maps the components of one vector, which turn with a late attitude
VECTOR = "vector"
# it takes classes, counts and gross errors, not Gaussian measurements alone
LIKELIHOODS = "likelihoods"
# it learns hyper-parameters while it maps
LEARNS = "learns"


class FieldMap(ABC):
    """An online probabilistic map of a scalar, or C-channel, field. SI; x is (N, D) in metres.

    A model of your own defines the abstract methods. The others have defaults that are right for a
    map that predicts at once, from all samples so far, and with Gaussian noise. docs/extending.md
    has an example of sixty lines.

    Attributes:
        capabilities: which of VECTOR, LIKELIHOODS and LEARNS it has.
        epoch: grows when the whole map may have changed, not only near new samples.
    """

    capabilities: frozenset[str] = frozenset()
    epoch: int = 0

    # --- what a model must do ---------------------------------------------------------------------
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
            MapFullError: the map has reached its bound and takes no other batch, either.
        """

    @abstractmethod
    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """Mean and latent variance of the field at x, or of what a moving robot measures there.

        Args:
            x: (N, D) metres.
            velocity: (N, D) m/s of the robot; with it the prediction is of what the robot measures.
            heading: (N, 2) unit vectors; the direction of travel if None.

        Returns:
            mean, variance (N, C) and noise_variance (C,), SI.

        Raises:
            RuntimeError: the map has seen no sample yet. The other methods that depend on the data
                raise it as well.
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
        """As `covariance` for many a and the same b; what depends on b alone is computed once.

        The map must not change while the returned function is used.

        Args:
            b: (K, D) metres.

        Returns:
            A function of a (N, D) metres: their covariance (N, K), and the latent variance at a
            (N,), mean over channels, squared SI.
        """
        return lambda a: (self.covariance(a, b), self.predict(a).variance.mean(1))

    @abstractmethod
    def fantasize(self, x: Tensor) -> FieldMap:
        """A copy conditioned on its own mean at x (K, D): the mean stays, the variance shrinks."""

    @abstractmethod
    def forget(self, factor: float) -> None:
        """Weaken all data: every noise variance grows by 1/factor.

        Args:
            factor: in (0, 1].

        Raises:
            ValueError: the factor is outside (0, 1].
        """

    @abstractmethod
    def merge(self, other: FieldMap) -> None:
        """Add what another robot or session learned.

        Args:
            other: a map of the same model, unit and channels; it is not changed.

        Raises:
            ValueError: the maps cannot be merged; both are as they were.
        """

    @abstractmethod
    def hyperparameters(self) -> dict[str, float]:
        """lengthscale (m), signal_stddev, noise_stddev, constant_stddev (SI), and others."""

    @abstractmethod
    def state_dict(self) -> dict:
        """State for exact resume: tensors, numbers, strings and nested dicts of them."""

    @abstractmethod
    def load_state_dict(self, state: dict) -> None:
        """Continue exactly where state_dict was taken.

        Raises:
            ValueError: the state does not fit; the map is as it was.
        """

    # --- what has a default --------------------------------------------------
    @property
    def started(self) -> bool:
        """Whether the map has seen a sample."""
        return self.centre is not None

    @property
    def channels(self) -> int:
        """Number of channels C; 0 before the first sample."""
        return 0 if self.centre is None else len(self.centre)

    def refine(self, budget_s: float = math.inf) -> bool:
        """Do pending anytime work, such as hyper-parameter steps.

        Args:
            budget_s: seconds that it may take, about.

        Returns:
            Whether there is more to do.
        """
        return False

    def widen_budget(self, times: int) -> None:  # noqa: B027 a map need not
        """Allow more inputs and remembered samples than one map has, for a sum of several.

        Nothing is lost then where maps meet. A sum is read more often than it is updated: with its
        first new sample it returns to the budget of one map. A file keeps it.

        Args:
            times: budgets of one map; at most the largest values of the settings are used.
        """

    def use_budget(self) -> None:  # noqa: B027 a map need not
        """Come as near to the exact posterior as the budget allows, where a map has room left."""

    def in_slices(self, on: bool) -> None:  # noqa: B027 a map need not
        """Allow, or forbid, spreading long work over the updates to come.

        Work that takes much longer than an update may then be done in slices; the map becomes what
        it would be, only some updates later. By default nothing is spread.

        Args:
            on: True allows it; False forbids it, and finishes what is under way.
        """

    @property
    def learning_steps(self) -> int | None:
        """Number of steps that the hyper-parameters have taken; None where none are learned."""
        return None

    def slimmed(self, state: dict) -> dict:
        """A smaller state of such a map, or of a part; it loads to the same map, to rounding."""
        return state

    def unreadable(self) -> list[str]:
        """Sentences that name parts of the map that are stored elsewhere and cannot be read."""
        return []

    def learned(self) -> Learned | None:
        """Hyper-parameters θ and their uncertainty; None where there are none to agree on."""
        return None

    @property
    def kernel_name(self) -> str | None:
        """Of the kernel in use, where it may become another one; None: it does not."""
        return None

    def kernel_search(self) -> KernelSearch | None:
        """A search for the kernel under which the remembered samples are likeliest.

        None where the map could not be made again with another one: a sample is forgotten.
        """
        return None

    def use_kernel(self, theta) -> None:
        """Learn on with another kernel, which the map then takes over, in slices if it may.

        Args:
            theta: a Theta in inner units, as `kernel_search` has found it.

        Raises:
            TypeError: the map has the kernel that it was made with.
        """
        raise TypeError(f"a {type(self).__name__} has the kernel that it was made with")

    def agree_on(self, theta) -> bool:
        """Reparametrise to the hyper-parameters of a team.

        Args:
            theta: a Theta in inner units.

        Returns:
            Whether that succeeded; else the map is as it was.
        """
        return False

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what is known near some places; by default the map keeps everything.

        Args:
            x: (K, D) metres.
            radius: metres.
            newest: this many of the newest samples stay.

        Returns:
            How many samples were removed.

        Raises:
            ValueError: radius is negative or NaN, or a place is not finite.
        """
        return 0

    def move(self, turn: Tensor, shift: Tensor) -> None:
        """Move the map to the frame X' = turn X + shift.

        Args:
            turn: rotation, (2, 2).
            shift: (2,) metres.

        Raises:
            ValueError: that cannot be done exactly.
        """
        raise ValueError(
            f"a {type(self).__name__} cannot be moved; map the recording with poses of the other frame"
        )

    def prior(self) -> Prediction:
        """Prediction far from every sample: mean, variance (1, C), noise_variance (C,)."""
        centre, hyper = self._known_centre(), self.hyperparameters()
        variance = torch.full_like(
            centre, hyper["signal_stddev"] ** 2 + hyper["constant_stddev"] ** 2
        )
        return Prediction(centre[None], variance[None], self.noise_variance())

    def predict_now(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As `predict`, from all samples and without waiting, for maps whose `predict` may lag."""
        return self.predict(x, velocity, heading)

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As predict_now, of field and unknown constant of a pass together: what the pass measures.

        By default no pass has a constant.

        Args:
            x: (N, D) metres.
            number: of the pass, as in Samples.pass_number; one that the map has not seen has the
                prior constant.
            velocity: (N, D) m/s of the robot.
            heading: (N, 2) unit vectors; the direction of travel if None.
        """
        return self.predict_now(x, velocity, heading)

    def bias_variance(self) -> Tensor:
        """Variance of the constant that a future pass adds to its measurements: (C,) squared SI."""
        return torch.zeros_like(self._known_centre())

    def biases(self) -> list[PassBias]:
        """Estimated constants of the passes, oldest first; empty where passes have none."""
        return []

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> Snapshot:
        """The map's predictions as of now, which later updates do not change.

        Args:
            near: (N, D) metres; predictions will be wanted near these places only.
            reach: metres, how near.
        """
        self.need_data()
        return _Copy(copy.deepcopy(self))

    def load_snapshot(self, state: dict) -> Snapshot:
        """A snapshot of this map, from the state_dict of a snapshot.

        Raises:
            ValueError: the model's snapshots cannot be loaded (the default).
        """
        raise ValueError(f"snapshots of a {type(self).__name__} cannot be loaded")

    def drawable(self, budget_s: float) -> tuple[Snapshot | FieldMap, float, int]:
        """What to draw now: the newest predictions that are ready within a time budget.

        By default the map itself.

        Args:
            budget_s: seconds that making them ready may take, about.

        Returns:
            What predicts, how many samples it has seen (all: infinity), and the map's epoch then.
        """
        return self, math.inf, self.epoch

    def moment(self) -> object | None:
        """A token of the map's current predictions, for `since`.

        Two tokens are equal only where the map predicted the same at both moments. None (the
        default) for a map that cannot give changes.
        """
        return None

    def since(self, moment: object) -> Increments | None:
        """Changes since a moment, for less work than a prediction.

        Args:
            moment: from `moment`.

        Returns:
            The changes, which stay as they are when the map goes on; None (the default): predict
            instead.
        """
        return None

    def for_planning(self) -> Planned:
        """What gives variances, covariances and fantasies soonest; its mean may lag a little."""
        return self

    def explained(self, x: Tensor) -> Tensor | None:
        """Features of the covariance that the data explain.

            covariance(a, b) = prior_covariance(a, b) − b_aᵀ b_b

        The prior covariance depends on a − b alone; so the value of a measurement at every cell of
        a grid follows from convolutions.

        Args:
            x: (N, D) metres.

        Returns:
            b(x), (R, N), SI; None (the default) for a model without such a form.
        """
        return None

    def prior_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Prior covariance of the latent field, of a model that has `explained`.

        Args:
            a: (N, D) metres.
            b: (K, D) metres.

        Returns:
            (N, K), squared SI.

        Raises:
            NotImplementedError: the model has no `explained`.
        """
        raise NotImplementedError(
            f"a {type(self).__name__} has no `explained`, so its prior is not asked for"
        )

    def changed_since(
        self, epoch: int
    ) -> list[tuple[tuple[float, float], tuple[float, float]]] | None:
        """Boxes that hold all changes since an epoch, except near new samples and told by `since`.

        Args:
            epoch: of the map, then.

        Returns:
            Lower and upper corner of each box, metres; None: the map may have changed everywhere.
            With an epoch that has passed, places whose change `since` does not tell have changed.
        """
        return [] if epoch == self.epoch else None

    def noise_variance(self) -> Tensor:
        """Noise variance of one more sample, of each channel: (C,), squared SI.

        Of a sample as the map is given them, the mean of a cell: with what averaging leaves of the
        sensor's white noise. By default it is σ_n² alone, for maps that take no account of that.
        """
        return torch.full_like(self._known_centre(), self.hyperparameters()["noise_stddev"] ** 2)

    def observed(self, p: Prediction) -> Prediction:
        """What a latent prediction stands for: a probability, a rate; by default the field.

        Args:
            p: of `predict`, latent.
        """
        return p

    def observable(self, x: Tensor) -> Prediction:
        """`observed` of the prediction at x (N, D)."""
        return self.observed(self.predict(x))

    def outcome(self, y: Tensor) -> Tensor:
        """Measurements (N, C) in the unit of `observed`: labels as 0 and 1, counts; default: y."""
        return y

    def log_predictive(self, batch: Samples) -> Tensor:
        """Log predictive density of new samples, (N,); by default with Gaussian noise.

            log p(y* | data) = log ∫ p(y*|f) q(f) df

        Args:
            batch: of which places, values and noise_variance alone are used.
        """
        p = self.predict(batch.x)
        y, variance = batch.y.to(p.mean), p.variance
        variance = variance + (
            p.noise_variance
            if batch.noise_variance is None
            else batch.noise_variance.to(p.mean)[:, None]
        )
        return -0.5 * ((2 * math.pi * variance).log() + (y - p.mean).square() / variance).sum(1)

    def body_field(self) -> tuple[Tensor, Tensor] | None:
        """Body-fixed field: mean and stddev (3,), forward, left, up, SI; None where not known."""
        return None

    def inducing_inputs(self) -> Tensor:
        """Places of the inducing inputs, (M, D) metres; none by default."""
        return self._no_places()

    def remembered_places(self) -> Tensor:
        """Places where remembered samples were measured, (m, D) metres; none by default."""
        return self._no_places()

    def remembered_motion(self) -> tuple[Tensor, Tensor]:
        """Of remembered samples the robot's place, (m, D) m, and velocity, (m, D) m/s."""
        return self._no_places(), self._no_places()

    def calibration_data(self) -> CalibrationData | None:
        """Remembered samples to calibrate the robot from; None where the map has none of them."""
        return None

    def counters(self) -> dict[str, int | float]:
        """Numbers for diagnostics: `jitter` that linalg had to add, what a bound left out."""
        return {"jitter": 0.0}

    def notes(self) -> list[str]:
        """Sentences for people: what of the map is lost, or kept where it should not be."""
        return []

    def need_data(self) -> None:
        """Check that the map has seen a sample.

        Raises:
            RuntimeError: it has not.
        """
        if not self.started:
            raise RuntimeError("the map has seen no sample yet; call update() first")

    def _known_centre(self) -> Tensor:
        """The centre; RuntimeError before the first sample."""
        self.need_data()
        if self.centre is None:
            raise RuntimeError(
                f"a {type(self).__name__} has samples and no centre; set `centre` with the first"
            )
        return self.centre

    def _no_places(self) -> Tensor:
        """No places, (0, 2)."""
        return torch.empty((0, 2), dtype=torch.float64)


class _Copy(Snapshot):
    """Snapshot that is a copy of the whole map: always right, and not cheap."""

    def __init__(self, field: FieldMap):
        self.field = field

    def predict(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As FieldMap.predict."""
        return self.field.predict(x, velocity, heading)

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As FieldMap.predict_in_pass."""
        return self.field.predict_in_pass(x, number, velocity, heading)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance."""
        return self.field.covariance(a, b)

    def covariance_with(self, b: Tensor) -> Covariances:
        """As FieldMap.covariance_with."""
        return self.field.covariance_with(b)
