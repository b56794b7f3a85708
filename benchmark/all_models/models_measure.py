"""What is measured of one row of the table of models: recordings, classes, and cost beside `dual_svgp`."""

from __future__ import annotations

import time

import numpy as np
import torch

from benchmark import protocol, worlds
from benchmark.all_models.models_rows import ROWS, WARM_UP, Row
from benchmark.papers import classification, vector_field
from benchmark.protocol import BATCH, GIVEN, TEST, TRAIN
from benchmark.timing import median, timed
from gp_mapping.core.registry import create_map
from gp_mapping.core.types import Samples

__all__ = ["Cost", "cells", "leave_one_out", "mammographic", "protocol_p"]

_FOLDS = (1, 2, 3, 4, 5)
_SIDE, _DRAWN = 4.5, 6.4  # m: what is driven over, and what is drawn: 512 cells of 1.25 cm
_POINTS = 12  # lattice points of a drawing in a lengthscale, as mapping/render.py has them


def _trials(row: Row, numbers, quick: bool) -> list[Samples]:
    most = 700 if quick else None
    return (
        [vector_field.trial(k, most) for k in numbers]
        if row.three_axes
        else protocol.trials(numbers, quick)
    )


def streamed(row: Row, train: list[Samples]):
    """What predicts after the stream, raw samples in batches of 100, and how many inducing inputs it has."""
    if row.build is None:
        session = protocol.stream(train, **row.settings)
        return session, len(session.inducing) or None
    model = row.build(torch.cat([t.x for t in train]), min(WARM_UP, len(train[0])))
    for samples in train:
        for x, y in zip(samples.x.split(BATCH), samples.y.split(BATCH)):
            model.update(x, y)
    model.predict(train[0].x[:1])  # what stores fits now
    return model, len(model.z) if getattr(model, "z", None) is not None else None


def _fold(row: Row, train: list[Samples], test: Samples) -> dict:
    start = time.process_time()
    model, size = streamed(row, train)
    seconds = time.process_time() - start
    found = protocol.evaluate(model, protocol.positions(train), test)
    return {k: found[k] for k in ("rmse_ut", "nlpd", "coverage")} | {
        "inducing": size,
        "seconds": seconds,
    }


def protocol_p(row: Row, quick: bool) -> dict:
    """Trials 1, 2, 3, 5 in time order, tested on 4: rmse_ut, nlpd, coverage, inducing, seconds of the processor."""
    return _fold(row, _trials(row, TRAIN, quick), _trials(row, [TEST], quick)[0])


def leave_one_out(row: Row, quick: bool, fourth: dict | None) -> dict:
    """Means over trials 1 to 5 as the test. fourth: the result of protocol P, if it is of this code; else it is run."""
    results = []
    for k in _FOLDS[:2] if quick else _FOLDS:
        if k == TEST and fourth is not None:
            results.append(fourth)
            continue
        train = _trials(row, [j for j in _FOLDS if j != k], quick)
        results.append(_fold(row, train, _trials(row, [k], quick)[0]))
    return {
        k: float(np.mean([r[k] for r in results]))
        for k in ("rmse_ut", "nlpd", "coverage", "seconds")
    }


def _classifier(row: Row, x: np.ndarray, y: np.ndarray):
    """p(y = 1 | x) as a function, learned from the stream in 20 batches; M ≤ 100."""
    if row.build is None:
        settings = classification.STREAM | {"likelihood": "bernoulli"}
        if row.name == "solve_gp":
            settings |= {"max_orthogonal": 100}
        field = create_map(row.name, **settings)
        for part in np.array_split(np.arange(len(x)), classification.BATCHES):
            field.update(Samples(x[part], y[part]))
            field.refine()
        return lambda at: field.observable(at).mean[:, 0]
    from benchmark.baselines import OSVGP, StoredSVGP
    from benchmark.baselines.kernel import logs

    theta = (classification.PRIOR["lengthscale"], 1.0, 1.0)
    if row.streams:
        model = OSVGP(logs(*theta), budget=100, steps=20, constant=1.0, likelihood="bernoulli")
    else:
        model = StoredSVGP(theta, budget=100, epochs=40, size=100, bernoulli=True)
    for part in np.array_split(np.arange(len(x)), classification.BATCHES):
        model.update(torch.from_numpy(x[part]), torch.from_numpy(y[part]))

    def probability(at):
        p = model.predict(at)
        return torch.special.ndtr(p.mean[:, 0] / (1 + p.variance[:, 0]).sqrt())

    return probability


