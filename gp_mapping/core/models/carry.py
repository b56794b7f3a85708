"""Carrying a dual SVGP elsewhere: to new hyper-parameters, into another map, into a fantasy, to a file and back.

What is in the memory is taken out exactly as it stands and put back with fresh features; only the rest, of which no
sample is left, is moved as pseudo-data (lesson 3 of measured.md: hold K⁻¹GK⁻¹ and K⁻¹h).
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Gaussian
from gp_mapping.core.linalg import cholesky
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.basis import Basis, greedy_inputs
from gp_mapping.core.sparse.memory import Memory
from gp_mapping.core.sparse.sites import Sites
from gp_mapping.core.sparse.worth import bits_of, dispensable, ratio_of

__all__ = ["Carried", "Share", "excerpt", "fantasize", "forget_near", "load", "merge", "save", "to_theta"]

_SLICE = 25  # samples of another map that come in together
_SURE = 1e300  # β of an input that pays whatever it tells
_CHUNK = 500  # candidates for inducing inputs looked at together


@dataclass(frozen=True)
class Share:
    """What the memory's samples have in the sites: features (R, m), and β (m,), λ (m, C) among the columns."""

    white: Tensor
    columns: dict[str, Tensor]

    def add_to(self, sites: Sites) -> None:
        sites.add(self.white, self.columns["beta"], self.columns["lam"])

    def write(self, memory: Memory) -> None:
        """The memory keeps it, to take it out again."""
        memory.keep_columns(features=True)
        for name, column in self.columns.items():
            getattr(memory, name).copy_(column)
        memory.set_white(self.white)


@dataclass(frozen=True)
class Carried:
    """The parts of a map at new hyper-parameters."""

    basis: Basis
    sites: Sites
    share: Share
    floor: float = 0.0  # bits, where inputs were given up that had been worth theirs


def rest_of(model) -> Sites:
    """The sites without the memory's share."""
    if model.rest_empty:  # exactly nothing, without rounding
        return Sites(model.basis.size, model.sites.channels, len(model.sites._d), model.device)
    rest = model.sites.clone()
    rest.subtract(model.memory.white(model.basis.size), model.memory.beta, model.memory.lam)
    return rest


