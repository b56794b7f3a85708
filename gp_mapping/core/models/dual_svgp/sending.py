"""Sparse maps that are sent to others: slim states, a team's θ, and another frame.

A slim state lacks what follows from the rest of it. Without features, factor and random generators
it is an eighth as large. While every sample is remembered, the sums follow from the samples and are
left out, too.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.dual_svgp.rebuilding import Rebuilding
from gp_mapping.core.sparse.basis import Basis
from gp_mapping.core.sparse.memory import UNRANKED
from gp_mapping.core.sparse.sites import Sites

__all__ = ["SendableMap"]

_SLIM = "slim"  # key that marks a slim state


class SendableMap(Rebuilding):
    """Base of the maps on inducing inputs: slim states, rotation of the frame, a team's θ."""

    sums_follow = True  # whether the sums follow from the remembered samples, each by itself
    # a map that loads a slim state keeps its own values of these: how many inputs and samples it
    # may have, and where it makes an input. Nothing that the state holds depends on them.
    budgets: tuple[str, ...] = (
        *("max_inducing", "memory_size", "tolerance", "information"),
        "budget",
    )

    def slimmed(self, state: dict) -> dict:
        """A state without features and factor; without sums where all samples are remembered."""
        if not self.sums_follow or state.get("basis") is None:
            return state

        out = {
            name: value
            for name, value in state.items()
            if name not in (*self.budgets, "generator", "rebuild", "failed")
        }
        memory = {
            name: value
            for name, value in state["memory"].items()
            if name not in ("white", "capacity", "rows", "draw", "key")
        }

        passes = state["sites"]["passes"]
        sites = {"channels": state["sites"]["linear"].shape[1] - 1}
        if "elsewhere" in passes:
            sites |= {"elsewhere": passes["elsewhere"]}
        # where all samples are remembered, the sums follow from them
        if not state["rest_empty"]:
            # the precision is symmetric: its lower triangle suffices
            precision = state["sites"]["precision"]
            lower = torch.tril_indices(*precision.shape)
            sites |= {
                "lower": precision[lower[0], lower[1]],
                "linear": state["sites"]["linear"],
                "passes": passes,
            }

        return out | {
            _SLIM: True,
            "memory": memory,
            "sites": sites,
            "basis": {"z": state["basis"]["z"]},
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue from a state; from a slim one up to rounding, with this map's own budgets.

        Raises:
            ValueError: the state does not fit; the map is as it was.
        """
        if isinstance(state, dict) and _SLIM in state:
            try:
                state = self._whole(state)
            except (KeyError, TypeError, RuntimeError, AttributeError, IndexError) as error:
                raise ValueError(
                    f"not a state of a {self.name} map: {type(error).__name__}: {error}"
                ) from error
        super().load_state_dict(state)

    def _whole(self, state: dict) -> dict:
        """The full state of a slim one, with what follows from the rest computed again."""
        theta = type(self.theta)(**state["theta"])
        z = state["basis"]["z"].to(self.device)
        columns = {
            name: value.to(self.device) if torch.is_tensor(value) else value
            for name, value in state["memory"].items()
        }
        basis = Basis.at(z, self.new_basis(theta, z.shape[1]))
        rows = basis.features + max(self.budget, len(z))

        count = len(columns["x"])
        whitened = basis.whitened(
            theta.sensor_place(columns["x"], columns["velocity"], columns["heading"]),
            columns["heading"],
        )

        # the draws of the sender are lost; new ones keep a full memory a random choice
        generator = torch.Generator().manual_seed(count)
        draw = (
            torch.rand(count, dtype=torch.float64, generator=generator)
            .clamp_min(1e-300)
            .log()
            .to(self.device)
        )
        memory = columns | {
            "white": whitened.mT,
            "capacity": max(self.memory_budget, count),
            "rows": rows,
            "draw": draw,
            "key": torch.full_like(draw, UNRANKED),
            "rule": self.memory_rule,
        }

        return (
            state
            | {
                "memory": memory,
                "sites": self._whole_sites(state["sites"], rows, whitened, columns),
                "basis": {"z": z, "L": basis.L.clone()},
                "generator": generator.get_state(),
            }
            | {name: getattr(self, name) for name in self.budgets}
        )

    def _whole_sites(self, sums: dict, rows: int, whitened: Tensor, columns: dict) -> dict:
        """The full state of a slim one's sites: by symmetry, or as sums over the samples.

        Args:
            sums: of the slim state.
            rows: of the sites' capacity.
            whitened: features of the remembered samples, (R, m).
            columns: of the memory.
        """
        size = len(whitened)
        if "lower" in sums:
            lower = torch.tril_indices(size, size)
            full = torch.zeros((size, size), dtype=torch.float64, device=self.device)
            full[lower[0], lower[1]] = sums["lower"].to(self.device)
            return {
                "precision": full + full.tril(-1).mT,
                "linear": sums["linear"],
                "capacity": rows,
                "passes": sums["passes"],
            }

        sites = Sites(size, int(sums["channels"]), rows, self.device)
        sites.add(whitened, columns["beta"], columns["lam"], columns["pass_number"])
        packed = sites.state_dict()
        if "elsewhere" in sums:
            packed["passes"] |= {"elsewhere": sums["elsewhere"]}
        return packed

    @torch.no_grad()
    def move(self, turn: Tensor, shift: Tensor) -> None:
        """Rotate and shift the map's frame: inputs, samples and sums are moved with it.

        The kernel depends on distances alone; the features of the heading turn.

        Args:
            turn: rotation (2, 2).
            shift: (2,) m.

        Raises:
            ValueError: the kernel is anisotropic, the sums are those of blocks of tiles, or the
                channels are not the components of a vector.
        """
        if torch.equal(turn, torch.eye(2, dtype=torch.float64)):
            super().move(turn, shift)
            self.fixed = None if self.fixed is None else self.fixed + shift
            return

        self._check_turn()
        if self.scaling is None:
            return
        self.finish_rebuild()

        turn, shift = turn.to(self.device), shift.to(self.device)
        self.fixed = None if self.fixed is None else self.fixed @ turn.mT.cpu() + shift.cpu()

        scaling, memory, names = self.scaling, self.memory, self.theta.feature_names()
        vector = self.sites.channels == 3
        centre = scaling.centre.clone()
        # the first two channels are a vector of the plane
        if vector:
            centre[:2] = turn @ centre[:2]
        self.scaling = replace(scaling, origin=turn @ scaling.origin + shift, centre=centre)

        # Q and P: what the rotation does to features and to channels
        rows = torch.eye(self.sites.size, dtype=torch.float64, device=self.device)
        if ("heading_stddev", 0) in names:
            first = names.index(("heading_stddev", 0))
            rows[first : first + 2, first : first + 2] = turn

        columns = torch.eye(self.sites.channels, dtype=torch.float64, device=self.device)
        if vector:
            columns[:2, :2] = turn

        self.sites.turn(rows, columns)
        self.basis.z = self.basis.z @ turn.mT

        memory.set_whitened(rows @ memory.whitened(len(rows)))
        for name in ("x", "velocity", "heading"):
            getattr(memory, name).copy_(getattr(memory, name) @ turn.mT)
        for name in ("y", "lam"):
            getattr(memory, name).copy_(getattr(memory, name) @ columns.mT)
        self.mark_changed()

    def _check_turn(self) -> None:
        """Raise ValueError where the map cannot be rotated exactly."""
        if self.theta.anisotropy != 1.0:
            raise ValueError("a map with an anisotropic kernel can be shifted, not turned")
        if not self.sums_follow:
            raise ValueError(
                f"a map of model {self.name} can be shifted, not turned: its blocks are squares"
            )
        if self.scaling is not None and (
            len(self.scaling.origin) != 2
            or self.sites.channels not in (1, 3)
            or (self.sites.channels == 3 and not self.likelihood.conjugate)
        ):
            raise ValueError(
                f"a map of {self.sites.channels} numbers in {len(self.scaling.origin)} dimensions can be "
                "shifted, not turned"
            )

    @torch.no_grad()
    def agree_on(self, theta: Theta) -> bool:
        """Take over a team's θ for the field; places and noise variances stay this robot's own.

        Each remembered sample is from now on placed where the sensor was, and has the noise
        variance with which it was absorbed: what another robot's stamps and passes are like does
        not apply to it.

        Returns:
            Whether the map is at θ now.
        """
        self.finish_rebuild()
        if self.memory is None:
            self.theta = replace(theta, time_offset=0.0, lever_arm_along=0.0, lever_arm_across=0.0)
            return True

        # what θ said of place and noise becomes part of each sample
        memory, own_theta = self.memory, self.theta
        memory.noise.copy_(
            self.noise(memory.noise, torch.zeros_like(memory.noise), own_theta, memory.x)
        )
        memory.x.copy_(self.memory_places(own_theta))
        memory.velocity.zero_()
        self.unremembered_model_noise = False

        placed = replace(own_theta, time_offset=0.0, lever_arm_along=0.0, lever_arm_across=0.0)
        target = replace(theta, time_offset=0.0, lever_arm_along=0.0, lever_arm_across=0.0)

        # a difference in s_p and s_b alone needs no new features
        if replace(placed, noise_stddev=target.noise_stddev).with_biases_of(target) == target:
            self.theta = target  # neither s_p nor s_b is in a feature: nothing else changes
            self.mark_changed()
            return True

        self.theta = placed
        return self.adopt(target)