def mammographic(row: Row, quick: bool) -> dict:
    """NLPD, mean and sd over ten folds, the stream sorted by the first feature."""
    data = classification.mammographic()
    order, found = np.random.default_rng(0).permutation(len(data)), []
    for test in np.array_split(order, 10)[: 1 if quick else 10]:
        train = np.setdiff1d(order, test)
        train = train[np.argsort(data[train, 0], kind="stable")]
        p = _classifier(row, data[train, :-1], data[train, -1])(torch.from_numpy(data[test, :-1]))
        right = torch.where(torch.from_numpy(data[test, -1]) > 0.5, p, 1 - p)
        found.append(-float(right.clamp_min(1e-12).log().mean()))
    return {"nlpd": float(np.mean(found)), "sd": float(np.std(found))}


def cells(quick: bool, channels: int = 1) -> list[Samples]:
    """Cells every 10 cm over a square, lanes 60 cm apart, lengthwise and across; then both ways again: in hundreds."""
    side = 2.5 if quick else _SIDE
    lanes = worlds.lawnmower(0.5, 0.5 + side, 0.6, 0.1)
    x = torch.cat([lanes, lanes.flip(1), lanes + 0.05, lanes.flip(1) + 0.05])
    g = torch.Generator().manual_seed(5)
    drawn = [worlds.RandomField(c).measure(x, g) for c in range(channels)]
    samples = Samples(x, torch.cat([d.y for d in drawn], 1))
    return [samples[k : k + BATCH] for k in range(0, len(x) - BATCH + 1, BATCH)]


class Cost:
    """Time of 100 more cells, solved for, and of what a drawing of 512² evaluates; θ given, `dual_svgp` in turn."""

    def __init__(self, quick: bool):
        self.quick = quick
        reach = 2.5 if quick else _DRAWN
        axis = torch.arange(
            0.0, reach, protocol.LENGTHSCALE / (3 if quick else _POINTS), dtype=torch.float64
        )
        self.lattice = torch.cartesian_prod(axis, axis)

    def measure(self, row: Row) -> dict:
        """batch_ms, batch_ratio (None where it cannot stream), grid_ms, grid_ratio, inducing."""
        repeats = 3 if self.quick else 9
        fed = {
            "own": _Fed(row, self.quick),
            "dual": _Fed(ROWS["dual_svgp"], self.quick),
        }  # of one age
        batches, grids = {k: [] for k in fed}, {k: [] for k in fed}
        for turn in range(repeats):
            for name, part in fed.items():
                if name == "dual" or row.streams:
                    batches[name].append(timed(part.batch))
                if turn < 3 and (turn == 0 or grids["own"][0] < 5.0):
                    grids[name].append(timed(lambda part=part: part.model.predict(self.lattice)))
        ratio = {
            k: median([a / b for a, b in zip(v["own"], v["dual"])]) if v["own"] else None
            for k, v in (("batch_ratio", batches), ("grid_ratio", grids))
        }
        return ratio | {
            "batch_ms": 1e3 * median(batches["own"]) if batches["own"] else None,
            "grid_ms": 1e3 * median(grids["own"]),
        }


class _Fed:
    """A model that has seen most of the cells, and the rest of them in turn."""

    def __init__(self, row: Row, quick: bool):
        batches = cells(quick, 3 if row.three_axes else 1)
        known, self.rest, self.turn = batches[:-3], batches[-3:], 0
        if row.build is None:
            self.model = create_map(row.name, **GIVEN | ({"max_inducing": 60} if quick else {}))
            self.take = self.model.update
        else:
            self.model = row.build(torch.cat([b.x for b in batches]), 2 * BATCH)
            self.take = lambda b: self.model.update(b.x, b.y)
        for part in known:
            self.take(part)
        self.model.predict(known[0].x[:1])

    def batch(self) -> None:
        """100 cells, and one prediction: nothing stays pending."""
        part = self.rest[self.turn % len(self.rest)]
        self.turn += 1
        self.take(part)
        self.model.predict(part.x[:1])
