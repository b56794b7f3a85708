"""A batch of samples as the models take it: in inner units, with all of its columns."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import to_device
from gp_mapping.core.hyper.theta import heading_from_velocity
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.types import Samples
from gp_mapping.errors import NumericalError

__all__ = ["Standardised", "average_noise", "check_magnitudes", "excess_variance"]

# Inner units and metres: sums of squares of larger numbers lose the digits of credible ones.
_MOST = 1e9


@dataclass(frozen=True)
class Standardised:
    """A batch of samples in inner units.

    Attributes:
        x: places (N, D), metres from the origin.
        velocity: (N, D) m/s.
        heading: ĥ (N, 2).
        y: values (N, C).
        noise: the sample's own noise variance, or 0 where the model's applies, (N,).
        extra: variance in addition to the model's, sensor_variance/count, (N,).
        position_variance: of the pose, (N,) m².
        count: raw measurements that were averaged, (N,).
        pass_number: (N,), NO_PASS where a sample has none.
        extent: of the places that were averaged, along the velocity (N,), m; None: 0.
        copied: the batch on the processor, from where it was copied; None: it was not.
    """

    x: Tensor
    velocity: Tensor
    heading: Tensor
    y: Tensor
    noise: Tensor
    extra: Tensor
    position_variance: Tensor
    count: Tensor
    pass_number: Tensor | None = None
    extent: Tensor | None = None
    copied: Standardised | None = None

    def __getitem__(self, part: slice) -> Standardised:
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return Standardised(**{name: None if c is None else c[part] for name, c in columns.items()})

    @property
    def here(self) -> Standardised:
        """The batch where its numbers can be read: a card would have to be waited for."""
        return self if self.copied is None else self.copied

    def on_device(self, device: torch.device) -> Standardised:
        """This batch on a device: by one copy, where it is on a processor."""
        if device.type == self.x.device.type:
            return self
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {name: c for name, c in columns.items() if c is not None}
        flat = to_device(torch.cat([c.reshape(-1) for c in given.values()]), device)
        parts = flat.split([c.numel() for c in given.values()])
        moved = {name: part.view(given[name].shape) for name, part in zip(given, parts)}
        return Standardised(**columns | moved | {"copied": self})

    @property
    def extents(self) -> Tensor:
        """The extent of each sample (N,), m; 0 where it is not known."""
        return torch.zeros_like(self.extra) if self.extent is None else self.extent

    @staticmethod
    def from_samples(batch: Samples, scaling: Scaling) -> Standardised:
        """The batch in inner units, on the scaling's device, with defaults for open columns."""
        n, device = len(batch), scaling.origin.device

        def column(values: Tensor | None, default: float) -> Tensor:
            """A column (n,) on the device; the default where the samples have none."""
            if values is None:
                return torch.full((n,), default, dtype=torch.float64, device=device)
            return to_device(values, device)

        velocity = to_device(
            torch.zeros_like(batch.x) if batch.velocity is None else batch.velocity, device
        )
        if batch.heading is None:
            heading = (
                velocity.new_zeros((n, 2))
                if batch.velocity is None
                else heading_from_velocity(velocity)
            )
        else:
            heading = to_device(batch.heading, device)

        noise = column(scaling.inner_variance(batch.noise_variance), 0.0)
        count = column(batch.count, 1.0)
        extra = column(scaling.inner_variance(batch.sensor_variance), 0.0)
        if batch.sensor_variance is not None:
            extra = extra / count
            if batch.noise_variance is not None:
                extra = torch.where(noise > 0, 0.0, extra)
        return Standardised(
            scaling.inner_x(batch.x),
            velocity,
            heading,
            scaling.inner_y(batch.y),
            noise,
            extra,
            column(batch.position_variance, 0.0),
            count,
            column(batch.pass_number, NO_PASS),
            column(batch.extent, 0.0),
        )


def check_magnitudes(batch: Standardised) -> None:
    """Check that no number is so large that sums with it lose the others' digits.

    Raises:
        NumericalError: one is.
    """
    columns = torch.cat([batch.x, batch.y, batch.velocity, batch.heading], 1)
    if not float(columns.abs().max()) <= _MOST:
        worst = int(columns.abs().amax(1).argmax())
        raise NumericalError(
            f"sample {worst} of a batch of {len(columns)} lies {float(columns.abs().max()):.3g} from "
            f"the map's origin or centre, in metres or units of field_scale, and at most {_MOST:g} is credible: "
            "of large numbers write as field_scale about how much they vary"
        )


def excess_variance(noise: Tensor, extra: Tensor, theta) -> Tensor:
    """Noise variance in addition to s_p², (N,), for learning s_p.

    Args:
        noise: each sample's own noise variance, or 0 where the model's applies, (N,).
        extra: variance in addition to the model's, (N,).
        theta: hyper-parameters, with s_p.
    """
    return torch.where(noise > 0, noise - theta.noise_stddev**2 + extra, extra).clamp_min(0.0)


def average_noise(theta, extra: Tensor) -> float:
    """Typical noise variance σ² of one measurement: the harmonic mean of s_p² + extra.

    So 1/σ² is the mean precision. A sample without information (a pose that was lost, a gross
    error) would dominate the arithmetic mean.

    Args:
        theta: hyper-parameters, with s_p.
        extra: variances in addition to s_p², (m,).
    """
    own = theta.noise_stddev**2
    return own if not extra.shape[0] else 1.0 / float((own + extra).reciprocal_().mean())