def basis_at(model, theta: Theta, budget: int) -> tuple[Basis, Tensor]:
    """Inducing inputs for θ, and the memory's features there: the old inputs, and what the memory wants beside them."""
    old, places, heading = model.basis.z, model.memory_places(theta), model.memory.heading
    empty = model.new_basis(theta, old.shape[1])
    if model.fixed is not None:
        basis = Basis.at(old, empty)
        return basis, basis.white(places, heading)
    tolerance = model.tolerance * theta.signal**2
    worth = ratio_of(model.information)
    if len(old) < budget:
        basis = Basis.at(old, empty)
        # the lengthscale grew: some are needed no more
        if len(old) and float(basis.L.diagonal().min()) ** 2 < tolerance / 4:
            basis = Basis.at(old[sorted(greedy_inputs(empty.kernel, old, tolerance / 4, len(old)))], empty)
        white, precision = basis.white(places, heading), None
        if worth:
            precision = model.remembered_precision(theta)
        for start in range(0, len(places), _CHUNK):
            among = slice(start, min(start + _CHUNK, len(places)))
            white = torch.cat([white, basis.grow(places, white, among, tolerance, budget - len(basis), precision,
                                                 worth)])
        if worth or len(basis) < budget:
            return basis, white
    elif worth:  # the least worth go when the sites are there
        basis = Basis.at(old, empty)
        return basis, basis.white(places, heading)
    # too little budget for this tolerance: the best choice from old inputs and memory alike
    step = max(1, len(places) // (2 * _CHUNK))
    pool = torch.cat([old, places[::step]])
    basis = Basis.at(pool[greedy_inputs(empty.kernel, pool, tolerance / 4, budget)], empty)
    return basis, basis.white(places, heading)


def at_theta(model, theta: Theta, basis: Basis, white: Tensor) -> Carried:
    """The model's parts at θ in that basis, where the memory's features are `white`."""
    capacity = basis.features + model.max_inducing
    if model.rest_empty:
        sites = Sites(basis.size, model.sites.channels, capacity, model.device)
    else:
        rest = rest_of(model)
        if model.rest_own_noise:  # β = 1/(s_p² + …) of samples that are gone follows s_p²
            rest.scale(model.theta.noise**2 / theta.noise**2)
        sites = rest.project(basis.transfer_from(model.basis.z, model.basis.L, model.theta), capacity)
    share = model.share_at(theta, basis, white)
    share.add_to(sites)
    return Carried(basis, sites, share)


def to_theta(model, theta: Theta, budget: int) -> Carried:
    """The model's parts at θ, without inducing inputs that are not worth theirs, and at most `budget` of them.

    Raises NumericalError where they do not factor; the model itself is not touched.
    """
    basis, white = basis_at(model, theta, budget)
    carried = at_theta(model, theta, basis, white)
    if model.fixed is None and model.information > 0:
        features = basis.features
        excess = carried.sites.precision[features:, features:] - torch.eye(len(basis), dtype=torch.float64,
                                                                           device=model.device)
        stay, worst = dispensable(basis.L, excess, ratio_of(model.information), down_to=budget)
        if len(stay) < len(basis):
            basis = Basis.at(basis.z[stay], model.new_basis(theta, basis.z.shape[1]))
            white = basis.white(model.memory_places(theta), model.memory.heading)
            floor = carried.floor if len(stay) < budget else bits_of(2.0 * worst)
            carried = replace(at_theta(model, theta, basis, white), floor=floor)
    cholesky(carried.sites.precision)
    return carried


def duplicate(model, rows: int = 0):
    """An independent copy with room for some more inducing inputs."""
    new = copy.copy(model)
    if model.basis is not None:
        new.max_inducing = model.max_inducing + rows
        new.basis = model.basis.copy(new.max_inducing)
        new.sites = Sites(model.basis.size, model.sites.channels, model.basis.features + new.max_inducing, model.device)
        new.sites.precision.copy_(model.sites.precision)
        new.sites._r[: new.sites.size] = model.sites._r[: model.sites.size]
        state = model.memory.state_dict()
        new.memory = model.memory_kind.from_state_dict(state | {"rows": model.basis.features + new.max_inducing,
                                                     "white": state["white"]}, model.device)
    new.generator = torch.Generator()
    new.generator.set_state(model.generator.get_state())
    new.learner, new._posterior = copy.deepcopy(model.learner), None
    return new


@torch.no_grad()
def excerpt(model, which: Tensor, theta: Theta):
    """A map that has seen some of the remembered samples and nothing else, without a basis: to be merged elsewhere."""
    new = copy.copy(model)
    new.theta, new.basis = theta, model.new_basis(theta, model.memory.x.shape[1])
    new.sites = Sites(new.basis.size, model.sites.channels, new.basis.features + model.max_inducing, model.device)
    state = model.memory.state_dict()
    if model.likelihood.conjugate:
        beta = model.remembered_precision(theta)
        state |= {"beta": beta, "lam": beta[:, None] * model.memory.y}
    kept = {name: state[name][which] for name in type(model.memory).COLUMNS}
    # numbered anew: passed on from tile to tile, arrival numbers would grow like a power
    kept["order"] = kept["order"].argsort().argsort().double()
    state |= {"arrivals": len(kept["order"])}
    new.memory = type(model.memory).from_state_dict(
        state | kept | {"white": kept["x"].new_zeros((len(kept["x"]), new.basis.size))}, model.device)
    new.samples, new.rest_empty, new.learner, new._posterior = len(kept["x"]), True, None, None
    new.generator = torch.Generator().manual_seed(0)
    return new


@torch.no_grad()
def fantasize(model, x: Tensor):
    """Sites with the target a(x)ᵀD⁻¹r: D grows, and the mean stays, exactly (Alg. 2 of Chang et al. 2023)."""
    model.need_data()
    inner = model.scaling.inner_x(x)
    before = model.posterior
    new = duplicate(model, len(inner))
    mean, variance = before.inner(inner)
    white = new.basis.white(inner)
    rows = new.basis.grow(inner, white, slice(0, len(inner)), model.fantasy_tolerance * model.theta.signal**2)
    new.sites.pad(len(rows))  # no border by the memory: it would move the mean
    beta = model.likelihood.information(mean, variance, torch.full_like(variance, model.noise_level))
    new.sites.add(torch.cat([white, rows]), beta, beta[:, None] * mean)
    new.rest_empty = False  # no sample stands for it
    return new


@torch.no_grad()
def forget_near(model, x: Tensor, radius: float, newest: int) -> int:
    """Take out the memory's samples near x exactly; of the rest, the pseudo-data on u near x: Λ ← SΛS, S_jj ∈ {0, 1}.

    Whitened, that is T = LᵀSL⁻ᵀ. What lies farther away keeps its confidence. Returns how many samples went.
    """
    memory, inner = model.memory, model.scaling.inner_x(x)
    near = (torch.cdist(model.memory_places(model.theta), inner) <= radius).any(1)
    near &= memory.order < memory.arrivals - newest
    kept = ~near
    if model.rest_empty:
        sites = Sites(model.basis.size, model.sites.channels, len(model.sites._d), model.device)
    else:
        z, factor = model.basis.z, model.basis.L.double()
        keep = (~(torch.cdist(z, inner) <= radius).any(1)).double()
        inducing = torch.linalg.solve_triangular(factor, keep[:, None] * factor, upper=False).mT
        features = torch.eye(model.basis.features, dtype=torch.float64, device=model.device)
        sites = rest_of(model).project(torch.block_diag(features, inducing), len(model.sites._d))
    share = model.share_of(kept)
    share.add_to(sites)
    cholesky(sites.precision)
    model.sites, model._posterior, model.epoch = sites, None, model.epoch + 1
    memory.keep(kept)
    share.write(memory)
    return int(near.sum())


def check_alike(model, other) -> None:
    """ValueError where two maps cannot be merged: other units, kernels, features, dimensions or channels."""
    pairs = {"field_scale": (model.scale, other.scale), "kernel": (model.theta.shape, other.theta.shape),
             "constant": (model.theta.constant > 0, other.theta.constant > 0),
             "likelihood": tuple(getattr(m, "likelihood", Gaussian()).label for m in (model, other))}
    if model.scaling is not None and other.scaling is not None:
        pairs |= {"dimensions": (len(model.scaling.origin), len(other.scaling.origin)),
                  "channels": (len(model.scaling.centre), len(other.scaling.centre))}
    for name, (mine, its) in pairs.items():
        if mine != its:
            raise ValueError(f"maps that differ in {name} cannot be merged: {mine} here, {its} there")


@torch.no_grad()
def merge(model, other) -> None:
    """Add `other`: the rest of it projected into the joint basis, its memory with fresh features."""
    if type(other) is not type(model):
        raise ValueError(f"cannot merge a {type(other).__name__} into a {type(model).__name__}")
    if other.basis is None:
        return
    check_alike(model, other)
    if model.basis is None:
        model.scaling = other.scaling
        model._begin(other.basis.z.shape[1], other.sites.channels)
    other = duplicate(other, 2)  # room for features that only this map has
    if other.theta != model.theta and not other.adopt(model.theta):
        raise ValueError("the other map cannot be carried to this one's hyper-parameters; nothing was merged")
    offset = other.scaling.origin - model.scaling.origin
    delta = (other.scaling.centre - model.scaling.centre) / model.scale
    z, memory = other.basis.z + offset, other.memory.values()
    memory["x"], memory["y"] = memory["x"] + offset, memory["y"] + delta
    memory["lam"] = memory["lam"] + memory["beta"][:, None] * delta
    if model.fixed is None:
        _welcome(model, other, z, memory)
    if not other.rest_empty:
        rest = rest_of(other)
        rest.shift(delta)
        transfer = model.basis.transfer_from(z, other.basis.L, other.theta)
        model.sites.merge(rest.project(transfer, len(model.sites._d)))
    memory["order"] = memory["order"] + model.memory.arrivals
    fell = _take_in(model, other, memory)
    model.rest_empty = model.rest_empty and other.rest_empty and not fell
    model.rest_own_noise = model.rest_own_noise and other.rest_own_noise
    model.samples += other.samples
    model._posterior, model.epoch = None, model.epoch + 1


def _welcome(model, other, z: Tensor, memory: dict[str, Tensor]) -> None:
    """Inducing inputs for another map's z (K, D) and remembered samples, in this map's coordinates.

    Its z were worth theirs there; what is not here any more goes when z are next thinned. Where worth decides, a sample
    comes with its site (_take_in): without it nothing would tell what its input is worth.
    """
    places = model.theta.place(memory["x"], memory["velocity"], memory["heading"])
    wanting = z if model.worth else torch.cat([z, places])
    for part in wanting.split(_CHUNK):
        model.append(part, model.basis.white(part), torch.full((len(part),), _SURE, dtype=torch.float64,
                                                               device=z.device))


def _take_in(model, other, memory: dict[str, Tensor]) -> int:
    """Add another map's remembered samples; how many, here or there, fell out of the memory."""
    places = model.theta.place(memory["x"], memory["velocity"], memory["heading"])
    if not model.worth or model.fixed is not None:
        return model.take_in(memory, model.basis.white(places, memory["heading"]), other.memory.arrivals)
    fell, arrivals, precision = 0, other.memory.arrivals, other.remembered_precision(model.theta)
    for part in torch.arange(len(places), device=model.device).split(_SLICE):
        x, heading = places[part], memory["heading"][part]
        white, _, _ = model.grow(x, heading, model.basis.white(x, heading), precision[part])
        fell += model.take_in({name: column[part] for name, column in memory.items()}, white, arrivals)
        arrivals = 0
    return fell


def save(model) -> dict:
    """Everything that an exact resume needs: tensors, numbers, strings."""
    state = {"model": model.name, "likelihood": model.likelihood.label, "theta": asdict(model.theta),
             "samples": model.samples, "scale": model.scale,
             "max_inducing": model.max_inducing, "tolerance": model.tolerance, "memory_size": model.memory_size,
             "information": model.information, "floor": model.floor, "thinned": model.thinned, "moves": model.moves,
             "rest_empty": model.rest_empty, "rest_own_noise": model.rest_own_noise,
             "generator": model.generator.get_state(), "fixed": model.fixed,
             "learner": None if model.learner is None else model.learner.state_dict(), "basis": None}
    if model.basis is not None:
        state |= {"origin": model.scaling.origin.clone(), "centre": model.scaling.centre.clone(),
                  "basis": {"z": model.basis.z.clone(), "L": model.basis.L.clone()},
                  "sites": model.sites.state_dict(), "memory": model.memory.state_dict()}
    return state


def load(model, state: dict) -> None:
    """Continue where `save` was taken. ValueError, and the map as it was, where the state does not fit."""
    try:
        if state["model"] != model.name:
            raise ValueError(f"the state is of model {state['model']!r}, this map is {model.name!r}")
        if state["likelihood"] != model.likelihood.label:
            raise ValueError(f"the state has likelihood {state['likelihood']}, this map {model.likelihood.label}")
        for name in ("scale", "max_inducing", "memory_size", "tolerance", "information"):
            if state[name] != getattr(model, name):
                raise ValueError(f"{name} is {state[name]} in the state and {getattr(model, name)} in this map")
        theta = type(model.theta)(**state["theta"])
        parts = {"theta": theta, "scaling": None, "basis": None, "sites": None, "memory": None, "_posterior": None}
        if state["basis"] is not None:
            scaling = Scaling(state["origin"].to(model.device), state["centre"].to(model.device), state["scale"])
            z, factor = state["basis"]["z"].to(model.device), state["basis"]["L"].to(model.device)
            basis = Basis(theta, z.shape[1], model.max_inducing, model.dtype, model.device)
            basis.z = z
            basis._buffer[: len(z), : len(z)] = factor.to(model.dtype)
            parts |= {"scaling": scaling, "basis": basis,
                      "sites": Sites.from_state_dict(state["sites"], model.device),
                      "memory": model.memory_kind.from_state_dict(state["memory"], model.device)}
            if parts["sites"].size != basis.size:
                raise ValueError(f"{parts['sites'].size} rows of sites do not fit {basis.size} of the basis")
        parts |= {k: state[k] for k in ("samples", "floor", "thinned", "moves", "rest_empty", "rest_own_noise")}
        generator = torch.Generator()
        generator.set_state(state["generator"])
        learner = copy.deepcopy(model.learner)
        if learner is not None and state["learner"] is not None:
            learner.load_state_dict(state["learner"])
    except (KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"not a state of a {model.name} map: {type(error).__name__}: {error}") from error
    model.__dict__.update(parts | {"generator": generator, "learner": learner, "epoch": model.epoch + 1})
