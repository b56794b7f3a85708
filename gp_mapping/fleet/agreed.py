"""The θ of a fleet: a product of what each bag has learned, in natural parameters.

    Λ = P + Σ_b F_b,      v = Λ⁻¹ (P v₀ + Σ_b F_b v_b)

v: Theta.vector(); F_b: Fisher information of bag b's cells at its own θ; P, v₀: the prior, once. A
bag that lies far from the others by a robust rule (a dead or wrong sensor is sure of a θ of its
own) is left out, and named. Hyper-parameters that are given stay as they are given. By θ follows
where the tiles of the map lie: one if one budget suffices for the ground, else a grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta, heading_from_velocity, sensor_place
from gp_mapping.core.models.tiled.layout import FULL, Layout, side_for
from gp_mapping.core.models.tiled.opening import BLEND, HALO
from gp_mapping.core.registry import make_theta_and_learner
from gp_mapping.core.types import Samples
from gp_mapping.fleet.cells import BagReport, medians
from gp_mapping.fleet.robot import Robot
from gp_mapping.settings.mapping import AUTOMATIC, MapSettings

__all__ = ["Agreed", "agree", "choose_layout", "prepare_cells"]

_CONSTANT = 3.0  # of the signal's standard deviation: the prior of the mean where none is given
# MAD to standard deviation; robust standard deviations, and logarithms of variances, that are far
_NORMAL, _FAR, _LEAST = (
    1.4826,
    5.0,
    2.3,
)
_PASSES = 2.0**24  # numbers of passes that a bag may have
_STEEPEST = 3.0  # −2 ρ'(0) of a Matérn-3/2, the roughest with a slope
_FIELD = 3  # the first entries of the vector: lengthscale, signal, noise


@dataclass(frozen=True)
class Agreed:
    """What every bag is mapped with.

    Attributes:
        settings: with the medians of all bags' starts where they were left open: these make the
            priors.
        theta: in inner units.
        information: (P, P) Λ without the prior.
        origin: (2,) of the map, m.
        centre: (C,) of the map, SI.
        steep: E|∇f|² of the prior, (inner units per m)².
        silent: numbers of bags that were left out.
    """

    settings: MapSettings
    theta: Theta
    information: Tensor
    origin: Tensor
    centre: Tensor
    steep: float
    silent: tuple[int, ...]

    def learner(self) -> HyperLearner | None:
        """A learner that goes on from there; None where nothing is learned."""
        learner = make_theta_and_learner(self.settings)[1]
        if learner is not None:
            learner.continue_from(self.theta, self.information)
        return learner

    def with_theta(self, theta: Theta, information: Tensor) -> Agreed:
        """A copy with another θ.

        Args:
            theta: in inner units.
            information: Λ without the prior, (P, P).
        """
        return replace(self, theta=theta, information=information, steep=_steep(theta))


def agree(settings: MapSettings, reports: list[BagReport], robots: list[Robot]) -> Agreed:
    """What bags agree on, of which none has failed.

    Args:
        settings: as a person gave them.
        reports: of the bags.
        robots: of the bags, in the same order.
    """
    # settings that a person left open begin at the median of all bags
    starts = {
        name: float(medians([[r.starts[name]] for r in robots])[0])
        for name in AUTOMATIC
        if getattr(settings, name) == 0.0
    }

    resolved = replace(settings, **starts)
    theta, learner = make_theta_and_learner(resolved)

    known, silent = torch.zeros((len(theta.vector()),) * 2, dtype=torch.float64), ()
    if learner is not None:
        silent = _silent(
            torch.stack([r.theta.vector() for r in robots]), torch.tensor(learner.free)
        )

        prior = torch.diag(learner.prior_sd.reciprocal().square())
        pull = prior @ learner.prior.vector()
        for i, robot in enumerate(robots):
            if i not in silent:
                known = known + robot.information
                pull = pull + robot.information @ robot.theta.vector()

        # the solution for the free entries, with the others held
        vector, free = theta.vector(), torch.tensor(learner.free)
        precision = (prior + known)[free][:, free]
        vector[free] = torch.linalg.solve(
            precision, (pull - (prior + known)[:, ~free] @ vector[~free])[free]
        )
        # within the bounds of the learner
        theta = theta.with_vector(torch.minimum(torch.maximum(vector, learner.low), learner.high))

    if settings.constant_stddev == 0.0:
        theta = replace(theta, constant_stddev=_CONSTANT * theta.signal_stddev)

    return Agreed(
        resolved,
        theta,
        known,
        medians([t.middle[0] for t in reports]).round(),
        medians([t.middle[1] for t in reports]),
        _steep(theta),
        silent,
    )


def _silent(vectors: Tensor, free: Tensor) -> tuple[int, ...]:
    """Indices of the bags that lie far from the others; of two it cannot be told which is wrong.

    Args:
        vectors: (B, P), of the bags' θ.
        free: (P,) which entries are learned.
    """
    if len(vectors) < 3:
        return ()

    field = vectors[:, :_FIELD][:, free[:_FIELD]]
    away = (field - field.median(0).values).abs()
    limit = (_FAR * _NORMAL * away.median(0).values).clamp_min(_LEAST)
    return tuple((away > limit).any(1).nonzero()[:, 0].tolist())


def _steep(theta: Theta) -> float:
    """E|∇f|² of the prior over both axes; of a kernel without a slope, that of a Matérn-3/2."""
    slope = -2.0 * float(theta.kernel().slope(torch.zeros(1, dtype=torch.float64)))
    return 2.0 * min(slope, _STEEPEST) * (theta.signal_stddev / theta.lengthscale) ** 2


def prepare_cells(cells: Samples, number: int, robot: Robot, agreed: Agreed) -> Samples:
    """A bag's cells as if the fleet had one robot, with every column.

    They are moved by the differences of its time offset and lever arm from the agreed ones; the
    body-fixed field is taken off; passes are numbered apart from those of other bags; uncertainty
    of its poses becomes noise, by the field's usual slope.

    Args:
        cells: of the bag.
        number: its place among the bags.
        robot: of the bag.
        agreed: by all bags.
    """
    n, own, common = len(cells), robot.theta, agreed.theta
    velocity = torch.zeros_like(cells.x) if cells.velocity is None else cells.velocity
    heading = heading_from_velocity(velocity) if cells.heading is None else cells.heading

    x, y = cells.x, cells.y

    if robot.learned:
        x = sensor_place(
            x,
            velocity,
            heading,
            own.time_offset - common.time_offset,
            own.lever_arm_along - common.lever_arm_along,
            own.lever_arm_across - common.lever_arm_across,
        )
        y = y - heading @ robot.body

    count = torch.ones(n, dtype=torch.float64) if cells.count is None else cells.count
    white = (
        torch.zeros(n, dtype=torch.float64)
        if cells.sensor_variance is None
        else cells.sensor_variance
    )

    # times the count, since the variance of a raw sample is divided by it
    if cells.position_variance is not None:
        white = (
            white + count * cells.position_variance * agreed.steep * agreed.settings.field_scale**2
        )

    passes = (
        torch.full((n,), -1.0, dtype=torch.float64)
        if cells.pass_number is None
        else cells.pass_number
    )
    passes = torch.where(passes >= 0, passes + number * _PASSES, passes)

    stamp = torch.zeros(n, dtype=torch.float64) if cells.stamp is None else cells.stamp
    return Samples(
        x,
        y,
        stamp=stamp,
        count=count,
        sensor_variance=white,
        velocity=velocity,
        heading=heading,
        pass_number=passes,
        extent=torch.zeros(n, dtype=torch.float64) if cells.extent is None else cells.extent,
    )


def choose_layout(
    agreed: Agreed, robots: list[Robot], low: list[float], high: list[float], squares: int
) -> Layout | None:
    """The grid, by the rule of a map that has outgrown one tile; None where one tile suffices.

    Args:
        agreed: by all bags.
        robots: with the inducing inputs that each took per square of a lengthscale.
        low: (2,) lower corner of all paths, m.
        high: (2,) upper corner of all paths, m.
        squares: number of squares of a lengthscale that were driven over.
    """
    settings, length = agreed.settings, agreed.theta.lengthscale
    density = median(max(robot.density, 1e-9) for robot in robots)
    extent = max(b - a for a, b in zip(low, high))

    if not settings.tiles or squares * density <= FULL * settings.max_inducing:
        return None

    side = side_for(density, settings.max_inducing, HALO, settings.map_tile_side) * length
    if extent <= side:
        return None

    # the first tile lies about the middle of the ground, and the grid goes on from it
    middle = [0.5 * (a + b) for a, b in zip(low, high)]
    return Layout(
        tuple(m - 0.5 * side for m in middle),
        tuple(m + 0.5 * side for m in middle),
        side,
        HALO * length,
        BLEND * length,
    )
