"""Values that enter and leave a map: samples, predictions, reports, estimates.

Frozen, checked once, SI.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from gp_mapping.core.places import float_tensor, need_units

__all__ = [
    "FARTHEST",
    "CalibrationData",
    "PassBias",
    "Prediction",
    "Samples",
    "UpdateReport",
]

# m; the largest coordinate that still resolves millimetres: nothing beyond it is on a map
FARTHEST = 1e8


def _column(name: str, value, n: int) -> Tensor | None:
    """An optional per-sample quantity as (N,) float64; a scalar is repeated."""
    if value is None:
        return None

    out = float_tensor(value)
    if out.ndim == 0:
        out = out.expand(n).clone()
    if out.shape != (n,):
        raise ValueError(
            f"{name} has shape {tuple(out.shape)}, expected ({n},): one value per sample"
        )
    return out


_FEW = 16  # so few numbers are checked faster by Python than by torch; a cell is one row


def _all_finite(value: Tensor) -> bool:
    """Whether all numbers are finite."""
    if value.numel() <= _FEW:
        return all(map(math.isfinite, value.flatten().tolist()))
    return bool(torch.isfinite(value).all())


def _least(value: Tensor) -> float:
    """The smallest number."""
    return min(value.tolist()) if value.numel() <= _FEW else float(value.min())


@dataclass(frozen=True)
class Samples:
    """Measurements y at positions x, as the robot made them, or as averages of a few of them.

    Attributes:
        x: (N, D) positions in metres.
        y: (N, C) values in SI units; (N,) is taken as one channel.
        noise_variance: (N,) the whole noise variance of y, in squared SI units; None leaves the
            noise to the model.
        stamp: (N,) time in seconds.
        count: (N,) how many raw measurements each y averages; None means one each.
        sensor_variance: (N,) variance of one raw measurement that is known to be white; the model
            then uses its own noise variance + sensor_variance / count.
        velocity: (N, D) of the robot in m/s; from it a model learns the time offset and the
            body-fixed field.
        heading: (N, 2) unit vector of the robot's forward axis; the direction of travel if None.
        position_variance: (N,) of each coordinate of x, m²: uncertainty of the pose.
        pass_number: (N,) the pass of each sample, at least 0. Samples of one pass share an unknown
            constant, the sensor's bias during it; negative, or None: no such constant.
        extent: (N,) standard deviation along the velocity of the places whose measurements y
            averages, m: y is the field's mean over them, not its value at x. None means 0.
        response_slope: (N,) by how much y would change for a unit of the logarithm of the time
            constant of a slow sensor; None: that is not uncertain.

    Raises:
        ValueError: shapes disagree, a value is not finite, a variance is not positive, or a heading
            is longer than 1.
    """

    x: Tensor
    y: Tensor
    noise_variance: Tensor | None = None
    stamp: Tensor | None = None
    count: Tensor | None = None
    sensor_variance: Tensor | None = None
    velocity: Tensor | None = None
    heading: Tensor | None = None
    position_variance: Tensor | None = None
    pass_number: Tensor | None = None
    extent: Tensor | None = None
    response_slope: Tensor | None = None

    def __post_init__(self):
        # a gradient would keep everything before it, and could not be copied
        x, y = float_tensor(self.x), float_tensor(self.y)
        y = y[:, None] if y.ndim == 1 else y
        if x.ndim != 2 or y.ndim != 2 or x.shape[0] != y.shape[0]:
            raise ValueError(
                f"x {tuple(x.shape)} and y {tuple(y.shape)} do not agree; expected (N, D) and (N, C)"
            )
        if not x.shape[1] or not y.shape[1]:
            raise ValueError(
                f"x {tuple(x.shape)} and y {tuple(y.shape)} have no column; expected (N, D), (N, C)"
            )

        n = x.shape[0]
        values = {"x": x, "y": y}
        for name in (
            "noise_variance",
            "stamp",
            "count",
            "sensor_variance",
            "position_variance",
            "pass_number",
            "extent",
            "response_slope",
        ):
            values[name] = _column(name, getattr(self, name), n)
        for name, shape in (("velocity", tuple(x.shape)), ("heading", (n, 2))):
            value = getattr(self, name)
            values[name] = None if value is None else float_tensor(value)
            if value is not None and tuple(values[name].shape) != shape:
                raise ValueError(f"{name} has shape {tuple(values[name].shape)}, expected {shape}")

        # checked; the class is frozen, so the converted columns are set past it
        for name, value in values.items():
            if value is not None and not _all_finite(value):
                bad = int((~torch.isfinite(value.reshape(n, -1))).any(1).nonzero()[0])
                raise ValueError(
                    f"{name} is not finite at sample {bad}; drop such samples before the map sees them"
                )
            object.__setattr__(self, name, value)

        if values["heading"] is not None:
            need_units(values["heading"])
        for name, floor in (("noise_variance", 0.0), ("count", 0.0)):
            value = values[name]
            if value is not None and n and not _least(value) > floor:
                raise ValueError(f"{name} must be positive; the smallest is {_least(value)}")
        for name in ("sensor_variance", "position_variance", "extent"):
            value = values[name]
            if value is not None and n and _least(value) < 0:
                raise ValueError(f"{name} must not be negative; the least is {_least(value)}")

    def __len__(self) -> int:
        return self.x.shape[0]  # len() of a tensor is several calls

    def __getitem__(self, index) -> "Samples":
        """The samples at a slice, mask or index tensor.

        Raises:
            IndexError: a number beyond the last sample; with it a loop over the samples ends.
        """
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"sample {index} of {len(self)}")
            index = slice(index, index + 1 or None)
        return self._like(
            {name: None if column is None else column[index] for name, column in vars(self).items()}
        )

    @property
    def raw_count(self) -> int:
        """Number of raw samples, where each of these may be an average."""
        return len(self) if self.count is None else round(float(self.count.sum()))

    def of_pass(self, number: float) -> "Samples":
        """The same samples, all of one pass, with `number` as their pass_number."""
        numbers = torch.full((self.x.shape[0],), number, dtype=torch.float64)
        return self._like(vars(self) | {"pass_number": numbers})

    @staticmethod
    def of_checked(columns: dict[str, Tensor | None]) -> "Samples":
        """Make samples of columns that are known to be right: float64, of the shapes above.

        Args:
            columns: by name; what is missing is None.
        """
        return Samples._like(_NO_COLUMNS | columns)

    @staticmethod
    def _like(columns: dict[str, Any]) -> "Samples":
        """Make samples from columns that have been checked, without another check.

        A cell passes here several times.
        """
        new = object.__new__(Samples)
        vars(new).update(columns)
        return new

    @staticmethod
    def concatenate(parts: "list[Samples]", common: bool = False) -> "Samples":
        """One Samples from several.

        Args:
            parts: the samples.
            common: leave out a column that some of the parts do not have.

        Raises:
            ValueError: a column is present in some of the parts only, and `common` is False.
        """
        out: dict[str, Any] = {}
        for f in fields(Samples):
            columns = [getattr(p, f.name) for p in parts]
            missing = [c is None for c in columns]
            if any(missing) and not all(missing) and not common:
                raise ValueError(f"{f.name} is present in some of the parts only")
            out[f.name] = None if any(missing) else torch.cat(columns)
        return Samples(**out)


_NO_COLUMNS: dict[str, Tensor | None] = dict.fromkeys(f.name for f in fields(Samples))


@dataclass(frozen=True)
class Prediction:
    """Mean and variance of the latent field, and the noise variance of a new measurement. SI units.

    Attributes:
        mean: (N, C).
        variance: (N, C), of the latent field.
        noise_variance: (C,), of one new measurement, or (N, C) where it differs between places.
        covariance: (N, C, C), between the components at a place, with `variance` as its diagonal;
            None where the model treats them as independent.
        degrees: (N, 1), degrees of freedom of Student's t that errors are distributed like, with a
            95 % interval of ± 1.96 standard deviations; None: normal.
    """

    mean: Tensor
    variance: Tensor
    noise_variance: Tensor
    covariance: Tensor | None = None
    degrees: Tensor | None = None

    @property
    def stddev(self) -> Tensor:
        """Standard deviation of the latent field, (N, C)."""
        return self.variance.clamp_min(0).sqrt()

    @property
    def measurement_variance(self) -> Tensor:
        """Variance of a new measurement: latent variance + noise variance, (N, C)."""
        return self.variance + self.noise_variance


@dataclass(frozen=True)
class UpdateReport:
    """What an update did: counts for diagnostics, and where the map has changed.

    Attributes:
        used: samples absorbed.
        samples: total of samples afterwards.
        inducing: total of inducing inputs afterwards.
        memory: total of remembered samples afterwards.
        added: inducing inputs that came in this update.
        removed: inducing inputs that went in this update.
        jitter: what linalg had to add; normally 0.
        everywhere: the basis changed, so all of the map did.
    """

    used: int
    samples: int
    inducing: int
    memory: int
    added: int = 0
    removed: int = 0
    jitter: float = 0.0
    everywhere: bool = False


@dataclass(frozen=True)
class CalibrationData:
    """Remembered samples, to estimate time offset, lever arm and body-fixed field from.

    Values y and standard deviations are in the map's inner unit of `scale` SI; places are in metres
    about any origin.

    Attributes:
        x: places (m, D).
        velocity: of the robot (m, D).
        heading: ĥ (m, 2).
        y: values (m, C).
        pass_number: of each sample (m,), whose unknown constant is in y; NO_PASS where it has none.
        extra: variance in addition to the model's own noise (m,).
        theta: hyper-parameters in use (core.hyper.Theta).
        prior: their prior medians.
        prior_stddev: (7,), of Theta.vector().
        learned: whether time offset, lever arm along and lever arm across are learned (3,).
        scale: SI per inner unit.
        extent: of the places that each sample averages, along its velocity (m,), m; None: 0.
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
    extent: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class PassBias:
    """The unknown constant by which the values of one pass differ from the field, SI.

    Attributes:
        number: of the pass, as in Samples.pass_number.
        mean: (C,).
        stddev: (C,).
        stddev_apart: standard deviation of its difference from the mean of all passes, (C,). The
            field's own level, which no pass can determine, is not in it.
    """

    number: float
    mean: Tensor
    stddev: Tensor
    stddev_apart: Tensor

    @staticmethod
    def of(numbers: Sequence[float], mean: Tensor, covariance: Tensor) -> list[PassBias]:
        """Constants of passes from their joint posterior.

            cov(b − b̄) = Q S Q,   Q = I − 11ᵀ/P

        Args:
            numbers: of the P passes.
            mean: (P, C), SI.
            covariance: S (P, P), squared SI, the same in every channel.
        """
        centred_rows = covariance - covariance.mean(0)
        apart = (centred_rows - centred_rows.mean(1, keepdim=True)).diagonal()  # of Q S Q

        stddev, apart = covariance.diagonal().clamp_min(0.0).sqrt(), apart.clamp_min(0.0).sqrt()
        return [
            PassBias(number, b, stddev[i].expand(len(b)), apart[i].expand(len(b)))
            for i, (number, b) in enumerate(zip(numbers, mean))
        ]
