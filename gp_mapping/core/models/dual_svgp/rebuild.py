"""A dual SVGP at other hyper-parameters, or with fewer inducing inputs, made step by step.

The steps, taken at once or in slices:

choose      L = chol K at θ' on the old inputs; inputs that the remembered samples want in addition
            are added, chunk by chunk
transfer    the unremembered sites are transferred by T = L'⁻¹ k(z', z) L⁻ᵀ, and the remembered
            samples get fresh features, block by block; at the same θ and z both stay as they are
spare       inputs that are not worth theirs are removed (worth.py); the remaining ones span a
            subspace of the former basis, so features and sites follow by Q = L'⁻¹ E L, where E
            holds the rows that stay: a' = Q a, D' = I + Q (D − I) Qᵀ
replay      what the map has absorbed meanwhile is absorbed again by its successor

In slices, the map itself goes on unchanged while a copy of it, made at the beginning, is rebuilt.
When the copy has also absorbed what came meanwhile, it takes the map's place: the result is that of
doing everything at the beginning. A slice is bounded by a number of floating-point operations and
not by time, so that the same samples give the same map however fast the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, fields

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.models.dual_svgp.memory_sites import MemorySites, RebuiltParts
from gp_mapping.core.sparse.basis import Basis, greedy_inputs
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.sparse.worth import InputRemoval, bits_of, ratio_of
from gp_mapping.core.standardised import Standardised

__all__ = ["SLICE", "Rebuild"]

# floating-point operations after which a slice begins no further step: a tenth of a rebuild
# at M = 400
SLICE = 4e8
_CHUNK = 250  # remembered samples that are handled in one step
# operations of examining candidates in one step: at the default sizes that is all candidates, so
# that the choice is the one that would be made at once
_LOOK = 2 * SLICE
_LET_GO = 10  # inputs that are removed in one step
_TENSORS = {"whitened": "white", "moved": "moved"}  # attributes, and their names in files
_REPLAYED = 3  # batches that a slice absorbs again: more than arrive meanwhile


class Rebuild:
    """The transfer of a map to other hyper-parameters, as a list of steps.

    Args:
        model: the map; it is not written to.
        theta: the new hyper-parameters.
        budget: inducing inputs that it may have there.
        full: whether the transfer is made because the map's budget was full.
    """

    def __init__(self, model, theta: Theta, budget: int, full: bool = False):
        self.source, self.theta, self.budget, self.full = model, theta, budget, full
        # both are replaced and never written into: a transaction that fails restores the old ones
        self.steps_left: tuple[tuple, ...] = (("choose",),)  # steps with their arguments
        self.log: tuple[tuple, ...] = ()  # what the map has done meanwhile

        self.taken, self.done, self.floor = False, 0, 0.0
        self.basis: Basis | None = None
        self.whitened: Tensor | None = None  # a(x) of the memory in that basis
        # sites without the remembered samples, in the old basis; None: not separated yet, or none
        self.unremembered: Sites | None = None
        self.moved: Tensor | None = None  # T of the unremembered sites into the new basis
        self.removal: InputRemoval | None = None  # the removal of inputs, while it goes on
        self.sites: Sites | None = None  # in the new basis
        self.memory_sites: MemorySites | None = None

    @property
    def moment(self) -> tuple[int, int]:
        """A mark that changes whenever the rebuild progresses or the map adds to its log."""
        return self.done, len(self.log)

    def freeze(self) -> None:
        """Let the map go on: from now on a copy of it as it is now is rebuilt."""
        new = self.source.duplicate()
        new.learner, new.sliced, new.driven = None, True, True
        self.source = new
        if self.memory_sites is not None:  # some of its columns are the map's own memory
            self.memory_sites = new.memory_sites_at(self.theta, self.basis, self.whitened)

    def log_call(self, what: str, argument) -> None:
        """Log what the map has done, to be done to the rebuilt parts as well.

        Args:
            what: absorb, adopt_pass_evidence or forget.
            argument: of it.
        """
        self.log = (*self.log, (what, argument))

    def advance(self, limit: float) -> float:
        """Take steps, none of which begins after `limit` floating-point operations.

        Returns:
            The number of operations of these steps, approximately.

        Raises:
            NumericalError: the new map does not factor.
        """
        operations = 0.0
        while self.steps_left and operations < limit:
            (name, *arguments), self.steps_left = self.steps_left[0], self.steps_left[1:]
            operations += getattr(self, f"_{name}")(*arguments)
        return operations

    def result(self) -> RebuiltParts:
        """The parts of the new map, once no step is left."""
        return RebuiltParts(self.basis, self.sites, self.memory_sites, self.floor)

    def run_slice(self) -> bool:
        """Do one slice of the work in the frozen copy; whether the copy may take the map's place.

        The slice continues the steps; after the last it puts the new parts into the copy, and then
        replays the log.
        """
        self.done += 1
        operations = self.advance(SLICE) if self.steps_left else 0.0

        while operations < SLICE and not self.steps_left:
            # once, after the last step
            if not self.taken:
                self.source.replace_parts(self.theta, self.result(), self.full)
                self.source.fit_budget(self.budget)
                self.basis = self.whitened = self.unremembered = self.sites = self.memory_sites = (
                    None
                )
                self.taken = True
                continue

            if self.source.rebuild is not None:  # a replayed batch began another rebuild
                self.source.advance_rebuild()
                return False

            if not self.log:
                return True
            (what, argument), self.log = self.log[0], self.log[1:]
            getattr(self.source, what)(argument)
            operations += SLICE / _REPLAYED
        return False

    # --- steps ------------------------------------------------------------------------------------
    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges (start, stop) of remembered samples that are handled in one step."""
        count = len(self.source.memory)
        return ((start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK))

    def _at(self, z: Tensor) -> float:
        """Begin a fresh basis on z, in which the remembered samples have no features yet."""
        source = self.source
        self.basis = Basis.at(z, source.new_basis(self.theta, z.shape[1]))
        self.whitened = torch.zeros(
            (self.basis.size, len(source.memory)), dtype=torch.float64, device=source.device
        )
        return len(z) ** 3 / 3.0

    def _choose(self) -> float:
        """Choose inducing inputs for θ: the old ones, and those remembered samples want."""
        source, old = self.source, self.source.basis.z
        room = len(old) < self.budget
        # without `worth` a full budget is distributed anew
        if not room and source.fixed is None and not source.uses_worth:
            return self._pool()

        operations = self._as_it_is() if self._same else self._at(old)
        whiten: list[tuple] = [("whiten", *block) for block in self._blocks()]

        # features are known already where neither θ nor z changes
        ahead = [] if self._same else whiten

        if source.fixed is None and room:
            tolerance = self._tolerance()
            # where the lengthscale grew, some of the old inputs are dispensable
            if len(old) and float(self.basis.L.diagonal().min()) ** 2 < tolerance / 4:
                needed = sorted(greedy_inputs(self.basis.kernel, old, tolerance / 4, len(old)))
                operations += self._at(old[needed])
                ahead = whiten

            count = len(source.memory)
            # each part of the candidates is spread over the whole map
            parts = max(1, math.ceil(2.0 * count**2 * self.budget / _LOOK))
            ahead = [*ahead, *(("grow", first, parts) for first in range(parts)), ("enough",)]
        else:
            ahead = [*ahead, *self._transfer_steps(), ("spare",)]

        self.steps_left = (*ahead, *self.steps_left)
        return operations

    @property
    def _same(self) -> bool:
        """Whether θ stays, so that features and sites of the old basis are valid in the new one."""
        return self.theta == self.source.theta and self.source.may_slice

    def _as_it_is(self) -> float:
        """Begin with the old basis, and the remembered samples' features in it."""
        source = self.source
        self.basis = source.basis.copy()
        self.whitened = source.remembered_features(self.basis.size).clone(
            memory_format=torch.contiguous_format
        )
        return float(self.whitened.numel() + len(self.basis) ** 2)

    def _tolerance(self) -> float:
        """Least residual variance of an input at the new θ, squared inner units."""
        return self.source.residual_at(self.theta)

    def _whiten(self, start: int, stop: int) -> float:
        """Compute the features of some remembered samples."""
        places, heading = (
            self.source.memory_places(self.theta)[start:stop],
            self.source.memory.heading[start:stop],
        )
        self.whitened[:, start:stop] = self.basis.whitened(places, heading)
        return 2.0 * len(self.basis) ** 2 * (stop - start)

    def _grow(self, first: int, every: int) -> float:
        """Add inducing inputs among remembered samples: the first-th, each `every`-th after it."""
        source, worth, places = (
            self.source,
            ratio_of(self.source.information),
            self.source.memory_places(self.theta),
        )

        # candidates whose residual variance is large enough
        among = slice(first, len(places), every)
        candidates = self.basis.candidates(places, self.whitened, among, self._tolerance())
        if not len(candidates):
            return 0.0

        precision = source.remembered_precision(self.theta) if worth else None
        rows = self.basis.grow(
            places,
            self.whitened,
            among,
            self._tolerance(),
            self.budget - len(self.basis),
            precision,
            worth,
            candidates=candidates,
        )

        if len(rows):
            self.whitened = torch.cat([self.whitened, rows])
        return 2.0 * len(candidates) * len(places) * (len(self.basis) + 2.0 * len(rows))

    def _enough(self) -> float:
        """Decide whether the budget suffices for the tolerance; if not, choose all inputs anew."""
        if not self.source.uses_worth and len(self.basis) >= self.budget:
            return self._pool()
        self.steps_left = (*self._transfer_steps(), ("spare",), *self.steps_left)
        return 0.0

    def _pool(self) -> float:
        """Choose from old inputs and remembered samples alike: too little budget for all."""
        source, old = self.source, self.source.basis.z
        places = source.memory_places(self.theta)
        pool = torch.cat([old, places[:: max(1, len(places) // 1000)]])

        kernel = source.new_basis(self.theta, old.shape[1]).kernel
        operations = self._at(pool[greedy_inputs(kernel, pool, self._tolerance() / 4, self.budget)])

        self.steps_left = (
            *(("whiten", *block) for block in self._blocks()),
            *self._transfer_steps(),
            ("spare",),
            *self.steps_left,
        )
        return operations + len(pool) * self.budget**2

    def _transfer_steps(self) -> list[tuple]:
        """The steps that make the sites in the basis as it is at that moment."""
        if self._same and torch.equal(self.basis.z, self.source.basis.z):
            return [("stand",)]

        unremembered = []
        if not self.source.unremembered_empty:
            unremembered = [("transfer",), ("project",)]
            if self.unremembered is None:
                unremembered = [
                    ("copy_rest",),
                    *(("take_out", *block) for block in self._blocks()),
                    *unremembered,
                ]

        return [
            *unremembered,
            ("begin_sites",),
            *(("put_back", *block) for block in self._blocks()),
        ]

    def _stand(self) -> float:
        """Take the sites as they are."""
        self.sites = self.source.sites.clone()
        self.memory_sites = self.source.memory_sites_at(self.theta, self.basis, self.whitened)
        return float(self.whitened.numel() + len(self.basis) ** 2)

    def _copy_rest(self) -> float:
        """Copy the sites; `take_out` then subtracts the remembered samples from the copy."""
        self.unremembered = self.source.sites.clone()
        return float(len(self.source.basis) ** 2)

    def _take_out(self, start: int, stop: int) -> float:
        """Subtract what some remembered samples contribute to the sites."""
        self.source.add_memory_sites(self.unremembered, -1.0, slice(start, stop))
        return 2.0 * self.unremembered.size**2 * (stop - start)

    def _transfer(self) -> float:
        """Compute the transfer T into the new basis."""
        source = self.source
        self.moved = self.basis.transfer_from(source.basis.z, source.basis.L, source.theta)
        return 3.0 * len(self.basis) ** 3

    def _project(self) -> float:
        """Project the unremembered sites into the new basis."""
        source, unremembered = self.source, self.unremembered
        factor = source.unremembered_scale(self.theta)
        if factor != 1.0:
            unremembered = unremembered.clone()
            unremembered.scale(factor)

        self.sites, self.moved = (
            unremembered.project(self.moved, self.basis.features + source.budget),
            None,
        )
        return 5.0 * len(self.basis) ** 3

    def _begin_sites(self) -> float:
        """Prepare the sites and the contribution of the remembered samples in the new basis."""
        source = self.source
        if source.unremembered_empty:
            capacity = self.basis.features + source.budget
            self.sites = Sites(self.basis.size, source.sites.channels, capacity, source.device)
        self.memory_sites = source.memory_sites_at(self.theta, self.basis, self.whitened)
        return float(self.whitened.numel())

    def _put_back(self, start: int, stop: int) -> float:
        """Add some remembered samples to the sites."""
        self.memory_sites.part(slice(start, stop)).add_to(self.sites)
        return 2.0 * self.sites.size**2 * (stop - start)

    def _spare(self) -> float:
        """Begin to remove inputs that are not worth theirs, or are beyond the budget."""
        source, size = self.source, len(self.basis)
        self.steps_left = (*self.steps_left, ("check",))
        if source.fixed is not None or not source.uses_worth:
            return 0.0

        features = self.basis.features
        precision, _ = self.sites.integrated(self.theta.bias_stddev**2, self.theta.bias_correlation)
        excess = precision[features:, features:] - torch.eye(
            size, dtype=torch.float64, device=source.device
        )

        self.removal = InputRemoval.start(
            self.basis.L, excess, ratio_of(source.information), self.budget
        )
        if self.removal is None:
            return 2.0 * size**3

        self.steps_left = (("let_go",), *self.steps_left)
        return 5.0 * size**3

    def _let_go(self) -> float:
        """Remove some of the inputs that are worth least; after the last, narrow the basis."""
        sparing, size = self.removal, len(self.basis)
        before = sparing.remaining
        if not sparing.advance(ratio_of(self.source.information), self.budget, _LET_GO):
            self.steps_left = (("let_go",), *self.steps_left)
        elif sparing.remaining < size:
            # a full budget: an input must be worth twice what was given up for it
            self.floor = 0.0 if sparing.remaining < self.budget else bits_of(2.0 * sparing.worst)
            self.removal = None
            return 60.0 * (before - sparing.remaining) * size**2 + self._keep_inputs(sparing.alive)
        return 60.0 * (before - sparing.remaining) * size**2

    def _keep_inputs(self, kept: Tensor) -> float:
        """Narrow the basis to the inputs `kept` (M,), and plan how features and sites follow."""
        source, factor, size = self.source, self.basis.L.double(), len(self.basis)
        # sites that depend on the basis, or on its rounding, are made anew
        if not source.may_slice or source.dtype != torch.float64:
            operations = self._at(self.basis.z[kept])
            again = [("whiten", *block) for block in self._blocks()] + self._transfer_steps()
            self.steps_left = (*again, *self.steps_left)
            return operations
        self.basis = Basis.at(
            self.basis.z[kept], source.new_basis(self.theta, self.basis.z.shape[1])
        )
        features = torch.eye(self.basis.features, dtype=torch.float64, device=source.device)
        self.moved = torch.block_diag(features, solve_lower(self.basis.L, factor[kept]))
        self.steps_left = (("narrow",), ("narrow_sites",), *self.steps_left)
        return 1.4 * size**3

    def _narrow(self) -> float:
        """Project the remembered samples' features onto the inputs that stay."""
        operations = 2.0 * self.moved.numel() * self.whitened.shape[1]
        self.whitened = self.moved @ self.whitened
        return operations

    def _narrow_sites(self) -> float:
        """Project the sites onto the inputs that stay."""
        source, size = self.source, self.sites.size
        self.sites, self.moved = (
            self.sites.project(self.moved, self.basis.features + source.budget),
            None,
        )
        self.memory_sites = source.memory_sites_at(self.theta, self.basis, self.whitened)
        return 4.0 * size**3

    def _check(self) -> float:
        """Raise NumericalError where the new sites do not factor."""
        cholesky(self.sites.integrated(self.theta.bias_stddev**2, self.theta.bias_correlation)[0])
        return self.sites.size**3 / 3.0

    # --- files ------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Everything that is needed to continue a frozen rebuild exactly."""
        basis, memory_sites = self.basis, self.memory_sites
        return {
            "source": self.source.state_dict(),
            "theta": asdict(self.theta),
            "budget": self.budget,
            "full": self.full,
            "todo": [list(step) for step in self.steps_left],
            "log": [{"what": what, "argument": _columns(argument)} for what, argument in self.log],
            "taken": self.taken,
            "done": self.done,
            "floor": self.floor,
            "basis": None if basis is None else {"z": basis.z.clone(), "L": basis.L.clone()},
            **{
                filed: None if (part := getattr(self, name)) is None else part.clone()
                for name, filed in _TENSORS.items()
            },
            "rest": None if self.unremembered is None else self.unremembered.state_dict(),
            "sites": None if self.sites is None else self.sites.state_dict(),
            "sparing": None if self.removal is None else self.removal.state_dict(),
            "shared": memory_sites is not None,
        }

    @staticmethod
    def restored(state: dict, source) -> Rebuild:
        """A rebuild from its state.

        Args:
            state: as of `state_dict`.
            source: a map of the same kind, into which the copy's state is loaded.
        """
        source.load_state_dict(state["source"])
        source.sliced, source.driven, device = True, True, source.device

        new = Rebuild(
            source, type(source.theta)(**state["theta"]), int(state["budget"]), bool(state["full"])
        )

        new.steps_left = tuple((name, *map(int, block)) for name, *block in state["todo"])
        new.log = tuple(
            (entry["what"], _argument(entry["argument"], device)) for entry in state["log"]
        )
        new.taken, new.done, new.floor = (
            bool(state["taken"]),
            int(state["done"]),
            float(state["floor"]),
        )

        if state["basis"] is not None:
            z, factor = (state["basis"][name].to(device) for name in ("z", "L"))
            new.basis = Basis.restored(z, factor, source.new_basis(new.theta, z.shape[1]))
        # copies, since the next blocks are written into them, and the state stays what it is
        new.whitened, new.moved = (
            None if state[filed] is None else state[filed].to(device, copy=True)
            for filed in _TENSORS.values()
        )
        new.unremembered, new.sites = (
            None if state[name] is None else Sites.from_state_dict(state[name], device)
            for name in ("rest", "sites")
        )
        new.removal = (
            None
            if state["sparing"] is None
            else InputRemoval.from_state_dict(state["sparing"], device)
        )
        if state["shared"]:
            new.memory_sites = source.memory_sites_at(new.theta, new.basis, new.whitened)
        return new


def _columns(argument: Standardised | float) -> dict | float:
    """An argument in the log as a file keeps it."""
    if not isinstance(argument, Standardised):
        return argument
    return {f.name: getattr(argument, f.name) for f in fields(argument) if f.name != "copied"}


def _argument(kept: dict | float, device) -> Standardised | float:
    """The argument in the log that `_columns` gave."""
    if not isinstance(kept, dict):
        return float(kept)
    return Standardised(
        **{name: None if value is None else value.to(device) for name, value in kept.items()}
    )
