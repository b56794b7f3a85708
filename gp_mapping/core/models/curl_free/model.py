"""A vector field without curl: three components of one scalar potential, as a dual SVGP of rows.

A sample is three rows, one for each component, at one place: a(x) = L⁻¹ ∂_c k_φ(·, x). Inducing variables are
derivatives of the potential, (place, component) pairs that pivoted Cholesky picks as it does for a scalar field. Values
of the potential itself would not do: along a lane, or in a plane, its values say nothing of the slope across it.
Everything else (sites, memory, growth, learning) is DualSVGP's.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gp_mapping.core.field_map import VECTOR
from gp_mapping.core.hyper.vector_theta import VectorTheta
from gp_mapping.core.kernels.curl_free import COMPONENTS, to_rows
from gp_mapping.core.models.curl_free.posterior import CurlFreePosterior
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.scaled_map import ScaledMap, Standardised
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.types import Prediction, Samples, UpdateReport

__all__ = ["CurlFree"]


class _Rows(DualSVGP):
    """The dual SVGP of rows, whose noise differs by component."""

    name = "curl_free"

    def noise(self, own, extra, theta, x):
        return torch.where(own > 0, own, theta.row_noise(x[:, -1])) + extra


class CurlFree(ScaledMap):
    """Online map of (N, 3) samples at (N, 2) or (N, 3) metres; the plane is z = 0 of a field in space.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI), with the potential's.
        scale, centre, device, others: DualSVGP's; max_inducing counts (place, component) pairs, memory_size rows.

    Reference:
        Solin et al. 2018: one scalar potential for the three components.
    """

    def __init__(
        self, theta: VectorTheta, *, scale: float = 1.0, centre=None, device="cpu", **others
    ):
        super().__init__(scale=scale, centre=centre, device=device)
        self.rows = _Rows(theta, device=device, **others)
        self.rows.theta.kernel()  # refuses a kernel without a potential, now and not at the first sample

    name = "curl_free"

    # --- what a mapper looks at -------------------------------------------------------------------
    theta = property(lambda self: self.rows.theta)
    learner = property(lambda self: self.rows.learner)
    jitter = property(lambda self: self.rows.jitter)
    epoch = property(lambda self: self.rows.epoch)
    empty = property(lambda self: self.rows.empty)

    @property
    def samples(self) -> int:
        return self.rows.samples // COMPONENTS

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | {VECTOR}

    def inducing_inputs(self) -> Tensor:
        """Places of the inducing variables (M', D), each once."""
        return self._outer_places(None if self.rows.basis is None else _places(self.rows.basis.z))

    def remembered_places(self) -> Tensor:
        """Places of remembered rows (m', D), each once."""
        return self._outer_places(None if self.rows.memory is None else _places(self.rows.memory.x))

    # --- samples in -------------------------------------------------------------------------------
    def _scaling_for(self, batch: Samples) -> Scaling:
        if batch.y.shape[1] != COMPONENTS or batch.x.shape[1] not in (2, 3):
            raise ValueError(
                f"curl_free maps the three components of a vector in the plane or in space: y is (N, 3) "
                f"and x (N, 2) or (N, 3), not {tuple(batch.y.shape)} and {tuple(batch.x.shape)}"
            )
        return super()._scaling_for(batch)

    def absorb(self, batch: Standardised) -> UpdateReport:
        if self.rows.scaling is None:
            self.rows.scaling = _unit(len(self.scaling.origin), self.device)
        each = {
            name: getattr(batch, name).repeat_interleave(COMPONENTS, 0)
            for name in ("heading", "noise", "extra", "position_variance", "count")
        }
        report = self.rows.absorb(
            Standardised(
                x=to_rows(batch.x),
                velocity=_still(batch.velocity),
                y=batch.y.reshape(-1, 1),
                **each,
            )
        )
        return self.report(len(batch.x), report)

    def report(self, used: int, rows: UpdateReport | None = None) -> UpdateReport:
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

    def refine(self, budget_s: float = float("inf")) -> bool:
        """Hyper-parameter steps that are pending; True: more are pending."""
        return self.rows.refine(budget_s)

    # --- the map out ------------------------------------------------------------------------------
    @property
    def posterior(self) -> CurlFreePosterior:
        """The posterior now."""
        self.need_data()
        return CurlFreePosterior(self.rows.posterior, self.scaling)

    def snapshot(self, near: Tensor | None = None, reach: float = 0.0) -> CurlFreePosterior:
        """The posterior now."""
        return self.posterior

    def noise_variance(self) -> Tensor:
        """Noise variance of one new measurement of each component: (3,), squared SI."""
        return self.posterior.component_noise * self.scale**2

    def body_field(self) -> tuple[Tensor, Tensor] | None:
        """What turns with the robot, forward, left, up: mean and standard deviation (3,), SI; None if left out."""
        return self.posterior.body()

    def cross_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Between the components at a (N, D) and those at b (K, D): (N, 3, K, 3), squared SI."""
        return self.posterior.cross_covariance(a, b)

    def norm(self, x: Tensor) -> Prediction:
        """|B| at x (N, D): mean and variance (N, 1) by the delta method."""
        return self.posterior.norm(x)

    def hyperparameters(self) -> dict[str, float]:
        """ScaledMap's, signal_stddev of the vertical component; its noise over the others'; γ."""
        return super().hyperparameters() | {
            "vertical_noise": self.theta.vertical,
            "coherence": self.theta.coherence,
        }

    # --- forget, fantasize, merge, save -----------------------------------------------------------
    def forget(self, factor: float) -> None:
        """Scale what the data said by factor in (0, 1]."""
        self.rows.forget(factor)

    def forget_near(self, x: Tensor, radius: float, newest: int) -> int:
        """Forget what was known within radius (m) of x (K, D), but for the newest samples; how many rows went / 3."""
        if self.empty:
            return 0
        rows = self.rows.forget_near(to_rows(self.scaling.inner_x(x)), radius, COMPONENTS * newest)
        return -(-rows // COMPONENTS)

    def fantasize(self, x: Tensor) -> CurlFree:
        """A copy conditioned on its own mean at x (K, D), all three components."""
        self.need_data()
        new = copy.copy(self)
        new.rows = self.rows.fantasize(to_rows(self.scaling.inner_x(x)))
        return new

    def _union(
        self, other: CurlFree, scaling: Scaling, offset: Tensor, delta: Tensor, renumber: float
    ) -> None:
        """Its rows, moved to this map's origin and centre."""
        rows = other.rows.duplicate()
        _recentre(rows, delta)
        rows.scaling = Scaling(torch.cat([offset, offset.new_zeros(1)]), rows.scaling.centre, 1.0)
        self.rows.merge(rows)
        self.scaling = scaling

    def slimmed(self, state: dict) -> dict:
        return self.rows.slimmed(state)

    def agree_on(self, theta) -> bool:
        return self.rows.agree_on(theta)

    def state_dict(self) -> dict:
        """That of the rows, and the units that they are in."""
        units = {"field_scale": self.scale, "place": None, "mean": None}
        if self.scaling is not None:
            units |= {"place": self.scaling.origin.clone(), "mean": self.scaling.centre.clone()}
        return self.rows.state_dict() | units

    def load_state_dict(self, state: dict) -> None:
        """Continue where `state_dict` was taken. ValueError, and the map as it was, where the state does not fit."""
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
    """Rows come standardised already."""
    zero = torch.zeros(dimension + 1, dtype=torch.float64, device=device)
    return Scaling(zero, zero[:1].clone(), 1.0)


def _still(velocity: Tensor) -> Tensor:
    """(N, D) → (3N, D + 1): the component does not move."""
    return torch.nn.functional.pad(velocity, (0, 1)).repeat_interleave(COMPONENTS, 0)


def _places(rows: Tensor) -> Tensor:
    return rows[:, :-1].unique(dim=0)


def _recentre(rows: _Rows, delta: Tensor) -> None:
    """Every target of component c grows by delta_c (3,): r grows by Σ_c (D − I)_{·c} delta_c/s_c, since the constant's
    feature is s_c where the component is c and 0 elsewhere."""
    if not bool((delta != 0).any()):
        return
    if rows.theta.constant_stddev <= 0:
        raise ValueError("maps with different centres cannot be merged where constant_stddev is 0")
    excess = rows.sites.precision[:, :COMPONENTS].clone()
    excess[:COMPONENTS] -= torch.eye(COMPONENTS, dtype=torch.float64, device=delta.device)
    rows.sites.linear.addmm_(excess, delta[:, None] / rows.theta.constant_stddev)
    each = delta[rows.memory.x[:, -1].round().long()][:, None]
    rows.memory.y.add_(each)
    rows.memory.lam.add_(rows.memory.beta[:, None] * each)
    rows.changed()
