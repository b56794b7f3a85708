"""Streams of classes, counts and gross errors: Mammographic as in Table 1 of Chang et al. (2023), and drawn data.

`python -m benchmark classification [--quick]` prints the tables of docs/models.md. One thread; θ learned online.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from benchmark.recordings import RecordingsAbsent, recordings_folder
from benchmark.tables import Goal, Part, Table
from gp_mapping.core.models.dual_svgp.natural_gradient import refresh
from gp_mapping.core.registry import create_map
from gp_mapping.core.types import Samples

__all__ = ["TABLES", "banana", "mammographic", "run"]

TABLES = ("classes", "gross_errors", "counts")
BATCHES = 20
SWEEPS = 30  # of all the data, for the map that may keep and revisit everything
PRIOR = {"lengthscale": 2.0, "lengthscale_prior": 2.0, "learn_time_offset": False}
STREAM = PRIOR | {"max_inducing": 100, "memory_size": 100}
OFFLINE = PRIOR | {"max_inducing": 400, "memory_size": 2000, "inducing_tolerance": 1e-3}


def mammographic() -> np.ndarray:
    """(961, 7): six standardised features and the label 0 or 1. RecordingsAbsent where the file is not here."""
    path = recordings_folder().parents[1] / "uci" / "mammographic.csv"
    if not path.is_file():
        raise RecordingsAbsent(
            f"no uci/mammographic.csv beside the recordings in {path.parents[1]}"
        )
    return np.loadtxt(path, delimiter=",")


def banana(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two crescents that interlock, with noise, in the plane: x (n, 2), labels (n,)."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    angle = rng.uniform(0, np.pi, n)
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    x = np.where(label[:, None] == 1, np.array([1.0, 0.4]) - x, x) * 1.5
    return x + rng.normal(0, 0.35, x.shape), label.astype(float)


def fit(x: np.ndarray, y: np.ndarray, offline: bool, **settings):
    """A map that saw x, y in BATCHES pieces, each once; offline: it keeps all, and sweeps over it at the end."""
    field = create_map("dual_svgp", **((OFFLINE if offline else STREAM) | settings))
    for part in np.array_split(np.arange(len(x)), BATCHES):
        field.update(Samples(x[part], y[part]))
        field.refine()
    for _ in range(SWEEPS if offline else 0):
        field.learner.schedule(len(x))
        field.refine()
        refresh(field)
    return field


def scores(field, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """NLPD and share of right answers."""
    nlpd = -float(field.log_predictive(Samples(x, y)).mean())
    p = field.observable(torch.from_numpy(x)).mean
    guess = p.argmax(1).numpy() if p.shape[1] > 1 else (p[:, 0] > 0.5).numpy()
    return nlpd, float((guess == y).mean())


def folds(x: np.ndarray, y: np.ndarray, count: int, offline: bool) -> tuple[np.ndarray, float]:
    """(count, 2) scores of each fold, the stream sorted by the first feature, and seconds."""
    order, start, found = np.random.default_rng(0).permutation(len(x)), time.perf_counter(), []
    for test in np.array_split(order, 10)[:count]:
        train = np.setdiff1d(order, test)
        train = train[np.argsort(x[train, 0], kind="stable")]
        found.append(
            scores(fit(x[train], y[train], offline, likelihood="bernoulli"), x[test], y[test])
        )
        print(
            f"classification: {'offline' if offline else 'stream'}, NLPD {found[-1][0]:.3f}",
            file=sys.stderr,
        )
    return np.array(found), time.perf_counter() - start


def classes(quick: bool) -> tuple[Table, list[Goal]]:
    """Ten-fold cross-validation, as a stream and offline."""
    table = Table(
        "Bernoulli (probit) in 20 batches sorted by the first feature, ten folds: mean (sd)",
        [
            ("data", ""),
            ("map", ""),
            ("NLPD", ".3f"),
            ("sd", ".3f"),
            ("right", ".3f"),
            ("s a fold", ".1f"),
        ],
    )
    data, goals = mammographic(), []
    sets = {"Mammographic": (data[:, :-1], data[:, -1]), "banana-like, 600": banana(600, 0)}
    for name, (x, y) in sets.items():
        for offline in (False, True):
            found, seconds = folds(x, y, 2 if quick else 10, offline)
            table.add(
                name,
                "all kept, swept" if offline else "streamed, 100 remembered",
                found[:, 0].mean(),
                found[:, 0].std(),
                found[:, 1].mean(),
                seconds / len(found),
            )
            if name == "Mammographic" and not offline:
                goals.append(Goal("Mammographic, streamed, NLPD", found[:, 0].mean(), high=0.42))
    table.notes = [
        "Chang et al. 2023, Table 1, Mammographic: offline .40 (.04), streamed .41 (.05), Bui et al. 2017 "
        ".42 (.05). M ≤ 100; θ is learned from the remembered samples."
    ]
    return table, goals


def truth(x: np.ndarray) -> np.ndarray:
    return 2 * np.sin(2 * x[:, :1]) * np.cos(1.5 * x[:, 1:])


def gross_errors(quick: bool) -> tuple[Table, list[Goal]]:
    """RMSE of the field with 5 % of errors of 13 to 40 noise sd, against the same stream without."""
    table = Table(
        "5 % gross errors, 600 raw samples one by one place, θ learned: RMSE / field's sd",
        [("likelihood", ""), ("without", ".4f"), ("with", ".4f"), ("ratio", ".3f")],
    )
    grid, goals, seeds = (
        np.random.default_rng(9).uniform(0.2, 2.8, (400, 2)),
        [],
        range(2 if quick else 10),
    )
    for kind in ("gaussian", "student_t"):
        errors = np.zeros((len(seeds), 2))
        for seed in seeds:
            rng = np.random.default_rng(seed)
            x = rng.uniform(0, 3, (600, 2))
            y = truth(x) + rng.normal(0, 0.3, (600, 1))
            gross = (
                (rng.random((600, 1)) < 0.05)
                * rng.uniform(4, 12, (600, 1))
                * rng.choice([-1, 1], (600, 1))
            )
            for k, values in enumerate((y, y + gross)):
                field = fit(
                    x,
                    values,
                    False,
                    likelihood=kind,
                    field_scale=1.0,
                    signal_stddev=1.0,
                    noise_stddev=0.5,
                    signal_stddev_prior=1.0,
                    noise_stddev_prior=0.5,
                    constant_stddev=1.0,
                    heading_stddev=0.0,
                    lengthscale=1.0,
                    lengthscale_prior=1.0,
                    memory_size=600,
                )
                mean = field.predict(torch.from_numpy(grid)).mean.numpy()
                errors[seed, k] = np.sqrt(((mean - truth(grid)) ** 2).mean())
        without, spoiled = errors.mean(0)
        table.add(kind, without, spoiled, spoiled / without)
        if kind == "student_t":
            goals.append(
                Goal(
                    "Student-t, RMSE with 5 % gross errors / without", spoiled / without, high=1.10
                )
            )
    return table, goals


def counts_and_kinds(quick: bool) -> Table:
    """Poisson and softmax on data drawn from them: the truth's own score is the floor."""
    table = Table(
        "Counts and three classes drawn from a known field, 600 samples in 20 batches",
        [
            ("likelihood", ""),
            ("NLPD", ".3f"),
            ("NLPD of the truth", ".3f"),
            ("NLPD knowing no place", ".3f"),
            ("95 % of the rate or probability", ".3f"),
        ],
    )
    for kind in ("poisson", "softmax"):
        rows = []
        for seed in range(1 if quick else 5):
            rng = np.random.default_rng(seed)
            x, test = rng.uniform(0, 3, (600, 2)), rng.uniform(0, 3, (400, 2))
            f, g = truth(x), truth(test)
            if kind == "poisson":
                y, t, right = rng.poisson(np.exp(f)), rng.poisson(np.exp(g)), np.exp(g)
                best, flat = (
                    -(t * np.log(r) - r).mean() for r in (right, np.full_like(right, y.mean()))
                )
            else:
                logits = [np.hstack([v, -v, 0 * v]) for v in (f, g)]
                y, t = (np.argmax(v + rng.gumbel(0, 1, v.shape), 1)[:, None] for v in logits)
                right = np.exp(logits[1]) / np.exp(logits[1]).sum(1, keepdims=True)
                best = -np.log(np.take_along_axis(right, t, 1)).mean()
                flat = -np.log(np.bincount(y[:, 0], minlength=3) / len(y))[t[:, 0]].mean()
            field = fit(
                x,
                y.astype(float),
                False,
                likelihood=kind,
                classes=3,
                lengthscale=1.0,
                lengthscale_prior=1.0,
            )
            batch = Samples(test, t.astype(float))
            constant = 0.0 if kind == "softmax" else float(torch.lgamma(batch.y + 1).mean())
            p = field.observable(batch.x)
            inside = ((p.mean.numpy() - right) ** 2 <= 1.96**2 * p.variance.numpy()).mean()
            rows.append((-float(field.log_predictive(batch).mean()) - constant, best, flat, inside))
        table.add(kind, *np.mean(rows, 0).tolist())
    table.notes = ["Poisson's log y! is left out of all three."]
    return table


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """RecordingsAbsent where Mammographic is wanted and not here."""
    made = {
        "classes": classes,
        "gross_errors": gross_errors,
        "counts": lambda q: (counts_and_kinds(q), []),
    }
    found = [made[name](quick) for name in only]
    return Part(
        "classification", [g for _, goals in found for g in goals], [t for t, _ in found], where
    )
