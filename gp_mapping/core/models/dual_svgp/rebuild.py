"""A dual SVGP at other hyper-parameters, or with fewer inducing inputs: made step by step, at once or in slices.

    choose      L = chol K at θ' from the old inputs; what the memory wants beside them is added, chunk by chunk
    carry       the rest of the sites through T = L'⁻¹ k(z', z) L⁻ᵀ, and the memory with fresh features, block by block;
                at the same θ and z they stand as they are
    spare       inputs that are not worth theirs go (worth.py); what is left spans a part of what was, so that features
                and sites follow by Q = L'⁻¹ E L, E the rows that stay: a' = Q a, D' = I + Q (D − I) Qᵀ
    replay      what the map has taken in meanwhile, again, into its successor

In slices the map itself goes on as it was, and a copy of it at the beginning is carried; when the copy has also taken
in what came meanwhile, it takes the map's place: it is what it would be, had all been done at the beginning. A slice is
a number of floating-point operations, so that the same samples give the same map, however fast the machine is.
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
from gp_mapping.core.sparse.worth import Sparing, bits_of, ratio_of
from gp_mapping.core.standardised import Standardised

__all__ = ["SLICE", "Rebuild"]

SLICE = 4e8  # floating-point operations after which a slice begins no further step: a tenth of a rebuild at M = 400
_CHUNK = 250  # remembered samples that are carried together
_LOOK = (
    2 * SLICE
)  # operations in which candidates are looked at together: at the default sizes all of them, so that
#                   the choice is the one that would be made at once
_LET_GO = 10  # inputs that go together
_TENSORS = {"whitened": "white", "moved": "moved"}  # attributes, and their names in files
_REPLAYED = 3  # batches that a slice takes in again: more than come meanwhile


class Rebuild:
    """The way of a map into other hyper-parameters.

    Args:
        model: the map; it is not written to.
        theta: where it goes.
        budget: inducing inputs that it may have there.
        full: whether it goes because its budget was full.
    """

    def __init__(self, model, theta: Theta, budget: int, full: bool = False):
        self.source, self.theta, self.budget, self.full = model, theta, budget, full
        self.todo: tuple[tuple, ...] = (
            ("choose",),
        )  # steps with their arguments; replaced, never written into
        self.log: tuple[tuple, ...] = ()  # what the map has done meanwhile
        self.taken, self.done, self.floor = False, 0, 0.0
        self.basis: Basis | None = None
        self.whitened: Tensor | None = None  # a(x) of the memory in that basis
        self.unremembered: Sites | None = (
            None  # without the memory's share, in the old basis; None: there is none
        )
        self.moved: Tensor | None = None  # T of the rest into that basis
        self.sparing: Sparing | None = None  # inputs that go
        self.sites: Sites | None = None
        self.memory_sites: MemorySites | None = None

    @property
    def moment(self) -> tuple[int, int]:
        """Differs wherever it has gone on."""
        return self.done, len(self.log)

    def freeze(self) -> None:
        """From now on the map may go on: what is carried is a copy of it as it is."""
        new = self.source.duplicate()
        new.learner, new.sliced, new.driven = None, True, True
        self.source = new
        if self.memory_sites is not None:  # some of its columns are the memory's own
            self.memory_sites = new.memory_sites_at(self.theta, self.basis, self.whitened)

    def note(self, what: str, argument) -> None:
        """The map has done that."""
        self.log = (*self.log, (what, argument))

    def advance(self, operations: float) -> float:
        """Steps, none begun after so many floating-point operations. How many it were. NumericalError."""
        spent = 0.0
        while self.todo and spent < operations:
            (name, *arguments), self.todo = self.todo[0], self.todo[1:]
            spent += getattr(self, f"_{name}")(*arguments)
        return spent

    def result(self) -> RebuiltParts:
        """The parts of the map, when nothing is to be done any more."""
        return RebuiltParts(self.basis, self.sites, self.memory_sites, self.floor)

    def slice(self) -> bool:
        """One slice of all that is to be done in the frozen copy; whether that may take the map's place."""
        self.done += 1
        spent = self.advance(SLICE) if self.todo else 0.0
        while spent < SLICE and not self.todo:
            if not self.taken:
                self.source.take(self.theta, self.result(), self.full)
                self.basis = self.whitened = self.unremembered = self.sites = self.memory_sites = (
                    None
                )
                self.taken = True
                continue
            if self.source.rebuild is not None:  # what it took in again wants another one
                self.source.go_on()
                return False
            if not self.log:
                return True
            (what, argument), self.log = self.log[0], self.log[1:]
            getattr(self.source, what)(argument)
            spent += SLICE / _REPLAYED
        return False

    # --- steps ----------------------------------------------------------------------------------------------------
    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Of the remembered samples, a few together."""
        count = len(self.source.memory)
        return ((start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK))

    def _at(self, z: Tensor) -> float:
        """A fresh basis on z, in which the memory has no features yet."""
        source = self.source
        self.basis = Basis.at(z, source.new_basis(self.theta, z.shape[1]))
        self.whitened = torch.zeros(
            (self.basis.size, len(source.memory)), dtype=torch.float64, device=source.device
        )
        return len(z) ** 3 / 3.0

    def _choose(self) -> float:
        """Inducing inputs for θ: the old ones, and what the memory wants beside them."""
        source, old = self.source, self.source.basis.z
        few = len(old) < self.budget
        if not few and source.fixed is None and not source.worth_decides:
            return self._pool()
        spent = self._as_it_is() if self._same else self._at(old)
        whiten: list[tuple] = [("whiten", *block) for block in self._blocks()]
        ahead = [] if self._same else whiten
        if source.fixed is None and few:
            tolerance = self._tolerance()
            # the lengthscale grew: some are needed no more
            if len(old) and float(self.basis.L.diagonal().min()) ** 2 < tolerance / 4:
                needed = sorted(greedy_inputs(self.basis.kernel, old, tolerance / 4, len(old)))
                spent += self._at(old[needed])
                ahead = whiten
            count = len(source.memory)
            lots = max(
                1, math.ceil(2.0 * count**2 * self.budget / _LOOK)
            )  # each spread over all the ground
            ahead = [*ahead, *(("grow", first, lots) for first in range(lots)), ("enough",)]
        else:
            ahead = [*ahead, *self._transfer_steps(), ("spare",)]
        self.todo = (*ahead, *self.todo)
        return spent

    @property
    def _same(self) -> bool:
        """Whether it stays at its θ, so that what is known in the old basis is what it is to be in the new one."""
        return self.theta == self.source.theta and self.source.may_slice

    def _as_it_is(self) -> float:
        """The old basis, and the memory's features in it."""
        source = self.source
        self.basis = source.basis.copy()
        self.whitened = source.remembered_features(self.basis.size).clone(
            memory_format=torch.contiguous_format
        )
        return float(self.whitened.numel() + len(self.basis) ** 2)

    def _tolerance(self) -> float:
        return self.source.tolerance * self.theta.signal_stddev**2

    def _whiten(self, start: int, stop: int) -> float:
        """Features of some remembered samples."""
        places, heading = (
            self.source.memory_places(self.theta)[start:stop],
            self.source.memory.heading[start:stop],
        )
        self.whitened[:, start:stop] = self.basis.whitened(places, heading)
        return 2.0 * len(self.basis) ** 2 * (stop - start)

    def _grow(self, first: int, every: int) -> float:
        """Inducing inputs among some remembered samples: the first-th and each `every`-th after it."""
        source, worth, places = (
            self.source,
            ratio_of(self.source.information),
            self.source.memory_places(self.theta),
        )
        among = slice(first, len(places), every)
        left = self.basis.residual(places[among], self.whitened[:, among])
        wanting = int((left > self._tolerance()).sum())
        if not wanting:
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
        )
        if len(rows):
            self.whitened = torch.cat([self.whitened, rows])
        return 2.0 * wanting * len(places) * (len(self.basis) + 2.0 * len(rows))

    def _enough(self) -> float:
        """Whether the budget suffices for the tolerance."""
        if not self.source.worth_decides and len(self.basis) >= self.budget:
            return self._pool()
        self.todo = (*self._transfer_steps(), ("spare",), *self.todo)
        return 0.0

    def _pool(self) -> float:
        """Too little budget for this tolerance: the best choice from old inputs and memory alike."""
        source, old = self.source, self.source.basis.z
        places = source.memory_places(self.theta)
        pool = torch.cat([old, places[:: max(1, len(places) // 1000)]])
        kernel = source.new_basis(self.theta, old.shape[1]).kernel
        spent = self._at(pool[greedy_inputs(kernel, pool, self._tolerance() / 4, self.budget)])
        self.todo = (
            *(("whiten", *block) for block in self._blocks()),
            *self._transfer_steps(),
            ("spare",),
            *self.todo,
        )
        return spent + len(pool) * self.budget**2

    def _transfer_steps(self) -> list[tuple]:
        """The steps that make the sites in the basis as it is then."""
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
        """The sites as they are."""
        self.sites = self.source.sites.clone()
        self.memory_sites = self.source.memory_sites_at(self.theta, self.basis, self.whitened)
        return float(self.whitened.numel() + len(self.basis) ** 2)

    def _copy_rest(self) -> float:
        self.unremembered = self.source.sites.clone()
        return float(len(self.source.basis) ** 2)

    def _take_out(self, start: int, stop: int) -> float:
        """Of the rest what some remembered samples have in it."""
        self.source.stand_in(self.unremembered, -1.0, slice(start, stop))
        return 2.0 * self.unremembered.size**2 * (stop - start)

    def _transfer(self) -> float:
        """T into the new basis."""
        source = self.source
        self.moved = self.basis.transfer_from(source.basis.z, source.basis.L, source.theta)
        return 3.0 * len(self.basis) ** 3

    def _project(self) -> float:
        """The rest into the new basis."""
        source, unremembered = self.source, self.unremembered
        if (
            source.unremembered_model_noise
        ):  # β = 1/(s_p² + …) of samples that are gone follows s_p²
            unremembered = unremembered.clone()
            unremembered.scale(source.theta.noise_stddev**2 / self.theta.noise_stddev**2)
        self.sites, self.moved = (
            unremembered.project(self.moved, self.basis.features + source.max_inducing),
            None,
        )
        return 5.0 * len(self.basis) ** 3

    def _begin_sites(self) -> float:
        source = self.source
        if source.unremembered_empty:
            capacity = self.basis.features + source.max_inducing
            self.sites = Sites(self.basis.size, source.sites.channels, capacity, source.device)
        self.memory_sites = source.memory_sites_at(self.theta, self.basis, self.whitened)
        return float(self.whitened.numel())

    def _put_back(self, start: int, stop: int) -> float:
        """Some remembered samples into the sites."""
        self.memory_sites.part(slice(start, stop)).add_to(self.sites)
        return 2.0 * self.sites.size**2 * (stop - start)

    def _spare(self) -> float:
        """Without inputs that are not worth theirs, and at most `budget` of them."""
        source, size = self.source, len(self.basis)
        self.todo = (*self.todo, ("check",))
        if source.fixed is not None or not source.worth_decides:
            return 0.0
        features = self.basis.features
        told, _ = self.sites.integrated(self.theta.bias_stddev**2)
        excess = told[features:, features:] - torch.eye(
            size, dtype=torch.float64, device=source.device
        )
        self.sparing = Sparing.of(self.basis.L, excess, ratio_of(source.information), self.budget)
        if self.sparing is None:
            return 2.0 * size**3
        self.todo = (("let_go",), *self.todo)
        return 5.0 * size**3

    def _let_go(self) -> float:
        """Some of the inputs that are worth least."""
        sparing, size = self.sparing, len(self.basis)
        left = sparing.left
        if not sparing.go_on(ratio_of(self.source.information), self.budget, _LET_GO):
            self.todo = (("let_go",), *self.todo)
        elif sparing.left < size:
            self.floor = 0.0 if sparing.left < self.budget else bits_of(2.0 * sparing.worst)
            self.sparing = None
            return 60.0 * (left - sparing.left) * size**2 + self._keep_inputs(sparing.alive)
        return 60.0 * (left - sparing.left) * size**2

    def _keep_inputs(self, kept: Tensor) -> float:
        """Of the inputs only those kept (M,), and what is known of them."""
        source, factor, size = self.source, self.basis.L.double(), len(self.basis)
        if (
            not source.may_slice or source.dtype != torch.float64
        ):  # sites that depend on the basis, or on its rounding
            spent = self._at(self.basis.z[kept])
            again = [("whiten", *block) for block in self._blocks()] + self._transfer_steps()
            self.todo = (*again, *self.todo)
            return spent
        self.basis = Basis.at(
            self.basis.z[kept], source.new_basis(self.theta, self.basis.z.shape[1])
        )
        features = torch.eye(self.basis.features, dtype=torch.float64, device=source.device)
        self.moved = torch.block_diag(features, solve_lower(self.basis.L, factor[kept]))
        self.todo = (("narrow",), ("narrow_sites",), *self.todo)
        return 1.4 * size**3

    def _narrow(self) -> float:
        """The memory's features on the inputs that stay."""
        operations = 2.0 * self.moved.numel() * self.whitened.shape[1]
        self.whitened = self.moved @ self.whitened
        return operations

    def _narrow_sites(self) -> float:
        """The sites on the inputs that stay."""
        source, size = self.source, self.sites.size
        self.sites, self.moved = (
            self.sites.project(self.moved, self.basis.features + source.max_inducing),
            None,
        )
        self.memory_sites = source.memory_sites_at(self.theta, self.basis, self.whitened)
        return 4.0 * size**3

    def _check(self) -> float:
        """NumericalError where the sites do not factor."""
        cholesky(self.sites.integrated(self.theta.bias_stddev**2)[0])
        return self.sites.size**3 / 3.0

    # --- files ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Everything that going on exactly needs; of a rebuild that is frozen."""
        basis, memory_sites = self.basis, self.memory_sites
        return {
            "source": self.source.state_dict(),
            "theta": asdict(self.theta),
            "budget": self.budget,
            "full": self.full,
            "todo": [list(step) for step in self.todo],
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
            "sparing": None if self.sparing is None else self.sparing.state_dict(),
            "shared": memory_sites is not None,
        }

    @staticmethod
    def restored(state: dict, source) -> Rebuild:
        """From a state. source: a map of its kind, which takes the state's."""
        source.load_state_dict(state["source"])
        source.sliced, source.driven, device = True, True, source.device
        new = Rebuild(
            source, type(source.theta)(**state["theta"]), int(state["budget"]), bool(state["full"])
        )
        new.todo = tuple((name, *map(int, block)) for name, *block in state["todo"])
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
        new.whitened, new.moved = (
            None if state[filed] is None else state[filed].to(device) for filed in _TENSORS.values()
        )
        new.unremembered, new.sites = (
            None if state[name] is None else Sites.from_state_dict(state[name], device)
            for name in ("rest", "sites")
        )
        new.sparing = (
            None if state["sparing"] is None else Sparing.from_state_dict(state["sparing"], device)
        )
        if state["shared"]:
            new.memory_sites = source.memory_sites_at(new.theta, new.basis, new.whitened)
        return new


def _columns(argument: Standardised | float) -> dict | float:
    """An entry of the log as a file keeps it."""
    if not isinstance(argument, Standardised):
        return argument
    return {f.name: getattr(argument, f.name) for f in fields(argument)}


def _argument(kept: dict | float, device) -> Standardised | float:
    if not isinstance(kept, dict):
        return float(kept)
    return Standardised(
        **{name: None if value is None else value.to(device) for name, value in kept.items()}
    )
