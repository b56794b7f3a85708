"""Which samples become inducing inputs of a dual SVGP, and which inputs go again.

An input is added where its residual variance is large enough and, with `information`, where the
data tell enough of what only it can express (worth.py). Inputs that have lost their worth go again,
and a full budget gives up those that are worth least.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.sending import SendableMap
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.posterior import Posterior
from gp_mapping.core.sparse.worth import least_fraction, least_residual, ratio_of
from gp_mapping.core.standardised import Standardised

__all__ = ["GrowingMap"]

_CHUNK = 500  # candidates for inducing inputs that are examined together
_GIVEN_UP = 20  # a full budget gives up one input of this many to make room
_SURE = 1e300  # β of a candidate that is worth an input whatever the data tell of it


class GrowingMap(SendableMap):
    """Base of the maps that choose their inducing inputs.

    A subclass sets the attributes and has `marginals`, mean and variance of q(f) at samples that
    are about to be added.

    Attributes:
        basis: L and z of the inducing inputs; None before the first batch.
        fixed: inducing inputs (M, D) m that stay; None where the map chooses them.
        budget: M at most; more than `max_inducing` in a sum of maps that is read only.
        tolerance: least residual variance at an inducing input, as a fraction of s².
        information: bits, at least, that the data tell of an input; 0: the residual alone decides.
        floor: once the budget was full, least bits (without `information`: residual variance).
        thinned: inducing inputs that remained after the last thinning.
    """

    @property
    def uses_worth(self) -> bool:
        """Whether an input must tell something, in addition to its residual variance."""
        return self.information > 0

    @property
    def worth(self) -> float:
        """Least w of an inducing input (worth.py); 0 where the residual variance alone decides."""
        return ratio_of(max(self.information, self.floor)) if self.information > 0 else 0.0

    @property
    def least_residual(self) -> float:
        """Least residual variance k − q at an inducing input, squared inner units."""
        return max(self.residual_at(self.theta), 0.0 if self.information > 0 else self.floor)

    def residual_at(self, theta: Theta) -> float:
        """As `least_residual` at θ, while there is room in the budget."""
        # of classes and counts s_p is not the noise
        if not self.uses_worth or not self.likelihood.metric:
            return self.tolerance * theta.signal_stddev**2
        return least_residual(theta, self.tolerance, self.dtype)

    @property
    def inputs_to_free(self) -> int:
        """Number of inducing inputs that a full budget gives up to make room."""
        return max(1, self.budget // _GIVEN_UP)

    def notes(self) -> list[str]:
        """As SparseMap.notes, and where `dtype` rounds more away than the noise."""
        most = math.sqrt(1.0 / least_fraction(self.dtype))
        ratio = self.theta.signal_stddev / self.theta.noise_stddev
        if self.empty or self.dtype != torch.float32 or ratio <= most:
            return super().notes()
        return [
            *super().notes(),
            f"signal_stddev is {ratio:.3g} times noise_stddev, and dtype: float32 tells {most:.3g} apart: "
            "the map is less exact than its intervals say; write dtype: float64",
        ]

    def _placed(self, batch: Standardised) -> tuple[Tensor, Tensor, Tensor]:
        """Extra variance, places and noise variance of the samples at the map's θ.

        Returns:
            Variance in addition to each sample's own noise (N,); where the samples were measured
            (N, D); their whole noise variance (N,).
        """
        extra = self._extra(batch)
        places = self.theta.sensor_place(batch.x, batch.velocity, batch.heading)
        return extra, places, self.noise(batch.noise, extra, self.theta, batch.x)

    def _fits(self, batch: Standardised) -> bool:
        """Whether the batch's inducing inputs fit into the budget, or into room to be made."""
        count, inducing = batch.x.shape[0], len(self.basis)
        # the cheap answers first: a trial of the growth costs as much as the growth itself
        if (
            self.fixed is not None
            or not inducing
            or inducing + count <= self.budget
            or count <= self.inputs_to_free
        ):
            return True

        _, places, noise = self._placed(batch)
        whitened = self.basis.whitened(places, batch.heading)
        precision = self._precision(whitened, places, noise, self.likelihood.weight(batch.count))
        return not self._wanted(
            places, whitened, precision, (self.budget - inducing) or self.inputs_to_free
        )

    def _grow(
        self, x: Tensor, heading: Tensor, noise: Tensor, weight: Tensor
    ) -> tuple[Tensor, int, int]:
        """Make inducing inputs of the samples that are worth one, unless the inputs are fixed.

        Returns:
            a(x) afterwards (R, N), how many inputs were added, how many removed.
        """
        asked = self._posterior  # of the map before, if somebody has just asked for it
        whitened = asked.features_of(self.basis, x, heading) if type(asked) is Posterior else None
        whitened = self.basis.whitened(x, heading) if whitened is None else whitened.double()
        if self.fixed is not None:
            return whitened, 0, 0

        return self.grow(x, heading, whitened, self._precision(whitened, x, noise, weight))

    def grow(
        self, x: Tensor, heading: Tensor, whitened: Tensor, precision: Tensor
    ) -> tuple[Tensor, int, int]:
        """Make inducing inputs of samples that are worth one; in a full budget, make room first.

        Args:
            x: places of the samples (N, D), inner.
            heading: (N, 2).
            whitened: a(x) (R, N).
            precision: β of the samples (N,).

        Returns:
            a(x) afterwards (R', N), how many inputs were added, how many removed.
        """
        removed = 0
        if (
            self.rebuild is None
            and len(self.basis) == self.budget
            and self.promises(self.theta)
            and self._wanted(x, whitened, precision)
        ):
            removed = self._move()
            whitened = self.basis.whitened(x, heading) if removed else whitened

        whitened, added = self.append(x, whitened, precision)
        return whitened, added, removed

    def append(self, x: Tensor, whitened: Tensor, precision: Tensor) -> tuple[Tensor, int]:
        """Grow the basis by samples at x while there is room, and sites and memory with it.

        The sites are padded, and bordered with the remembered samples, whose features are extended.

        Args:
            x: candidates (N, D).
            whitened: a(x) (R, N).
            precision: β of the candidates (N,).

        Returns:
            a(x) afterwards (R', N), and how many inputs were added.
        """
        old = self.basis.size
        full = old == self.basis.features + self.budget
        candidates = None if full else self.candidates(x, whitened)
        if candidates is None or not candidates.shape[0]:
            return whitened, 0

        # features in the old basis: the border needs them after it has grown
        remembered = self.remembered_features(old)
        rows = self._grown(self.basis, x, whitened, precision, candidates, remembered)
        n, added = x.shape[0], rows.shape[0]
        if not added:
            return whitened, 0

        fresh, new_rows = rows[:, :n], rows[:, n:]
        self.sites.pad(added)
        self._extend_remembered(old, remembered, new_rows)
        return torch.cat([whitened, fresh]), added

    def _extend_remembered(self, old: int, remembered: Tensor, new_rows: Tensor) -> None:
        """Extend the remembered samples and their part of the sites by new rows of a(x).

        Args:
            old: first new row.
            remembered: a(x) of the samples in the old basis (old, m).
            new_rows: of a(x) (added, m).
        """
        self.sites.border(
            new_rows, remembered, self.memory.beta, self.memory.lam, self.memory.pass_number
        )
        self.memory.extend_whitened(old, new_rows)

    def _grown(
        self,
        basis: Basis,
        x: Tensor,
        whitened: Tensor,
        precision: Tensor,
        candidates: Tensor,
        features: Tensor,
        room: int | None = None,
    ) -> Tensor:
        """Grow a basis by those of the places x that are worth an input.

        Args:
            basis: is changed.
            x: places (N, D).
            whitened: a(x) (R, N).
            precision: β at the places x (N,).
            candidates: those of x whose residual variance is large enough, as of Basis.candidates.
            features: a(x) of the remembered samples (R, m).
            room: most inputs to add.

        Returns:
            The new rows of a(x) at x, then at the remembered samples: (added, N + m).
        """
        worth = self.worth
        if worth:
            precision = torch.cat([precision, self.remembered_precision(self.theta)])

        remembered = self.memory_places(self.theta), features

        return basis.grow(
            x,
            whitened,
            slice(0, x.shape[0]),
            self.least_residual,
            room,
            precision if worth else None,
            worth,
            remembered,
            candidates,
        )

    def candidates(self, x: Tensor, whitened: Tensor) -> Tensor:
        """Indices of places whose residual variance is large enough for an input: (n,).

        Args:
            x: (N, D).
            whitened: a(x) (R, N).
        """
        return (self.basis.residual(x, whitened) > self.least_residual).nonzero()[:, 0]

    def _wanted(self, x: Tensor, whitened: Tensor, precision: Tensor, most: int = 0) -> bool:
        """Whether more than `most` of the places x would become inducing inputs, given room."""
        candidates = self.candidates(x, whitened)
        if len(candidates) <= most:
            return False
        # without `worth` a large enough residual is all that counts
        if not self.worth and not most:
            return True

        # a trial on a copy, with room for one more than asked
        wider = self.basis.copy(len(self.basis) + most + 1)
        features = self.remembered_features(self.basis.size)
        rows = self._grown(wider, x, whitened, precision, candidates, features, most + 1)
        return len(rows) > most

    def _precision(self, whitened: Tensor, x: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
        """β (N,) that samples about to be added will have, as far as it is known beforehand."""
        if self.likelihood.conjugate:
            return weight / noise

        # another likelihood's β depends on the field: on its prior where the map is empty
        mean, variance = (
            (
                torch.zeros((len(x), self.sites.channels), dtype=torch.float64, device=x.device),
                torch.zeros_like(noise),
            )
            if self.empty
            else self.marginals(whitened)
        )

        # the residual adds to the variance that the basis explains
        return weight * self.likelihood.information(
            mean, variance + self.basis.residual(x, whitened), noise
        )

    def _welcome(self, places: Tensor) -> None:
        """Make inducing inputs at places (K, D) where another map had some.

        They were worth an input in the other map; those that are not worth one here go at the next
        thinning.
        """
        for part in places.split(_CHUNK):
            sure = torch.full((len(part),), _SURE, dtype=torch.float64, device=self.device)
            self.append(part, self.basis.whitened(part), sure)

    def _move(self) -> int:
        """Make room in a full budget by giving up the inputs that are worth least; how many went.

        From then on a sample needs twice the worth of what was given up to become an input.
        """
        before = len(self.basis)
        self.begin_rebuild(self.theta, before - self.inputs_to_free, full=True)

        return before - len(self.basis)

    def _thin(self) -> int:
        """Remove inputs without worth, once there are a sixth more than after the last time.

        Returns how many went: 0 while the removal goes on in slices.
        """
        # tested first: it is cheap, and true for most samples
        few = len(self.basis) < self.thinned + max(16, self.thinned // 6)
        if few or self.fixed is not None or not self.worth:
            return 0

        before = len(self.basis)
        self.adopt_in_slices(self.theta)
        return before - len(self.basis)

    def remembered_precision(self, theta: Theta) -> Tensor:
        """β of each remembered sample at θ, by itself: (m,)."""
        memory = self.memory
        if not self.likelihood.conjugate:
            return memory.beta
        return memory.weight / self.noise(memory.noise, memory.extra, theta, memory.x)

    def remembered_features(self, rows: int) -> Tensor:
        """a(x) of the memory's samples: (rows, m)."""
        return self.memory.whitened(rows)

    def memory_residual(self) -> Tensor:
        """k − q, prior variance that the inputs leave at each remembered sample: (m,), inner."""
        return self.basis.residual(
            self.memory_places(self.theta), self.remembered_features(self.basis.size)
        )
