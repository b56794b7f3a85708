"""What the forms of WISKI share: a map whose sites are sums on a lattice.

    update    a few hundred additions a sample: G += β w wᵀ as a stencil, b += w λᵀ; no solve
    around    mean and variance of one neighbourhood from a dense GP on its aggregates (local.py)
    adopt     ℓ, s and s_h are in no sum: they may change freely

Where δ, the lever arm or s_p change, the remembered samples are taken out as they stand and put
back; the unremembered sites keep their places, and their weights follow s_p².

The spacing is a power of two of a metre near ℓ/density, so that the lattices of all robots
coincide; it stays while ℓ/spacing is within a factor of 1.7 of the setting. Onto another lattice
the unremembered sites are transferred as their aggregates: weighted samples, within half a spacing
of where they were.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import any_positive
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Gaussian
from gp_mapping.core.models.wiski.feature_weights import FeatureWeights
from gp_mapping.core.models.wiski.lattice.interpolation import interpolation_error
from gp_mapping.core.models.wiski.lattice.packed import PackedMemory
from gp_mapping.core.models.wiski.lattice.sites import GridSites
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid
from gp_mapping.core.models.wiski.local import WiskiLocal, local_posterior
from gp_mapping.core.scaled_map import ScaledMap
from gp_mapping.core.standardised import Standardised
from gp_mapping.core.types import Prediction, UpdateReport

__all__ = ["LatticeMap"]

# hyper-parameters that places and weights of samples depend on
_MOVING = (
    "noise_stddev",
    "time_offset",
    "lever_arm_along",
    "lever_arm_across",
)
_ROUGH = 0.1  # of s: an interpolation error from which there is a note
_KEEP = 1.7  # factor by which ℓ/spacing may differ from the setting before the lattice is made anew


class LatticeMap(FeatureWeights):
    """Online map of the plane; memory grows with its area, an update's time with nothing.

    A form of it implements `posterior`, and `on_samples_added`, which is called when samples are
    in the sums.

    Args:
        theta: hyper-parameters in inner units (of `scale` SI).
        density: nodes in a lengthscale.
        max_nodes: of the box; beyond, the spacing doubles (`coarsened`), and where that would pass
            ℓ/2, samples are refused (`refused`).
        max_biases: passes whose constants are kept apart; beyond, two share one
            (feature_weights.py).
        bias_prior: prior median of s_b; 0: it is not learned.
        memory_size: as of DualSVGP, and so are those below.
        learner: learns θ; None keeps θ as it is.
        seed: of random choices.
        scale: SI in an inner unit.
        centre: (C,) SI; the median of the first batch if None.
        device: of all tensors.

    Attributes:
        refused: samples beyond where the lattice may reach.
        coarsened: how often the spacing doubled.
        points: x (K, 2), beta (K,), lam (K, C) of fantasies: they are in the sums, not in the
            aggregates, so that each counts exactly.

    Reference:
        Stanton et al. 2021.
    """

    name = "wiski"
    fitting = (*FeatureWeights.fitting, "density", "max_nodes")
    counted = (*FeatureWeights.counted, "refused", "coarsened")

    def __init__(
        self,
        theta: Theta,
        *,
        density: float = 8.0,
        max_nodes: int = 500_000,
        memory_size: int = 2000,
        learner: HyperLearner | None = None,
        seed: int = 0,
        scale: float = 1.0,
        centre=None,
        device="cpu",
        max_biases: int = 50,
        bias_prior: float = 0.0,
    ):
        super().__init__(
            theta,
            Gaussian(),
            learner=learner,
            memory_size=memory_size,
            seed=seed,
            scale=scale,
            centre=centre,
            device=device,
        )

        self.density, self.max_nodes = density, max_nodes
        self.max_biases, self.bias_prior, self.closed_passes = max_biases, bias_prior, 0
        self.refused, self.coarsened = 0, 0
        self.points: dict[str, Tensor] = {}
        self.features: tuple | None = None
        self._kernel: tuple | None = None

    def new_memory(self, dimension: int, channels: int, rows: int) -> PackedMemory:
        """As SparseMap.new_memory; rows are not used: a lattice keeps no features of samples."""
        return PackedMemory(self.memory_size, dimension, channels, rows, self.device)

    def allocate(self, dimension: int, channels: int) -> None:
        """As SparseMap.allocate; there are no fantasies, either."""
        self.sites = GridSites(
            self.spacing_for(self.theta), self.scaling.origin, channels, self.device
        )
        self.memory = self.new_memory(dimension, channels, 0)
        kind = {"dtype": torch.float64, "device": self.device}
        self.points = {
            "x": torch.zeros((0, 2), **kind),
            "beta": torch.zeros(0, **kind),
            "lam": torch.zeros((0, channels), **kind),
        }

    def mark_changed(self, features: bool = True) -> None:
        """Note that all may have changed; unless `features`, the features' weights stay."""
        super().mark_changed()
        if features:
            self.features = None

    # --- data in ----------------------------------------------------------------------------------
    @torch.no_grad()
    def absorb(self, batch: Standardised) -> UpdateReport:
        """Add a batch to the sums and the memory.

        Raises:
            ValueError: the samples are not of the plane.
        """
        if batch.x.shape[1] != 2:
            raise ValueError(
                f"model wiski maps the plane; samples are {batch.x.shape[1]}-D: use dual_svgp"
            )
        if self.sites is None:
            self.allocate(2, batch.y.shape[1])

        extra = self._extra(batch)
        places = self.theta.sensor_place(batch.x, batch.velocity, batch.heading)
        here = batch.here
        epoch, use = (
            self.epoch,
            self.make_room(self.theta.sensor_place(here.x, here.velocity, here.heading)),
        )
        passes, own_noise = here.pass_number, here.noise
        values = {
            "x": batch.x,
            "velocity": batch.velocity,
            "heading": batch.heading,
            "y": batch.y,
            "noise": batch.noise,
            "extra": extra,
            "pass_number": batch.pass_number,
            "extent": batch.extents,
        }

        if use is not None:
            self.refused += int((~use).sum())
            passes, own_noise = None if passes is None else passes[use], own_noise[use]
            use = use.to(places.device)
            places, values = places[use], {k: v[use] for k, v in values.items()}
        count = len(places)
        if not count:
            return self.report(0)

        beta = 1.0 / self.noise(values["noise"], values["extra"], self.theta)
        lam = beta[:, None] * values["y"]
        covariates = self.grid.covariates(values["heading"], passes)
        self.grid.add(places, covariates, beta, lam)
        values |= {"lam": lam, "beta": beta, "weight": torch.ones_like(beta)}

        self.on_samples_added(places, covariates, beta)
        if self.memory.offer_batch(
            values, beta.new_empty((0, count)), self.leverage, self.generator
        ):
            self.unremembered_empty = False

        # β of a sample without a noise of its own follows s_p², of another it does not
        if self.unremembered_model_noise and bool((own_noise > 0).any()):
            self.unremembered_model_noise = False

        self.samples += count
        self.discard_posterior()
        self.close_passes()
        self._add_work_budget(count)
        if self.learner is not None:
            self.learner.schedule(count)
        return self.report(count, self.epoch != epoch)

    def on_samples_added(self, places: Tensor, covariates: Tensor, beta: Tensor) -> None:
        """Called when samples are in the sums.

        Args:
            places: (N, 2), standardised.
            covariates: (N, 2 + P).
            beta: (N,).
        """

    def _add_work_budget(self, count: int) -> None:
        """Called with the number of new samples, which add to the work budget."""

    def _extra(self, batch: Standardised) -> Tensor:
        """As Scaled._extra, without a solve: of the posterior that is there."""
        if self.empty or not any_positive(batch.here.position_variance):
            return batch.extra
        self._learn_features()
        places = self.theta.sensor_place(batch.x, batch.velocity, batch.heading)
        slope = local_posterior(self, places).gradient(places)
        return batch.extra + slope.square().sum(2).mean(1) * batch.position_variance

    def leverage(self, whitened: Tensor) -> Tensor:
        """1 for each sample (K,), so that the memory draws by β: variances would take a solve."""
        return whitened.new_ones(whitened.shape[1])

    def report(self, used: int, everywhere: bool = False) -> UpdateReport:
        """What the map holds after an update.

        Args:
            used: samples of the batch that were absorbed.
            everywhere: whether all of the map may have changed.
        """
        size = (0, 0) if self.grid is None else (self.grid.nodes, len(self.memory))
        return UpdateReport(used, self.samples, *size, jitter=self.jitter, everywhere=everywhere)

    # --- the map out ------------------------------------------------------------------------------
    def kernel_grid(self) -> KernelGrid:
        """K_uu on the present box."""
        grid, t = self.grid, self.theta

        key = (t.shape, t.lengthscale, t.signal_stddev, grid.spacing, grid.shape)
        if self._kernel is None or self._kernel[0] != key:
            self._kernel = key, KernelGrid(t.kernel(), grid.spacing, grid.shape, self.device)
        return self._kernel[1]

    def noise_variance(self) -> Tensor:
        """Noise variance of one new measurement, of each channel: (C,), squared SI."""
        return ScaledMap.noise_variance(self)  # known without a posterior

    @torch.no_grad()
    def local_posterior(self, x: Tensor, reach: float = 0.0) -> WiskiLocal:
        """The frozen posterior near some places: an exact GP on aggregates.

        Args:
            x: (N, 2) metres.
            reach: distance from them that it has to serve, m.
        """
        self.need_data()
        return local_posterior(self, self.scaling.inner_x(x), reach)

    def predict_now(
        self, x: Tensor, velocity: Tensor | None = None, heading: Tensor | None = None
    ) -> Prediction:
        """As predict, given every sample so far, from the neighbourhood of x alone: no solve.

        Args:
            x: (N, 2) m.
            velocity: (N, 2) m/s, or None.
            heading: (N, 2) ĥ, or None.
        """
        return self.local_posterior(x).predict(x, velocity, heading)

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """As FieldMap.predict_in_pass, from the neighbourhood of x alone."""
        return self.local_posterior(x).predict_in_pass(x, number, velocity, heading)

    def inducing_inputs(self) -> Tensor:
        """No places: the lattice's nodes are everywhere."""
        return self._no_places()

    def counters(self) -> dict[str, int | float]:
        """Counters, also of the lattice.

        `coarsened`: how often it became coarser. `refused`: samples beyond where it may reach.
        """
        return super().counters() | {
            "coarsened": self.coarsened,
            "refused": self.refused,
            "closed_passes": self.closed_passes,
        }

    def notes(self) -> list[str]:
        """Notes of what the lattice, or a bound, leaves out, or that θ could not be adopted."""
        notes = []
        if self.closed_passes:
            notes.append(
                f"the constants of {self.closed_passes} passes are not told apart any more: what they differed by "
                "from others is taken for exact; raise max_biases where that is too early"
            )
        if self.failed is not None:
            notes.append(
                f"learned hyper-parameters could not be taken over at {self.failed[1]} samples; the map keeps "
                "those that it has, and tries again a hundred samples later"
            )
        return notes if self.grid is None else [*notes, *self._rough_notes()]

    def _rough_notes(self) -> list[str]:
        """A sentence where what is between the nodes is not well known beside field or noise."""
        theta = self.theta
        error = interpolation_error(theta, self.grid.spacing)
        in_noise = error * theta.signal_stddev / theta.noise_stddev
        if error < _ROUGH and in_noise <= 1.0:
            return []
        size, smoother = (
            f"{100 * error:.0f} % of signal_stddev",
            "kernel: matern32 or a smoother one, ",
        )
        if error < _ROUGH:
            size, smoother = f"{in_noise:.2g} times noise_stddev", ""
        return [
            f"between its nodes the lattice interpolates kernel {theta.kernel_name} with an error of up to "
            f"{size}; write {smoother}a larger grid_density, or another model",
        ]

    @torch.no_grad()
    def refine(self, budget_s: float = math.inf) -> bool:
        """Do pending hyper-parameter steps, and adopt their result; whether more are pending."""
        if super().refine(budget_s):
            return True
        self._learn_features()
        return False

    # --- another θ, another lattice ---------------------------------------------------------------
    @torch.no_grad()
    def adopt(self, theta: Theta) -> bool:
        """Transfer the map to θ; True, since that always succeeds."""
        self.transfer_to(theta)

        # the lattice follows ℓ, but not each small step of it
        ratio = theta.lengthscale / (self.grid.spacing * self.density)
        if not 1.0 / _KEEP < ratio < _KEEP:
            spacing = self.spacing_within()
            if spacing != self.grid.spacing:
                self.respace(spacing)

        # a step of θ is small; the features' weights come anew with a twentieth more samples
        self.mark_changed(features=False)
        return True

    def transfer_to(self, theta: Theta) -> None:
        """Change the memory's places and weights, and all other sites' weights, for another θ.

        The lattice stays.
        """
        old, memory = self.theta, self.memory
        if any(getattr(old, name) != getattr(theta, name) for name in _MOVING):
            unremembered = self.unremembered_sites()
            factor = self.unremembered_scale(theta)
            if factor != 1.0:
                unremembered.scale(factor)

            # `unremembered_sites` has nothing of the memory's samples, so their columns may change
            memory.keep_columns()
            memory.beta.copy_(memory.weight / self.noise(memory.noise, memory.extra, theta))
            memory.lam.copy_(memory.beta[:, None] * memory.y)

            unremembered.start.copy_(self.grid.start)
            self.theta = theta
            if len(memory):
                unremembered.grow(*unremembered.box_for(self.memory_places(theta)))
            self.add_memory_sites(unremembered, 1.0)
            self.sites = unremembered

        # u = K p stays about where it was
        self.grid.start = self.grid.start * (old.signal_stddev**2 / theta.signal_stddev**2)
        self.theta = theta

    # --- what the operations of sparse_map.py ask -------------------------------------------------
    def add_memory_sites(self, store: GridSites, sign: float) -> None:
        """As SparseMap.add_memory_sites; the fantasies as well."""
        memory, points = self.memory, self.points
        store.add(
            self.memory_places(self.theta),
            store.covariates(memory.heading, memory.pass_number),
            sign * memory.beta,
            sign * memory.lam,
        )
        store.add(
            points["x"],
            store.covariates(torch.zeros_like(points["x"]), None),
            sign * points["beta"],
            sign * points["lam"],
            aggregate=False,
        )

    def remove_samples(self, gone: Tensor, near: Tensor, radius: float) -> None:
        """Remove samples of the memory, and what else is known near places.

        Args:
            gone: (m,) samples of the memory.
            near: (K, 2) places, standardised.
            radius: m.
        """
        unremembered = self.unremembered_sites()
        if not self.unremembered_empty:
            unremembered.wipe(near, radius)

        # fantasies near the places go as well
        far = ~(torch.cdist(self.points["x"], near) <= radius).any(1)
        self.points = {k: v[far] for k, v in self.points.items()}
        self.memory.keep(~gone)

        unremembered.start.copy_(self.grid.start)
        self.add_memory_sites(unremembered, 1.0)
        self.sites = unremembered

    def _scale(self, factor: float) -> None:
        """Scale what the data said by the factor; the features' weights stay."""
        self.sites.scale(factor)
        self.memory.scale(factor)
        self.points = {k: v if k == "x" else v * factor for k, v in self.points.items()}
        self.mark_changed(features=False)

    def converted_copy(self, other: LatticeMap, offset: Tensor) -> LatticeMap:
        """As SparseMap.converted_copy, and on its lattice; an empty map takes any.

        Raises:
            ValueError: the box of both would have more than `max_nodes`.
        """
        copied = other.duplicate()
        copied.density, copied.max_nodes = self.density, self.max_nodes
        if copied.theta != self.theta:
            copied.transfer_to(self.theta)

        if self.sites is None or not self.grid.nodes:
            spacing = copied.spacing_within()
            if copied.grid.spacing != spacing:
                copied.respace(spacing)
            shape = copied.grid.shape
        else:
            if not self.grid.coincides(copied.grid):
                copied.respace(self.grid.spacing, self.grid.anchor)
            shape = self.grid.joint_box(copied.grid)[1]

        if shape[0] * shape[1] > self.max_nodes:
            raise ValueError(
                f"the two maps together need {shape[0] * shape[1]} nodes, more than max_grid_nodes "
                f"{self.max_nodes}; nothing was merged"
            )
        return copied

    def merge_converted(
        self, converted: LatticeMap, memory: dict[str, Tensor], offset: Tensor, delta: Tensor
    ) -> int:
        """Add the sums of a copy that `converted_copy` made; what it remembers is among them.

        Args:
            converted: the copy.
            memory: columns of its remembered samples, in this map's coordinates.
            offset: its origin minus this one's, (2,) m.
            delta: its centre minus this one's, (C,), inner units.

        Returns:
            How many samples, old or new, are not in the memory afterwards.
        """
        converted.grid.shift_centre(delta)
        if not self.grid.nodes:  # nothing is known here that lies on another lattice
            self.sites = GridSites(
                converted.grid.spacing,
                self.scaling.origin,
                self.grid.channels,
                self.device,
                converted.grid.anchor,
            )
        self.grid.grow(*self.grid.joint_box(converted.grid))
        self.grid.merge(converted.grid)

        fresh = {
            "x": converted.points["x"] + offset,
            "beta": converted.points["beta"],
            "lam": converted.points["lam"] + converted.points["beta"][:, None] * delta,
        }
        self.points = {k: torch.cat([v, fresh[k]]) for k, v in self.points.items()}

        whitened = memory["beta"].new_empty((0, len(memory["beta"])))
        return self.memory.insert_all(memory, whitened, self.leverage, converted.memory.arrivals)

    def duplicate(self) -> LatticeMap:
        """An independent copy."""
        new = super().duplicate()
        new.points = dict(self.points)
        return new

    def _fantasy(self, before, new: LatticeMap, inner: Tensor) -> tuple[Tensor, Tensor]:
        """Add sites to a copy whose targets are the mean of a posterior.

        Args:
            before: the posterior.
            new: the copy.
            inner: (K, 2) standardised places.

        Returns:
            Places (K, 2) and precisions β (K,) of the sites.
        """
        low, shape = new.grid.box_for(inner)
        if shape[0] * shape[1] > self.max_nodes:
            raise ValueError(
                f"a fantasy so far away needs {shape[0] * shape[1]} nodes, more than max_grid_nodes "
                f"{self.max_nodes}"
            )

        new.grid.grow(low, shape)
        mean = before.mean(inner)
        beta = torch.full(
            (len(inner),), 1.0 / before.noise_variance, dtype=torch.float64, device=self.device
        )

        fresh = {"x": inner, "beta": beta, "lam": beta[:, None] * mean}
        covariates = new.grid.covariates(torch.zeros_like(inner), None)
        new.grid.add(inner, covariates, beta, fresh["lam"], aggregate=False)
        new.points = {k: torch.cat([v, fresh[k]]) for k, v in new.points.items()}
        new.on_samples_added(inner, covariates, beta)
        return inner, beta

    @property
    @abstractmethod
    def posterior(self):
        """The posterior given the present sums."""

    # --- files ------------------------------------------------------------------------------------
    def _saved_parts(self) -> dict:
        """The sums, the fantasies and the features' weights, too, for a file."""
        parts = super()._saved_parts()
        if self.sites is None:
            return parts | {"grid": None}
        return parts | {
            "grid": self.grid.state_dict(),
            "points": {k: v.clone() for k, v in self.points.items()},
            "features": None if self.features is None else list(self.features),
            "closed_passes": self.closed_passes,
        }

    def _loaded_parts(self, state: dict, parts: dict) -> dict:
        """The sums, the fantasies and the features' weights of a file, too."""
        parts = super()._loaded_parts(state, parts) | parts
        # states of earlier versions know no passes
        parts["closed_passes"] = int(state.get("closed_passes", 0))
        if state["grid"] is None:
            return parts | {"points": {}, "features": None}
        features = state["features"]
        if features is not None:
            features = (
                *(part.to(self.device, copy=True) for part in features[:2]),
                int(features[2]),
                float(features[3]) if len(features) > 3 else 0.0,
            )
        return parts | {
            "sites": GridSites.from_state_dict(state["grid"], parts["scaling"].origin, self.device),
            "points": {k: v.to(self.device, copy=True) for k, v in state["points"].items()},
            "features": features,
        }
