"""Which samples are remembered: by leverage, at random, the newest, the farthest from each other.

`python -m benchmark memory [--quick] [--only streams] [--seed N]`: the ablation of Chang et al. (2023, Fig. 2) on
streams in the order of a drive, and of classes sorted by their first feature. θ is learned from what is remembered.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmark.drawn import DrawnField, lanes
from benchmark.papers.classification import banana, mammographic
from benchmark.recordings import RecordingsAbsent
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.core.registry import create_map
from gp_mapping.core.sparse.memory_rules import RULES
from gp_mapping.core.types import Samples

__all__ = ["TABLES", "Stream", "run", "streamed"]

NOISE = 0.2  # of the drawn fields, of a standard deviation of 1
BATCH = 10  # samples
SHARE = 0.05  # of a stream that is remembered, as in the paper's Fig. 2(c)


KEPT_ALL = "everything"


class Stream(NamedTuple):
    """Samples in the order in which they come, others for the test, and the settings of the map."""

    train: Samples
    test: Samples
    settings: dict


def drive(seed: int, rough: bool = False) -> Stream:
    """Lanes through a drawn field; rough: one corner has a tenth of the lengthscale and twice the amplitude."""
    smooth, fine = DrawnField(0.8, seed), DrawnField(0.15, 1000 + seed, spread=1.5)

    def field(x: Tensor) -> Tensor:
        inside = ((x > 3.5).all(1) & (x < 5.0).all(1)).double()[:, None]
        return smooth(x) + (inside * fine(x) if rough else 0.0)

    rng = torch.Generator().manual_seed(seed)
    x = lanes(5.0, 5.0, 0.4, 0.06)
    test = 5.0 * torch.rand(600, 2, dtype=torch.float64, generator=rng)
    noisy = [
        field(p) + NOISE * torch.randn(len(p), 1, dtype=torch.float64, generator=rng)
        for p in (x, test)
    ]
    return Stream(
        Samples(x, noisy[0]),
        Samples(test, noisy[1]),
        {
            "lengthscale": 3.0,
            "lengthscale_prior": 3.0,
            "signal_stddev": 0.4,
            "noise_stddev": 0.4,
            "field_scale": 1.0,
            "max_inducing": 150,
        },
    )


def _classes(x: np.ndarray, y: np.ndarray, seed: int, test: int) -> Stream:
    """A stream sorted by the first feature, and a random test set."""
    order = np.random.default_rng(seed).permutation(len(x))
    hidden, seen = order[:test], order[test:]
    seen = seen[np.argsort(x[seen, 0], kind="stable")]
    return Stream(
        Samples(x[seen], y[seen]),
        Samples(x[hidden], y[hidden]),
        {
            "likelihood": "bernoulli",
            "lengthscale": 2.0,
            "lengthscale_prior": 2.0,
            "max_inducing": 60,
        },
    )


def _banana(seed: int) -> Stream:
    return _classes(*banana(1000, seed), seed, 400)


def _mammographic(seed: int) -> Stream:
    data = mammographic()
    return _classes(data[:, :-1], data[:, -1], seed, 96)


STREAMS = {
    "drive": drive,
    "drive, a rough corner": lambda seed: drive(seed, True),
    "banana-like classes": _banana,
    "Mammographic": _mammographic,
}
TABLES = tuple(STREAMS)


def streamed(stream: Stream, rule: str, size: int, seed: int) -> DualSVGP:
    """A map that saw the stream once, in batches, and remembered `size` samples by the rule."""
    settings = stream.settings | {
        "memory_size": size,
        "seed": seed,
        "memory_rule": rule,
        "learn_time_offset": False,
    }
    field = create_map("dual_svgp", **settings)
    for part in torch.arange(len(stream.train)).split(BATCH):
        field.update(stream.train[part])
        field.refine()
    return field


def nlpd(field: DualSVGP, test: Samples) -> float:
    """Mean negative log predictive density of new measurements."""
    return -float(field.log_predictive(test).mean())


def one(name: str, seed: int) -> dict[str, float]:
    """NLPD of each rule, and of a map that remembers everything, on one stream."""
    stream = STREAMS[name](seed)
    few = max(20, round(SHARE * len(stream.train)))
    found = {rule: nlpd(streamed(stream, rule, few, seed), stream.test) for rule in RULES}
    return found | {
        KEPT_ALL: nlpd(streamed(stream, "uniform", len(stream.train), seed), stream.test)
    }


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """The streams `only`; GP_MAPPING_SEEDS is the number of each (default 10; quick: 1 of the drawn classes)."""
    seeds = range(1 if quick else int(os.environ.get("GP_MAPPING_SEEDS", "10")))
    table = Table(
        "Which samples are remembered: NLPD of new measurements, and beside drawn at random",
        [
            ("stream", ""),
            ("remembered", ".0f"),
            *((rule, ".3f") for rule in (*RULES, KEPT_ALL)),
            *((f"{rule} − uniform (s.e.)", "") for rule in RULES if rule != "uniform"),
        ],
    )
    losses = []
    for name in ("banana-like classes",) if quick else only:
        try:
            rows = []
            for seed in seeds:
                print(f"memory: {name}, seed {seed}", file=sys.stderr, flush=True)
                rows.append(one(name, seed))
        except RecordingsAbsent as error:
            print(f"memory: {name} is left out: {error}", file=sys.stderr)
            continue
        found = {rule: np.array([row[rule] for row in rows]) for rule in rows[0]}
        apart = {rule: found[rule] - found["uniform"] for rule in RULES if rule != "uniform"}
        error = {
            rule: d.std(ddof=1) / len(d) ** 0.5 if len(d) > 1 else 0.0 for rule, d in apart.items()
        }
        size = max(20, round(SHARE * len(STREAMS[name](0).train)))
        table.add(
            name,
            size,
            *(values.mean() for values in found.values()),
            *(f"{d.mean():+.3f} ({error[rule]:.3f})" for rule, d in apart.items()),
        )
        losses.append([-d.mean() for d in apart.values()])
    table.notes = [
        f"{len(seeds)} streams each, in batches of {BATCH}; {100 * SHARE:g} % of the stream is remembered, "
        "a quarter of that the newest whatever the rule. Differences are paired by stream."
    ]
    where["seeds"] = len(seeds)
    gains = np.mean(losses, 0).tolist() if losses else []
    return Part(
        "memory",
        [
            Goal(
                "Memory: uniform − any other rule, NLPD, mean of the streams, worst",
                max(gains, default=0.0),
                high=0.005,
            )
        ],
        [table],
        where,
    )
