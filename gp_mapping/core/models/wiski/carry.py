"""Carrying a WISKI map elsewhere: to other hyper-parameters, another lattice, into another map, a fantasy, a file.

What is in the memory is taken out of the sums exactly as it went in, and put back at its new place and weight. The
rest, of which no sample is left, keeps its places; its weights follow s_p² while all of them came from s_p². Onto
another lattice the rest travels as its lumps: weighted samples, within half a spacing of where they were.
"""

from __future__ import annotations

import copy
from dataclasses import asdict

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.carry import check_alike
from gp_mapping.core.models.wiski.lattice.packed import PackedMemory
from gp_mapping.core.models.wiski.lattice.sites import OFFSETS, GridSites
from gp_mapping.core.models.wiski.posterior import WiskiPosterior
from gp_mapping.core.models.wiski.refresh import Refresh
from gp_mapping.core.scaling import Scaling

__all__ = ["fantasize", "forget_near", "load", "merge", "respace", "save", "to_theta"]

_FITTING = ("scale", "memory_size", "density", "max_nodes", "refresh_samples", "tolerance")
_SAVED = ("samples", "refused", "coarsened", "rest_empty", "rest_own_noise", "lag", "credit")


def places_of(model, theta: Theta) -> Tensor:
    """Where the memory's samples were measured: (m, 2)."""
    return theta.place(model.memory.x, model.memory.velocity, model.memory.heading)


def rest_of(model) -> GridSites:
    """The sums without the memory's and the fantasies' share."""
    grid, memory, points = model.grid, model.memory, model.points
    if model.rest_empty:  # exactly nothing, without rounding
        return grid.like()
    rest = grid.clone()
    rest.add(places_of(model, model.theta), memory.heading, -memory.beta, -memory.lam)
    rest.add(points["x"], torch.zeros_like(points["x"]), -points["beta"], -points["lam"], lump=False)
    return rest


def put_back(model, grid: GridSites, theta: Theta) -> None:
    """Add the memory and the fantasies to a grid that lacks them."""
    memory, points = model.memory, model.points
    grid.add(places_of(model, theta), memory.heading, memory.beta, memory.lam)
    grid.add(points["x"], torch.zeros_like(points["x"]), points["beta"], points["lam"], lump=False)


@torch.no_grad()
def to_theta(model, theta: Theta) -> None:
    """Move what depends on θ: the memory's places and weights, the rest's weights. The lattice stays."""
    old, memory = model.theta, model.memory
    sums = ("noise", "offset", "along", "across")
    if any(getattr(old, name) != getattr(theta, name) for name in sums):
        rest = rest_of(model)
        if model.rest_own_noise:
            rest.scale(old.noise**2 / theta.noise**2)
        memory.keep_columns()
        memory.beta.copy_(memory.weight / model.noise(memory.noise, memory.extra, theta))
        memory.lam.copy_(memory.beta[:, None] * memory.y)
        rest.start.copy_(model.grid.start)
        model.grid = rest
        if len(memory):
            rest.grow(*rest.box_for(places_of(model, theta)))
        put_back(model, rest, theta)
    model.grid.start = model.grid.start * (old.signal**2 / theta.signal**2)  # u = K p stays about where it was
    model.theta = theta


@torch.no_grad()
def respace(model, spacing: float) -> None:
    """Another lattice: memory and fantasies exactly, the rest as its lumps."""
    old = model.grid
    x, heading, beta, lam = rest_of(model).samples()
    new = GridSites(spacing, model.scaling.origin, old.channels, model.device)
    everything = torch.cat([x, places_of(model, model.theta), model.points["x"]])
    if len(everything):
        new.grow(*new.box_for(everything))
        new.add(x, heading, beta, lam)
        put_back(model, new, model.theta)
        new.features.copy_(old.features)
        new.linear.copy_(old.linear)
    model.grid = new
    model.changed()


def duplicate(model):
    """An independent copy."""
    new = copy.copy(model)
    if model.grid is not None:
        new.grid, new.start_f = model.grid.clone(), model.start_f.clone()
        new.memory = PackedMemory.from_state_dict(model.memory.state_dict(), model.device)
    new.generator = torch.Generator()
    new.generator.set_state(model.generator.get_state())
    new.learner, new._posterior = copy.deepcopy(model.learner), None
    new.ahead, new._drawing, new._shown = None, None, None
    return new


