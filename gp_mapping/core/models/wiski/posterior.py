"""The frozen posterior of a matrix-free WISKI map, as scores, plots and planners need it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.wiski.lattice.features import (
    FEATURES,
    feature_prior,
    feature_rows,
    features_at,
    longer,
    unresolved,
)
from gp_mapping.core.models.wiski.lattice.interpolation import stencil_nodes
from gp_mapping.core.models.wiski.lattice.sites import GridSites
from gp_mapping.core.models.wiski.lattice.solver import Solution
from gp_mapping.core.models.wiski.lattice.windows import (
    Aggregates,
    Window,
    feature_covariance,
    fits_one_window,
    groups,
    thinned,
)
from gp_mapping.core.models.wiski.pass_constants import PassConstants
from gp_mapping.core.scaling import Scaling

__all__ = ["WiskiPosterior"]

_CHUNK = 1024  # places at a time: time and memory alone
_JOINT = 2000  # the most aggregates of a joint covariance
_MEAN = ("spacing", "shift", "low", "u", "held", "p", "f")  # attributes that the mean is made of


@dataclass(frozen=True)
class WiskiPosterior(PassConstants):
    """The posterior of the mean on the lattice, with the variance of small dense GPs.

        mean = w(x)ᵀu + φᵀf        variance: see lattice/windows.py

    Attributes:
        theta: hyper-parameters in inner units.
        scaling: of places and values.
        noise_variance: of a measurement.
        spacing: of the lattice, m.
        shift: (2,) of local coordinates on the lattice, in spacings.
        low: first node of the box.
        u: (C, H, W) on the nodes, u = K p; empty before it is solved.
        held: (n,) flat numbers of the nodes that samples touch.
        p: (n, C) their representer weights.
        f: (3 + P, C) weights of the features.
        aggregates: the data as weighted samples.
        covariance_f: (3 + P, 3 + P) Σ, covariance of f.
        scatter: (3 + P, 3 + P) spread of the features within the aggregates.
        numbers: of the P passes.
        mean_theta: hyper-parameters that u, p and f were solved at; None: `theta`.

    Reference:
        Stanton et al. 2021, eq. 9, with features.
    """

    theta: Theta
    scaling: Scaling
    noise_variance: float
    spacing: float
    shift: Tensor
    low: tuple[int, int]
    u: Tensor
    held: Tensor
    p: Tensor
    f: Tensor
    aggregates: Aggregates
    covariance_f: Tensor
    scatter: Tensor
    numbers: tuple[float, ...] = ()
    mean_theta: Theta | None = None
    _cache: dict = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def from_sums(
        theta: Theta,
        scaling: Scaling,
        noise_variance: float,
        grid: GridSites,
        points: dict[str, Tensor],
    ) -> "WiskiPosterior":
        """The posterior of the present sums, without a mean yet.

        Args:
            theta: hyper-parameters in inner units.
            scaling: of the map.
            noise_variance: of a measurement.
            grid: the sums.
            points: x (K, 2), beta (K,) of fantasies, which the aggregates lack.
        """
        # the slope's prior variance is about s²/ℓ²; an aggregate's spread that tells less than a
        # five-hundredth of that is left out: there are hundreds of aggregates within a lengthscale
        x, covariates, mass = grid.split(0.002 * (theta.lengthscale / theta.signal_stddev) ** 2)

        prior, kernel = feature_prior(theta, len(grid.numbers), grid.device), theta.kernel()
        scatter = unresolved(grid.features, feature_rows(covariates), mass)

        if len(points["x"]):
            x, mass = torch.cat([x, points["x"]]), torch.cat([mass, points["beta"]])
            covariates = longer(covariates, len(x))
        aggregates = Aggregates.from_samples(x, covariates, mass, theta.lengthscale)

        none = mass.new_zeros((grid.channels, 0, 0))
        return WiskiPosterior(
            theta,
            scaling,
            noise_variance,
            grid.spacing,
            grid.shift,
            grid.low,
            none,
            torch.zeros(0, dtype=torch.long, device=grid.device),
            mass.new_zeros((0, grid.channels)),
            mass.new_zeros((len(prior), grid.channels)),
            aggregates,
            feature_covariance(kernel, aggregates, scatter, prior, theta.lengthscale),
            scatter,
            grid.numbers,
        )

    def fantasize(self, x: Tensor) -> "WiskiPosterior":
        """The posterior with its own mean at x (N, 2) in metres as data, without a solve.

        The mean stays, the variance shrinks.
        """
        old, x = self.aggregates, self.scaling.inner_x(x)
        precision = torch.full_like(x[:, 0], 1.0 / self.noise_variance)
        aggregates = Aggregates.from_samples(
            torch.cat([old.x, x]),
            longer(old.covariates, len(old) + len(x)),
            torch.cat([old.mass, precision]),
            self.theta.lengthscale,
        )

        prior = feature_prior(self.theta, len(self.numbers), x.device)
        ell = self.theta.lengthscale
        covariance = feature_covariance(self.theta.kernel(), aggregates, self.scatter, prior, ell)
        return replace(self, aggregates=aggregates, covariance_f=covariance, _cache={})

    def with_mean(self, solution: Solution, held: Tensor) -> "WiskiPosterior":
        """The same posterior with its mean.

        Args:
            solution: of the lattice's system.
            held: (n,) flat numbers of the solution's nodes.
        """
        return replace(self, u=solution.u, held=held, p=solution.p, f=solution.f)

    def with_mean_of(self, other: "WiskiPosterior") -> "WiskiPosterior":
        """The same variance with the mean of another posterior, whatever its θ and lattice."""
        parts = {name: getattr(other, name) for name in _MEAN}
        # constants of its passes, where they are passes of this posterior
        f = torch.zeros_like(self.f)
        f[:FEATURES] = other.f[:FEATURES]
        for i, number in enumerate(other.numbers):
            if number in self.numbers:
                f[FEATURES + self.numbers.index(number)] = other.f[FEATURES + i]
        return replace(self, **parts | {"f": f}, mean_theta=other.mean_theta or other.theta)

    # --- mean -------------------------------------------------------------------------------------
    def feature_moments(self) -> tuple[Tensor, Tensor]:
        """As PassConstants.feature_moments."""
        return self.f, self.covariance_f

    def mean(self, x: Tensor, heading: Tensor | None = None, number: float | None = None) -> Tensor:
        """Mean at standardised places; differentiable in x. Before it is solved, the prior's.

        Args:
            x: (N, 2) standardised places.
            heading: (N, 2) ĥ; None leaves the robot out.
            number: of the pass whose constant is included; None: of none.

        Returns:
            (N, C).
        """
        feature_part = features_at(self.theta, x, heading, self.numbers, number) @ self.f
        if not self.u.numel():
            return feature_part

        # the sixteen nodes about each place, as rows and columns of the box
        corner, weights = stencil_nodes(x / self.spacing + self.shift)
        steps = torch.arange(4, device=x.device)
        rows = corner[:, :1] + steps - self.low[0]
        columns = corner[:, 1:] + steps - self.low[1]

        channels, height, width = self.u.shape
        inside = ((rows >= 0) & (rows < height)).all(1) & ((columns >= 0) & (columns < width)).all(
            1
        )
        flat = (rows[:, :, None] * width + columns[:, None, :]).reshape(len(x), 16)
        values = self.u.reshape(channels, -1).mT[flat.clamp(0, height * width - 1)]  # (N, 16, C)

        # of places near or beyond the edge, u is computed from the representer weights
        if not bool(inside.all()):
            outside = (~inside).nonzero()[:, 0]
            values = values.index_put((outside,), self._far(rows[outside], columns[outside]))

        return (weights[:, :, None] * values).sum(1) + feature_part

    def _far(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Values u on nodes beyond the box, by k(node, held nodes) p.

        Args:
            rows: (N, 4) of the nodes, from the box's first.
            columns: (N, 4) likewise.

        Returns:
            (N, 16, C).
        """
        count = len(rows)
        nodes = torch.stack(
            [rows[:, :, None].expand(count, 4, 4), columns[:, None, :].expand(count, 4, 4)], -1
        ).reshape(-1, 2)
        # neighbouring places share nodes: each is computed once
        unique, inverse = nodes.unique(dim=0, return_inverse=True)
        low = torch.tensor(self.low, device=rows.device)
        places = (unique + low).double() * self.spacing

        width = self.u.shape[2]
        held = (
            torch.stack([self.held // width, self.held % width], 1) + low
        ).double() * self.spacing

        kernel = (self.mean_theta or self.theta).kernel()
        u = torch.cat(
            [kernel(places[i : i + _CHUNK], held) @ self.p for i in range(0, len(places), _CHUNK)]
        )
        return u[inverse].reshape(count, 16, -1)

    # --- variance ---------------------------------------------------------------------------------
    def _window(self, aggregates: Aggregates) -> Window:
        """The factored window on these aggregates; that on all of them is kept."""
        if aggregates is not self.aggregates:
            return Window(self.theta.kernel(), aggregates)
        if "whole" not in self._cache:
            self._cache["whole"] = Window(self.theta.kernel(), aggregates)
        return self._cache["whole"]

    def variance(
        self, x: Tensor, heading: Tensor | None = None, number: float | None = None
    ) -> Tensor:
        """Latent variance (N,) of the same sum. As `mean` for the arguments."""
        out = torch.empty(len(x), dtype=torch.float64, device=x.device)
        phi = features_at(self.theta, x, heading, self.numbers, number)
        prior = self.theta.signal_stddev**2

        for index, aggregates in groups(self.aggregates, x, self.theta.lengthscale):
            window = self._window(aggregates)
            for part in index.split(_CHUNK):
                whitened, t = window.solved_features(x[part])
                free = phi[part] - t
                out[part] = (
                    prior - whitened.square().sum(0) + ((free @ self.covariance_f) * free).sum(1)
                )

        return out.clamp_min(0.0)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """As FieldMap.covariance.

        Exact for small maps; for large ones from the aggregates near a and b, with the variances of
        `predict`.
        """
        a, b = self.scaling.inner_x(a), self.scaling.inner_x(b)
        if not len(a) or not len(b):
            return a.new_zeros((len(a), len(b)))
        kernel, aggregates = self.theta.kernel(), self.aggregates

        whole = fits_one_window(aggregates)
        # a large map: the aggregates near the places, merged until there are few enough
        if not whole:
            both = torch.cat([a, b])
            near = torch.zeros(len(aggregates), dtype=torch.bool, device=a.device)
            for part in both.split(256):
                near |= (torch.cdist(aggregates.x, part) <= aggregates.side).any(1)
            aggregates, side = aggregates.take(near.nonzero()[:, 0]), 0.125 * self.theta.lengthscale
            while len(aggregates) > _JOINT:
                aggregates, side = thinned(aggregates, side), 2.0 * side

        window = self._window(aggregates)
        (whitened_a, s), (whitened_b, t) = window.solved_features(a), window.solved_features(b)
        free_a, free_b = (
            features_at(self.theta, at, None, self.numbers) - covered
            for at, covered in ((a, s), (b, t))
        )
        joint = kernel(a, b) - whitened_a.mT @ whitened_b + free_a @ self.covariance_f @ free_b.mT

        if not whole:
            # scale to the standard deviations that `variance` gives at a and b
            for at, whitened, free, axis in (
                (a, whitened_a, free_a, 1),
                (b, whitened_b, free_b, 0),
            ):
                own = (
                    kernel.diag(at)
                    - whitened.square().sum(0)
                    + ((free @ self.covariance_f) * free).sum(1)
                )
                joint = joint * (self.variance(at) / own.clamp_min(1e-300)).sqrt().unsqueeze(axis)
        return joint * self.scaling.scale**2

    # --- both -------------------------------------------------------------------------------------
    @torch.no_grad()
    def predict_inner(
        self, x: Tensor, heading: Tensor | None = None, number: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """As PassConstants.predict_inner: mean from the solve, variance from the aggregates."""
        return self.mean(x, heading, number), self.variance(x, heading, number)

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        aggregates = self.aggregates
        return {
            "theta": asdict(self.theta),
            "noise_variance": self.noise_variance,
            "spacing": self.spacing,
            "shift": self.shift.clone(),
            "low": list(self.low),
            "u": self.u.clone(),
            "held": self.held.clone(),
            "p": self.p.clone(),
            "f": self.f.clone(),
            "x": aggregates.x.clone(),
            "heading": aggregates.covariates.clone(),
            "mass": aggregates.mass.clone(),
            "code": aggregates.code.clone(),
            "side": aggregates.side,
            "scatter": self.scatter.clone(),
            "covariance": self.covariance_f.clone(),
            "passes": torch.tensor(self.numbers, dtype=torch.float64),
            "mean_theta": None if self.mean_theta is None else asdict(self.mean_theta),
            **self.scaling.state_dict(),
        }

    @staticmethod
    def from_state_dict(state: dict, device) -> "WiskiPosterior":
        """The posterior of a state, on a device."""
        s = {k: v.to(device) if torch.is_tensor(v) else v for k, v in state.items()}
        mean_theta = s.get("mean_theta")  # files of earlier versions have none, nor passes
        return WiskiPosterior(
            Theta(**s["theta"]),
            Scaling.from_state_dict(state, device),
            s["noise_variance"],
            s["spacing"],
            s["shift"],
            tuple(s["low"]),
            s["u"],
            s["held"],
            s["p"],
            s["f"],
            Aggregates(s["x"], s["heading"], s["mass"], s["code"], s["side"]),
            s["covariance"],
            s["scatter"],
            tuple(s["passes"].tolist()) if "passes" in s else (),
            None if mean_theta is None else Theta(**mean_theta),
        )
