"""Where to measure next, when a place costs nothing: active sampling, hotspots, and the search for a maximum.

`python -m benchmark active [--quick] [--only sampling,hotspots,optimisation]`: tables as in section 5 of Stanton et al.
(2021) and section 4.1 of Chang et al. (2023). θ is learned as the samples come; a batch is chosen by fantasies
(Alg. 2 of Chang et al.): the model is conditioned on its own mean at each place before the next one is chosen. The
exact GP is the package's own; BoTorch is no dependency of it.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmark.drawn import ProcessField
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.registry import create_map
from gp_mapping.core.types import Samples
from gp_mapping.planning.acquisition import integrated_variance_reduction, maximum_variance

__all__ = [
    "ACQUISITIONS",
    "FUNCTIONS",
    "MODELS",
    "TABLES",
    "ackley",
    "branin",
    "expected_improvement",
    "run",
    "upper_confidence_bound",
]

MODELS = ("wiski", "dual_svgp", "exact")
TABLES = ("sampling", "hotspots", "optimisation")
SIDE = 4.0  # m, of the square in which all of it happens
START = {
    "learn_time_offset": False,
    "learn_bias": False,
    "lengthscale": 1.0,
    "field_scale": 1.0,
    "signal_stddev": 1.0,
    "noise_stddev": 0.3,
    "heading_stddev": 0.0,
    "constant_stddev": 1.0,
}


def say(text: str) -> None:
    print(f"active: {text}", file=sys.stderr, flush=True)


def places(count: int, generator: torch.Generator) -> Tensor:
    """(count, 2) m, uniform in the square."""
    return SIDE * torch.rand(count, 2, dtype=torch.float64, generator=generator)


def batch(
    field: FieldMap, candidates: Tensor, count: int, worth: Callable[[FieldMap, Tensor], Tensor]
) -> Tensor:
    """Indices of `count` candidates (K, D), one after the other, each after a fantasy at the one before."""
    open_still, chosen = torch.ones(len(candidates), dtype=torch.bool), []
    for left in range(count, 0, -1):
        best = int(worth(field, candidates).masked_fill(~open_still, -torch.inf).argmax())
        chosen.append(best)
        open_still[best] = False
        if left > 1:
            field = field.fantasize(candidates[best][None])
    return torch.tensor(chosen)


def add(field: FieldMap, x: Tensor, y: Tensor) -> None:
    """One batch of samples, and what there is to learn from it."""
    field.update(Samples(x, y))
    field.refine()


# --- active sampling: lower the error everywhere ------------------------------------------------------------------
def sampling(quick: bool, seeds: range) -> tuple[Table, list[Goal]]:
    """RMSE over the square by number of samples: integrated variance (NIPV), largest variance, by chance."""
    marks = (28, 40) if quick else (28, 40, 70, 100)
    kinds: dict[str, Callable | None] = {
        "integrated variance": integrated_variance_reduction,
        "largest variance": None,
        "by chance": None,
    }
    table = Table(
        "Active sampling: RMSE of the field by number of samples, 10 at random and then six at a time",
        [("model", ""), ("chosen by", ""), *((f"{n}", ".3f") for n in marks), ("s a batch", ".2f")],
    )
    found: dict[tuple, list] = {}
    for model in MODELS[1:2] if quick else MODELS:
        for kind in kinds:
            rows, seconds = [], []
            for seed in seeds:
                say(f"sampling, {model}, {kind}, seed {seed}")
                generator = torch.Generator().manual_seed(seed)
                truth, targets, candidates = (
                    ProcessField(0.8, seed),
                    places(300, generator),
                    places(300, generator),
                )
                y = truth(candidates) + 0.1 * torch.randn(
                    300, 1, dtype=torch.float64, generator=generator
                )
                used, row, field = list(range(10)), [], create_map(model, seed=seed, **START)
                add(field, candidates[:10], y[:10])

                def worth(now: FieldMap, at: Tensor, kind=kind, targets=targets) -> Tensor:
                    if kind == "integrated variance":
                        return integrated_variance_reduction(now, at, targets)
                    return maximum_variance(now, at)

                while len(used) < marks[-1]:
                    left = torch.tensor(sorted(set(range(300)) - set(used)))
                    size, start = min(6, marks[-1] - len(used)), time.process_time()
                    if kind == "by chance":
                        new = left[torch.randperm(len(left), generator=generator)[:size]]
                    else:
                        new = left[batch(field, candidates[left], size, worth)]
                    seconds.append(time.process_time() - start)
                    used += new.tolist()
                    add(field, candidates[new], y[new])
                    if len(used) in marks:
                        row.append(
                            float(
                                (field.predict(targets).mean - truth(targets))
                                .square()
                                .mean()
                                .sqrt()
                            )
                        )
                rows.append(row)
            found[model, kind] = np.mean(rows, 0).tolist()
            table.add(model, kind, *found[model, kind], float(np.median(seconds)))
    table.notes = [
        f"{len(seeds)} fields of lengthscale 0.8 m and standard deviation 1 in a square of {SIDE:g} m, "
        "noise 0.1, 300 candidates. Processor time of choosing six."
    ]
    ratios = [
        found[m, "integrated variance"][-1] / found[m, "by chance"][-1]
        for m, k in found
        if k == "by chance"
    ]
    return table, [
        Goal(
            "Active sampling: RMSE by integrated variance / by chance, worst", max(ratios), high=1.0
        )
    ]


# --- hotspots: where is it more than? -----------------------------------------------------------------------------
def hotspots(quick: bool, seeds: range) -> tuple[Table, list[Goal]]:
    """Bernoulli: right answers by number of labels; latent variance against that of the probability itself."""
    marks = (40,) if quick else (40, 80, 120)
    kinds = ("variance of the probability", "latent variance", "by chance")
    table = Table(
        "Hotspots: labels “more than its 75 % quantile”, one in ten of them wrong: share of right answers",
        [("chosen by", ""), *((f"{n}", ".3f") for n in marks), ("NLPD of clean labels", ".3f")],
    )
    last = {}
    for kind in kinds:
        rows = []
        for seed in seeds:
            say(f"hotspots, {kind}, seed {seed}")
            generator = torch.Generator().manual_seed(100 + seed)
            truth, targets, candidates = (
                ProcessField(0.8, seed),
                places(500, generator),
                places(300, generator),
            )
            level = float(truth(targets).quantile(0.75))
            wrong = torch.rand(300, 1, generator=generator) < 0.1
            y = ((truth(candidates) > level) ^ wrong).double()
            right = (truth(targets) > level).double()
            field = create_map(
                "dual_svgp",
                likelihood="bernoulli",
                seed=seed,
                learn_time_offset=False,
                lengthscale=1.0,
            )
            used, row = list(range(20)), []
            add(field, candidates[:20], y[:20])

            def worth(now: FieldMap, at: Tensor, kind=kind) -> Tensor:
                return (
                    now.observable(at).variance[:, 0]
                    if kind == "variance of the probability"
                    else maximum_variance(now, at)
                )

            while len(used) < marks[-1]:
                left = torch.tensor(sorted(set(range(300)) - set(used)))
                new = (
                    left[torch.randperm(len(left), generator=generator)[:5]]
                    if kind == "by chance"
                    else left[batch(field, candidates[left], 5, worth)]
                )
                used += new.tolist()
                add(field, candidates[new], y[new])
                if len(used) in marks:
                    guess = (field.observable(targets).mean > 0.5).double()
                    row.append(float((guess == right).double().mean()))
            rows.append([*row, -float(field.log_predictive(Samples(targets, right)).mean())])
        last[kind] = np.mean(rows, 0).tolist()
        table.add(kind, *last[kind])
    table.notes = [
        f"{len(seeds)} fields as above, 20 labels at random and then five at a time, dual_svgp."
    ]
    gain = last[kinds[0]][-2] - last["by chance"][-2]
    return table, [
        Goal("Hotspots: right answers by variance of the probability − by chance", gain, low=0.0)
    ]


# --- the search for a maximum -------------------------------------------------------------------------------------
def branin(u: Tensor) -> Tensor:
    """−Branin on [−5, 10] × [0, 15], standardised by its spread there. u (N, 2) in [0, 1]². (N, 1)"""
    a, b = 15.0 * u[:, :1] - 5.0, 15.0 * u[:, 1:]
    value = (
        (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6).square()
        + 10 * (1 - 1 / (8 * math.pi)) * a.cos()
        + 10
    )
    return -(value - 54.3) / 51.3


def ackley(u: Tensor) -> Tensor:
    """−Ackley on [−5, 5]² with its optimum at (1, −1.5), standardised by its spread there. u (N, 2). (N, 1)"""
    x = 10.0 * u - 5.0 - torch.tensor([1.0, -1.5], dtype=u.dtype)
    value = (
        20
        + math.e
        - 20 * torch.exp(-0.2 * x.square().mean(1, keepdim=True).sqrt())
        - torch.exp((2 * math.pi * x).cos().mean(1, keepdim=True))
    )
    return -(value - 10.1) / 2.9


FUNCTIONS = {"Branin": branin, "Ackley": ackley}


def upper_confidence_bound(field: FieldMap, x: Tensor) -> Tensor:
    """m + 2 √v, (K,)."""
    told = field.predict(x)
    return (told.mean + 2.0 * told.variance.clamp_min(0).sqrt())[:, 0]


def expected_improvement(field: FieldMap, x: Tensor) -> Tensor:
    """E[max(f − f*, 0)], f* the largest mean among x: (K,) (Jones et al. 1998; noise: f* is no observation)."""
    told = field.predict(x)
    mean, stddev = told.mean[:, 0], told.variance[:, 0].clamp_min(1e-18).sqrt()
    z = (mean - mean.max()) / stddev
    normal = torch.distributions.Normal(
        torch.zeros((), dtype=z.dtype), torch.ones((), dtype=z.dtype)
    )
    return stddev * (z * normal.cdf(z) + normal.log_prob(z).exp())


ACQUISITIONS = {"UCB": upper_confidence_bound, "EI": expected_improvement}


def optimisation(quick: bool, seeds: range) -> tuple[Table, list[Goal]]:
    """Regret of the place whose mean is largest, by number of noisy values; three at a time."""
    marks = (20,) if quick else (20, 35, 65)
    lattice = torch.linspace(0, 1, 45, dtype=torch.float64)
    candidates = SIDE * torch.cartesian_prod(lattice, lattice)
    table = Table(
        "Search for a maximum, q = 3, noise of .1 of the function's spread: regret in that spread",
        [
            ("function", ""),
            ("acquisition", ""),
            ("model", ""),
            *((f"{n}", ".3f") for n in marks),
            ("s a batch", ".2f"),
        ],
    )
    regrets: dict[tuple, float] = {}
    chance = ("by chance", MODELS[-1])
    ways = [(kind, model) for kind in ACQUISITIONS for model in MODELS] + [chance]
    for name, function in list(FUNCTIONS.items())[:1] if quick else FUNCTIONS.items():
        values = function(candidates / SIDE)
        for kind, model in ways[1:2] if quick else ways:
            rows, seconds = [], []
            for seed in seeds:
                say(f"{name}, {kind}, {model}, seed {seed}")
                generator = torch.Generator().manual_seed(seed)
                field, row, count = create_map(model, seed=seed, **START), [], 5
                at = torch.randperm(len(candidates), generator=generator)[:5]
                while True:
                    noisy = values[at] + 0.1 * torch.randn(
                        len(at), 1, dtype=torch.float64, generator=generator
                    )
                    add(field, candidates[at], noisy)
                    if count in marks:
                        best = int(field.predict(candidates).mean[:, 0].argmax())
                        row.append(float(values.max() - values[best]))
                    if count >= marks[-1]:
                        break
                    start = time.process_time()
                    at = (
                        torch.randperm(len(candidates), generator=generator)[:3]
                        if kind == "by chance"
                        else batch(field, candidates, 3, ACQUISITIONS[kind])
                    )
                    seconds.append(time.process_time() - start)
                    count += 3
                rows.append(row)
            mean = np.mean(rows, 0).tolist()
            table.add(name, kind, model, *mean, float(np.median(seconds)))
            regrets[name, kind, model] = mean[-1]
    table.notes = [
        f"{len(seeds)} seeds each, five values at random first; the candidates are a lattice of 45². Mean "
        "regret of the candidate that the model holds for the best, against the best candidate."
    ]
    worst = max(
        (
            value - regrets.get((name, kind, "exact"), value)
            for (name, kind, _), value in regrets.items()
        ),
        default=0.0,
    )
    return table, [Goal("Search: regret − the exact GP's, worst", worst, high=0.05)]


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """The tables `only`; GP_MAPPING_SEEDS is the number of seeds (default 10; quick: 1)."""
    seeds = range(1 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "10")))
    made = {"sampling": sampling, "hotspots": hotspots, "optimisation": optimisation}
    found = [made[name](quick, seeds) for name in only]
    where["seeds"] = len(seeds)
    return Part(
        "active",
        [goal for _, goals in found for goal in goals],
        [table for table, _ in found],
        where,
    )