@torch.no_grad()
def fantasize(model, x: Tensor):
    """Sites with the target wᵀu + f_c at x: G grows, u = K p still solves the system, so the mean stays."""
    before = model.posterior
    inner = model.scaling.inner_x(x)
    new = duplicate(model)
    new.base, new.points = None, dict(model.points)
    if model.base is before and not len(inner):
        return new
    low, shape = new.grid.box_for(inner) if len(inner) else (new.grid.low, new.grid.shape)
    if shape[0] * shape[1] > model.max_nodes:
        raise ValueError(f"a fantasy so far away needs {shape[0] * shape[1]} nodes, more than max_grid_nodes "
                         f"{model.max_nodes}")
    if before is model.base and model.lag:
        before = model._solution().result()[0]  # a fantasy extends what is known now
    # its solution is where the copy's solver starts, and ends
    new.grid.start.zero_()
    new.grid.start[before.held] = before.p
    new.start_f = before.f.clone()
    new.grid.grow(low, shape)
    mean = before.mean(inner)
    beta = torch.full((len(inner),), 1.0 / before.noise_variance, dtype=torch.float64, device=model.device)
    lam = beta[:, None] * mean
    new.grid.add(inner, torch.zeros_like(inner), beta, lam, lump=False)
    fresh = {"x": inner, "beta": beta, "lam": lam}
    new.points = {k: torch.cat([v, fresh[k]]) for k, v in model.points.items()}
    return new


@torch.no_grad()
def forget_near(model, x: Tensor, radius: float, newest: int) -> int:
    """Take out the memory's samples near x exactly; of the rest, the pseudo-data on nodes near x: G ← SGS.

    S_jj is 0 near x, 1 elsewhere. The newest samples, and what lies farther away, keep their weight. Returns how many
    samples went.
    """
    memory, inner, old = model.memory, model.scaling.inner_x(x), model.grid
    near = (torch.cdist(places_of(model, model.theta), inner) <= radius).any(1)
    near &= memory.order < memory.arrivals - newest
    rest = rest_of(model)
    if not model.rest_empty:
        wipe(rest, inner, radius)
    far = ~(torch.cdist(model.points["x"], inner) <= radius).any(1)
    model.points = {k: v[far] for k, v in model.points.items()}
    memory.keep(~near)
    rest.start.copy_(old.start)
    put_back(model, rest, model.theta)
    model.grid = rest
    model.changed()
    return int(near.sum())


