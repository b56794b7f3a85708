"""A vector field without curl: three components of one scalar potential, as a dual SVGP of rows.

A sample is three rows, one for each component, at one place: a(x) = L⁻¹ ∂_c k_φ(·, x). Inducing
variables are derivatives of the potential, (place, component) pairs that pivoted Cholesky picks as
it does for a scalar field. Values of the potential itself would not do: along a lane, or in a
plane, its values say nothing of the slope across it. A sensor's constant in a pass is a vector, so
each component has a constant of its own in each pass (row_passes.py). Everything else (sites,
memory, growth, learning) is DualSVGP's.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gp_mapping.core.field_map import VECTOR
from gp_mapping.core.hyper.vector_theta import VectorTheta
from gp_mapping.core.kernels.curl_free import COMPONENTS, to_rows
from gp_mapping.core.models.curl_free.posterior import CurlFreePosterior
from gp_mapping.core.models.curl_free.row_passes import (
    component_of,
    pass_of,
    row_number,
    row_numbers,
)
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.places import need_radius
from gp_mapping.core.scaled_map import ScaledMap
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.standardised import Standardised
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = ["CurlFree"]


class _Rows(DualSVGP):
    """The dual SVGP of rows, whose noise differs by component."""

    name = "curl_free"

    def noise(self, own, extra, theta, x):
        """Noise variance of rows (N,): their own, or that of their component; plus `extra`.

        Args:
            own: (N,) the rows' own noise variance, 0 where they have none.
            extra: (N,) variance in addition.
            theta: VectorTheta.
            x: (N, D + 1) rows, the component last.
        """
        return torch.where(own > 0, own, theta.row_noise(x[:, -1])) + extra


class CurlFree(ScaledMap):
    """Online map of (N, 3) samples at (N, 2) or (N, 3) metres; the plane is z = 0 in space.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI), with the potential's.
        scale: as of DualSVGP, and so are those below.
        centre: (3,) SI; the median of the first batch if None.
        device: of all tensors.
        others: max_inducing counts (place, component) pairs, memory_size rows,
            max_biases constants of one component in one pass.

    Attributes:
        rows: the dual SVGP of rows, in this map's inner units.

    Reference:
        Solin et al. 2018: one scalar potential for the three components.
    """

    def __init__(
        self, theta: VectorTheta, *, scale: float = 1.0, centre=None, device="cpu", **others
    ):
        super().__init__(scale=scale, centre=centre, device=device)
        self.rows = _Rows(theta, device=device, **others)

        # refuses a kernel without a potential now, not at the first sample
        self.rows.theta.kernel()

    name = "curl_free"

    # --- what a mapper looks at -------------------------------------------------------------------
    theta = property(lambda self: self.rows.theta)
    learner = property(lambda self: self.rows.learner)
    jitter = property(lambda self: self.rows.jitter)
    epoch = property(lambda self: self.rows.epoch)
    empty = property(lambda self: self.rows.empty)
    bias_prior = property(lambda self: self.rows.bias_prior)
    bias_spread = property(lambda self: self.rows.bias_spread)

    @property
    def newest_pass(self) -> float:
        """Largest number of a pass so far, NO_PASS where there is none."""
        return pass_of(self.rows.newest_pass)

    @newest_pass.setter
    def newest_pass(self, number: float) -> None:
        self.rows.newest_pass = row_number(number, COMPONENTS - 1)

    @property
    def samples(self) -> int:
        """Samples absorbed; each is three rows."""
        return self.rows.samples // COMPONENTS

    def mark_changed(self) -> None:
        """Note that all of the map may have changed; the epoch is that of the rows."""
        self.discard_posterior()
        self.rows.mark_changed()

    @property
    def capabilities(self) -> frozenset[str]:
        """As ScaledMap.capabilities, and vectors."""
        return super().capabilities | {VECTOR}

    def inducing_inputs(self) -> Tensor:
        """Places of the inducing variables (M', D), each once."""
        return self._outer_places(None if self.rows.basis is None else _places(self.rows.basis.z))

    def remembered_places(self) -> Tensor:
        """Places of remembered rows (m', D), each once."""
        return self._outer_places(None if self.rows.memory is None else _places(self.rows.memory.x))

    def remembered_motion(self) -> tuple[Tensor, Tensor]:
        """As FieldMap.remembered_motion: of each remembered row."""
        memory = self.rows.memory
        if memory is None:
            return self._no_places(), self._no_places()
        return self._outer_places(memory.x[:, :-1]), memory.velocity[:, :-1]

    # --- samples in -------------------------------------------------------------------------------
    def _scaling_for(self, batch: Samples) -> Scaling:
        """The scaling of a map whose first batch this is; ValueError where it has no vectors."""
        if batch.y.shape[1] != COMPONENTS or batch.x.shape[1] not in (2, 3):
            raise ValueError(
                f"curl_free maps the three components of a vector in the plane or in space: y is (N, 3) "
                f"and x (N, 2) or (N, 3), not {tuple(batch.y.shape)} and {tuple(batch.x.shape)}"
            )

        return super()._scaling_for(batch)

    def absorb(self, batch: Standardised) -> UpdateReport:
        """Add a batch as three rows a sample."""
        if self.rows.scaling is None:
            # rows are made in inner units already
            self.rows.scaling = _unit(len(self.scaling.origin), self.device)

        batch = batch.here
        columns = {
            name: getattr(batch, name).repeat_interleave(COMPONENTS, 0)
            for name in ("heading", "noise", "extra", "position_variance", "count")
        }
        if batch.pass_number is not None:
            columns["pass_number"] = row_numbers(batch.pass_number)
        if batch.extent is not None:
            columns["extent"] = batch.extent.repeat_interleave(COMPONENTS, 0)

        rows = Standardised(
            x=to_rows(batch.x),
            velocity=_row_velocities(batch.velocity),
            y=batch.y.reshape(-1, 1),
            **columns,
        )
        report = self.rows.absorb(rows.on_device(self.device))
        return self.report(len(batch.x), report)

    def report(self, used: int, rows: UpdateReport | None = None) -> UpdateReport:
        """What the map holds after an update.

        Args:
            used: samples of the batch that were absorbed.
            rows: report of the update of their rows; None: nothing came.
        """
        rows = rows or self.rows.report(0)
        return UpdateReport(
            used,
            self.samples,
            rows.inducing,
            rows.memory,
            rows.added,
            rows.removed,
            rows.jitter,
            rows.everywhere,
        )

    def estimate_bias(self) -> None:
        """Estimate s_b of the rows, where it is learned: one for all components."""
        self.rows.estimate_bias()

    def refine(self, budget_s: float = float("inf")) -> bool:
        """Do pending hyper-parameter steps; whether more are pending."""
        return self.rows.refine(budget_s)

    # --- the map out ------------------------------------------------------------------------------
    @property
    def posterior(self) -> CurlFreePosterior:
        """The posterior given the present samples."""
        self.need_data()
        return CurlFreePosterior(self.rows.posterior, self.scaling)

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> CurlFreePosterior:
        """As FieldMap.snapshot, of the whole map."""
        return self.posterior

    def noise_variance(self) -> Tensor:
        """Noise variance of one new measurement of each component: (3,), squared SI."""
        return self.posterior.component_noise * self.scale**2

    def body_field(self) -> tuple[Tensor, Tensor] | None:
        """The body-fixed field, forward, left, up.

        Returns:
            Mean and standard deviation (3,), SI; None where it is left out.
        """
        return self.posterior.body()

    def cross_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As CurlFreePosterior.cross_covariance."""
        return self.posterior.cross_covariance(a, b)

    def norm(self, x: Tensor) -> Prediction:
        """Norm |B| at x (N, D): mean and variance (N, 1) by the delta method."""
        return self.posterior.norm(x)

    def hyperparameters(self) -> dict[str, float]:
        """ScaledMap's, with the ratio of the vertical noise to the others', and γ, the coherence.

        signal_stddev is that of the vertical component.
        """
        return super().hyperparameters() | {
            "vertical_noise": self.theta.vertical,
            "coherence": self.theta.coherence,
        }

    # --- forget, fantasize, merge, save -----------------------------------------------------------
    def forget(self, factor: float) -> None:
        """Scale what the data said by a factor in (0, 1]."""
        self.rows.forget(factor)

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what was known near places, but for the newest samples.

        Args:
            x: (K, D) places, m.
            radius: m.
            newest: so many samples stay.

        Returns:
            How many samples went: rows / 3, rounded up.

        Raises:
            ValueError: radius is negative or NaN, or a place is not finite.
        """
        need_radius(radius)
        if self.empty:
            return 0

        rows = self.rows.forget_near(to_rows(self.scaling.inner_x(x)), radius, COMPONENTS * newest)
        return -(-rows // COMPONENTS)

    def fantasize(self, x: Tensor) -> CurlFree:
        """A copy conditioned on its own mean at x (K, D), all three components."""
        self.need_data()
        new = copy.copy(self)
        new.forget_mark()
        new.rows = self.rows.fantasize(to_rows(self.scaling.inner_x(x)))
        return new

    def _union(
        self, other: CurlFree, scaling: Scaling, offset: Tensor, delta: Tensor, renumber: float
    ) -> None:
        """Add the rows of another map, moved to this map's origin and centre."""
        # places by the rows' own scaling, values by their constants and targets
        rows = other.rows.duplicate()
        _recentre(rows, delta)
        rows.scaling = Scaling(torch.cat([offset, offset.new_zeros(1)]), rows.scaling.centre, 1.0)
        self.rows.merge_renumbered(rows, COMPONENTS * renumber)
        self.scaling = scaling

    def slimmed(self, state: dict) -> dict:
        """As FieldMap.slimmed."""
        return self.rows.slimmed(state)

    def agree_on(self, theta) -> bool:
        """As FieldMap.agree_on."""
        return self.rows.agree_on(theta)

    def state_dict(self) -> dict:
        """State of the rows, and the units that they are in."""
        units = {"field_scale": self.scale, "place": None, "mean": None}
        if self.scaling is not None:
            units |= {"place": self.scaling.origin.clone(), "mean": self.scaling.centre.clone()}
        return self.rows.state_dict() | units

    def load_state_dict(self, state: dict) -> None:
        """Continue where `state_dict` was taken.

        Raises:
            ValueError: the state does not fit; the map is as it was.
        """
        try:
            if (
                state["field_scale"] != self.scale
                or state["theta"]["potential"] != self.theta.potential
            ):
                raise ValueError(
                    f"the state is of a {state['theta']['potential']} potential with field_scale "
                    f"{state['field_scale']}, this map of a {self.theta.potential} one with {self.scale}"
                )

            scaling = None
            if state["place"] is not None:
                scaling = Scaling(
                    state["place"].to(self.device), state["mean"].to(self.device), self.scale
                )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"not a state of a curl_free map: {type(error).__name__}: {error}"
            ) from error

        self.rows.load_state_dict(state)
        self.scaling = scaling


def _unit(dimension: int, device) -> Scaling:
    """The scaling of rows, which come standardised already."""
    zero = torch.zeros(dimension + 1, dtype=torch.float64, device=device)
    return Scaling(zero, zero[:1].clone(), 1.0)


def _row_velocities(velocity: Tensor) -> Tensor:
    """Velocities (N, D) of samples as those of rows (3N, D + 1): the component does not move."""
    return torch.nn.functional.pad(velocity, (0, 1)).repeat_interleave(COMPONENTS, 0)


def _places(rows: Tensor) -> Tensor:
    """Places of rows, each once."""
    return rows[:, :-1].unique(dim=0)


def _recentre(rows: _Rows, delta: Tensor) -> None:
    """Add delta_c (3,) to every target of component c.

        r += Σ_c (D − I)_{·c} delta_c / s_c

    since the constant's feature is s_c where the component is c, and 0 elsewhere.

    Raises:
        ValueError: there is no constant that could take it.
    """
    if not bool((delta != 0).any()):
        return

    if rows.theta.constant_stddev <= 0:
        raise ValueError("maps with different centres cannot be merged where constant_stddev is 0")

    excess = rows.sites.precision[:, :COMPONENTS].clone()
    excess[:COMPONENTS] -= torch.eye(COMPONENTS, dtype=torch.float64, device=delta.device)
    rows.sites.linear.addmm_(excess, delta[:, None] / rows.theta.constant_stddev)

    passes = rows.sites.passes
    component = torch.tensor(
        [component_of(number) for number in passes.numbers], dtype=torch.long, device=delta.device
    )
    rows.sites.passes = passes.shift_centre(delta[component][:, None])

    delta_of_row = delta[rows.memory.x[:, -1].round().long()][:, None]
    rows.memory.y.add_(delta_of_row)
    rows.memory.lam.add_(rows.memory.beta[:, None] * delta_of_row)
    rows.mark_changed()