def wipe(grid: GridSites, x: Tensor, radius: float) -> None:
    """G ← SGS, and b, B and the lumps likewise: nothing is left on nodes within radius of x (K, 2)."""
    height, width = grid.shape
    low = torch.tensor(grid.low, device=grid.device)
    number = torch.arange(grid.nodes, device=grid.device)
    units = torch.stack([number // width, number % width], 1) + low
    keep = torch.ones(grid.nodes, dtype=torch.float64, device=grid.device)
    lumps = torch.arange(4 * grid.nodes, device=grid.device)
    squares = (torch.stack([lumps // (2 * width), lumps % (2 * width)], 1) + 2 * low).double() * 0.5 + 0.25
    gone = torch.zeros(4 * grid.nodes, dtype=torch.bool, device=grid.device)
    for place in x:
        keep[(grid.places(units) - place).norm(dim=1) <= radius] = 0.0
        gone |= (grid.places(squares) - place).norm(dim=1) <= radius
    for k, (i, j) in enumerate(OFFSETS):
        grid.stencil[:, k] *= keep * keep.roll(-(i * width + j))
    grid.sides.mul_(keep[:, None])
    lost = grid.lumps[gone]
    beta = lost[:, 0].clamp_min(1e-300)
    phi = torch.cat([lost[:, :1], lost[:, 6:8]], 1)  # β φ
    grid.features.sub_((phi.mT / beta) @ phi)
    grid.linear.sub_((phi.mT / beta) @ lost[:, 8:])
    grid.lumps[gone] = 0.0


@torch.no_grad()
def merge(model, other) -> None:
    """Add `other`, carried to this map's θ and lattice."""
    if type(other) is not type(model):
        raise ValueError(f"cannot merge a {type(other).__name__} into a {type(model).__name__}")
    if other.grid is None:
        return
    check_alike(model, other)
    its = duplicate(other)
    fresh = model.grid is None
    spacing = model.spacing_for(model.theta) if fresh else model.grid.spacing
    if its.theta != model.theta:
        to_theta(its, model.theta)
    if its.grid.spacing != spacing:
        respace(its, spacing)
    origin = other.scaling.origin if fresh else model.scaling.origin
    offset = other.scaling.origin - origin
    x = torch.cat([its.grid.samples()[0], its.points["x"]]) + offset
    if not fresh and len(x):
        low, shape = model.grid.box_for(x)
        # the other's box whole: its sums are added as they lie
        corners = its.grid.places(torch.tensor([its.grid.low, [k + n - 1 for k, n in
                                                               zip(its.grid.low, its.grid.shape)]],
                                               device=model.device)) + offset
        low, shape = joint_box(model.grid, its.grid, corners)
        if shape[0] * shape[1] > model.max_nodes:
            raise ValueError(f"the two maps together need {shape[0] * shape[1]} nodes, more than max_grid_nodes "
                             f"{model.max_nodes}; nothing was merged")
    if fresh:
        model.scaling = other.scaling
        model.begin(other.grid.channels)
        low, shape = its.grid.low, its.grid.shape
    delta = (other.scaling.centre - model.scaling.centre) / model.scale
    its.grid.shift_centre(delta)
    model.grid.grow(low, shape)
    model.grid.merge(its.grid)
    memory, points = its.memory.values(), its.points
    memory["x"], memory["y"] = memory["x"] + offset, memory["y"] + delta
    memory["lam"] = memory["lam"] + memory["beta"][:, None] * delta
    memory["order"] = memory["order"] + model.memory.arrivals
    fresh_points = {"x": points["x"] + offset, "beta": points["beta"],
                    "lam": points["lam"] + points["beta"][:, None] * delta}
    model.points = {k: torch.cat([v, fresh_points[k]]) for k, v in model.points.items()}
    white = memory["beta"].new_empty((0, len(memory["beta"])))
    fell = model.memory.offer(memory, white, model.leverage, other.memory.arrivals)
    model.rest_empty = model.rest_empty and other.rest_empty and not fell
    model.rest_own_noise = model.rest_own_noise and other.rest_own_noise
    model.samples += other.samples
    model.changed()


def joint_box(mine: GridSites, its: GridSites, corners: Tensor):
    """The least box of both."""
    low, shape = [], []
    for d in range(2):
        a, b = mine.low[d], its.low[d] + its.first[d] - mine.first[d]
        end = max(a + mine.shape[d], b + its.shape[d])
        low.append(min(a, b))
        shape.append(end - min(a, b))
    return tuple(low), tuple(shape)


def save(model) -> dict:
    """Everything that an exact resume needs: tensors, numbers, strings."""
    state = {"model": "wiski", "theta": asdict(model.theta), "generator": model.generator.get_state(),
             "learner": None if model.learner is None else model.learner.state_dict(), "grid": None}
    state |= {name: getattr(model, name) for name in (*_FITTING, *_SAVED)}
    if model.grid is not None:
        state |= {"origin": model.scaling.origin.clone(), "centre": model.scaling.centre.clone(),
                  "grid": model.grid.state_dict(), "memory": model.memory.state_dict(),
                  "points": {k: v.clone() for k, v in model.points.items()}, "start_f": model.start_f.clone(),
                  "base": None if model.base is None else model.base.state_dict(),
                  "base_is_new": model.base_epoch == model.epoch,
                  "ahead": None if model.ahead is None else model.ahead.state_dict(),
                  "ahead_is_new": model.ahead is not None and model.ahead.epoch == model.epoch,
                  "features": None if model.features is None else list(model.features)}
    return state


def load(model, state: dict) -> None:
    """Continue where `save` was taken. ValueError, and the map as it was, where the state does not fit."""
    try:
        if state["model"] != "wiski":
            raise ValueError(f"the state is of model {state['model']!r}, this map is 'wiski'")
        for name in _FITTING:
            if state[name] != getattr(model, name):
                raise ValueError(f"{name} is {state[name]} in the state and {getattr(model, name)} in this map")
        device = model.device
        parts = {"theta": Theta(**state["theta"]), "scaling": None, "grid": None, "memory": None, "points": {},
                 "start_f": None, "base": None, "features": None, "ahead": None, "epoch": model.epoch + 1,
                 "base_epoch": 0}
        parts |= {name: state[name] for name in _SAVED}
        if state["grid"] is not None:
            origin = state["origin"].to(device, copy=True)
            base, features, ahead = state["base"], state["features"], state["ahead"]
            if features is not None:
                features = (*(part.to(device, copy=True) for part in features[:2]), int(features[2]))
            parts |= {"scaling": Scaling(origin, state["centre"].to(device, copy=True), state["scale"]),
                      "grid": GridSites.from_state_dict(state["grid"], origin, device),
                      "memory": PackedMemory.from_state_dict(state["memory"], device),
                      "points": {k: v.to(device, copy=True) for k, v in state["points"].items()},
                      "start_f": state["start_f"].to(device, copy=True), "features": features,
                      "base": None if base is None else WiskiPosterior.from_state_dict(copy.deepcopy(base), device)}
            parts["base_epoch"] = model.epoch + bool(state["base_is_new"])
            if ahead is not None:
                parts["ahead"] = Refresh.from_state_dict(ahead, model.epoch + bool(state["ahead_is_new"]), device)
        generator, learner = torch.Generator(), copy.deepcopy(model.learner)
        generator.set_state(state["generator"])
        if learner is not None and state["learner"] is not None:
            learner.load_state_dict(state["learner"])
    except (KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"not a state of a WISKI map: {type(error).__name__}: {error}") from error
    model.__dict__.update(parts | {"generator": generator, "learner": learner, "_posterior": None,
                                   "_drawing": None, "_shown": None})
